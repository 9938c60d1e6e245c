"""The mutable record of one job, and how each kind of event changes it; only `Jobs` does. Invalid events change nothing."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from rankdeck.model.activity import Activity, computes, place
from rankdeck.model.ending import exit_status
from rankdeck.model.job import (
    MUTE,
    Countdown,
    FirstFailure,
    Job,
    NodeEvent,
    Plan,
    Progress,
    RankState,
    Stall,
    State,
)
from rankdeck.model.text import strip_controls
from rankdeck.rules.ends import End, read_words
from rankdeck.rules.progress import ProgressReader
from rankdeck.state.lines import RankLog, share
from rankdeck_agent.wire import LAUNCHER

LAST_LINES = 20
LOST_SLACK = 2.0
"""Seconds between two frames of an idle node: how exactly the time of its loss is known."""
STOP_SLACK = 0.05
"""Seconds by which the end of a rank may be recorded before the cancel that caused it."""
_LOOK = 0.2
"""Seconds of output between two looks for progress."""
_LOOK_LINES = 8
_MOST_TROUBLES = 200


@dataclass(slots=True)
class NodeRecord:
    """How far one node was read."""

    name: str
    seen: int = -1
    closed: bool = False
    sending: bool = False
    """It has closed; output is still coming."""
    unstarted: bool = False
    """It says that it does not know the job."""
    lost: bool = False
    gone: float | None = None
    """When it was last heard before it stopped answering."""
    addresses: tuple[str, ...] = ()
    cancelled_at: float | None = None
    uncertainty: float = 0.005
    told: float | None = None
    """Epoch seconds up to which everything has arrived; later silence may be due to the link."""
    restored: bool = False
    """Known only from an earlier session: drop it when the node sends its events again."""


@dataclass(frozen=True, slots=True)
class EndTold:
    """What a node reported about the end of one rank."""

    said: tuple[str, ...] = ()
    """Its last lines, oldest first."""
    kernel: tuple[str, ...] = ()
    """Lines of the kernel log about its processes."""
    doing: str = ""
    """What it did when it was last looked at."""


@dataclass(slots=True)
class JobRecord:
    """One job: mutable, with its snapshot."""

    plan: Plan
    created: float
    cluster: str
    ranks: dict[int, RankState] = field(default_factory=dict[int, RankState])
    nodes: dict[str, NodeRecord] = field(default_factory=dict[str, NodeRecord])
    logs: dict[tuple[str, int], RankLog] = field(default_factory=dict[tuple[str, int], RankLog])
    looks: dict[int, deque[Activity]] = field(default_factory=dict[int, deque[Activity]])
    """What each rank that runs did when looked at, the newest looks."""
    told: dict[int, EndTold] = field(default_factory=dict[int, EndTold])
    launchers: dict[tuple[str, str], End] = field(default_factory=dict[tuple[str, str], End])
    """Launchers and daemons that failed, by node and name."""
    launchers_ok: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    troubles: list[str] = field(default_factory=list[str])
    countdown: Countdown | None = None
    kept: bool = False
    cancelled: bool = False
    aborted: bool = False
    """Whether it was stopped because a part of it had failed."""
    asked_at: float | None = None
    """When this console was told to cancel it."""
    refused: bool = False
    """Nothing of it was ever started."""
    settled: bool = False
    """Whether nothing more will arrive, though not every node has closed."""
    latest: float = 0.0
    first_failure: FirstFailure | None = None
    """From an earlier session."""
    verdict: FirstFailure | None = None
    judged: bool = False
    """Whether nothing has arrived since the last judgement that could change it."""
    stalled: tuple[Stall, ...] = ()
    marks: dict[str, float] = field(default_factory=dict[str, float])
    reader: ProgressReader | None = None
    read_at: float = 0.0
    """When output was last looked at for progress."""
    read_lines: int = 0
    """How many lines of that rank there were then."""
    clock: float | None = None
    """Set while the job is replayed."""
    snapshot: Job | None = None

    def log(self, node: str, rank: int) -> RankLog:
        """The log of a rank, or of the launcher of a node."""
        key = (node if rank == LAUNCHER else "", rank)
        if key not in self.logs:
            self.logs[key] = RankLog(rank, keep_bytes=share(len(self.ranks)))
        return self.logs[key]

    def logs_of(self, rank: int) -> Iterator[RankLog]:
        """Of a rank the one log, of the launcher one per node that has any."""
        if rank != LAUNCHER:
            yield self.log("", rank)
            return
        for node in self.plan.nodes:
            if (node.node, LAUNCHER) in self.logs or any(p.rank is None for p in node.processes):
                yield self.log(node.node, LAUNCHER)

    def trouble(self, text: str) -> None:
        """Keep one sentence, each once."""
        if text and text not in self.troubles and len(self.troubles) < _MOST_TROUBLES:
            self.troubles.append(text)

    def mark(self, name: str, at: float, *, latest: bool = False) -> None:
        """Note that a phase of the run was reached: the first time counts, or the last."""
        before = self.marks.get(name)
        if before is None or (at > before if latest else at < before):
            self.marks[name] = at

    @property
    def ended(self) -> bool:
        return self.settled or all(node.closed for node in self.nodes.values())

    @property
    def begun(self) -> bool:
        """Whether anything of it is known to have been started."""
        return "ready" in self.marks or any(
            state.started is not None for state in self.ranks.values()
        )

    def is_stopped(self, at: float, node: NodeRecord) -> bool:
        """Whether something that ended `at` on this node did so because the job was stopped."""
        asked = [self.asked_at, *(n.cancelled_at for n in self.nodes.values())]
        known = [when for when in asked if when is not None]
        # The clocks of two nodes: the order is sure only beyond what is known of them.
        return bool(known) and at >= min(known) - node.uncertainty - STOP_SLACK


def listen(record: JobRecord, rank: int, at: float) -> None:
    """Note the first output of a job, and read its newest lines for progress."""
    if rank == LAUNCHER:
        return
    record.mark("output", at)
    reader = record.reader
    if reader is None or (reader.rank is not None and reader.rank != rank):
        return
    # Until it is known who reports, a few looks a second: patterns cost more than lines.
    if reader.rank is None and abs(at - record.read_at) < _LOOK:
        return
    record.read_at = at
    for text, when in _newest(record, rank, at):
        if reader.take(strip_controls(text), rank, when):
            record.mark("step", when)


def _newest(record: JobRecord, rank: int, at: float) -> list[tuple[str, float]]:
    """Whole lines of this rank since the last look, at most a few; else what a tail told."""
    log = record.log("", rank)
    before = record.read_lines if record.read_lines <= log.total else 0
    fresh = min(log.total - before, _LOOK_LINES, len(log.lines))
    record.read_lines = log.total
    if fresh:
        return [(line.text, line.at) for line in log.lines[-fresh:]]
    return [(log.last, at)] if log.partial is None else []


def _reader(plan: Plan, before: Progress | None) -> ProgressReader:
    return ProgressReader(plan.spec.progress if plan.spec else None, before)


def new_record(plan: Plan, created: float) -> JobRecord:
    """A record in which nothing has happened yet."""
    record = JobRecord(plan=plan, created=created, cluster=plan.cluster)
    record.reader = _reader(plan, None)
    for text in record.reader.refused:
        record.trouble(text)
    for node in plan.nodes:
        record.nodes[node.node] = NodeRecord(node.node)
        for rank in node.ranks:
            record.ranks[rank] = RankState(rank=rank, node=node.node)
    return record


def restored_record(job: Job, ends: Mapping[int, Mapping[str, int]]) -> JobRecord:
    """The record of a job that an earlier session saw."""
    record = new_record(job.plan, job.created)
    record.ranks.update({rank.rank: rank for rank in job.ranks})
    record.troubles = list(dict.fromkeys([*job.troubles, *record.troubles]))
    record.first_failure = job.first_failure
    record.latest = job.ended or 0.0
    record.cancelled, record.kept = job.state is State.CANCELLED, job.kept
    record.settled = job.state.final
    record.marks = dict(job.marks)
    record.reader = _reader(job.plan, job.progress)
    for node in record.nodes.values():
        node.restored, node.closed = True, job.state.final
    for rank, streams in ends.items():
        for stream, end in streams.items():
            if rank in record.ranks:
                record.log("", rank).expect_end(stream, end)
    return record


def last_lines(log: RankLog) -> tuple[str, ...]:
    """The newest lines that are known of a log, the one without an end among them."""
    lines = [line.text for line in log.lines[-LAST_LINES:]]
    if partial := log.partial:
        lines = [*lines, partial.text][-LAST_LINES:]
    if lines:
        return tuple(lines)
    return (log.last,) if log.last else ()


KEPT = 12
"""Looks at a rank that are kept."""
_SAME = 0.5
"""Seconds between two stamps of one look, where the clock of the node was measured anew."""


def looked(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    """Add what the running ranks of a node did, from one `activity` frame."""
    looks: Mapping[int, Activity] = event.fields.get("looks", {})
    for rank, activity in looks.items():
        state = record.ranks.get(rank)
        if state is None or state.state.final:
            continue
        if record.plan.supervising_node(state.node) != node.name:
            continue
        kept = record.looks.setdefault(rank, deque(maxlen=KEPT))
        # A follower that connects again tells looks that are known.
        if not kept or activity.at > kept[-1].at + _SAME:
            kept.append(activity)


_MOST_SAID, _MOST_KERNEL, _MOST_ADDRESSES = 80, 8, 64
SUPERVISOR = "supervisor"
"""The name under which one stands that was gone before its ranks had ended."""


def speaks(record: JobRecord, node: NodeRecord, state: RankState) -> bool:
    """Whether the supervisor of this node reports this rank."""
    return record.plan.supervising_node(state.node) == node.name


def _claim(record: JobRecord, node: NodeRecord, event: NodeEvent) -> RankState | None:
    """The rank of an event. MPI may place it on another node than planned: who starts it has it."""
    rank = _integer(event.fields, "rank")
    state = record.ranks.get(rank) if rank is not None else None
    if state is None:
        return None
    if speaks(record, node, state):
        return state
    if state.state is State.PENDING and event.kind == "started":
        return replace(state, node=node.name)
    return None


def _integer(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    return value if type(value) is int and abs(value) < 1 << 31 else None


def _text(fields: Mapping[str, Any], name: str, limit: int = 500) -> str:
    value = fields.get(name)
    return strip_controls(value[: limit * 2])[:limit] if isinstance(value, str) else ""


def forget(record: JobRecord, node: NodeRecord) -> None:
    """Reset the node's part of the job: it sends all its events again."""
    node.restored = node.closed = node.sending = False
    node.seen = -1
    record.settled = False
    for mark in ("ready", "started"):
        record.marks.pop(mark, None)
    for rank, state in record.ranks.items():
        if speaks(record, node, state):
            record.ranks[rank] = RankState(rank=rank, node=node.name, last_line=state.last_line)
            record.told.pop(rank, None)
    for key in [key for key in record.launchers if key[0] == node.name]:
        del record.launchers[key]


