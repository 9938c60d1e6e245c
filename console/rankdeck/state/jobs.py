"""The one owner of what is known of jobs: events in, snapshots out."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from rankdeck.errors import UnknownJobError
from rankdeck.model.insight import Stall
from rankdeck.model.job import (
    CancelReport,
    Chunk,
    Countdown,
    Followed,
    Job,
    NodeEvent,
    Plan,
    RankState,
    State,
)
from rankdeck.model.text import strip_controls
from rankdeck.state.lines import RankLog
from rankdeck.state.outcome import Failure, exit_status
from rankdeck.state.record import (
    NodeRecord,
    Record,
    listen,
    new_record,
    restored_record,
    snapshot,
)
from rankdeck_agent.wire import LAUNCHER


class Jobs:
    """Every job of the session, by id."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._changed: set[str] = set()

    # ---- who asks

    def add(self, plan: Plan, created: float) -> Job:
        """A job that was just launched."""
        self._records[plan.job] = new_record(plan, created)
        return self._touch(plan.job)

    def restore(
        self, job: Job, ends: Mapping[int, Mapping[str, int]] | None = None
    ) -> Job:
        """A job of an earlier session; what its nodes tell again replaces what was kept."""
        self._records[job.id] = restored_record(job, ends or {})
        return self._touch(job.id)

    def job(self, job_id: str) -> Job:
        """The job now; raises UnknownJobError."""
        return snapshot(self._record(job_id))

    def find(self, text: str) -> Job:
        """The job of this id, the newest of this name, or the only one whose id begins so."""
        if text in self._records:
            return self.job(text)
        named = [job for job in self.all() if job.name == text]
        if named:
            return named[0]
        found = [job for job in self.all() if text and job.id.startswith(text)]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(job.id for job in found[:5])
            raise UnknownJobError(
                f"`{strip_controls(text)[:60]}` begins more than one job: {names}"
            )
        raise UnknownJobError(
            f"no job `{strip_controls(text)[:60]}`; `rankdeck jobs` lists them"
        )

    def busy(self) -> frozenset[str]:
        """The nodes on which something runs."""
        running = (job for job in self.all() if not job.state.final)
        return frozenset(node for job in running for node in job.nodes)

    def all(self) -> tuple[Job, ...]:
        """Newest first."""
        records = sorted(self._records.values(), key=lambda record: -record.created)
        return tuple(snapshot(record) for record in records)

    def log(self, job_id: str, rank: int, node: str = "") -> RankLog:
        """Output of a rank; of LAUNCHER that of `node`, else of the first node with one."""
        record = self._record(job_id)
        if rank == LAUNCHER:
            logs = list(record.logs_of(LAUNCHER))
            return record.log(node, rank) if node or not logs else logs[0]
        if rank not in record.ranks:
            raise UnknownJobError(f"job {job_id} has no rank {rank}")
        return record.log("", rank)

    def take_changes(self) -> frozenset[str]:
        """Ids of the jobs that changed since the last call."""
        changed, self._changed = frozenset(self._changed), set()
        return changed

    def positions(
        self, job_id: str
    ) -> tuple[dict[str, int], dict[int, dict[str, int]]]:
        """The last event seen per node, and per rank the next byte wanted of each stream."""
        record = self._record(job_id)
        seen = {
            node.name: node.seen for node in record.nodes.values() if node.seen >= 0
        }
        return seen, {log.rank: log.positions() for log in self._rank_logs(record)}

    def ends(self, job_id: str) -> dict[int, dict[str, int]]:
        """Per rank, how much of each stream is known to exist."""
        return {log.rank: log.ends() for log in self._rank_logs(self._record(job_id))}

    def resume_offsets(
        self, job_id: str, ranks: Iterable[int], backlog: int | None
    ) -> dict[int, dict[str, int]]:
        """Where to read these ranks from, for at least `backlog` bytes of what came before."""
        record = self._record(job_id)
        offsets: dict[int, dict[str, int]] = {}
        for rank in ranks:
            if rank in record.ranks:
                offsets[rank] = record.log("", rank).resume(backlog)
            elif rank == LAUNCHER:
                offsets[rank] = {"out": 0, "err": 0}
        return offsets

    # ---- who tells

    def apply(self, event: Followed) -> None:
        """Take in one thing that a follower gave; what makes no sense is left out."""
        record = self._records.get(event.job)
        node = record.nodes.get(event.node) if record else None
        if record is None or node is None:
            return
        if isinstance(event, NodeEvent):
            self._apply_event(record, node, event)
        elif not _fits(record, node, event.rank):
            return
        elif isinstance(event, Chunk):
            record.log(node.name, event.rank).add(event)
            listen(record, event.rank, event.at)
        else:
            record.log(node.name, event.rank).tell(event)
            listen(record, event.rank, event.at)
        self._touch_record(record)

    def set_countdown(self, job_id: str, countdown: Countdown | None) -> None:
        """Show, or take back, the gang abort that is about to happen."""
        self._record(job_id).countdown = countdown
        self._touch(job_id)

    def set_clock(self, job_id: str, at: float) -> None:
        """Show the moment of the past that a replay has come to."""
        self._record(job_id).clock = at
        self._touch(job_id)

    def set_stalled(self, job_id: str, stalled: tuple[Stall, ...]) -> None:
        """Show which ranks should be heard and are not."""
        record = self._record(job_id)
        if record.stalled != stalled:
            record.stalled = stalled
            self._touch(job_id)

    def cancelled(self, job_id: str, report: CancelReport) -> None:
        """Take in what a cancel proved."""
        record = self._record(job_id)
        for left in report.left:
            record.trouble(
                f"{left.node}: could not be ended: {left.pid} {strip_controls(left.command)[:200]}"
            )
        for name, why in report.unverified.items():
            record.trouble(f"{name}: not verified: {strip_controls(why)[:300]}")
        # A lost node cannot close, and a job that was cancelled must not wait for it for ever.
        lost = [node for node in record.nodes.values() if not node.closed]
        if not report.left and lost and all(n.name in report.unverified for n in lost):
            record.settled = True
        record.cancelled = True
        self._touch_record(record)

    def note(self, job_id: str, text: str) -> None:
        """Add a sentence for the operator."""
        self._record(job_id).trouble(strip_controls(text)[:500])
        self._touch(job_id)

    # ---- events

    def _apply_event(self, record: Record, node: NodeRecord, event: NodeEvent) -> None:
        seq = event.fields.get("seq")
        if isinstance(seq, int):
            if seq == 0 and node.restored:
                _forget(record, node)
            if seq <= node.seen:
                return
            node.seen = seq
            record.latest = max(record.latest, event.at)
        if handler := _HANDLERS.get(event.kind):
            handler(record, node, event)

    def _record(self, job_id: str) -> Record:
        if job_id not in self._records:
            raise UnknownJobError(
                f"no job `{strip_controls(job_id)[:60]}`; `rankdeck jobs` lists them"
            )
        return self._records[job_id]

    def _touch(self, job_id: str) -> Job:
        self._touch_record(self._records[job_id])
        return self.job(job_id)

    def _touch_record(self, record: Record) -> None:
        record.snapshot = None
        self._changed.add(record.plan.job)

    def _rank_logs(self, record: Record) -> list[RankLog]:
        return [log for log in record.logs.values() if log.rank != LAUNCHER]


