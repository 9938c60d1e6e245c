"""Jobs: what the user asks for (JobSpec), what will be done (Plan), the job as it is (Job)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rankdeck.model.health import Level
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.rank import Activity, State, how_it_ended
from rankdeck.model.schedulers import SlurmStatus
from rankdeck_agent.wire import NodePlan


@dataclass(frozen=True, slots=True)
class Explained:
    """A message in plain words."""

    means: str
    remedy: str
    """What to try."""
    line: str = ""
    """The line it was read from; "" if the exit status said it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Ranks that make no progress although they should."""

    kind: str
    """`start`: has not begun; `rank`: silent while others go on; `all`: everybody is silent;
    `raised`: an exception, and it runs on; `stopped`; `device`: in state D; `slow`: the others wait for it."""
    ranks: tuple[int, ...]
    since: float
    """Epoch seconds."""
    text: str
    first: tuple[int, ...] = ()
    """Ranks that fell silent clearly before the others."""
    odd: tuple[int, ...] = ()
    """Among silent ranks, those that do something else than the others."""
    heard: float = 0.0
    """The newest sign of life of these ranks: while there is none newer, it holds."""
    explained: tuple[Explained, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is, read from its output."""

    step: float | None = None
    steps: float | None = None
    """How many there will be."""
    values: Mapping[str, float] = field(default_factory=dict[str, float])
    """loss, tokens_s, mflops, …: the newest number under each name."""
    series: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    """The last numbers under each name, oldest first."""
    rank: int | None = None
    """Who wrote it."""
    at: float = 0.0

    @property
    def share(self) -> float | None:
        """From 0 to 1; None if it is not known how long the job is."""
        if self.step is None or not self.steps or self.steps <= 0:
            return None
        return min(max(self.step / self.steps, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a run; `end` is None while it lasts."""

    name: str
    start: float
    end: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNote:
    """What happened on a node of a job while it ran, shortly before or after."""

    at: float
    """Epoch seconds on the console's clock; where `before` is set, when it was first seen."""
    node: str
    level: Level
    check: str
    text: str
    device: str = ""
    count: int = 1
    """How many alike there were."""
    before: bool = False
    """It was there before the job, or already when its node was first looked at."""
    simulated: bool = False
    """Simulated by an agent that was told to."""


class Launch(StrEnum):
    """What starts the ranks."""

    MPI = "mpi"
    TORCHRUN = "torchrun"
    TENSORFLOW = "tensorflow"
    PLAIN = "plain"


GPUS = ("nvidia", "amd")
CLAIM = "pvc:"
"""How a mount from a volume claim of Kubernetes begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The image a rank runs in."""

    image: str
    runtime: str = "apptainer"
    mounts: tuple[str, ...] = ()
    """`source:target[:ro]`; on Kubernetes also `pvc:CLAIM:target[:ro]`."""
    gpu: str = ""
    """Whose GPUs to bring in: one of `GPUS`, or none."""
    workdir: str = ""
    args: tuple[str, ...] = ()
    """Further arguments of the runtime, as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpiOptions:
    """How mpirun is called."""

    flavour: str = "openmpi5"
    """openmpi5, openmpi4 or mpich."""
    detect: bool = False
    """The job file names no flavour: it is that of `path` on the first node."""
    path: str = "mpirun"
    args: tuple[str, ...] = ()
    launcher: str = "rankdeck"
    """Who starts the remote daemons: "rankdeck", or "ssh" between the nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchOptions:
    """How torchrun is called. `port` 0: a free one, found on the first node."""

    path: str = "torchrun"
    port: int = 0
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """What happens to the others when a rank fails or a node stops answering."""

    enabled: bool = True
    countdown: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job file."""

    name: str
    launch: Launch
    command: tuple[str, ...]
    nodes: int = 1
    on: tuple[str, ...] = ()
    """Names of the nodes to use; empty: the first `nodes` of the cluster."""
    ranks_per_node: int = 0
    """0: as many as the node has slots."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    workdir: str = ""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name -> text, laid into the run folder of every node, e.g. the program itself."""
    container: Container | None = None
    mpi: MpiOptions = field(default_factory=MpiOptions)
    torch: TorchOptions = field(default_factory=TorchOptions)
    grace: float = 10.0
    abort: Abort = field(default_factory=Abort)
    tty: bool = True
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    progress: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name (step, steps, loss, …) -> regular expression whose first group is the number."""
    file: str = ""
    part_of: str = ""
    """The acceptance run that it measures for: lists of jobs leave it out unless it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Exactly what will be done: every file and every command, per node."""

    job: str
    name: str
    cluster: str
    backend: str
    nodes: tuple[NodePlan, ...]
    """In rank order; the launcher of an MPI job is on the first."""
    text: str = ""
    """Backends that submit one document: sbatch script, Kubernetes manifest."""
    grace: float = 10.0
    abort: Abort = field(default_factory=Abort)
    port_on: str = ""
    """Node on which a free port must be found; `${RANKDECK_PORT}` stands for it."""
    spec: JobSpec | None = None
    """What the plan was made from; None in a history older than this field."""
    owner: str = ""
    """Whose job it is, if somebody else started it: `MPIJob of alice`."""
    replay_of: str = ""
    """The job that is shown again under this id; "" for one that ran under it."""

    @property
    def part_of(self) -> str:
        """The acceptance run that it measures for; "" for a job of its own."""
        return self.spec.part_of if self.spec else ""

    @property
    def world_size(self) -> int:
        return sum(len(node.ranks) for node in self.nodes)

    def supervising_node(self, node: str) -> str:
        """Node whose supervisor reports these ranks: `node` itself, or on Slurm the login node."""
        # Asked for every rank and every piece of output: the login node is the only one of its plan.
        return self.nodes[0].node if self.nodes and self.nodes[0].elsewhere else node


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """One rank now. Times are epoch seconds on the console's clock."""

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
    """When it last wrote anything."""
    lines: int = 0
    """Lines that it has written, as far as known."""
    activity: Activity | None = None
    """What its processes did when last looked at; None: not known, or not running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedPart:
    """A part of a job that failed."""

    what: str
    """`rank`, `launcher` (mpirun, torchrun, a daemon), `node` (it stopped answering), `job`, or `scheduler` (Slurm ended it)."""
    rank: int | None
    """None if it is no rank."""
    node: str
    name: str = ""
    """Of a launcher: mpirun, torchrun, `daemon 12`, supervisor; of a scheduler with its state: `Slurm: TIMEOUT`."""

    @property
    def who(self) -> str:
        """`rank 5 on n2`, `mpirun on n1`, `node n2`, `the job`."""
        if self.what == "node":
            return f"node {self.node}"
        if self.what == "job":
            return "the job"
        if self.what == "scheduler":
            return self.name
        name = self.name or "the launcher" if self.rank is None else f"rank {self.rank}"
        return f"{name} on {self.node}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect(FailedPart):
    """A rank, launcher or node that failed too, and why it is less likely to be the cause."""

    why: str
    """One sentence without a full stop, e.g. `exit 14, Open MPI's code for a lost peer, 3 ms earlier`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFailure(FailedPart):
    """What most likely made the job fail, by all that nodes, ranks and launchers reported."""

    what: str = "rank"
    exit_code: int | None
    signal: int | None
    at: float
    lines: tuple[str, ...] = ()
    tied: tuple[int, ...] = ()
    """Ranks that may as well have failed first: the clocks cannot tell."""
    uncertainty: float = 0.0
    """Of `at`, in seconds either way: how well the node's clock is known."""
    victims: tuple[int, ...] = ()
    """Ranks that ended because of it: by a signal, or because they lost their peer."""
    explained: tuple[Explained, ...] = ()
    evidence: tuple[str, ...] = ()
    """Sentences that say why it is this one, the strongest first."""
    others: tuple[Suspect, ...] = ()
    """Who else may have been the cause, most likely first; a few."""
    settled: bool = True
    """False while nodes may still report something that changes the answer."""

    @property
    def how(self) -> str:
        """`exit 3`, `signal 9 (SIGKILL)`, `stopped answering`."""
        if self.what == "node":
            return "stopped answering"
        if self.what == "job":
            return "ended well and did nothing"
        if self.what == "scheduler":
            return "".join(self.evidence[:1])
        return how_it_ended(self.exit_code, self.signal)

    @property
    def sentence(self) -> str:
        """Who failed first and how, in one line."""
        so_far = "" if self.settled else "so far: "
        tied = f"; too close to tell from {fold_ranks(self.tied)}" if self.tied else ""
        after = (
            f"; {len(self.victims)} pulled down by it: {fold_ranks(self.victims)}"
            if self.victims
            else ""
        )
        return f"{so_far}{self.who}, {self.how}{tied}{after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Countdown:
    """The gang abort that is about to happen."""

    why: str
    deadline: float
    """Epoch seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
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
    """Somebody keeps its other ranks running after a failure: no console stops them."""
    troubles: tuple[str, ...] = ()
    """Sentences for the operator, oldest first."""
    explained: tuple[Explained, ...] = ()
    """What the launcher's last lines mean, of a job that failed without a first failure."""
    stalled: tuple[Stall, ...] = ()
    progress: Progress | None = None
    marks: Mapping[str, float] = field(default_factory=dict[str, float])
    """When the phases of the run ended: ready, started, output, step; see rules/progress.py."""
    slurm: SlurmStatus | None = None
    """What Slurm says of it; None if it is no job of Slurm, or Slurm was not asked yet."""
    clock: float | None = None
    """The moment that is shown of a job that is replayed; None: now."""
    output_coming: bool = False
    """Nodes on which it is over still send what it wrote to this console."""
    node_notes: tuple[NodeNote, ...] = ()
    """What happened on its nodes meanwhile, what matters most first."""

    @property
    def unit(self) -> str:
        """What one of its ranks is called: a task, where it is an array of Slurm."""
        return "task" if self.slurm is not None and self.slurm.array else "rank"

    @property
    def nodes(self) -> tuple[str, ...]:
        """Where its ranks are, as far as known."""
        if any(node.elsewhere for node in self.plan.nodes):
            return tuple(dict.fromkeys(rank.node for rank in self.ranks))
        return tuple(node.node for node in self.plan.nodes)

    @property
    def not_started(self) -> str:
        """Why no rank of a job that failed could begin; "" if one did, or where that is not known."""
        waited = (State.PENDING, State.CANCELLED)
        began = any(rank.started or rank.state not in waited for rank in self.ranks)
        failed = self.state is State.FAILED and self.first_failure is None and self.slurm is None
        return self.troubles[-1] if failed and not began and self.troubles else ""

    @property
    def rank_counts(self) -> str:
        """`3 running, 1 failed`; what a job that is over leaves pending was not started."""
        names = {state: state.value for state in State}
        if self.state.final:
            names[State.PENDING] = "not started"
        counts = {state: sum(rank.state is state for rank in self.ranks) for state in State}
        return ", ".join(f"{number} {names[state]}" for state, number in counts.items() if number)

    @property
    def unproven(self) -> tuple[str, ...]:
        """Nodes on which something may be left, as the last cancel that asked or did not reach them has it."""
        found: dict[str, bool] = {}
        for text in self.troubles:
            node, _, said = text.partition(": ")
            if said.startswith((UNVERIFIED, REMAINS, FOUND_GONE)):
                found[node] = said != FOUND_GONE
        return tuple(node for node, unclear in found.items() if unclear)


@dataclass(frozen=True, slots=True)
class RemainingProcess:
    """A process that cancel could not end."""

    node: str
    pid: int
    command: str


@dataclass(frozen=True, slots=True)
class CancelReport:
    """What cancel proved. Nothing left and no node unverified: clean."""

    job: str
    state: State
    left: tuple[RemainingProcess, ...] = ()
    unverified: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> why it could not be asked."""
    refused: str = ""
    """Why nothing was done, where this user may not end it."""


MUTE = "does not answer"
"""How a trouble of a job begins, after the name of the node, while nothing is heard of it."""
UNVERIFIED, REMAINS = "not verified", "could not be ended"
"""The same, of a node that a cancel could not ask, or on which it left something."""
FOUND_GONE = "was asked again: nothing of the job is left there"
"""The same, of such a node after a later cancel."""


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A record from one node's supervisor (see wire.py), or made by the follower itself.

    The follower's own kinds: "connected" (offset, uncertainty), and "disconnected" and "lost" (text, and
    heard: when the node was last heard, epoch seconds on the console's clock; absent if never); without
    a place in that record "activity" (looks: rank -> Activity) and "now": all until then has been told.
    """

    job: str
    node: str
    kind: str
    at: float
    """On the console's clock: the node's stamp minus its measured offset."""
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes that a rank wrote, as they are on the node's disk."""

    job: str
    node: str
    rank: int
    stream: str
    offset: int
    at: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Tail:
    """How much a rank that is not watched has written, and its last line."""

    job: str
    node: str
    rank: int
    stream: str
    end: int
    lines: int
    last: str
    at: float


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A byte of what a rank wrote; an offset below 0 counts from the end."""

    rank: int
    stream: str
    offset: int


@dataclass(frozen=True, slots=True)
class LogPart:
    """Whole lines from somewhere in one stream of a rank."""

    stream: str
    chunks: tuple[Chunk, ...]
    end: int
    """How much there is in the stream."""

    @property
    def start(self) -> int:
        return self.chunks[0].offset if self.chunks else self.end

    @property
    def stop(self) -> int:
        """The offset after the last byte of the part."""
        last = self.chunks[-1] if self.chunks else None
        return last.offset + len(last.data) if last else self.end


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line with a text, in the whole of a stream."""

    at: int | None
    """Its offset; None if there is none on that side, or it is still looked for."""
    before: int | None
    """Lines with the text before it; None: not counted yet."""
    count: int
    """Lines with the text, as far as counted."""
    share: float
    """How much of the stream is counted, from 0 to 1."""
    looking: bool
    """Whether the line may still be found."""

    @property
    def whole(self) -> bool:
        """Whether nothing more will be said."""
        return self.share >= 1 and not self.looking


Followed = NodeEvent | Chunk | Tail
