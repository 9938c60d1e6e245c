"""A job as it is now, made from its record."""

from dataclasses import replace

from rankdeck.model.insight import Explained
from rankdeck.model.job import FirstFailure, Job, RankState, State
from rankdeck.rules.decode import explain
from rankdeck.state.first_failure import first_failure, launcher_lines
from rankdeck.state.outcome import exit_code, job_state
from rankdeck.state.record import Record


def snapshot(record: Record) -> Job:
    """The job as it is now; made anew only after something came."""
    if record.snapshot is not None:
        return record.snapshot
    ranks = tuple(_rank(record, record.ranks[rank]) for rank in sorted(record.ranks))
    first = _judged(record)
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
        exit_code=exit_code(state, first),
        first_failure=None if state is State.DONE else first,
        countdown=None if state.final else record.countdown,
        troubles=tuple(record.troubles),
        explained=_explained(record) if state is State.FAILED and not first else (),
        stalled=() if state.final else record.stalled,
        progress=record.reader.now if record.reader else None,
        marks=dict(record.marks),
        clock=record.clock,
        output_coming=any(node.sending for node in record.nodes.values()),
    )
    return record.snapshot


def _judged(record: Record) -> FirstFailure | None:
    """The first failure; judged anew only where something came that may change the answer."""
    if record.refused:
        return None
    if not record.judged:
        record.verdict, record.judged = first_failure(record), True
    return record.verdict


def _failed(record: Record, first: FirstFailure | None) -> bool:
    # A failed launcher without a failed rank counts too, unless it was told to stop.
    failed = any(r.state is State.FAILED for r in record.ranks.values())
    return first is not None or record.aborted or record.refused or failed


def _rank(record: Record, rank: RankState) -> RankState:
    log = record.logs.get(("", rank.rank))
    if record.nodes[record.plan.keeper(rank.node)].lost and not rank.state.final:
        rank = replace(rank, state=State.LOST)
    if rank.state is State.RUNNING and (looks := record.looks.get(rank.rank)):
        rank = replace(rank, activity=looks[-1])
    if log is None:
        return rank
    heard = log.heard if log.heard is not None else rank.heard
    lines = max(sum(log.counts.values()), rank.lines)
    return replace(rank, last_line=log.last or rank.last_line, heard=heard, lines=lines)


def _explained(record: Record) -> tuple[Explained, ...]:
    """What launcher and nodes said about a job of which nothing failed first."""
    return explain((*launcher_lines(record), *record.troubles))
