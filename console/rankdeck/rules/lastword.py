"""What holds of a job of which two consoles wrote something down."""

from dataclasses import replace

from rankdeck.model.insight import Explained
from rankdeck.model.job import Job, RankState


def last_word(mine: Job, kept: Job) -> Job:
    """What both know together; `kept` where they contradict each other and neither knows more.

    A job that has ended never runs again, and a failure that was explained stays explained.
    """
    if mine is kept or mine == kept:
        return mine
    first, other = (kept, mine) if _weight(kept) >= _weight(mine) else (mine, kept)
    if not first.state.final:
        # Both see it run, but only our own nodes' news are of this second.
        first, other = mine, kept
    word = replace(
        first,
        explained=first.explained or _explained(first, other),
        troubles=tuple(dict.fromkeys((*kept.troubles, *mine.troubles))),
        marks={**other.marks, **first.marks},
        progress=first.progress or other.progress,
        ranks=_ranks(first, other),
        node_notes=max(mine.node_notes, kept.node_notes, key=len),
    )
    return next((one for one in (mine, kept) if one == word), word)


def _weight(job: Job) -> tuple[bool, bool, bool, int]:
    """How much is known of the end of a job."""
    failure = job.first_failure
    if failure is None:
        return job.state.final, False, False, len(job.explained)
    said = len(failure.evidence) + len(failure.lines) + len(failure.explained)
    return job.state.final, True, failure.settled, said


def _explained(first: Job, other: Job) -> tuple[Explained, ...]:
    """What the other makes of the same end."""
    same = first.state is other.state
    blank = first.first_failure is None and other.first_failure is None
    return other.explained if same and blank else ()


def _ranks(first: Job, other: Job) -> tuple[RankState, ...]:
    """As the first says; of what they wrote, the larger part."""
    others = {rank.rank: rank for rank in other.ranks}
    return tuple(_rank(rank, others.get(rank.rank)) for rank in first.ranks)


def _rank(one: RankState, other: RankState | None) -> RankState:
    if other is None or other.lines <= one.lines:
        return one
    return replace(one, lines=other.lines, last_line=other.last_line, heard=other.heard)
