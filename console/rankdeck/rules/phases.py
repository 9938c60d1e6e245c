"""The parts of a run with their durations, from when each was reached. No I/O."""

from collections.abc import Iterable

from rankdeck.model.insight import Phase
from rankdeck.model.job import Job, State

ORDER = (
    ("copy", "ready"),
    ("start", "started"),
    ("rendezvous", "output"),
    ("first step", "step"),
)
"""Name of a phase and the mark that ends it: files laid and supervisors up on every node, every
rank begun, the first line of any rank, the first step it reports."""


def phases(job: Job) -> tuple[Phase, ...]:
    """What the run went through so far; a mark that was never reached joins the next phase."""
    found: list[Phase] = []
    begin = job.created
    for name, mark in ORDER:
        at = job.marks.get(mark)
        if at is None:
            continue
        # Clocks of nodes differ a little: a phase never has a negative length.
        at = max(at, begin)
        found.append(Phase(name, begin, at))
        begin = at
    end = job.ended
    if "started" in job.marks or found:
        return (
            *found,
            Phase("running", begin, None if end is None else max(end, begin)),
        )
    return (Phase("copy", begin, end),)


def last_run(job: Job, others: Iterable[Job]) -> Job | None:
    """The newest earlier run of the same name that went well, else the newest that ended."""
    earlier = [
        one
        for one in others
        if one.name == job.name
        and one.id != job.id
        and one.created < job.created
        and one.state.final
    ]
    well = [one for one in earlier if one.state is State.DONE]
    return max(well or earlier, key=lambda one: one.created, default=None)
