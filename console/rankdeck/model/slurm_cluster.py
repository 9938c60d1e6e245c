"""What Slurm says of a node, of a partition and of everybody's jobs; nodes that are taken out of service there."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rankdeck.model.slurm import SlurmStatus
from rankdeck_agent.wire import DRAIN_PREFIX

_OUT = ("down", "drain", "drng", "fail", "error", "inval")
"""How the states begin in which a node gets no jobs."""


_ENDS = {"COMPLETED": "done", "CANCELLED": "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """A node as Slurm has it."""

    state: str
    """Slurm's word in small letters: idle, mixed, drained, …; "" where it has no such node any more."""
    also: tuple[str, ...] = ()
    """What the signs at the state say: `not responding`, `powered down`, …"""
    reason: str = ""
    """Why it was taken out of service, in the words of whoever did it."""
    by: str = ""
    since: float | None = None
    """When that was, epoch seconds by Slurm's clock."""
    partitions: tuple[str, ...] = ()
    features: str = ""
    gres: Mapping[str, int] = field(default_factory=dict[str, int])
    """`gpu:a100` -> how many there are."""
    gres_used: Mapping[str, int] = field(default_factory=dict[str, int])
    cpus: int = 0
    cpus_used: int = 0
    memory: int = 0
    """MB."""
    memory_used: int = 0
    jobs: tuple[str, ...] = ()
    """`4711 alice`, at most 64."""

    @property
    def gone(self) -> bool:
        """Whether Slurm had it and has it no more."""
        return not self.state

    @property
    def out(self) -> bool:
        """Whether it gets no new jobs until somebody does something."""
        return self.state.startswith(_OUT)

    @property
    def ours(self) -> bool:
        """Whether its reason was given from a console like this one."""
        return self.reason.startswith(DRAIN_PREFIX)

    @property
    def words(self) -> str:
        """`idle, not responding`."""
        return ", ".join((self.state, *self.also))

    @property
    def gres_words(self) -> str:
        """`gpu:a100 3/4`: in use, and how many there are."""
        return ", ".join(
            f"{name} {self.gres_used.get(name, 0)}/{count}" for name, count in self.gres.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOrder:
    """Nodes that an operator wants out of service, or back."""

    do: str
    """`drain` or `resume`."""
    nodes: tuple[str, ...]
    why: str = ""
    anyway: bool = False
    """Give back also what others took out of service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceChange:
    """What would be run for such an order, and what came of it."""

    line: str = ""
    """The exact command; "" where nothing is left to do."""
    nodes: tuple[str, ...] = ()
    """The nodes that it changes."""
    left_alone: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> why it is none of them."""
    done: bool = False
    said: str = ""
    """What Slurm answered where it took it; usually nothing."""
    now: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> its state afterwards."""
    error: str = ""
    """Why it was not done, one sentence."""

    @property
    def word(self) -> str:
        """What must be typed to have it done: the node, or how many there are."""
        return self.nodes[0] if len(self.nodes) == 1 else str(len(self.nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPartition:
    """A partition and what it allows."""

    name: str
    usual: bool = False
    """Jobs that name none go there."""
    up: bool = True
    limit: float | None = None
    """Seconds that a job may run at most; None: as long as it likes."""
    size: str = ""
    """Nodes that a job may have, as Slurm writes it: `1-infinite`."""
    nodes: int = 0
    idle: int = 0
    usable: int = 0
    """Nodes that are neither down nor drained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmLook:
    """What Slurm has of one job of anybody, in the queue or just ended."""

    id: str = ""
    array: str = ""
    name: str = ""
    user: str = ""
    state: str = ""
    submitted: float | None = None
    out: str = ""
    """Where its stdout goes; "" where that is not told."""
    err: str = ""
    ranks: int = 1
    """Whose lines can be told apart; 1 where they are not labelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job in Slurm's queue, of anybody. Times are epoch seconds by Slurm's clock."""

    id: str
    place: str
    """How an operator names it: `4711`, `4711_3`, or `4711_[4-9]` where tasks wait together."""
    name: str = ""
    user: str = ""
    mine: bool = False
    cpus: int = 0
    count: int = 0
    """Nodes."""
    created: float = 0.0
    ended: float | None = None
    """When it ended, of one that Slurm's accounting remembers."""
    status: SlurmStatus = field(default_factory=SlurmStatus)

    @property
    def whose(self) -> str:
        """`Slurm job of alice`."""
        return f"Slurm job of {self.user or 'unknown'}"

    @property
    def state(self) -> str:
        """pending, running, or how it ended: done, cancelled or failed."""
        if self.status.over:
            return _ENDS.get(self.status.state, "failed")
        return "pending" if self.status.waits else "running"

    @property
    def end_words(self) -> str:
        """`its time limit was over`, `exit code 7`; of one that is not over ""."""
        if not self.status.over:
            return ""
        code = f"exit code {self.status.code}" if self.status.code else ""
        return self.status.text or code or self.status.state.lower()
