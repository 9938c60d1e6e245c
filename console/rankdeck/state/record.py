"""The mutable record of one job; only `Jobs` and the handlers it calls change it."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from rankdeck.model.cancel_report import NodeProof
from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import Countdown, Job, Progress, RankState
from rankdeck.model.job_events import NodeEvent
from rankdeck.model.plan import Plan
from rankdeck.model.queue import ArrayTask, QueueStatus
from rankdeck.model.rank import Activity, State
from rankdeck.model.safe_text import strip_controls
from rankdeck.model.stall import Stall
from rankdeck.rules.ends import End
from rankdeck.rules.progress import ProgressReader
from rankdeck.state.lines import RankLog, line_memory_share
from rankdeck.values import Value
from rankdeck_agent.rules.scheduler_verdict import SchedulerVerdict
from rankdeck_agent.wire import LAUNCHER
from rankdeck_agent.wire.job_events import Look, Looks, ProgramEnd

LAST_LINES = 20
LOST_SLACK = 2.0
"""Uncertainty of the time of a node's loss: an idle node sends a frame every 2 seconds."""
STOP_SLACK = 0.05
"""Seconds by which the end of a rank may be recorded before the cancel that caused it."""
_LOOK = 0.2
"""Seconds between two searches of the output for progress, until
it is known which rank reports it.
"""
_LOOK_LINES = 8
"""Lines of which a search reads the newest."""
_FLOOD_LOOK = 0.1
"""Seconds between two searches while more than _LOOK_LINES lines come in between."""
_MOST_NOTES = 200
_MORE_NOTES = "there were more sentences: left out"


@dataclass(slots=True)
class NodeRecord:
    """What one node has reported about the job."""

    name: str
    seen: int = -1
    closed: bool = False
    sending: bool = False
    """The job has ended there, but output is still arriving."""
    unstarted: bool = False
    """The node does not know the job."""
    lost: bool = False
    gone: float | None = None
    """When it was last heard before it stopped answering."""
    restarted: float | None = None
    """When it last wrote before its machine was restarted."""
    mute: str = ""
    """Why it does not answer now, according to the follower; "" if it does."""
    why: str = ""
    """The sentence about its last loss."""
    addresses: tuple[str, ...] = ()
    cancelled_at: float | None = None
    uncertainty: float = 0.005
    """Error of its times in ± seconds: how well its clock is known."""
    reported: float | None = None
    """Epoch seconds up to which everything has arrived; later silence may be due to the link."""
    refused: tuple[int, int] = (0, 0)
    """Messages that were left out: on the node, and here."""
    restored: bool = False
    """Its reports are from an earlier session; they are dropped when it sends its events again."""


class EndReport(Value):
    """What a node reported about the end of one rank."""

    lines: tuple[str, ...] = ()
    """The rank's last lines, oldest first."""
    kernel: tuple[str, ...] = ()
    """Lines of the kernel log about its processes."""
    doing: str = ""
    """What it did at the last look, in words."""
    ago: tuple[float, ...] = ()
    """How long before the end each of these lines was written, seconds; () if that is not known."""
    inside: ProgramEnd | None = None
    """How its program failed, although the rank itself ended with exit 0."""


