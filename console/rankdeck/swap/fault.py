"""The fault of a job as a value: who is named, in which way, how long after the start. Pure."""

from collections.abc import Iterable, Mapping

from rankdeck.drill.judge import blamed_by_stall
from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import Job
from rankdeck.model.safe_text import clean_line
from rankdeck.model.stall import Stall
from rankdeck.swap.values import FaultKind, JobFault

_MOST = 300


def fault_in(job: Job, stalls: Iterable[Stall] = ()) -> JobFault | None:
    """What went wrong in this job; None: nothing is known.

    `stalls` are those of its black boxes, for a job that was cancelled while it stood still.
    """
    return next(iter(faults_in(job, stalls)), None)


def faults_in(job: Job, stalls: Iterable[Stall] = ()) -> tuple[JobFault, ...]:
    """All that goes wrong in a job; a failure comes first, then stalls that name somebody."""
    start = job.began
    if job.first_failure is not None:
        return (_of_failure(job.first_failure, start),)
    found = [_of_stall(stall, start) for stall in (*job.stalled, *stalls)]
    return tuple(sorted(found, key=lambda one: not (one.ranks or one.nodes)))


def _of_failure(failure: FirstFailure, start: float | None) -> JobFault:
    # Where nobody is accused, all who may be to blame: the proof tells them apart.
    suspects = () if failure.what == "all" else failure.suspects
    ranks = [one.rank for one in suspects if one.rank is not None]
    return JobFault(
        kind=FaultKind.FAILED,
        ranks=tuple(dict.fromkeys((*ranks, *failure.tied))) if ranks else (),
        nodes=() if ranks else tuple(dict.fromkeys(one.node for one in suspects)),
        exit_code=failure.exit_code,
        signal=failure.signal,
        seconds=_after(start, failure.at),
        sentence=clean_line(failure.sentence, _MOST),
    )


def _of_stall(stall: Stall, start: float | None) -> JobFault:
    named = blamed_by_stall(stall)
    return JobFault(
        kind=FaultKind.SLOW if stall.kind == "slow" else FaultKind.HANG,
        ranks=named.ranks,
        nodes=named.nodes,
        seconds=_after(start, stall.since),
        sentence=clean_line(stall.text, _MOST),
    )


def _after(start: float | None, at: float) -> float | None:
    return None if start is None else round(max(at - start, 0.0), 1)


def places_of(job: Job) -> Mapping[str, tuple[int, ...]]:
    """Node -> its ranks, in the order of the plan; ranks whose node is not known are left out."""
    found: dict[str, list[int]] = {}
    for rank in job.ranks:
        if rank.node:
            found.setdefault(rank.node, []).append(rank.rank)
    return {node: tuple(ranks) for node, ranks in found.items()}
