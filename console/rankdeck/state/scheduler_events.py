"""Applies what a scheduler reports of a job, its runs and its tasks to the job's record."""

from collections.abc import Iterable

from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import RankState
from rankdeck.model.job_events import NodeEvent
from rankdeck.model.queue import ArrayTask, Attempt, QueueStatus
from rankdeck.model.rank import State, exit_status
from rankdeck.model.stall import Explained, tell_who_held_up
from rankdeck.state.record import JobRecord, NodeRecord
from rankdeck.values import replace
from rankdeck_agent.wire.job_events import AttemptBegan, RanksReset, SchedulerReport, TaskReport

SCHEDULER = "scheduler"
"""`FirstFailure.what` if the scheduler ended the job."""
_MOST_ATTEMPTS, _MOST_FAILED = 100, 16


def take_scheduler_report(
    record: JobRecord, node: NodeRecord, event: NodeEvent, said: SchedulerReport
) -> None:
    """Take the job's present state in its scheduler; a final state ends the job."""
    before = record.in_scheduler or QueueStatus()
    status = _status_of(event, said, before.attempts)
    if status.over:
        # The final report lacks some fields: keep their last values.
        status = replace(
            status,
            partition=before.partition,
            account=before.account,
            qos=before.qos,
            limit=before.limit,
            start=before.start,
            nodes=status.nodes or before.nodes,
        )
    record.in_scheduler = status
    if status.state == "CANCELLED" and status.over:
        record.cancelled = record.cut_short = True
    if is_ended_by_scheduler(record):
        _release_ranks(record)


def _status_of(
    event: NodeEvent, said: SchedulerReport, attempts: tuple[Attempt, ...]
) -> QueueStatus:
    return QueueStatus(
        id=said.id,
        state=said.state,
        reason=said.reason,
        partition=said.partition,
        account=said.account,
        qos=said.qos,
        nodes=said.nodes,
        node=said.node,
        by=said.by,
        array=said.array,
        text=said.text,
        do=said.do,
        stuck=said.stuck,
        over=said.over,
        attempt=said.attempt,
        position=said.position,
        waiting=said.waiting,
        rank=said.rank,
        code=said.code,
        limit=said.limit,
        # Its times are on the node's clock.
        start=None if said.start is None else said.start - event.offset,
        ends=None if said.ends is None else said.ends - event.offset,
        attempts=attempts,
    )


def is_ended_by_scheduler(record: JobRecord) -> bool:
    """Whether the scheduler ended the job as a whole; the tasks of an array end one by one."""
    return (
        record.in_scheduler is not None
        and record.in_scheduler.decided
        and not record.in_scheduler.array
    )


def _release_ranks(record: JobRecord) -> None:
    """Note that ranks ended by a signal were ended by the scheduler and did not fail."""
    for rank, state in record.ranks.items():
        killed = state.signal is not None or state.exit_code is None or state.exit_code > 128
        if state.state is State.FAILED and killed:
            record.ranks[rank] = replace(state, state=State.CANCELLED)


def begin_attempt(
    record: JobRecord, node: NodeRecord, event: NodeEvent, said: AttemptBegan
) -> None:
    """The job was queued again: keep the run so far as an attempt, and reset the ranks."""
    before = record.in_scheduler or QueueStatus()
    run = _finished_attempt(record.ranks.values(), max(said.number - 1, 0), said.text, event.at)
    attempts = (*before.attempts, run)[-_MOST_ATTEMPTS:]
    record.in_scheduler = replace(before, attempts=attempts, attempt=said.number)
    _reset_ranks(record, node)


def restart_ranks(record: JobRecord, node: NodeRecord, event: NodeEvent, said: RanksReset) -> None:
    """The scheduler suspended the job: reset the ranks; their earlier ends are not failures."""
    record.note(said.text)
    _reset_ranks(record, node)


def _reset_ranks(record: JobRecord, node: NodeRecord) -> None:
    record.ranks = {
        rank: RankState(rank=rank, node=node.name, last_line=state.last_line)
        for rank, state in record.ranks.items()
    }
    for kept in (record.end_reports, record.looks, record.launchers):
        kept.clear()
    record.first_failure = record.verdict = record.scheduler = None
    record.stalled = ()