@dataclass(slots=True)
class JobRecord:
    """All that is known about one job (mutable), and its cached snapshot."""

    plan: Plan
    created: float
    cluster: str
    ranks: dict[int, RankState] = field(default_factory=dict[int, RankState])
    nodes: dict[str, NodeRecord] = field(default_factory=dict[str, NodeRecord])
    logs: dict[tuple[str, int], RankLog] = field(default_factory=dict[tuple[str, int], RankLog])
    looks: dict[int, deque[Activity]] = field(default_factory=dict[int, deque[Activity]])
    """Running rank -> what it did at the newest looks, oldest first."""
    end_reports: dict[int, EndReport] = field(default_factory=dict[int, EndReport])
    ends: dict[int, tuple[object, End]] = field(default_factory=dict[int, tuple[object, End]])
    """Rank -> input and result of its `End`, so that only new ends are computed."""
    launchers: dict[tuple[str, str], End] = field(default_factory=dict[tuple[str, str], End])
    """(node, name) -> launcher or daemon that failed."""
    scheduler: SchedulerVerdict | None = None
    """What ended the job, as the keeper of a Kubernetes job says."""
    launchers_ok: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    notes: dict[str, None] = field(default_factory=dict[str, None])
    """Sentences for the operator, each once, oldest first."""
    proofs: dict[str, NodeProof] = field(default_factory=dict[str, NodeProof])
    refused: dict[str, int] = field(default_factory=dict[str, int])
    """Node -> number of messages from there that were left out."""
    full_disks: dict[str, None] = field(default_factory=dict[str, None])
    countdown: Countdown | None = None
    kept: bool = False
    cancelled: bool = False
    cut_short: bool = False
    """Whether it was cancelled while ranks ran, though these may have ended with code 0."""
    aborted: bool = False
    """Whether it was stopped because a part of it had failed."""
    asked_at: float | None = None
    """When the user told this console to cancel it, epoch seconds."""
    kill_at: float | None = None
    """When what is left of it is killed, epoch seconds; None once the cancel has ended."""
    over: bool = False
    """It has ended and all its output has arrived; output fetched again
    later does not change the verdict.
    """
    refused_launch: bool = False
    """Nothing of the job was ever started."""
    settled: bool = False
    """Nothing more will arrive, although not every node has closed."""
    latest: float = 0.0
    first_failure: FirstFailure | None = None
    """From an earlier session."""
    verdict: FirstFailure | None = None
    judged: bool = False
    """Whether nothing has arrived since the last judgement that could change it."""
    stalled: tuple[Stall, ...] = ()
    held_up: Stall | None = None
    """Who was accused of holding up the others when the first rank failed, or is now."""
    waits: str = ""
    """Why parts of it do not run yet, in the words of its keeper; "" if all run."""
    waited: float = 0.0
    """When it last began or stopped to wait, epoch seconds."""
    in_scheduler: QueueStatus | None = None
    tasks: dict[int, ArrayTask] = field(default_factory=dict[int, ArrayTask])
    """Number of a task of an array -> its state in the scheduler."""
    marks: dict[str, float] = field(default_factory=dict[str, float])
    reader: ProgressReader | None = None
    read_at: float = 0.0
    """When output was last searched for progress."""
    read_lines: int = 0
    """How many lines of that rank there were then."""
    clock: float | None = None
    """For a replay: the time that it has reached, epoch seconds."""
    snapshot: Job | None = None

    def log(self, node: str, rank: int) -> RankLog:
        """The log of a rank, or of the launcher of a node."""
        key = (node if rank == LAUNCHER else "", rank)
        if key not in self.logs:
            self.logs[key] = RankLog(rank, keep_bytes=line_memory_share(len(self.ranks)))
        return self.logs[key]

    def launcher_logs(self) -> Iterator[RankLog]:
        """The log of each node that has a launcher."""
        for node in self.plan.nodes:
            if (node.node, LAUNCHER) in self.logs or any(p.rank is None for p in node.processes):
                yield self.log(node.node, LAUNCHER)

    def note(self, text: str) -> None:
        """Add a sentence to `notes`; the first 200 are kept, and that there were more."""
        if text and text not in self.notes:
            self.notes[text if len(self.notes) < _MOST_NOTES else _MORE_NOTES] = None

    def mark(self, name: str, at: float, *, latest: bool = False) -> None:
        """Note when a phase of the run ended: the earliest time
        counts, or with `latest` the latest.
        """
        before = self.marks.get(name)
        if before is None or (at > before if latest else at < before):
            self.marks[name] = at

    @property
    def ended(self) -> bool:
        """Whether the job is over: all nodes have closed, or nothing more will arrive."""
        return self.settled or all(node.closed for node in self.nodes.values())

    @property
    def begun(self) -> bool:
        """Whether anything of the job is known to have started."""
        return "ready" in self.marks or any(
            state.started is not None for state in self.ranks.values()
        )

    def is_stopped(self, at: float, node: NodeRecord) -> bool:
        """Whether a part that ended `at` this time on this node did
        so because the job was stopped.
        """
        asked = [self.asked_at]
        if node.cancelled_at is not None:
            # Its own word first: no node can say that those of others were stopped.
            asked += [other.cancelled_at for other in self.nodes.values()]
        known = [when for when in asked if when is not None]
        # Clocks of nodes differ: the order is certain only beyond their uncertainty.
        # Schedulers report the ends of their pods and steps in whole seconds.
        whole = 1.0 if self.plan.elsewhere else 0.0
        return bool(known) and at >= min(known) - node.uncertainty - STOP_SLACK - whole


def note_output(record: JobRecord, rank: int, at: float) -> None:
    """Note the first output of a job, and read its newest lines for progress."""
    if rank == LAUNCHER or record.over:
        return
    record.mark("output", at)
    # Patterns are slow: they are not searched for all the time. Output that comes after the end of
    # its rank is the last.
    ended = rank in record.ranks and record.ranks[rank].state.final
    if ended or abs(at - record.read_at) >= _pause(record, rank):
        record.read_at = at
        read_progress(record, rank, at)


