"""Jobs that run one after the other for a study, drill or swap proof: stopping them with proof,
and nodes on which one of them may have left something.
"""

from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping
from typing import Any

from rankdeck.acceptance.measure import MeasureSession, ended_with_proof
from rankdeck.acceptance.stoppable import StoppableWork
from rankdeck.errors import RankdeckError

_LOOK_LIMIT = 30.0
"""Seconds in which nodes must report what runs on them."""


class JobSeries:
    """The jobs of one study or drill; they carry its id in `part_of`."""

    def __init__(self, session: MeasureSession, name: str) -> None:
        """`name`: what it is to the user, such as `study`."""
        self._session, self._name = session, name
        self._left: dict[str, tuple[str, str]] = {}
        """Node -> (job, what may still run there)."""
        self._work = StoppableWork(session)

    def refuse_while_running(self) -> None:
        """Raise RankdeckError if the jobs of a series run now."""
        if self._work.runs:
            raise RankdeckError(f"a {self._name} is running: stop it first")

    async def carry_out(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do the work that starts the jobs; returns whether it came to
        its end, False if it was stopped.
        """
        return await self._work.carry_out(work)

    async def stop(self, part_of: str) -> tuple[str, ...]:
        """Cancel the work, whose job is then cancelled and verified; returns
        a sentence for each process left.
        """
        await self._work.stop()
        jobs = [job for job in self._session.jobs.all() if job.plan.part_of == part_of and part_of]
        return tuple(text for job in jobs if job.unproven for text in job.troubles)

    async def look_around(self) -> Mapping[str, str]:
        """Learn what else runs on the nodes; returns node -> why it did not answer."""
        return await self._session.control.find_running(_LOOK_LIMIT)

    def jobs_on(self, nodes: Collection[str]) -> Iterator[tuple[str, str]]:
        """(job, node) of what runs on these nodes now."""
        for job in self._session.jobs.all():
            if not job.state.final:
                yield from ((job.id, node) for node in job.nodes if node in nodes)

    async def end_earlier(self, part_of: str) -> None:
        """End jobs that an earlier console left of this series: they would disturb it."""
        await self.look_around()
        for job in self._session.jobs.all():
            if job.plan.part_of == part_of and (not job.state.final or job.unproven):
                self.remember(job.id, await ended_with_proof(self._session, job.id))

    def remember(self, job_id: str, left: Mapping[str, str]) -> None:
        """Keep what a job may have left: node -> what may still run there."""
        self._left |= {node: (job_id, why) for node, why in left.items()}

    async def prove_clean(self) -> None:
        """Check nodes again on which something may run; those that are clean take part again."""
        for job in {job for job, _ in self._left.values()}:
            left = await ended_with_proof(self._session, job)
            for node in [
                node for node, (of, _) in self._left.items() if of == job and node not in left
            ]:
                del self._left[node]

    def why_not_free(self, nodes: Iterable[str]) -> str:
        """Why one of these nodes may not be free yet; "" if all are."""
        resting = next((name for name in nodes if name in self._left), "")
        return f"{resting} may not be free yet: {self._left[resting][1]}" if resting else ""