def _fits(record: Record, node: NodeRecord, rank: int) -> bool:
    """Whether this node may speak for this rank."""
    if rank == LAUNCHER:
        return True
    state = record.ranks.get(rank)
    return state is not None and _speaks(record, node, state)


def _speaks(record: Record, node: NodeRecord, state: RankState) -> bool:
    return record.plan.keeper(state.node) == node.name


def _claim(record: Record, node: NodeRecord, event: NodeEvent) -> RankState | None:
    """The rank an event is about. MPI may place ranks otherwise than planned: who starts one has it."""
    rank = _integer(event.fields, "rank")
    state = record.ranks.get(rank) if rank is not None else None
    if state is None:
        return None
    if _speaks(record, node, state):
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


def _forget(record: Record, node: NodeRecord) -> None:
    """The node tells everything again: start its part of the job anew."""
    node.restored = node.closed = False
    node.seen = -1
    record.settled = False
    for mark in ("ready", "started"):
        record.marks.pop(mark, None)
    for rank, state in record.ranks.items():
        if _speaks(record, node, state):
            record.ranks[rank] = RankState(
                rank=rank, node=node.name, last_line=state.last_line
            )
    for key in [key for key in record.failures if key[0] == node.name]:
        del record.failures[key]


def _ready(record: Record, node: NodeRecord, event: NodeEvent) -> None:
    record.mark("ready", event.at, latest=True)


