"""Applies each event of a node, and each report of Slurm, to the record of a job; invalid events change nothing."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from rankdeck.model.job import MUTE, Explained, FirstFailure, NodeEvent, RankState, State
from rankdeck.model.rank import computes, exit_status, place
from rankdeck.model.safe_text import clean, strip_controls
from rankdeck.model.schedulers import Attempt, SlurmStatus, SlurmTask
from rankdeck.model.text import as_list, number, stamp
from rankdeck.rules.ends import End, read_words
from rankdeck.state.record import EndReport, JobRecord, NodeRecord, last_lines, looked
from rankdeck_agent.wire import LAUNCHER

SCHEDULER = "scheduler"
"""`FirstFailure.what` if Slurm ended the job."""
_WORDS = ("id", "state", "reason", "partition", "nodes", "node", "by", "array")
_COUNTS = ("attempt", "position", "waiting", "rank", "code")
_MOST_ATTEMPTS, _MOST_FAILED = 100, 16
_MOST_COUNT = 1 << 31


def slurm_says(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    """Take the job's present state in Slurm; a final state ends the job."""
    before = record.slurm or SlurmStatus()
    status = _status(event, before.attempts)
    if status.over:
        # The final report lacks some fields: keep their last values.
        status = replace(status, partition=before.partition, limit=before.limit, start=before.start,
                         nodes=status.nodes or before.nodes)  # fmt: skip
    record.slurm = status
    if status.state == "CANCELLED" and status.over:
        record.cancelled = True
    if _ended_by_slurm(record):
        _let_go(record)


def _status(event: NodeEvent, attempts: tuple[Attempt, ...]) -> SlurmStatus:
    fields = event.fields
    # Slurm's times are on the node's clock: shift them like the time of the event.
    shift = event.at - fields["at"] if stamp(fields.get("at")) else 0.0
    found: dict[str, Any] = {
        key: fields[key] + shift for key in ("start", "ends") if stamp(fields.get(key))
    }
    limit = fields.get("limit")
    found |= {key: _count(fields, key) for key in _COUNTS if _count(fields, key) is not None}
    return SlurmStatus(
        **{key: clean(fields.get(key), 400) for key in _WORDS},
        text=_text(fields, "text"),
        do=_text(fields, "do"),
        stuck=fields.get("stuck") is True,
        over=fields.get("over") is True,
        limit=float(limit) if number(limit) and 0 <= limit < _MOST_COUNT else None,
        attempts=attempts,
        **found,
    )


def _count(fields: Mapping[str, Any], key: str) -> int | None:
    value = fields.get(key)
    return value if type(value) is int and 0 <= value < _MOST_COUNT else None


def _ended_by_slurm(record: JobRecord) -> bool:
    """Whether Slurm ended the job as a whole; the tasks of an array end one by one."""
    return record.slurm is not None and record.slurm.decided and not record.slurm.array


def _let_go(record: JobRecord) -> None:
    """Note that ranks ended by a signal were ended by Slurm and did not fail."""
    for rank, state in record.ranks.items():
        killed = state.signal is not None or state.exit_code is None or state.exit_code > 128
        if state.state is State.FAILED and killed:
            record.ranks[rank] = replace(state, state=State.CANCELLED)


