"""The frozen snapshot of a job, made from its record: states of ranks and job, first failure, exit
code.
"""

from collections.abc import Sequence

from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import Job, RankState
from rankdeck.model.rank import State, exit_status
from rankdeck.rules.messages import explain_end
from rankdeck.state.first_failure import first_failure, launcher_lines
from rankdeck.state.record import JobRecord
from rankdeck.state.scheduler_events import status_with_tasks
from rankdeck.values import replace


def state_of_job(ranks: Sequence[State], *, ended: bool, failed: bool, cancelled: bool) -> State:
    """The state of a job from the states of its ranks; `ended`: all its nodes have closed."""
    if ended:
        if failed:
            return State.FAILED
        return State.CANCELLED if cancelled else State.DONE
    if State.RUNNING in ranks:
        return State.RUNNING
    if State.LOST in ranks:
        return State.LOST
    begun = any(state is not State.PENDING for state in ranks)
    return State.RUNNING if begun else State.PENDING


def run_exit_code(state: State, first: FirstFailure | None) -> int | None:
    """The exit code of `rankdeck run`: that of what failed first, or 1 if
    it has none; None while the job runs.
    """
    if state is State.DONE:
        return 0
    if state is not State.FAILED:
        return None
    if first is None or first.what not in ("rank", "launcher", "undecided", "all"):
        return 1
    return exit_status(first.exit_code, first.signal) or 1


def job_snapshot(record: JobRecord) -> Job:
    """The job as it is now; built again only after a change."""
    if record.snapshot is not None:
        return record.snapshot
    ranks = tuple(_rank(record, record.ranks[rank]) for rank in sorted(record.ranks))
    first = _judged(record)
    state = state_of_job(
        [rank.state for rank in ranks],
        ended=record.ended,
        failed=_failed(record, first),
        cancelled=record.cancelled
        and (record.cut_short or any(r.state is not State.DONE for r in ranks)),
    )
    # If the nodes of a restored job no longer know it, no event comes:
    # its ranks ended when they fell silent.
    last = max((rank.ended for rank in ranks if rank.ended), default=record.created)
    ended = record.latest or last
    record.snapshot = Job(
        id=record.plan.job,
        name=record.plan.name,
        cluster=record.cluster,
        plan=record.plan,
        state=state,
        ranks=ranks,
        created=record.created,
        ended=ended if state.final else None,
        exit_code=run_exit_code(state, first),
        first_failure=None if state is State.DONE else first,
        countdown=None if state.final else record.countdown,
        kept=record.kept,
        kill_at=None if state.final else record.kill_at,
        notes=tuple(record.notes),
        mute={node.name: node.mute for node in record.nodes.values() if node.mute},
        proofs=dict(record.proofs),
        refused=dict(record.refused),
        full_disks=tuple(record.full_disks),
        explained=explain_end((*launcher_lines(record), *record.notes))
        if state is State.FAILED and not first
        else (),
        stalled=() if state.final else record.stalled,
        waits="" if state.final else record.waits,
        waited=record.waited,
        progress=record.reader.now if record.reader else None,
        marks=dict(record.marks),
        in_scheduler=status_with_tasks(record),
        clock=record.clock,
        output_coming=any(node.sending for node in record.nodes.values()),
    )
    return record.snapshot


def _judged(record: JobRecord) -> FirstFailure | None:
    """The first failure; judged again only after a change that may change the answer."""
    if record.refused_launch:
        return None
    if not record.judged:
        record.verdict, record.judged = first_failure(record), True
    return record.verdict


def _failed(record: JobRecord, first: FirstFailure | None) -> bool:
    # A failed launcher without a failed rank counts too, unless it was told to stop.
    failed = any(r.state is State.FAILED for r in record.ranks.values())
    return first is not None or record.aborted or record.refused_launch or failed


def _rank(record: JobRecord, rank: RankState) -> RankState:
    log = record.logs.get(("", rank.rank))
    if record.nodes[record.plan.supervising_node(rank.node)].lost and not rank.state.final:
        rank = replace(rank, state=State.LOST)
    if rank.state is State.RUNNING and (looks := record.looks.get(rank.rank)):
        rank = replace(rank, activity=looks[-1])
    if log is None:
        return rank
    if record.over:
        return replace(rank, lines=max(sum(log.counts.values()), rank.lines))
    heard = log.heard if log.heard is not None else rank.heard
    lines = max(sum(log.counts.values()), rank.lines)
    return replace(
        rank,
        last_line=log.last or rank.last_line,
        heard=heard,
        resumed=log.resumed,
        lines=lines,
    )
