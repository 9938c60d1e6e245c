"""What Slurm reports of its queue, and what a user orders there."""

from typing import ClassVar

from msgspec import field

from rankdeck.model.queue import JobComponent, QueueStatus
from rankdeck.values import Value

_ENDS = {"COMPLETED": "done", "CANCELLED": "cancelled"}


class SlurmLook(Value, kw_only=True):
    """What Slurm knows about one job of any user, in the queue or just ended."""

    id: str = ""
    array: str = ""
    name: str = ""
    user: str = ""
    state: str = ""
    submitted: float | None = None
    out: str = ""
    """File of its stdout; "" if not known."""
    err: str = ""
    """File of its stderr; "" if not known."""
    ranks: int = 1
    """Number of ranks whose lines can be told apart; 1 if lines are not labelled."""
    components: int = 0
    """Number of components of a het job, which all end with it; 0 for other jobs."""
    tasks: int = 1
    """Number of tasks of an array that its name stands for and that have not ended."""


def slurm_owner(user: str, components: int, tasks: int = 1) -> str:
    """`Slurm job of alice`, `Slurm job of alice, 2 components`: also how many
    jobs of Slurm end with it, if not one.
    """
    several = f", {tasks} tasks" if tasks > 1 else ""
    parts = f", {components} component{'s' if components > 1 else ''}" if components else several
    return f"Slurm job of {user or 'unknown'}{parts}"


class SlurmJob(Value, kw_only=True):
    """A job of any user in Slurm's queue. Times are epoch seconds by Slurm's clock."""

    backend: ClassVar[str] = "slurm"
    id: str
    place: str
    """Its id for people: `4711`, `4711_3`, or `4711_[4-9]` for tasks that are pending together."""
    name: str = ""
    user: str = ""
    mine: bool = False
    cpus: int = 0
    count: int = 0
    """Number of nodes."""
    gpus: int = 0
    memory: float = 0.0
    """MB that it has or asks for, on all its nodes; 0: not told."""
    priority: int = 0
    components: tuple[JobComponent, ...] = ()
    """The components of a het job; this job is all of them."""
    created: float = 0.0
    ended: float | None = None
    """When it ended; only for jobs read from Slurm's accounting."""
    status: QueueStatus = field(default_factory=QueueStatus)

    @property
    def namespace(self) -> str:
        return ""

    @property
    def ranks(self) -> int:
        return 0

    @property
    def known_as(self) -> str:
        return self.place

    @property
    def node_set(self) -> str:
        return self.status.nodes

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which a person can choose it."""
        return (self.place, self.id, self.name)

    @property
    def whose(self) -> str:
        """`Slurm job of alice`."""
        return slurm_owner(self.user, len(self.components))

    @property
    def state(self) -> str:
        """pending, running, or how it ended: done, cancelled or failed."""
        if self.status.over:
            return _ENDS.get(self.status.state, "failed")
        return "pending" if self.status.waits else "running"

    @property
    def remark(self) -> str:
        """How it ended: `its time limit was over`, `exit code 7`; "" if it is not over."""
        if not self.status.over:
            return ""
        code = f"exit code {self.status.code}" if self.status.code else ""
        return self.status.text or code or self.status.state.lower()
