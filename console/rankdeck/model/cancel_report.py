"""What is left of a job that was cancelled, and the proof of each node."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import field

from rankdeck.model.rank import State
from rankdeck.values import Value


class RemainingProcess(Value):
    """A process that cancel could not end."""

    node: str
    pid: int
    command: str
    refused: bool = False
    """Whether nothing was done, because the user may not end it: `command` is the reason."""


class ProofState(StrEnum):
    """What is known of what a cancelled job left on a node."""

    NOT_ASKED = "not asked"
    """The cancel has begun, and the node has not answered yet."""
    LEFT = "left"
    """Some processes could not be ended."""
    UNVERIFIED = "not verified"
    """The node could not be asked."""
    EMPTY = "empty"
    """The node was searched, and nothing of the job is left."""


class NodeProof(Value, kw_only=True):
    """What the last cancel found out about one node."""

    state: ProofState
    at: float
    """When it was asked or answered, epoch seconds."""
    left: tuple[RemainingProcess, ...] = ()
    """The processes that are left, if some are."""
    why: str = ""
    """Why the node could not be asked, if it could not."""
    again: bool = False
    """An earlier cancel had not proven that nothing is left there."""

    @property
    def proven(self) -> bool:
        """Whether nothing of the job is left there."""
        return self.state is ProofState.EMPTY

    def sentences(self) -> tuple[str, ...]:
        """For the operator; none if there is nothing to do."""
        more = " (asked once more)" if self.again else ""
        if self.state is ProofState.LEFT:
            return tuple(f"could not be ended: {one.pid} {one.command}{more}" for one in self.left)
        if self.state is ProofState.UNVERIFIED:
            return (f"not verified: {self.why}{more}",)
        if self.state is ProofState.EMPTY and self.again:
            return ("was asked again: nothing of the job is left there",)
        return ()


class CancelReport(Value):
    """Result of a cancel. It was clean if nothing is `left` and no node is `unverified`."""

    job: str
    state: State
    left: tuple[RemainingProcess, ...] = ()
    unverified: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> why it could not be asked."""
    refused: str = ""
    """Why nothing was done, if the user may not end the job; else ""."""
