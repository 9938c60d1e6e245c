"""Events of a job as the console has them: what a node sent, and
what its follower noticed by itself.
"""

from typing import Any, ClassVar, cast

from rankdeck.values import Value
from rankdeck_agent.wire import job_events as wire

MUTE = "does not answer"
"""How the sentence about a node that does not answer begins."""


class Connected(Value):
    """The node has sent something on a new connection, on which its clock was measured."""

    KIND: ClassVar[str] = "connected"
    offset: float = 0.0
    """Seconds by which its clock is ahead of the console's."""
    uncertainty: float | None = None
    """Error of `offset`, in ± seconds; None: not measured."""


class Disconnected(Value):
    """The connection to the node broke; it is opened again."""

    KIND: ClassVar[str] = "disconnected"
    why: str
    heard: float | None = None
    """When the node last sent anything, epoch seconds on the console's clock; None: never."""


class Lost(Value):
    """The node does not answer any more."""

    KIND: ClassVar[str] = "lost"
    why: str
    heard: float | None = None
    """As in `Disconnected`."""

    @property
    def sentence(self) -> str:
        return f"{MUTE}: {self.why}"


class ClockSet(Value):
    """The node's clock was set while the job ran."""

    KIND: ClassVar[str] = "clock"
    step: float
    """Seconds by which it was set forward."""
    uncertainty: float

    @property
    def sentence(self) -> str:
        return f"the clock of the node was set by {self.step:+.1f} s: times before and after may not fit"


class Closing(Value):
    """The job is over on the node, but not all its output has arrived."""

    KIND: ClassVar[str] = "closing"


class NotStarted(Value):
    """The node does not know the job, and no console is starting it there."""

    KIND: ClassVar[str] = "not started"
    why: str


Noticed = Connected | Disconnected | Lost | ClockSet | Closing | NotStarted
"""What a follower noticed by itself."""
Body = wire.EventBody | Noticed


class NodeEvent(Value):
    """Something that happened to a job on one node, or to the connection with it."""

    job: str
    node: str
    at: float
    """On the console's clock: the node's stamp minus its measured offset."""
    body: Body
    seq: int | None = None
    """Its number in the node's `events` file; None if it is not there."""
    offset: float = 0.0
    """Seconds by which the node's clock was ahead: `at` plus this is the node's own stamp."""

    @property
    def kind(self) -> str:
        return self.body.KIND

    def row(self) -> dict[str, Any]:
        """The JSON object of an event with a number, as its node wrote it."""
        written = {"seq": self.seq, "at": self.at + self.offset}
        return {**written, **wire.as_row(cast("wire.EventBody", self.body))}