def _ready(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    record.mark("ready", event.at, latest=True)
    node.addresses = _texts(event.fields, "addresses", _MOST_ADDRESSES)


def _started(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    state = _claim(record, node, event)
    if state is None:
        return
    record.mark("started", event.at, latest=True)
    pid = _integer(event.fields, "pid")
    host = _text(event.fields, "host", 64)
    if record.plan.supervising_node(host) != node.name:
        host = ""  # only with a shared run folder (Slurm) does `host` name another machine
    record.told.pop(state.rank, None)
    record.looks.pop(state.rank, None)
    record.ranks[state.rank] = RankState(
        rank=state.rank, node=host or state.node, state=State.RUNNING, pid=pid,
        started=event.at,
    )  # fmt: skip


def _exited(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    state = _claim(record, node, event)
    if state is None:
        return
    code, signal = _integer(event.fields, "code"), _integer(event.fields, "signal")
    record.told[state.rank] = EndTold(
        said=_texts(event.fields, "said", _MOST_SAID),
        kernel=_texts(event.fields, "kernel", _MOST_KERNEL),
        doing=_doing(event.fields.get("activity")),
    )
    if exit_status(code, signal) != 0:
        read_words(record.told[state.rank].said)
    _end_rank(record, state, event.at, code, signal)


def _texts(fields: Mapping[str, Any], name: str, most: int) -> tuple[str, ...]:
    """A list of lines that a node sent, each made safe."""
    value = fields.get(name)
    lines = cast("list[object]", value) if isinstance(value, list) else []
    texts = (line[:1000] for line in lines[-most:] if isinstance(line, str))
    return tuple(strip_controls(text)[:500] for text in texts)


def _doing(value: object) -> str:
    """What the rank did last, in words, from [state, wchan, cores]; "" if that is invalid."""
    row = cast("list[object]", value) if isinstance(value, list) else []
    state, wchan, cores = (*row, None, None, None)[:3]
    if not isinstance(state, str) or not isinstance(wchan, str):
        return ""
    busy = isinstance(cores, int | float) and computes(state, cores)
    return place(strip_controls(state[:2]), strip_controls(wchan[:60]), busy=busy)


def _end_rank(
    record: JobRecord, state: RankState, at: float, code: int | None, signal: int | None
) -> None:
    node = record.nodes[record.plan.supervising_node(state.node)]
    failed = exit_status(code, signal) != 0
    told = failed and record.is_stopped(at, node)
    end = State.CANCELLED if told else State.FAILED if failed else State.DONE
    record.ranks[state.rank] = replace(state, state=end, exit_code=code, signal=signal, ended=at)


def _launcher_ended(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    name = _text(event.fields, "name")
    plan = next(plan for plan in record.plan.nodes if plan.node == node.name)
    process = next((p for p in plan.processes if p.name == name), None)
    code, signal = _integer(event.fields, "code"), _integer(event.fields, "signal")
    if process is not None and process.rank is not None:
        state = record.ranks.get(process.rank)
        if state is not None and not state.state.final:
            _end_rank(record, state, event.at, code, signal)
    elif exit_status(code, signal) != 0:
        record.launchers[node.name, name] = End(
            what="launcher", name=name, node=node.name, code=code, signal=signal,
            at=event.at, slack=node.uncertainty, told=record.is_stopped(event.at, node),
            lines=_texts(event.fields, "said", _MOST_SAID) or _launcher_tail(record, node),
        )  # fmt: skip
    elif process is not None:
        record.launchers_ok.add((node.name, name))


def _launcher_tail(record: JobRecord, node: NodeRecord) -> tuple[str, ...]:
    """The launcher's last lines known here, if its node sends none with its end."""
    lines = last_lines(record.log(node.name, LAUNCHER))
    return tuple(strip_controls(line) for line in lines)


def _troubled(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    if text := _text(event.fields, "text"):
        record.trouble(f"{node.name}: {text}")
    if "gone" not in event.fields or record.is_stopped(event.at, node):
        return
    gone = event.fields["gone"]
    at = gone if isinstance(gone, float) and 0 < gone <= event.at else event.at
    record.launchers[node.name, SUPERVISOR] = End(
        what="launcher", name=SUPERVISOR, node=node.name, at=at, slack=node.uncertainty
    )


def _cancel_asked(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    record.cancelled = True
    record.aborted = record.aborted or event.fields.get("by") == "abort"
    if node.cancelled_at is None:
        node.cancelled_at = event.at


def _closing(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    """The job is over on this node, but not all its output has arrived."""
    # What is told again of an earlier session comes in one go, its end with it.
    if "seq" in event.fields or node.restored or node.closed:
        return
    _closed(record, node, event)
    node.sending = True


def _closed(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    node.closed, node.lost, node.gone, node.sending = True, False, None, False
    if text := _unstarted(event):
        node.unstarted = True
        record.trouble(f"{node.name}: {text}")
    if all(other.unstarted for other in record.nodes.values()) and not record.begun:
        # One sentence for all its nodes; no rank of it has failed.
        record.troubles = ["it was never started: none of its nodes knows it"]
        record.refused = record.settled = True
        record.ranks = {
            rank: replace(state, state=State.PENDING, ended=None)
            for rank, state in record.ranks.items()
        }
        return
    told = record.is_stopped(event.at, node)
    well = bool(record.launchers_ok) and not told
    for rank, state in record.ranks.items():
        if not speaks(record, node, state) or state.state.final:
            continue
        # Ranks of a launcher that ended well and wrote no record ended well with it.
        end = State.CANCELLED if told else State.DONE if well else State.FAILED
        record.ranks[rank] = replace(state, state=end, ended=event.at)


def _unstarted(event: NodeEvent) -> str:
    """Why the follower says that the node does not know the job; "" for an event of the node itself."""
    return _text(event.fields, "unstarted") if "seq" not in event.fields else ""


def _connected(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    # What is true no more is not left standing: the job may yet end well.
    record.troubles = [
        text for text in record.troubles if not text.startswith(f"{node.name}: {MUTE}")
    ]
    node.lost = False
    if not record.aborted:
        # What made us stop the job stays its cause, also when the node is back.
        node.gone = None
    _clock(record, node, event)


def _clock(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    slack = event.fields.get("uncertainty")
    if isinstance(slack, float) and 0 <= slack < 60:
        node.uncertainty = slack


def _lost(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    if node.closed:
        # It has reported how the job ended: losing it now is no trouble of the job.
        if node.sending:
            record.trouble(f"{node.name}: the rest of the output is on the node")
        return
    heard = event.fields.get("heard")
    known = isinstance(heard, float) and 0 < heard <= event.at
    node.lost, node.gone = True, heard if known else event.at
    _troubled(record, node, event)


HANDLERS: dict[str, Callable[[JobRecord, NodeRecord, NodeEvent], None]] = {
    "ready": _ready,
    "started": _started,
    "activity": looked,
    "exited": _exited,
    "ended": _launcher_ended,
    "trouble": _troubled,
    "cancel": _cancel_asked,
    "closing": _closing,
    "closed": _closed,
    "connected": _connected,
    "clock": _clock,
    "lost": _lost,
}
"""Kind of event, from a supervisor or the follower -> function that applies it."""
