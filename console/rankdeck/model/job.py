"""Jobs: what the user asks for (JobSpec), what will be done (Plan), a job's
state (Job), and what followers report.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import field

from rankdeck.model.capabilities import Capabilities, capabilities_of
from rankdeck.model.job_events import MUTE, NodeEvent
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.plan_part import PlanPart
from rankdeck.model.queue import QueueStatus
from rankdeck.model.rank import Activity, State, how_it_ended
from rankdeck.values import Value
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import NodePlan


class Explained(Value):
    """An error message explained in plain words."""

    means: str
    remedy: str
    """What to try."""
    line: str = ""
    """The line of output that is explained; "" if it is the exit status."""
    sure: float | None = None
    """How sure it is that it means this: a share from 0 to 1; None if that is not calibrated."""


class Price(Value):
    """What ranks for which the others wait cost a job."""

    share: float
    """Share of the time that would be saved without what holds them back, from 0 to 1."""
    longer: float
    """By which share of a step without it each step is longer."""
    seconds: float
    """Seconds that it has cost since it was first seen."""


class Stall(Value, kw_only=True):
    """Ranks that make no progress although they should."""

    kind: str
    """`start`: has not begun; `rank`: silent while others go on; `all`: every rank is silent;
    `raised`: runs on after an exception; `stopped`: by a signal; `device`: in state D; `slow`: the
    others wait for it; `absent`: never entered the operation in which others wait; `agent`: not
    seen, because the agent of their `node` stands still.
    """
    ranks: tuple[int, ...]
    since: float
    """Epoch seconds."""
    text: str
    first: tuple[int, ...] = ()
    """Ranks that fell silent clearly before the others."""
    odd: tuple[int, ...] = ()
    """Among the silent ranks, those that do something different from the others."""
    heard: float = 0.0
    """Epoch seconds of the newest sign of life of these ranks; a newer one ends the stall."""
    explained: tuple[Explained, ...] = ()
    price: Price | None = None
    """What slow ranks cost; None if that is not known."""
    node: str = ""
    """The node that is to blame, and no rank; "" for all kinds but `agent`."""
    sure: float | None = None
    """How sure it is that those who are accused are to blame, or at a deadlock that nobody is:
    a calibrated share from 0 to 1; None if nobody is accused, or if it was not weighed.
    """
    between: tuple[int, ...] = ()
    """Ranks between which it is undecided who is to blame; nobody is accused then."""

    @property
    def accused(self) -> tuple[int, ...]:
        """The ranks that are said to be to blame; () if it is undecided, or a node or nobody is."""
        if self.between or self.node:
            return ()
        return self.odd or self.first or (() if self.kind == "all" else self.ranks)

    @property
    def sentence(self) -> str:
        """`text`, and how sure it is."""
        if self.between:
            return f"{self.text}; it is undecided who of ranks {fold_ranks(self.between)} is to blame: `rankdeck inspect` may tell"
        return self.text if self.sure is None else f"{self.text} ({share_words(self.sure)} sure)"


NOT_CALIBRATED = "how sure: not calibrated"
"""Told where a verdict was not weighed: the word of a scheduler, or too little evidence."""


def share_words(share: float) -> str:
    """`94 %`."""
    return f"{share:.0%}".replace("%", " %")


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


class Launch(StrEnum):
    """What starts the ranks."""

    MPI = "mpi"
    TORCHRUN = "torchrun"
    TENSORFLOW = "tensorflow"
    JAX = "jax"
    PLAIN = "plain"


GPUS = ("nvidia", "amd")
CLAIM = "pvc:"
"""Prefix of a mount from a Kubernetes volume claim."""


class Container(Value, kw_only=True):
    """The image a rank runs in."""

    image: str
    runtime: str = "apptainer"
    mounts: tuple[str, ...] = ()
    """`source:target[:ro]`; on Kubernetes also `pvc:CLAIM:target[:ro]`."""
    gpu: str = ""
    """Vendor of the GPUs that the container may use: one of `GPUS`, or ""."""
    workdir: str = ""
    args: tuple[str, ...] = ()
    """More arguments for the runtime, passed unchanged."""


class MpiOptions(Value, kw_only=True):
    """How mpirun is called."""

    flavour: str = "openmpi5"
    """openmpi5, openmpi4 or mpich."""
    detect: bool = False
    """The job file names no flavour: use that of the mpirun at `path` on the first node."""
    path: str = "mpirun"
    args: tuple[str, ...] = ()
    launcher: str = "rankdeck"
    """Who starts the remote daemons: "rankdeck", or "ssh" between the nodes."""


class TorchOptions(Value, kw_only=True):
    """How torchrun is called. `port` 0: a free port, found on the first node."""

    path: str = "torchrun"
    port: int = 0
    args: tuple[str, ...] = ()


class Abort(Value, kw_only=True):
    """Gang abort: whether the other ranks are ended when a rank fails or a node stops answering."""

    enabled: bool = True
    countdown: float = 10.0
    """Seconds until they are ended."""


class JobSpec(Value, kw_only=True):
    """A job file."""

    name: str
    launch: Launch
    command: tuple[str, ...]
    nodes: int = 1
    on: tuple[str, ...] = ()
    """Names of the nodes to use; empty: the first `nodes` of the cluster."""
    ranks_per_node: int = 0
    """0: the slots of the node."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    workdir: str = ""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name -> text of files to write into the run folder of every node, e.g. the program itself."""
    container: Container | None = None
    mpi: MpiOptions = field(default_factory=MpiOptions)
    torch: TorchOptions = field(default_factory=TorchOptions)
    grace: float = 10.0
    """Grace period: seconds between SIGTERM and SIGKILL."""
    abort: Abort = field(default_factory=Abort)
    tty: bool = True
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    progress: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name (step, steps, loss, …) -> regular expression whose first group is the number."""
    file: str = ""
    part_of: str = ""
    """The acceptance run or scaling study that this job measures for; lists of jobs
    leave such jobs out unless asked for.
    """


class Plan(Value, kw_only=True):
    """Exactly what will be done: every file and every command, per node."""

    job: str
    name: str
    cluster: str
    backend: str
    nodes: tuple[NodePlan, ...]
    """In rank order; the launcher of an MPI job runs on the first."""
    text: str = ""
    """The document that the backend submits (sbatch script, Kubernetes manifest); "" for ssh."""
    parts: tuple[PlanPart, ...] = ()
    """The same document in parts, as it is shown; () for ssh, and in
    a history older than this field.
    """
    grace: float = 10.0
    abort: Abort = field(default_factory=Abort)
    port_on: str = ""
    """Node on which a free port must be found, for
    `${RANKDECK_PORT}` in the plan; "": none needed.
    """
    spec: JobSpec | None = None
    """The job file of the plan; None in a history older than this field."""
    owner: str = ""
    """Kind and owner of a job that somebody else started: `MPIJob of alice`."""
    replay_of: str = ""
    """For a replay: the id of the job that is replayed; else ""."""
    found: bool = False
    """Whether the nodes have told it and not a launch: a node that did
    not answer may have ranks of it too.
    """

    untagged: bool = False
    """All ranks write into their launcher's output: they can be told apart
    only if somebody started it with `--tag-output`.
    """

    @property
    def part_of(self) -> str:
        """The acceptance run or scaling study that this job measures for; "" for any other."""
        return self.spec.part_of if self.spec else ""

    @property
    def can(self) -> Capabilities:
        """What the backend that runs it can do."""
        return capabilities_of(self.backend)

    @property
    def world_size(self) -> int:
        return sum(len(node.ranks) for node in self.nodes)

    def supervising_node(self, node: str) -> str:
        """The node whose supervisor reports the ranks of `node`: `node`
        itself, or on Slurm the login node.
        """
        # Called for every rank and every piece of output, so it checks only the first node.
        return self.nodes[0].node if self.nodes and self.nodes[0].elsewhere else node


UNTAGGED_WAIT = 3.0
"""Seconds for a rank of an untagged job to be heard before its
launcher's output is shown in its place.
"""
LONG_PAUSE = 10.0
"""Seconds without output after which a rank has paused, not only written slowly."""


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


RESTARTED = "restarted"
"""The `name` of a node that failed because its machine was restarted."""
WAS_RESTARTED = "was restarted while the job ran"


class FailedPart(Value, kw_only=True):
    """A part of a job that failed."""

    what: str
    """`rank`, `launcher` (mpirun, torchrun, a daemon), `node` (lost),
    `job`, `scheduler` (Slurm ended it), `undecided` (nobody is accused).
    """
    rank: int | None
    """None if the part is not a rank."""
    node: str
    name: str = ""
    """Name of a launcher (mpirun, torchrun, `daemon 12`, supervisor), or
    scheduler and state (`Slurm: TIMEOUT`), or of a node RESTARTED.
    """

    @property
    def who(self) -> str:
        """`rank 5 on n2`, `mpirun on n1`, `node n2`, `the job`."""
        return self.part

    @property
    def part(self) -> str:
        """The same; never two of them."""
        if self.what == "node":
            return f"node {self.node}"
        if self.what == "job":
            return "the job"
        if self.what == "scheduler":
            return self.name
        name = self.name or "the launcher" if self.rank is None else f"rank {self.rank}"
        return f"{name} on {self.node}"


class Suspect(FailedPart, kw_only=True):
    """A rank, launcher or node that failed too, and why it is less likely to be the cause."""

    why: str
    """One sentence without a full stop, e.g.

    `exit 14, Open MPI's code for a lost peer, 3 ms earlier`.
    """


class FirstFailure(FailedPart, kw_only=True):
    """What most likely made the job fail, judged by all reports of nodes, ranks and launchers."""

    what: str = "rank"
    exit_code: int | None
    signal: int | None
    at: float
    lines: tuple[str, ...] = ()
    tied: tuple[int, ...] = ()
    """Ranks that may have failed first instead: the clocks are not exact enough to tell."""
    uncertainty: float = 0.0
    """Error of `at`: ± seconds by which the node's clock may be off."""
    victims: tuple[int, ...] = ()
    """Ranks that ended because of it: by a signal, or because they lost their peer."""
    explained: tuple[Explained, ...] = ()
    evidence: tuple[str, ...] = ()
    """Sentences that say why this is the cause, the strongest first."""
    others: tuple[Suspect, ...] = ()
    """A few other possible causes, most likely first."""
    settled: bool = True
    """False while nodes may still report something that changes the answer."""
    sure: float | None = None
    """How sure it is that this one is to blame: a calibrated share from 0 to 1; None if it is
    undecided, or was not weighed: a scheduler's word, a history older than this field.
    """
    between: tuple[Suspect, ...] = ()
    """If it is undecided: those who may be to blame, the likeliest first."""
    decides: str = ""
    """If it is undecided: what would decide it."""

    @property
    def suspects(self) -> tuple[FailedPart, ...]:
        """Those who may be to blame: where nobody is accused, all between whom it is undecided."""
        return self.between or (self,)

    @property
    def who(self) -> str:
        """As of any part; `undecided between rank 3 on n1 and rank 7 on n2`."""
        names = [one.who for one in self.between]
        if not names:
            return self.part
        if len(names) == 1:
            return f"undecided whether it was {names[0]}"
        return f"undecided between {', '.join(names[:-1])} and {names[-1]}"

    @property
    def how(self) -> str:
        """`exit 3`, `signal 9 (SIGKILL)`, `stopped answering`."""
        if self.between:
            alike = self.exit_code is not None or self.signal is not None
            ends = f"each {how_it_ended(self.exit_code, self.signal)}: " if alike else ""
            return f"{ends}nobody is accused"
        if self.what == "node":
            return WAS_RESTARTED if self.name == RESTARTED else "stopped answering"
        if self.what == "job":
            return "ended well and did nothing"
        if self.what == "scheduler":
            return "".join(self.evidence[:1])
        return how_it_ended(self.exit_code, self.signal)

    @property
    def certainty(self) -> str:
        """How sure it is who failed first: `94 % sure`, `how sure: not calibrated`."""
        return NOT_CALIBRATED if self.sure is None else f"{share_words(self.sure)} sure"

    @property
    def sentence(self) -> str:
        """Who failed first and how, in one line."""
        so_far = "" if self.settled else "so far: "
        tied = f"; too close to tell from {fold_ranks(self.tied)}" if self.tied else ""
        after = (
            f"; {len(self.victims)} ended by it: {fold_ranks(self.victims)}" if self.victims else ""
        )
        sure = "" if self.between else f" ({self.certainty})"
        decides = f"; it could be decided by {self.decides}" if self.decides else ""
        return f"{so_far}{self.who}, {self.how}{sure}{tied}{decides}{after}"


