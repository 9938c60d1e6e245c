"""What is new of a job that runs, in lines for somebody who only sees its output. No I/O."""

from collections.abc import Callable, Iterator

from rankdeck.model.blame import how, who
from rankdeck.model.insight import Stall
from rankdeck.model.job import Job, State
from rankdeck.model.nodeset import fold, fold_ranks

Tell = Callable[[Job, Job, float], Iterator[str]]
_EARLY = 1.0
"""Seconds before its end from which on a countdown that is gone has done its work."""


def tidings(before: Job, after: Job, now: float) -> tuple[str, ...]:
    """What happened between two snapshots of a job, each thing in one line."""
    return tuple(line for tell in _TELLERS for line in tell(before, after, now))


def _failure(before: Job, after: Job, _now: float) -> Iterator[str]:
    old, new = _blamed(before), _blamed(after)
    if new and new != old:
        yield f"{'corrected: ' if old else ''}first failure so far: {new}"
    elif old and not new and not after.state.final:
        yield f"corrected: {old}: not a failure after all"


def _blamed(job: Job) -> str:
    """Who failed first and how; without the ranks it took along, which change all the time."""
    first = job.first_failure
    return f"{who(first)}, {how(first)}" if first else ""


def countdown(before: Job, after: Job, now: float) -> Iterator[str]:
    """What became of the gang abort: it begins, is carried out, or was called off."""
    old, new = before.countdown, after.countdown
    if new and not old:
        yield f"stopping the other ranks in {max(new.deadline - now, 0):.0f} s"
    elif old and not new and now >= old.deadline - _EARLY:
        yield "stopping the other ranks now"
    elif old and not new and not after.state.final:
        yield "the other ranks are kept running"


def _stalls(before: Job, after: Job, _now: float) -> Iterator[str]:
    for stall in after.stalled:
        if not _among(stall, before.stalled):
            yield f"{'slow' if stall.kind == 'slow' else 'stalled'}: {stall.text}"
    if after.state.final:
        return
    for stall in before.stalled:
        if not _among(stall, after.stalled):
            names = fold_ranks(stall.ranks)
            yield f"no longer {'slow' if stall.kind == 'slow' else 'stalled'}: {names}"


def _among(stall: Stall, others: tuple[Stall, ...]) -> bool:
    """Whether it was told already: a stall that takes in more ranks is the same one."""
    ranks = set(stall.ranks)
    return any(o.kind == stall.kind and ranks & set(o.ranks) for o in others)


def _troubles(before: Job, after: Job, _now: float) -> Iterator[str]:
    known = set(before.troubles)
    yield from (text for text in after.troubles if text not in known)


def _found_again(before: Job, after: Job, _now: float) -> Iterator[str]:
    back = _lost(before) - _lost(after)
    if back and not after.state.final:
        yield f"{fold(sorted(back))}: answers again"


def _lost(job: Job) -> set[str]:
    return {rank.node for rank in job.ranks if rank.state is State.LOST}


_TELLERS: tuple[Tell, ...] = (_troubles, _found_again, _failure, countdown, _stalls)