def _pause(record: JobRecord, rank: int) -> float:
    """Seconds between two searches of the output of this rank."""
    if record.reader is None or record.reader.rank is None:
        return _LOOK
    floods = record.log("", rank).total - record.read_lines > _LOOK_LINES
    return _FLOOD_LOOK if floods else 0.0


def read_progress(record: JobRecord, rank: int, at: float) -> None:
    """Read the newest lines of a rank for progress, unless another rank reports it."""
    reader = record.reader
    if reader is None or (reader.rank is not None and reader.rank != rank):
        return
    for text, when in _newest(record, rank, at):
        if reader.take(strip_controls(text), rank, when):
            record.mark("step", when)


def _newest(record: JobRecord, rank: int, at: float) -> list[tuple[str, float]]:
    """(text, time) of the newest whole lines of this rank since the last search, a few at
    most; else its progress bar, or a tail's line.
    """
    log = record.log("", rank)
    before = record.read_lines if record.read_lines <= log.total else 0
    fresh = min(log.total - before, _LOOK_LINES)
    record.read_lines = log.total
    if fresh and log.held:
        return [(line.text, line.at) for line in log.newest(fresh)]
    if bar := log.bar:
        return [(bar.text, bar.at)]
    return [(log.last, at)] if log.partial is None else []


def _reader(plan: Plan, before: Progress | None) -> ProgressReader:
    return ProgressReader(plan.spec.progress if plan.spec else None, before)


def new_record(plan: Plan, created: float) -> JobRecord:
    """A record in which nothing has happened yet."""
    record = JobRecord(plan=plan, created=created, cluster=plan.cluster)
    record.reader = _reader(plan, None)
    for text in record.reader.refused:
        record.note(text)
    for node in plan.nodes:
        record.nodes[node.node] = NodeRecord(node.node)
        for rank in node.ranks:
            record.ranks[rank] = RankState(rank=rank, node=node.node)
    return record


def restored_record(job: Job) -> JobRecord:
    """The record of a job from an earlier session."""
    record = new_record(job.plan, job.created)
    record.ranks.update({rank.rank: rank for rank in job.ranks})
    record.notes = dict.fromkeys([*job.notes, *record.notes])
    record.proofs, record.refused = dict(job.proofs), dict(job.refused)
    record.full_disks = dict.fromkeys(job.full_disks)
    record.first_failure = job.first_failure
    record.latest = job.ended or 0.0
    record.cancelled = record.cut_short = job.state is State.CANCELLED
    record.kept = job.kept
    record.settled = job.state.final
    record.marks = dict(job.marks)
    record.in_scheduler, record.stalled = job.in_scheduler, job.stalled
    record.tasks = (
        {task.number: task for task in job.in_scheduler.tasks} if job.in_scheduler else {}
    )
    record.reader = _reader(job.plan, job.progress)
    for node in record.nodes.values():
        node.restored, node.closed = True, job.state.final
        node.mute = job.mute.get(node.name, "")
    return record


def last_lines(log: RankLog) -> tuple[str, ...]:
    """The newest known lines of a log, including one without a line end."""
    lines = [line.text for line in log.newest(LAST_LINES)]
    if partial := log.partial:
        lines = [*lines, partial.text][-LAST_LINES:]
    if lines:
        return tuple(lines)
    return (log.last,) if log.last else ()


KEPT = 12
"""Number of looks at a rank that are kept."""
_SAME = 0.5
"""The time of the same look may change by this many seconds when
the node's clock is measured again.
"""


def note_looks(record: JobRecord, node: NodeRecord, event: NodeEvent, said: Looks) -> None:
    """Add what the running ranks of a node did."""
    for look in said.rows:
        if record.ranks[look.rank].state.final:
            continue
        kept = record.looks.setdefault(look.rank, deque(maxlen=KEPT))
        # A follower that reconnects sends looks that are already known.
        if not kept or event.at > kept[-1].at + _SAME:
            kept.append(activity_of(look, event.at))


def activity_of(look: Look, at: float) -> Activity:
    """A look of a supervisor; `at`: epoch seconds on the console's clock."""
    first = (look.state, look.wchan, look.cores, look.system, at)
    counted = (look.wants, look.held, look.delayed, look.blocked)
    return Activity(*first, look.throttled, look.moves, *counted)