def _finished_attempt(ranks: Iterable[RankState], number: int, text: str, at: float) -> Attempt:
    begun = [state for state in ranks if state.started is not None]
    ends = [state.ended for state in begun if state.ended is not None]
    failed = [s for s in begun if s.state is State.FAILED and s.ended is not None]
    first = min(failed, key=lambda state: state.ended or at, default=None)
    return Attempt(
        number=number,
        text=text,
        nodes=tuple(dict.fromkeys(state.node for state in begun)),
        started=min((state.started or at for state in begun), default=None),
        ended=max(ends, default=at),
        ranks=len(begun),
        failed=tuple(state.rank for state in failed[:_MOST_FAILED]),
        exit_code=exit_status(first.exit_code, first.signal) if first else None,
    )


def take_task_report(
    record: JobRecord, node: NodeRecord, event: NodeEvent, said: TaskReport
) -> None:
    """Take the present state of one task of an array; a final state ends the rank."""
    state = record.ranks[said.rank]
    before = record.tasks.get(said.rank) or ArrayTask(number=said.rank)
    if said.attempt > before.attempt:
        _begin_task_again(record, state, before, event, said)
        return
    task = replace(
        before,
        state=said.state,
        reason=said.reason,
        id=said.id or before.id,
        text=said.text,
        do=said.do,
        over=said.over,
    )
    record.tasks[said.rank] = task
    if task.over:
        known = record.plan.supervising_node(said.nodes) == node.name
        host = said.nodes if known else ""
        record.ranks[said.rank] = _ended_task(state, task, event, said.code, host)


def _begin_task_again(
    record: JobRecord, state: RankState, before: ArrayTask, event: NodeEvent, said: TaskReport
) -> None:
    """Keep the run of a task that was queued again, and reset its
    rank: its new node is not known yet.
    """
    run = _finished_attempt([state], before.attempt, said.text, event.at)
    kept = (*before.attempts, run)[-_MOST_ATTEMPTS:]
    record.tasks[state.rank] = ArrayTask(number=state.rank, attempt=said.attempt, attempts=kept)
    record.ranks[state.rank] = RankState(
        rank=state.rank, node=event.node, last_line=state.last_line
    )
    record.end_reports.pop(state.rank, None)
    record.looks.pop(state.rank, None)


def _ended_task(
    state: RankState, task: ArrayTask, event: NodeEvent, code: int | None, host: str
) -> RankState:
    """The rank of a task that is over; `host` is its node or "".

    The scheduler's verdict counts more than the shim's record.
    """
    code = state.exit_code if state.state.final else code
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


def status_with_tasks(record: JobRecord) -> QueueStatus | None:
    """The job's state in its scheduler, with its tasks if it is an array."""
    if record.in_scheduler is None or not record.tasks:
        return record.in_scheduler
    tasks = tuple(task for _, task in sorted(record.tasks.items()))
    return replace(record.in_scheduler, tasks=tasks)


def is_cancelled(record: JobRecord) -> bool:
    """Whether the job was cancelled in its scheduler, and not by Rankdeck's gang abort."""
    status = record.in_scheduler
    ended = status is not None and status.over and status.state == "CANCELLED"
    return ended and not record.aborted


def decided_failure(record: JobRecord) -> FirstFailure | None:
    """The first failure of a job that its scheduler ended; None if its ranks show why it ended."""
    status = record.in_scheduler
    if status is None or not status.decided or status.state == "CANCELLED":
        return None
    lines = tuple(line for end in record.launchers.values() for line in end.lines)
    own = tuple(line for line in lines if line.startswith(record.plan.can.own_words))
    return FirstFailure(
        what=SCHEDULER,
        rank=status.rank if status.rank in record.ranks else None,
        node=status.node,
        name=f"{record.plan.can.scheduler}: {status.state}",
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
        evidence=(status.text, *tell_who_held_up(record.held_up)),
        settled=record.ended,
    )
