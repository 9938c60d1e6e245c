"""A job that is run only until all is known that it was started for, with the proof that nothing of
it is left.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Protocol

from rankdeck.acceptance.measure import Ended, MeasureSession, ended_with_proof, measure_job
from rankdeck.model.job import Job
from rankdeck.model.job_spec import JobSpec
from rankdeck.values import replace

LOOK = 0.1
"""Seconds between two looks at what is shown."""


class JobWatch(Protocol):
    """Takes in what is shown of a job, look by look."""

    async def look(self, job: Job, now: float) -> bool:
        """Take in what is shown at `now`, epoch seconds; returns whether nothing more is waited
        for.
        """
        ...

    async def release(self) -> None:
        """Undo what was done to the nodes of the job: it is ended next. May be called twice."""
        ...


async def run_watched_job(
    session: MeasureSession,
    spec: JobSpec,
    watch: JobWatch,
    limit: float,
    environment: Mapping[str, str],
) -> Ended:
    """Run a job until it ends, until `watch` says that all is known, or for `limit` seconds.

    When this returns, the job was looked at once more after its end, and it is verified that
    nothing of it runs, or `left` says what may. `spec.part_of` must be set: the job is found by it.

    Cancelled, it cancels the job with proof first.
    """
    known = {job.id for job in session.jobs.all()}
    decided = False

    def rest() -> float:
        return 0.0 if decided else limit

    async def look_until_decided() -> None:
        nonlocal decided
        while not decided:
            await asyncio.sleep(LOOK)
            own = (job for job in session.jobs.all() if job.plan.part_of == spec.part_of)
            job = next((job for job in own if job.id not in known), None)
            if job is not None and await watch.look(job, time.time()):
                await watch.release()
                decided = True

    async with asyncio.TaskGroup() as tasks:
        runs = tasks.create_task(measure_job(session, spec, rest, environment))
        looks = tasks.create_task(look_until_decided())
        try:
            await asyncio.wait((runs,))
        finally:
            looks.cancel()
            await watch.release()
            runs.cancel()
    ended = runs.result()
    if ended.refused or not ended.job or ended.hung:
        return ended
    await watch.look(session.jobs.job(ended.job), time.time())
    return replace(ended, left=await ended_with_proof(session, ended.job))
