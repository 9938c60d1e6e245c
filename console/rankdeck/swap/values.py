"""Swap proofs: the fault of a job, the runs that show whether it goes with a rank or with a node,
and what they showed.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import field

from rankdeck.model.job_spec import JobSpec
from rankdeck.values import Value

LIMIT = 600.0
"""Seconds that one run may take, unless the user says otherwise."""


class FaultKind(StrEnum):
    """What goes wrong in a job."""

    FAILED = "failed"
    """A rank, launcher or node failed."""
    HANG = "hang"
    """Ranks stand still."""
    SLOW = "slow"
    """The others wait for slow ranks."""


class JobFault(Value, kw_only=True):
    """What went wrong in one run of a job, as it was told."""

    kind: FaultKind
    ranks: tuple[int, ...] = ()
    """The ranks that are named; several: one of them, or each."""
    nodes: tuple[str, ...] = ()
    """The nodes that are named, where no rank is."""
    exit_code: int | None = None
    signal: int | None = None
    seconds: float | None = None
    """Seconds from the start of the ranks to the fault; None: not known."""
    sentence: str = ""

    def is_like(self, other: "JobFault") -> bool:
        """Whether it shows itself in the same way, whoever is named."""
        way = (self.kind, self.exit_code, self.signal)
        return way == (other.kind, other.exit_code, other.signal)


class RunWay(StrEnum):
    """How a run differs from the job."""

    MOVED = "moved"
    """Each rank runs on another node."""
    WITHOUT = "without"
    """Some nodes are left out."""
    AGAIN = "again"
    """Nothing is changed: does the fault come at all?"""


class SwapRun(Value, kw_only=True):
    """One run of a swap proof."""

    way: RunWay
    spec: JobSpec
    places: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Node -> its ranks; empty: the scheduler chooses."""
    without: tuple[str, ...] = ()
    """The nodes that are left out, if that is the way."""
    limit: float = LIMIT
    """Most seconds from the start of its ranks."""


class SwapPlan(Value, kw_only=True):
    """What a swap proof does."""

    cluster: str
    job: str
    """The id of the job whose fault is looked for."""
    fault: JobFault
    places: Mapping[str, tuple[int, ...]]
    """Node -> its ranks, in that job."""
    runs: tuple[SwapRun, ...]
    """In this order; the last are left out once the answer is sure."""
    ends_job: bool = False
    """The job still runs: it is cancelled first."""
    notes: tuple[str, ...] = ()
    """Sentences about the plan."""

    @property
    def longest(self) -> float:
        """Most seconds that all runs take, after their starts."""
        return sum(run.limit for run in self.runs)

    @property
    def suspects(self) -> tuple[str, ...]:
        """The nodes of the ranks that are named, or the nodes that are; () if nobody is."""
        of_ranks = (
            node
            for node, ranks in self.places.items()
            if not self.fault.ranks or set(ranks) & set(self.fault.ranks)
        )
        return self.fault.nodes or (tuple(of_ranks) if self.fault.ranks else ())


class RunOutcome(StrEnum):
    """What a run of a swap proof showed."""

    AGAIN = "the same fault"
    NONE = "no fault"
    OTHER = "another fault"
    SHORT = "too short"
    """It was stopped before the time at which the fault came in the job."""
    NOT_RUN = "not run"

    @property
    def tells(self) -> bool:
        """Whether the verdict counts it."""
        return self in (RunOutcome.AGAIN, RunOutcome.NONE)


class SwapResult(Value, kw_only=True):
    """One run of a swap proof, after its job."""

    run: SwapRun
    outcome: RunOutcome
    fault: JobFault | None = None
    places: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Node -> its ranks, as they ran."""
    job: str = ""
    """Its id; "" if none was started."""
    seconds: float = 0.0
    sentence: str = ""
    """What was said of its fault, or why there was no run."""
    left: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> what may still run there."""


class Blame(StrEnum):
    """What is to blame."""

    PROGRAM = "program"
    NODE = "node"
    BOTH = "both"
    """Only this rank on this node."""
    UNDECIDED = "undecided"


class SwapVerdict(Value, kw_only=True):
    """What the runs say together."""

    blame: Blame
    rank: int | None = None
    """The rank with which the fault stays; None: with no single one."""
    node: str = ""
    """The node with which it goes."""
    sure: float = 0.0
    """Probability of the answer, from 0 to 1; if undecided, that of the likeliest."""
    sentence: str = ""
    advice: str = ""
    """What to do, or to try, next."""
    shares: Mapping[str, float] = field(default_factory=dict[str, float])
    """What may be to blame (`rank 1`, `node n5`, `any rank`, …) -> its probability, the likeliest
    first.
    """


class Swap(Value, kw_only=True):
    """A swap proof as it is now."""

    id: str
    plan: SwapPlan
    results: tuple[SwapResult, ...] = ()
    going: bool = False
    """Whether it goes on now."""
    running: int = 0
    """The number of the run that goes on, from 1; 0: none."""
    started: float = 0.0
    """Epoch seconds; 0: not started."""
    ended: float = 0.0
    """Epoch seconds; 0: not ended, or stopped."""
    verdict: SwapVerdict | None = None
    """None before the first run has ended."""
