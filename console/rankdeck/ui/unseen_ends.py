"""Which jobs ended while nobody looked at them or at the list of jobs."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rankdeck.model.rank import State

if TYPE_CHECKING:
    from rankdeck.model.job import Job

PERIOD = 1.0
"""Seconds between two looks."""


class UnseenEnds:
    """The ends that the operator has not seen yet: the top bar shows how many there are."""

    def __init__(self) -> None:
        self._open: frozenset[str] = frozenset()
        """The jobs that had not ended at the last look."""
        self._ended: dict[str, State] = {}

    def note(self, jobs: "Iterable[Job]") -> None:
        """See which jobs have ended since the last call; jobs that are parts of a larger work (an
        acceptance run, a study) are left out.
        """
        own = {job.id: job.state for job in jobs if not job.plan.part_of}
        now_open = frozenset(name for name, state in own.items() if not state.final)
        self._ended |= {name: own[name] for name in self._open - now_open if name in own}
        self._open = now_open

    def see(self, job_id: str = "") -> None:
        """The operator sees the end of this job; "" for all."""
        if job_id:
            self._ended.pop(job_id, None)
        else:
            self._ended.clear()

    @property
    def counts(self) -> tuple[tuple[State, int], ...]:
        """How many ended in each state, the worst first; () if all were seen."""
        states = (State.FAILED, State.CANCELLED, State.DONE)
        counted = ((state, [*self._ended.values()].count(state)) for state in states)
        return tuple((state, count) for state, count in counted if count)