def attempted(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    """Slurm queued the job again: keep the run so far as an attempt, and reset the ranks."""
    number_ = _count(event.fields, "number")
    if number_ is None:
        return
    before = record.slurm or SlurmStatus()
    text = _text(event.fields, "text")
    run = _attempt(record.ranks.values(), max(number_ - 1, 0), text, event.at)
    attempts = (*before.attempts, run)[-_MOST_ATTEMPTS:]
    record.slurm = replace(before, attempts=attempts, attempt=number_)
    _begin_anew(record, node)


def began_again(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    """Kubernetes suspended the job: reset the ranks; their earlier ends are not failures."""
    record.trouble(_text(event.fields, "text"))
    _begin_anew(record, node)


def _begin_anew(record: JobRecord, node: NodeRecord) -> None:
    record.ranks = {
        rank: RankState(rank=rank, node=node.name, last_line=state.last_line)
        for rank, state in record.ranks.items()
    }
    for kept in (record.end_reports, record.looks, record.launchers):
        kept.clear()
    record.first_failure = record.verdict = None
    record.stalled = ()


def _attempt(ranks: Iterable[RankState], number_: int, text: str, at: float) -> Attempt:
    begun = [state for state in ranks if state.started is not None]
    ends = [state.ended for state in begun if state.ended is not None]
    failed = [s for s in begun if s.state is State.FAILED and s.ended is not None]
    first = min(failed, key=lambda state: state.ended or at, default=None)
    return Attempt(
        number=number_,
        text=text,
        nodes=tuple(dict.fromkeys(state.node for state in begun)),
        started=min((state.started or at for state in begun), default=None),
        ended=max(ends, default=at),
        ranks=len(begun),
        failed=tuple(state.rank for state in failed[:_MOST_FAILED]),
        exit_code=exit_status(first.exit_code, first.signal) if first else None,
    )


def task_says(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    """Take the present state of one task of an array in Slurm; a final state ends the rank."""
    rank = _count(event.fields, "rank")
    state = record.ranks.get(rank) if rank is not None else None
    if state is None or record.plan.supervising_node(state.node) != node.name:
        return  # only the login node reports ranks on other nodes
    before = record.tasks.get(state.rank) or SlurmTask(number=state.rank)
    attempt = _count(event.fields, "attempt") or 0
    if attempt > before.attempt:
        _begin_again(record, state, before, attempt, event)
        return
    task = replace(
        before,
        **{key: clean(event.fields.get(key), 400) for key in ("state", "reason")},
        id=clean(event.fields.get("id"), 40) or before.id,
        text=_text(event.fields, "text"),
        do=_text(event.fields, "do"),
        over=event.fields.get("over") is True,
    )
    record.tasks[state.rank] = task
    if task.over:
        host = clean(event.fields.get("nodes"), 64)
        known = record.plan.supervising_node(host) == node.name
        record.ranks[state.rank] = _ended_task(state, task, event, host if known else "")


def _begin_again(
    record: JobRecord, state: RankState, before: SlurmTask, attempt: int, event: NodeEvent
) -> None:
    """Keep the run of a task that Slurm queued again, and reset its rank: its new node is not known yet."""
    run = _attempt([state], before.attempt, _text(event.fields, "text"), event.at)
    kept = (*before.attempts, run)[-_MOST_ATTEMPTS:]
    record.tasks[state.rank] = SlurmTask(number=state.rank, attempt=attempt, attempts=kept)
    record.ranks[state.rank] = RankState(
        rank=state.rank, node=event.node, last_line=state.last_line
    )
    record.end_reports.pop(state.rank, None)
    record.looks.pop(state.rank, None)


def _ended_task(state: RankState, task: SlurmTask, event: NodeEvent, host: str) -> RankState:
    """The rank of a task that is over; `host` is its node or "". Slurm's verdict counts more than the shim's record."""
    code = state.exit_code if state.state.final else _count(event.fields, "code")
    well = task.state == "COMPLETED" and not code
    end = State.DONE if well else State.CANCELLED if task.state == "CANCELLED" else State.FAILED
    begun = state.started is not None or bool(host)
    return replace(
        state,
        state=end,
        exit_code=code if begun and state.signal is None else None,
        node=state.node if state.started is not None else host or state.node,
        ended=state.ended or event.at,
    )


def slurm_with_tasks(record: JobRecord) -> SlurmStatus | None:
    """The job's state in Slurm, with its tasks if it is an array."""
    if record.slurm is None or not record.tasks:
        return record.slurm
    tasks = tuple(task for _, task in sorted(record.tasks.items()))
    return replace(record.slurm, tasks=tasks)


def is_cancelled(record: JobRecord) -> bool:
    """Whether the job was cancelled in Slurm, and not by Rankdeck's gang abort."""
    status = record.slurm
    ended = status is not None and status.over and status.state == "CANCELLED"
    return ended and not record.aborted


def decided_failure(record: JobRecord) -> FirstFailure | None:
    """The first failure of a job that Slurm ended; None if its ranks show why it ended."""
    status = record.slurm
    if status is None or not status.decided or status.state == "CANCELLED":
        return None
    lines = tuple(line for end in record.launchers.values() for line in end.lines)
    own = tuple(line for line in lines if line.startswith(("slurmstepd", "srun:")))
    return FirstFailure(
        what=SCHEDULER,
        rank=status.rank if status.rank in record.ranks else None,
        node=status.node,
        name=f"Slurm: {status.state}",
        exit_code=None,
        signal=None,
        at=record.latest or record.created,
        lines=own[:8],
        victims=tuple(
            rank
            for rank, s in sorted(record.ranks.items())
            if s.state is State.CANCELLED and s.started is not None
        ),
        explained=(Explained(status.text, status.do),) if status.do else (),
        evidence=(status.text,),
        settled=record.ended,
    )


_MOST_LINES, _MOST_KERNEL, _MOST_ADDRESSES = 80, 8, 64
SUPERVISOR = "supervisor"
"""Launcher name in the failure of a supervisor that was gone before its ranks had ended."""


def reports_rank(record: JobRecord, node: NodeRecord, state: RankState) -> bool:
    """Whether the supervisor of this node reports this rank."""
    return record.plan.supervising_node(state.node) == node.name


def _claim(record: JobRecord, node: NodeRecord, event: NodeEvent) -> RankState | None:
    """The rank of an event, if this node may report it. MPI may start a pending rank on another node than planned."""
    rank = _integer(event.fields, "rank")
    state = record.ranks.get(rank) if rank is not None else None
    if state is None:
        return None
    if reports_rank(record, node, state):
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
    """Reset what this node has reported about the job: it sends all its events again."""
    node.restored = node.closed = node.sending = False
    node.seen = -1
    record.settled = record.over = False
    record.slurm = None
    record.tasks.clear()
    for mark in ("ready", "started"):
        record.marks.pop(mark, None)
    for rank, state in record.ranks.items():
        if reports_rank(record, node, state):
            record.ranks[rank] = RankState(rank=rank, node=node.name, last_line=state.last_line)
            record.end_reports.pop(rank, None)
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
        host = ""  # `host` may name another machine only if the run folder is shared (Slurm)
    record.end_reports.pop(state.rank, None)
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
    record.end_reports[state.rank] = EndReport(
        lines=_texts(event.fields, "said", _MOST_LINES),
        kernel=_texts(event.fields, "kernel", _MOST_KERNEL),
        doing=_doing(event.fields.get("activity")),
    )
    if exit_status(code, signal) != 0:
        read_words(record.end_reports[state.rank].lines)
    _end_rank(record, state, event.at, code, signal)


def _texts(fields: Mapping[str, Any], name: str, most: int) -> tuple[str, ...]:
    """The last `most` lines of a list that a node sent, each made safe."""
    lines = as_list(fields.get(name))[-most:]
    texts = (line[:1000] for line in lines if isinstance(line, str))
    return tuple(strip_controls(text)[:500] for text in texts)


def _doing(value: object) -> str:
    """What the rank did last, in words, from `value` = [state, wchan, cores]; "" if that is invalid."""
    state, wchan, cores = (*as_list(value), None, None, None)[:3]
    if not isinstance(state, str) or not isinstance(wchan, str):
        return ""
    busy = isinstance(cores, int | float) and computes(state, cores)
    return place(strip_controls(state[:2]), strip_controls(wchan[:60]), busy=busy)


def _end_rank(
    record: JobRecord, state: RankState, at: float, code: int | None, signal: int | None
) -> None:
    node = record.nodes[record.plan.supervising_node(state.node)]
    failed = exit_status(code, signal) != 0
    stopped = failed and record.is_stopped(at, node)
    end = State.CANCELLED if stopped else State.FAILED if failed else State.DONE
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
            at=event.at, slack=node.uncertainty, stopped=record.is_stopped(event.at, node),
            lines=_texts(event.fields, "said", _MOST_LINES) or _launcher_tail(record, node),
        )  # fmt: skip
    elif process is not None:
        record.launchers_ok.add((node.name, name))


def _launcher_tail(record: JobRecord, node: NodeRecord) -> tuple[str, ...]:
    """The launcher's last lines that this console has, for a node that sends none with the launcher's end."""
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
    # A restored job's events are applied all at once, so `closed` follows at once.
    if "seq" in event.fields or node.restored or node.closed:
        return
    _closed(record, node, event)
    node.sending = True


def _closed(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    node.closed, node.sending = True, False
    _is_back(record, node)
    if text := _unstarted(event):
        node.unstarted = True
        record.trouble(f"{node.name}: {text}")
    if all(other.unstarted for other in record.nodes.values()) and not record.begun:
        # One sentence for all nodes; no rank has failed.
        record.troubles = ["it was never started: none of its nodes knows it"]
        record.refused = record.settled = True
        record.ranks = {
            rank: replace(state, state=State.PENDING, ended=None)
            for rank, state in record.ranks.items()
        }
        return
    stopped = record.is_stopped(event.at, node) or _ended_by_slurm(record)
    well = bool(record.launchers_ok) and not stopped
    for rank, state in record.ranks.items():
        if not reports_rank(record, node, state) or state.state.final:
            continue
        # Ranks without a record ended well if their launcher did.
        end = State.CANCELLED if stopped else State.DONE if well else State.FAILED
        record.ranks[rank] = replace(state, state=end, ended=event.at)


def _unstarted(event: NodeEvent) -> str:
    """Why the follower says that the node does not know the job; "" for an event of the node itself."""
    return _text(event.fields, "unstarted") if "seq" not in event.fields else ""


def _connected(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    # Remove sentences that are no longer true: the job may still end well.
    record.troubles = [
        text for text in record.troubles if not text.startswith(f"{node.name}: {MUTE}")
    ]
    _is_back(record, node)
    _clock(record, node, event)


def _is_back(record: JobRecord, node: NodeRecord) -> None:
    node.lost = False
    if not record.aborted:
        # If the lost node made us stop the job, it stays the cause even when it is back.
        node.gone = None


def _clock(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    slack = event.fields.get("uncertainty")
    if isinstance(slack, float) and 0 <= slack < 60:
        node.uncertainty = slack


def _lost(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    if node.closed:
        # It has reported how the job ended: losing it now does not matter to the job.
        if node.sending:
            record.trouble(f"{node.name}: the rest of the output is on the node")
        return
    if node.lost:
        return  # a repeated failure to reach it is nothing new, and must not move the time of its loss
    heard = event.fields.get("heard")
    known = isinstance(heard, float) and 0 < heard <= event.at
    node.lost, node.why = True, _text(event.fields, "text")
    if node.gone is None:
        node.gone = heard if known else event.at
    _troubled(record, node, event)


HANDLERS: dict[str, Callable[[JobRecord, NodeRecord, NodeEvent], None]] = {
    "ready": _ready,
    "started": _started,
    "activity": looked,
    "exited": _exited,
    "ended": _launcher_ended,
    "trouble": _troubled,
    "cancel": _cancel_asked,
    "slurm": slurm_says,
    "again": began_again,
    "attempt": attempted,
    "task": task_says,
    "closing": _closing,
    "closed": _closed,
    "connected": _connected,
    "clock": _clock,
    "lost": _lost,
}
"""Kind of event (from a supervisor or the follower) -> function that applies it."""