class Countdown(Value, kw_only=True):
    """The gang abort that is about to happen."""

    why: str
    deadline: float
    """Epoch seconds."""


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
        if any(node.elsewhere for node in self.plan.nodes):
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


class CancelReport(Value):
    """Result of a cancel. It was clean if nothing is `left` and no node is `unverified`."""

    job: str
    state: State
    left: tuple[RemainingProcess, ...] = ()
    unverified: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> why it could not be asked."""
    refused: str = ""
    """Why nothing was done, if the user may not end the job; else ""."""


class Chunk(Value):
    """Bytes that a rank wrote, exactly as on the node's disk;
    `offset` is that of the first byte.
    """

    job: str
    node: str
    rank: int
    stream: str
    offset: int
    at: float
    data: bytes


class Tail(Value):
    """For a rank that is not watched: how many bytes (`end`) and lines
    it has written, and the last line.
    """

    job: str
    node: str
    rank: int
    stream: str
    end: int
    lines: int
    last: str
    at: float


class LogPlace(Value):
    """A position in the output of a rank, in bytes; an offset below 0 counts from the end."""

    rank: int
    stream: str
    offset: int


class LogPart(Value):
    """Whole lines from somewhere in one stream of a rank."""

    stream: str
    chunks: tuple[Chunk, ...]
    end: int
    """Size of the stream in bytes."""

    @property
    def start(self) -> int:
        """The offset of the first byte of the part."""
        return self.chunks[0].offset if self.chunks else self.end

    @property
    def stop(self) -> int:
        """The offset after the last byte of the part."""
        last = self.chunks[-1] if self.chunks else None
        return last.offset + len(last.data) if last else self.end


class FoundLine(Value):
    """The result so far of searching a whole stream for a text: the
    next matching line in one direction.
    """

    at: int | None
    """Byte offset of the line; None if there is none in that
    direction, or the search still runs.
    """
    before: int | None
    """Number of matching lines before it; None: not counted yet."""
    count: int
    """Number of matching lines, as far as counted."""
    share: float
    """Share of the stream that has been counted, from 0 to 1."""
    looking: bool
    """Whether the line may still be found."""

    @property
    def whole(self) -> bool:
        """Whether this result is final."""
        return self.share >= 1 and not self.looking


Followed = NodeEvent | Chunk | Tail