def _started(record: Record, node: NodeRecord, event: NodeEvent) -> None:
    state = _claim(record, node, event)
    if state is None:
        return
    record.mark("started", event.at, latest=True)
    pid = _integer(event.fields, "pid")
    host = _text(event.fields, "host", 64) if _speaks(record, node, state) else ""
    record.failures.pop((node.name, state.rank), None)
    record.ranks[state.rank] = RankState(
        rank=state.rank, node=host or state.node, state=State.RUNNING, pid=pid,
        started=event.at,
    )  # fmt: skip


def _exited(record: Record, node: NodeRecord, event: NodeEvent) -> None:
    state = _claim(record, node, event)
    if state is not None:
        code, signal = _integer(event.fields, "code"), _integer(event.fields, "signal")
        _end_rank(record, state, event.at, code, signal)


def _end_rank(
    record: Record, state: RankState, at: float, code: int | None, signal: int | None
) -> None:
    failed = exit_status(code, signal) != 0
    told = failed and record.is_cancelled(at)
    end = State.CANCELLED if told else State.FAILED if failed else State.DONE
    record.ranks[state.rank] = replace(
        state, state=end, exit_code=code, signal=signal, ended=at
    )
    if end is State.FAILED:
        failure = Failure(at, state.node, state.rank, code, signal)
        record.failures[state.node, state.rank] = failure


def _launcher_ended(record: Record, node: NodeRecord, event: NodeEvent) -> None:
    name = _text(event.fields, "name")
    plan = next(plan for plan in record.plan.nodes if plan.node == node.name)
    process = next((p for p in plan.processes if p.name == name), None)
    if process is None:
        return
    code, signal = _integer(event.fields, "code"), _integer(event.fields, "signal")
    if process.rank is not None:
        state = record.ranks.get(process.rank)
        if state is not None and not state.state.final:
            _end_rank(record, state, event.at, code, signal)
    elif exit_status(code, signal) == 0:
        record.launchers_ok.add((node.name, name))
    elif not record.is_cancelled(event.at):
        record.failures[node.name, name] = Failure(
            event.at, node.name, None, code, signal
        )


def _troubled(record: Record, node: NodeRecord, event: NodeEvent) -> None:
    if text := _text(event.fields, "text"):
        record.trouble(f"{node.name}: {text}")


def _cancel_asked(record: Record, node: NodeRecord, event: NodeEvent) -> None:
    record.cancelled = True
    if node.cancelled_at is None:
        node.cancelled_at = event.at


def _closed(record: Record, node: NodeRecord, event: NodeEvent) -> None:
    node.closed, node.lost = True, False
    told = record.is_cancelled(event.at)
    well = bool(record.launchers_ok) and not told
    for rank, state in record.ranks.items():
        if not _speaks(record, node, state) or state.state.final:
            continue
        # Ranks of a launcher that ended well and wrote no record ended well with it.
        end = State.CANCELLED if told else State.DONE if well else State.FAILED
        record.ranks[rank] = replace(state, state=end, ended=event.at)


def _connected(record: Record, node: NodeRecord, event: NodeEvent) -> None:
    node.lost = False
    slack = event.fields.get("uncertainty")
    if isinstance(slack, float) and 0 <= slack < 60:
        node.uncertainty = slack


def _lost(record: Record, node: NodeRecord, event: NodeEvent) -> None:
    node.lost = not node.closed
    _troubled(record, node, event)


_HANDLERS: dict[str, Callable[[Record, NodeRecord, NodeEvent], None]] = {
    "ready": _ready,
    "started": _started,
    "exited": _exited,
    "ended": _launcher_ended,
    "trouble": _troubled,
    "cancel": _cancel_asked,
    "closed": _closed,
    "connected": _connected,
    "lost": _lost,
}
