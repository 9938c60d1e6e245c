"""The state of a job: its ranks, its phases and progress, notes about its nodes."""

from collections.abc import Mapping

from msgspec import field

from rankdeck.model.cancel_report import NodeProof
from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job_events import MUTE
from rankdeck.model.plan import Plan
from rankdeck.model.queue import QueueStatus
from rankdeck.model.rank import Activity, State
from rankdeck.model.stall import Explained, Stall
from rankdeck.values import Value
from rankdeck_agent.rules.levels import Level


class Progress(Value, kw_only=True):
    """How far a job is, read from its output."""

    step: float | None = None
    steps: float | None = None
    """Total number of steps."""
    values: Mapping[str, float] = field(default_factory=dict[str, float])
    """Name (loss, tokens_s, mflops, …) -> its newest number."""
    series: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    """Name -> its last numbers, oldest first."""
    rank: int | None = None
    """The rank that wrote it."""
    at: float = 0.0

    @property
    def share(self) -> float | None:
        """Share of the steps done, from 0 to 1; None if the number of steps is not known."""
        if self.step is None or not self.steps or self.steps <= 0:
            return None
        return min(max(self.step / self.steps, 0.0), 1.0)


class Phase(Value):
    """A phase of a run; `end` is None while it lasts."""

    name: str
    start: float
    end: float | None


class NodeNote(Value, kw_only=True):
    """What happened on a node of a job while it ran, shortly before or after."""

    at: float
    """Epoch seconds on the console's clock; if `before`, when it was first seen."""
    node: str
    level: Level
    check: str
    text: str
    device: str = ""
    count: int = 1
    """Number of equal events that this note stands for."""
    before: bool = False
    """It was there before the job, or when its node was first seen."""
    simulated: bool = False
    """The agent simulated it, as its configuration asks."""


class RankState(Value, kw_only=True):
    """The present state of a rank. Times are epoch seconds on the console's clock."""

    rank: int
    node: str
    state: State = State.PENDING
    pid: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    started: float | None = None
    ended: float | None = None
    last_line: str = ""
    heard: float | None = None
    """When it last wrote output."""
    resumed: float | None = None
    """When it wrote again after its last pause of more than LONG_PAUSE seconds."""
    lines: int = 0
    """Number of lines that it has written, as far as known."""
    activity: Activity | None = None
    """What its processes did at the last look; None: not known, or not running."""


class Countdown(Value, kw_only=True):
    """The gang abort that is about to happen."""

    why: str
    deadline: float
    """Epoch seconds."""


class Job(Value, kw_only=True):
    """One job as it is now: an immutable snapshot made by `state.jobs.Jobs`."""

    id: str
    name: str
    cluster: str
    plan: Plan
    state: State
    ranks: tuple[RankState, ...]
    created: float
    ended: float | None = None
    exit_code: int | None = None
    first_failure: FirstFailure | None = None
    countdown: Countdown | None = None
    kept: bool = False
    """The user keeps the other ranks running after a failure: no console stops them."""
    kill_at: float | None = None
    """While this console cancels it: when what is left of it is killed, epoch seconds."""
    notes: tuple[str, ...] = ()
    """Sentences for the operator, oldest first; nothing is decided by them."""
    mute: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node that does not answer -> why."""
    proofs: Mapping[str, NodeProof] = field(default_factory=dict[str, NodeProof])
    """Node -> what the last cancel found there; empty for a job that nobody cancelled."""
    refused: Mapping[str, int] = field(default_factory=dict[str, int])
    """Node -> number of messages from there that their sender may
    not send; they changed nothing.
    """
    full_disks: tuple[str, ...] = ()
    """Nodes on which the output of the job found no space."""
    explained: tuple[Explained, ...] = ()
    """What the launcher's last lines mean; only for a job that failed without a first failure."""
    stalled: tuple[Stall, ...] = ()
    waits: str = ""
    """On Kubernetes: why parts of it do not run yet (its queue, no
    node, an image); "" if all run.
    """
    waited: float = 0.0
    """When it last began or stopped to wait, epoch seconds."""
    progress: Progress | None = None
    marks: Mapping[str, float] = field(default_factory=dict[str, float])
    """Phase (ready, started, output, step) -> epoch seconds of its end; see rules/progress.py."""
    in_scheduler: QueueStatus | None = None
    """What its scheduler reports about it; None if it has none, or before the first report."""
    clock: float | None = None
    """The time that a replay has reached, in epoch seconds; None: not a replay."""
    output_coming: bool = False
    """Nodes on which the job is over are still sending its output to this console."""
    node_notes: tuple[NodeNote, ...] = ()
    """What happened on its nodes during the run, most important first."""

    @property
    def unit(self) -> str:
        """The word for one of its ranks: `task` in a Slurm array, else `rank`."""
        return "task" if self.in_scheduler is not None and self.in_scheduler.array else "rank"

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of its ranks, as far as known: none while its scheduler has chosen none."""
        if self.plan.elsewhere:
            hosts = {node.node for node in self.plan.nodes}
            placed = (r for r in self.ranks if r.node not in hosts or r.state is not State.PENDING)
            return tuple(dict.fromkeys(rank.node for rank in placed))
        return tuple(node.node for node in self.plan.nodes)

    @property
    def began(self) -> float | None:
        """When its first rank started, epoch seconds; None if none has."""
        return min((rank.started for rank in self.ranks if rank.started), default=None)

    @property
    def not_started(self) -> str:
        """Why no rank could begin, if the job failed before any did; else ""."""
        waited = (State.PENDING, State.CANCELLED)
        began = any(rank.started or rank.state not in waited for rank in self.ranks)
        failed = (
            self.state is State.FAILED and self.first_failure is None and self.in_scheduler is None
        )
        return self.troubles[-1] if failed and not began and self.troubles else ""

    @property
    def troubles(self) -> tuple[str, ...]:
        """All sentences for the operator: `notes`, then nodes that do not
        answer, then what a cancel left.
        """
        mute = (f"{node}: {MUTE}: {why}" for node, why in self.mute.items())
        left = (f"{node}: {text}" for node, one in self.proofs.items() for text in one.sentences())
        return (*self.notes, *mute, *left)

    @property
    def rank_counts(self) -> str:
        """`3 running, 1 failed`; once the job is over, pending ranks are `not started`."""
        names = {state: state.value for state in State}
        if self.state.final:
            names[State.PENDING] = "not started"
        counts = {state: sum(rank.state is state for rank in self.ranks) for state in State}
        return ", ".join(f"{number} {names[state]}" for state, number in counts.items() if number)

    @property
    def unproven(self) -> tuple[str, ...]:
        """Nodes on which processes may be left, according to the last cancel of each."""
        return tuple(node for node, proof in self.proofs.items() if not proof.proven)
