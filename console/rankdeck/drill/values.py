"""Drills: which faults are planted in which jobs, and what became of each."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import field

from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.values import Value

LIMIT = 120.0
"""Seconds after a fault within which it must be told; a slow rank takes longest, about a minute."""


class Way(StrEnum):
    """A fault that a drill can plant."""

    KILLED = "killed"
    """A rank gets SIGKILL."""
    STOPPED = "stopped"
    """A rank gets SIGSTOP."""
    SILENT = "silent"
    """A rank sleeps, and no longer joins the others."""
    SLOW = "slow"
    """A rank computes much longer in each step than the others, which wait for it."""
    COLLECTIVE = "collective"
    """A rank broadcasts where the others reduce."""
    FROZEN = "frozen"
    """The agent that keeps the ranks of one node gets SIGSTOP."""
    CUT = "cut"
    """The link of a node goes down."""

    @property
    def of_node(self) -> bool:
        """Whether the node is to blame, and no rank."""
        return self in (Way.FROZEN, Way.CUT)


TOGETHER = (Way.SLOW, Way.COLLECTIVE)
"""Ways that need ranks which work together: plain ranks do not."""


class DrillVerdict(StrEnum):
    """What became of one fault of a drill."""

    RIGHT = "right"
    WRONG = "wrong"
    """Another rank or node was named."""
    SILENT = "nobody"
    """Nobody was named within the limit."""
    UNPLANTED = "not planted"

    @property
    def bad(self) -> bool:
        """Whether it says that one cannot rely on what is told."""
        return self in (DrillVerdict.WRONG, DrillVerdict.SILENT)


class DrillFault(Value, kw_only=True):
    """One row of a drill: a fault in one job."""

    way: Way
    launch: Launch
    victim: int
    """The rank that goes wrong; of a fault of a node, a rank on it."""
    spec: JobSpec
    unplanted: str = ""
    """Why this fault cannot be planted here; "" if it can."""

    @property
    def label(self) -> str:
        """`mpi, rank 3 stopped`."""
        if self.way.of_node:
            what = "agent" if self.way is Way.FROZEN else "link"
            return f"{self.launch.value}, {what} of the node of rank {self.victim} {self.way.value}"
        words = {Way.COLLECTIVE: "in another collective"}
        return f"{self.launch.value}, rank {self.victim} {words.get(self.way, self.way.value)}"


class Link(Value):
    """The programs of the site, on the operator's machine, that cut and mend the link of a node;
    `{node}` in them is replaced.
    """

    cut: tuple[str, ...] = ()
    mend: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.cut and self.mend)


NO_LINK = Link()
"""The site has no such programs."""


class DrillPlan(Value, kw_only=True):
    """What a drill does."""

    cluster: str
    faults: tuple[DrillFault, ...]
    limit: float = LIMIT
    link: Link = NO_LINK
    notes: tuple[str, ...] = ()
    """Sentences about the plan."""


class DrillResult(Value, kw_only=True):
    """One fault of a drill, after its job."""

    fault: DrillFault
    verdict: DrillVerdict
    job: str = ""
    """Its id; "" if none was started."""
    node: str = ""
    """The node of the victim."""
    named: str = ""
    """Who was named: `rank 3`, `node n2`, `nobody`."""
    sentence: str = ""
    """What was said; for a fault that was not planted, why."""
    seconds: float | None = None
    """Seconds from the fault to the answer that stayed."""
    before: tuple[str, ...] = ()
    """Others who were named first."""
    sure: float | None = None
    """How sure it was said, a share from 0 to 1; None if that was not said."""
    launcher: str = ""
    """Whom the launcher named by itself; "" for nobody."""
    left: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> what may still run there."""


class Drill(Value, kw_only=True):
    """A drill as it is now."""

    id: str
    plan: DrillPlan
    results: tuple[DrillResult, ...] = ()
    running: str = ""
    """The fault that is being planted; "" for none."""
    started: float = 0.0
    """Epoch seconds; 0: not started."""
    ended: float = 0.0
    """Epoch seconds; 0: not ended, or stopped."""

    def count(self, verdict: DrillVerdict) -> int:
        """Number of results with this verdict."""
        return sum(one.verdict is verdict for one in self.results)

    @property
    def trusted(self) -> bool:
        """Whether faults were planted, all were told rightly, and nothing is left of their jobs."""
        clean = not any(one.verdict.bad or one.left for one in self.results)
        return clean and self.count(DrillVerdict.RIGHT) > 0
