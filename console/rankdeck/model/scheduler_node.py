"""A node as its scheduler reports it: what fleet, screens and acceptance may ask of it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Protocol

from rankdeck.values import Value
from rankdeck_agent.rules.levels import Health


class SchedulerColumn(Value):
    """A column of the fleet with what the scheduler says of a node."""

    title: str
    width: int
    keep: int
    """The column with the highest number is left out last."""
    say: Callable[[Any], str]
    """The text of one node, given what the scheduler reports of it."""
    right: bool = False


class SchedulerNode(Protocol):
    """What a scheduler reports of one node; each scheduler has a frozen value of its own."""

    scheduler: ClassVar[str]
    """The scheduler: the `backend:` of a cluster file."""
    title: ClassVar[str]
    """The scheduler's name for people."""
    columns: ClassVar[Sequence[SchedulerColumn]]
    """The columns that the fleet shows; () for none."""
    tells_own_jobs: ClassVar[bool]
    """Whether it tells at once which jobs run there, the user's own too."""

    agent_install: ClassVar[str]
    """The command that puts agents on nodes that nobody can log in to; "" if there is none."""

    @property
    def gone(self) -> bool:
        """Whether the scheduler no longer has this node."""
        ...

    @property
    def out(self) -> bool:
        """Whether it gets no new jobs until somebody acts."""
        ...

    @property
    def alone(self) -> str:
        """What to say of a healthy node that the scheduler alone has judged; "" if it judges no
        node without an agent.
        """
        ...

    @property
    def remark(self) -> str:
        """What stands beside its title on the page of a node."""
        ...

    @property
    def said(self) -> Sequence[tuple[str, str]]:
        """(name, text) of each thing that it says of the node, for the page of the node."""
        ...

    @property
    def lines(self) -> Sequence[str]:
        """What `rankdeck nodes` says of the node."""
        ...

    def merge_health(self, health: Health, *, heard: bool, tried: bool) -> Health:
        """The health of a node with what the scheduler says of it.

        `heard`: whether the agent is heard now; `tried`: whether one was ever heard, or could not
        be started there.
        """
        ...

    def why_closed(self, *, shared: bool) -> str:
        """Why a job of ours would not run there now; "" if it would.

        `shared`: others may use it, too; the job then waits for them.
        """
        ...

    def values_of(self, word: str) -> Iterable[str]:
        """The values of `user`, `partition` or `reason`, for the filter of the fleet."""
        ...

    @property
    def searched(self) -> str:
        """The words by which the filter of the fleet finds the node."""
        ...
