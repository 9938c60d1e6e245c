"""How what Slurm says of a job changes its record: its state in the queue, its runs, its end."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rankdeck.model.border import number, stamp
from rankdeck.model.ending import exit_status
from rankdeck.model.job import Explained, FirstFailure, NodeEvent, RankState, State
from rankdeck.model.slurm import Attempt, SlurmStatus, SlurmTask
from rankdeck.model.text import clean, strip_controls
from rankdeck.state.record import JobRecord, NodeRecord

SCHEDULER = "scheduler"
"""`FirstFailure.what` of an end that Slurm decided."""
_WORDS = ("id", "state", "reason", "partition", "nodes", "node", "by", "array")
_COUNTS = ("attempt", "position", "waiting", "rank", "code")
_MOST_ATTEMPTS, _MOST_FAILED = 100, 16
_MOST_COUNT = 1 << 31


def slurm_says(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    """Take what Slurm says now; the last word of it ends the job in its terms."""
    before = record.slurm or SlurmStatus()
    status = _status(event, before.attempts)
    if status.over:
        # The end tells less of where it was: that is kept.
        status = replace(status, partition=before.partition, limit=before.limit, start=before.start,
                         nodes=status.nodes or before.nodes)  # fmt: skip
    record.slurm = status
    if status.state == "CANCELLED" and status.over:
        record.cancelled = True
    if status.decided and not status.array:
        _let_go(record)


def _status(event: NodeEvent, attempts: tuple[Attempt, ...]) -> SlurmStatus:
    fields = event.fields
    # The node's own clock made the event: what Slurm says is shifted in the same way.
    shift = event.at - fields["at"] if stamp(fields.get("at")) else 0.0
    found: dict[str, Any] = {
        key: fields[key] + shift for key in ("start", "ends") if stamp(fields.get(key))
    }
    limit = fields.get("limit")
    found |= {key: _count(fields, key) for key in _COUNTS if _count(fields, key) is not None}
    return SlurmStatus(
        **{key: clean(fields.get(key), 400) for key in _WORDS},
        text=_sentence(fields, "text"),
        do=_sentence(fields, "do"),
        stuck=fields.get("stuck") is True,
        over=fields.get("over") is True,
        limit=float(limit) if number(limit) and 0 <= limit < _MOST_COUNT else None,
        attempts=attempts,
        **found,
    )


def _count(fields: Mapping[str, Any], key: str) -> int | None:
    value = fields.get(key)
    return value if type(value) is int and 0 <= value < _MOST_COUNT else None


def _sentence(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    return strip_controls(value[:1000])[:500] if isinstance(value, str) else ""


def _let_go(record: JobRecord) -> None:
    """Ranks that a signal ended were ended by Slurm, not by a fault of theirs."""
    for rank, state in record.ranks.items():
        killed = state.signal is not None or state.exit_code is None or state.exit_code > 128
        if state.state is State.FAILED and killed:
            record.ranks[rank] = replace(state, state=State.CANCELLED)


def attempted(record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
    """Slurm queued the job again: what its ranks did is kept as a run of its own, and they begin anew."""
    number_ = _count(event.fields, "number")
    if number_ is None:
        return
    before = record.slurm or SlurmStatus()
    text = _sentence(event.fields, "text")
    run = _attempt(record.ranks.values(), max(number_ - 1, 0), text, event.at)
    attempts = (*before.attempts, run)[-_MOST_ATTEMPTS:]
    record.slurm = replace(before, attempts=attempts, attempt=number_)
    record.ranks = {
        rank: RankState(rank=rank, node=node.name, last_line=state.last_line)
        for rank, state in record.ranks.items()
    }
    for kept in (record.told, record.looks, record.launchers):
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
    """Take what Slurm says of one task of an array; its last word ends the rank in its terms."""
    rank = _count(event.fields, "rank")
    state = record.ranks.get(rank) if rank is not None else None
    if state is None or record.plan.supervising_node(state.node) != node.name:
        return  # only the login node speaks for ranks elsewhere
    before = record.tasks.get(state.rank) or SlurmTask(number=state.rank)
    attempt = _count(event.fields, "attempt") or 0
    if attempt > before.attempt:
        _begin_again(record, state, before, attempt, event)
        return
    task = replace(
        before,
        **{key: clean(event.fields.get(key), 400) for key in ("state", "reason")},
        id=clean(event.fields.get("id"), 40) or before.id,
        text=_sentence(event.fields, "text"),
        do=_sentence(event.fields, "do"),
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
    """Keep the run of a task that Slurm queued again; its rank begins anew where nobody knows yet."""
    run = _attempt([state], before.attempt, _sentence(event.fields, "text"), event.at)
    kept = (*before.attempts, run)[-_MOST_ATTEMPTS:]
    record.tasks[state.rank] = SlurmTask(number=state.rank, attempt=attempt, attempts=kept)
    record.ranks[state.rank] = RankState(
        rank=state.rank, node=event.node, last_line=state.last_line
    )
    record.told.pop(state.rank, None)
    record.looks.pop(state.rank, None)


def _ended_task(state: RankState, task: SlurmTask, event: NodeEvent, host: str) -> RankState:
    """The rank of a task that is over on `host`: Slurm's word comes before what its shim left."""
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
    """What Slurm says of the job, with its tasks if it is an array."""
    if record.slurm is None or not record.tasks:
        return record.slurm
    tasks = tuple(task for _, task in sorted(record.tasks.items()))
    return replace(record.slurm, tasks=tasks)


def is_cancelled(record: JobRecord) -> bool:
    """Whether Slurm says that somebody cancelled it, and not because a part of it had failed: nobody is to blame."""
    status = record.slurm
    ended = status is not None and status.over and status.state == "CANCELLED"
    return ended and not record.aborted


def decided_failure(record: JobRecord) -> FirstFailure | None:
    """The first failure of a job that Slurm ended; None where its ranks tell why it ended."""
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
            rank for rank, s in sorted(record.ranks.items()) if s.state is State.CANCELLED
        ),
        explained=(Explained(status.text, status.do),) if status.do else (),
        evidence=(status.text,),
        settled=record.ended,
    )
