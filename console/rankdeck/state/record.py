"""What is kept of one job while it is followed: changed only by `Jobs`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from rankdeck.model.insight import Explained, Progress, Stall
from rankdeck.model.job import (
    Countdown,
    FirstFailure,
    Job,
    Plan,
    RankState,
    State,
)
from rankdeck.model.text import strip_controls
from rankdeck.rules.decode import explain
from rankdeck.rules.progress import ProgressReader
from rankdeck.state.lines import RankLog, share
from rankdeck.state.outcome import VICTIM_CODES, Failure, first_of, job_state
from rankdeck_agent.wire import LAUNCHER

LAST_LINES = 20
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
    lost: bool = False
    cancelled_at: float | None = None
    uncertainty: float = 0.005
    restored: bool = False
    """What is known is from an earlier session: told again from the beginning, forget it."""


@dataclass(slots=True)
class Record:
    """One job: mutable, with its snapshot."""

    plan: Plan
    created: float
    cluster: str
    ranks: dict[int, RankState] = field(default_factory=dict[int, RankState])
    nodes: dict[str, NodeRecord] = field(default_factory=dict[str, NodeRecord])
    logs: dict[tuple[str, int], RankLog] = field(
        default_factory=dict[tuple[str, int], RankLog]
    )
    failures: dict[tuple[str, int | str], Failure] = field(
        default_factory=dict[tuple[str, int | str], Failure]
    )
    """By node and by rank or name of the launcher."""
    launchers_ok: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    troubles: list[str] = field(default_factory=list[str])
    countdown: Countdown | None = None
    cancelled: bool = False
    settled: bool = False
    """Nothing more will come, though not every node has closed."""
    latest: float = 0.0
    first_failure: FirstFailure | None = None
    """From an earlier session."""
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
            if (node.node, LAUNCHER) in self.logs or any(
                p.rank is None for p in node.processes
            ):
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

    def is_cancelled(self, at: float) -> bool:
        """Whether something that ended `at` did so because it was told to."""
        asked = [
            n.cancelled_at for n in self.nodes.values() if n.cancelled_at is not None
        ]
        return bool(asked) and at >= min(asked)


def listen(record: Record, rank: int, at: float) -> None:
    """Note the first words of a job, and read its newest ones for progress."""
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


def _newest(record: Record, rank: int, at: float) -> list[tuple[str, float]]:
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


def new_record(plan: Plan, created: float) -> Record:
    """A record in which nothing has happened yet."""
    record = Record(plan=plan, created=created, cluster=plan.cluster)
    record.reader = _reader(plan, None)
    for node in plan.nodes:
        record.nodes[node.node] = NodeRecord(node.node)
        for rank in node.ranks:
            record.ranks[rank] = RankState(rank=rank, node=node.node)
    return record


def restored_record(job: Job, ends: Mapping[int, Mapping[str, int]]) -> Record:
    """The record of a job that an earlier session saw."""
    record = new_record(job.plan, job.created)
    record.ranks.update({rank.rank: rank for rank in job.ranks})
    record.troubles = list(job.troubles)
    record.first_failure = job.first_failure
    record.latest = job.ended or 0.0
    record.cancelled = job.state is State.CANCELLED
    record.settled = job.state.final
    record.marks = dict(job.marks)
    record.reader = _reader(job.plan, job.progress)
    for node in record.nodes.values():
        node.restored, node.closed = True, job.state.final
    for rank in job.ranks:
        if rank.state is State.FAILED and rank.ended is not None:
            record.failures[rank.node, rank.rank] = Failure(
                rank.ended, rank.node, rank.rank, rank.exit_code, rank.signal
            )
    if (first := job.first_failure) and first.rank is None:
        record.failures[first.node, "launcher"] = Failure(
            first.at, first.node, None, first.exit_code, first.signal
        )
    for rank, streams in ends.items():
        for stream, end in streams.items():
            if rank in record.ranks:
                record.log("", rank).expect_end(stream, end)
    return record


def snapshot(record: Record) -> Job:
    """The job as it is now."""
    if record.snapshot is not None:
        return record.snapshot
    ranks = tuple(_rank(record, record.ranks[rank]) for rank in sorted(record.ranks))
    first = _first_failure(record)
    state = job_state(
        [rank.state for rank in ranks],
        ended=record.ended,
        failed=_failed(record, first),
        cancelled=record.cancelled and any(r.state is not State.DONE for r in ranks),
    )
    ended = record.latest or record.created
    record.snapshot = Job(
        id=record.plan.job,
        name=record.plan.name,
        cluster=record.cluster,
        plan=record.plan,
        state=state,
        ranks=ranks,
        created=record.created,
        ended=ended if state.final else None,
        exit_code=_exit_code(state, first),
        first_failure=None if state is State.DONE else first,
        countdown=None if state.final else record.countdown,
        troubles=tuple(record.troubles),
        explained=_explained(record) if state is State.FAILED and not first else (),
        stalled=() if state.final else record.stalled,
        progress=record.reader.now if record.reader else None,
        marks=dict(record.marks),
        clock=record.clock,
    )
    return record.snapshot


def _explained(record: Record) -> tuple[Explained, ...]:
    """What launcher and nodes said about a job of which no rank failed first."""
    return explain((*_launcher_lines(record), *record.troubles))


def _launcher_lines(record: Record) -> list[str]:
    return [
        strip_controls(line.text)
        for log in record.logs_of(LAUNCHER)
        for line in log.lines[-LAST_LINES:]
    ]


def _rank(record: Record, rank: RankState) -> RankState:
    log = record.logs.get(("", rank.rank))
    if record.nodes[record.plan.keeper(rank.node)].lost and not rank.state.final:
        rank = replace(rank, state=State.LOST)
    if log is None:
        return rank
    heard = log.heard if log.heard is not None else rank.heard
    lines = max(sum(log.counts.values()), rank.lines)
    return replace(rank, last_line=log.last or rank.last_line, heard=heard, lines=lines)


def _failed(record: Record, first: FirstFailure | None) -> bool:
    # A failed launcher without a failed rank counts too, unless it was told to stop.
    return first is not None or any(
        r.state is State.FAILED for r in record.ranks.values()
    )


def _exit_code(state: State, first: FirstFailure | None) -> int | None:
    if state is State.DONE:
        return 0
    if first is not None and state is State.FAILED:
        return Failure(0, "", None, first.exit_code, first.signal).status
    return 1 if state is State.FAILED else None


def _first_failure(record: Record) -> FirstFailure | None:
    slack = {node.name: node.uncertainty for node in record.nodes.values()}
    of_ranks = [f for f in record.failures.values() if f.rank is not None]
    found = first_of(of_ranks, slack) or first_of(record.failures.values(), slack)
    if found is None:
        return record.first_failure if record.settled else None
    failure, tied = found
    lines = _last_lines(record, failure)
    before = _earlier(record, failure)
    said = [] if failure.rank is None else _launcher_lines(record)
    return FirstFailure(
        rank=failure.rank,
        node=failure.node,
        exit_code=failure.code,
        signal=failure.signal,
        at=failure.at,
        lines=lines,
        tied=tied,
        uncertainty=before.uncertainty if before else slack.get(failure.node, 0.0),
        victims=_victims(record, failure, tied),
        # The rank's own words are newest: they are explained first.
        explained=explain((*said, *map(strip_controls, lines)), failure.status)
        or (before.explained if before else ()),
    )


def _earlier(record: Record, failure: Failure) -> FirstFailure | None:
    """The same failure as an earlier session saw it."""
    earlier = record.first_failure
    if earlier and (earlier.rank, earlier.node) == (failure.rank, failure.node):
        return earlier
    return None


def _victims(record: Record, first: Failure, tied: tuple[int, ...]) -> tuple[int, ...]:
    """Ranks that ended by somebody's signal after the first failure."""
    return tuple(
        sorted(
            failure.rank
            for failure in record.failures.values()
            if failure.rank is not None
            and failure is not first
            and failure.rank not in tied
            and failure.status in VICTIM_CODES
        )
    )


def _last_lines(record: Record, failure: Failure) -> tuple[str, ...]:
    log = record.log(failure.node, LAUNCHER if failure.rank is None else failure.rank)
    lines = [line.text for line in log.lines[-LAST_LINES:]]
    if partial := log.partial:
        lines = [*lines, partial.text][-LAST_LINES:]
    if lines:
        return tuple(lines)
    if earlier := _earlier(record, failure):
        return earlier.lines
    return (log.last,) if log.last else ()
