"""The jobs that are followed: what their nodes tell goes to `Jobs` and to the history; gang aborts."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from rankdeck.backends.base import Backend, Follower
from rankdeck.errors import RankdeckError
from rankdeck.model.job import Followed, Job, State
from rankdeck.rules.abort import countdown_for
from rankdeck.state.chronicle import Chronicle
from rankdeck.state.fleet import Fleet
from rankdeck.state.jobs import Jobs
from rankdeck.state.stalls import notice_stalls

log = logging.getLogger(__name__)
TICK = 0.25
LOOK_PERIOD = 0.02
START_LIMIT = 75.0
"""Longer than a launch agent waits for its daemon."""
CATCH_UP_LIMIT = 12.0
BACKLOG = 1 << 20
"""Bytes of earlier output fetched when a rank comes on screen."""

Start = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


async def until(condition: Callable[[], bool], limit: float) -> None:
    """Wait for this to become so, at most `limit` seconds."""
    deadline = time.monotonic() + limit
    # State is plain data without listeners: nobody could set an Event.
    while not condition() and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_PERIOD)


class Following:
    """The owner of all followers; `start` runs a task as long as the session is open."""

    def __init__(
        self, jobs: Jobs, fleet: Fleet, chronicle: Chronicle, start: Start
    ) -> None:
        self.jobs = jobs
        self._fleet = fleet
        self._chronicle = chronicle
        self._start = start
        self._backend: Backend
        self._followers: dict[str, Follower] = {}
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._listeners: dict[str, Callable[[Followed], None]] = {}
        self._held: set[str] = set()

    def begin(
        self, backend: Backend, cancel: Callable[[str], Awaitable[object]]
    ) -> None:
        """Follow through this backend; `cancel` ends a job of which a part has failed."""
        self._backend = backend
        self._start(self._judge(cancel))

    def play(self, job_id: str, work: Coroutine[Any, Any, None]) -> None:
        """Count this as the following of a job: `finished` waits for it."""
        self._pumps[job_id] = self._start(work)

    def hold(self, job_id: str) -> None:
        """Keep the rest of the job running: no gang abort."""
        self._held.add(job_id)
        self.jobs.set_countdown(job_id, None)

    def watch(
        self, job_id: str, ranks: Iterable[int], backlog: int | None = BACKLOG
    ) -> None:
        """From now on fetch the full text of these ranks and only the tails of the others.

        `backlog` limits how much earlier output is fetched; None fetches all of it.
        """
        job = self.jobs.job(job_id)
        if job.clock is not None:
            return
        if job_id not in self._followers:
            self.follow(job)
        offsets = self.jobs.resume_offsets(job_id, ranks, backlog)
        self._followers[job_id].watch(offsets)

    def listen(self, job_id: str, hear: Callable[[Followed], None]) -> None:
        """Call `hear` with everything that comes of this job, after it was taken in."""
        self._listeners[job_id] = hear

    async def finished(self, job_id: str) -> Job:
        """The job once its nodes have told everything."""
        if pump := self._pumps.get(job_id):
            await asyncio.wait((pump,))
        return self.jobs.job(job_id)

    async def started(self, job_id: str, limit: float = START_LIMIT) -> None:
        """Wait until every rank has begun, the job is over, or `limit` seconds went by.

        An MPI launcher needs a console until then: it starts the daemons.
        """
        await until(lambda: self._has_started(job_id), limit)

    def _has_started(self, job_id: str) -> bool:
        pending = any(r.state is State.PENDING for r in self.jobs.job(job_id).ranks)
        return not pending or job_id not in self._followers

    async def caught_up(self, limit: float = CATCH_UP_LIMIT) -> None:
        """Wait until what is known of the jobs is what their nodes know now."""
        await until(
            lambda: all(follower.current for follower in self._followers.values()),
            limit,
        )

    def follow(self, job: Job) -> None:
        """Hear from now on what the nodes of this job tell."""
        seen, _ = self.jobs.positions(job.id)
        follower = self._backend.follow(job.plan, seen)
        self._followers[job.id] = follower
        self._pumps[job.id] = self._start(self._pump(job.id, follower))

    async def _pump(self, job_id: str, follower: Follower) -> None:
        try:
            async for event in follower:
                self.jobs.apply(event)
                self._chronicle.take(event)
                if hear := self._listeners.get(job_id):
                    hear(event)
        except RankdeckError as error:
            self.jobs.note(job_id, str(error))
        finally:
            self._followers.pop(job_id, None)
            self._chronicle.save(self.jobs.job(job_id), time.time())

    async def _judge(self, cancel: Callable[[str], Awaitable[object]]) -> None:
        """Begin and carry out gang aborts."""
        while True:
            await asyncio.sleep(TICK)
            now = time.time()
            for job in self.jobs.all():
                if job.id not in self._followers or job.id in self._held:
                    continue
                if job.countdown is None:
                    if countdown := countdown_for(job, now):
                        log.warning(
                            "%s; stopping the others",
                            countdown.why,
                            extra={"source": job.id},
                        )
                        self.jobs.set_countdown(job.id, countdown)
                elif now >= job.countdown.deadline:
                    self._held.add(job.id)
                    self._start(self._abort(job.id, cancel))

    async def _abort(
        self, job_id: str, cancel: Callable[[str], Awaitable[object]]
    ) -> None:
        try:
            await cancel(job_id)
        except RankdeckError as error:
            self.jobs.note(job_id, f"could not stop the others: {error}")

    def save(self, now: float) -> None:
        """Judge who stalls, and write down what is new of every job."""
        self.notice_stalls()
        for job_id in tuple(self._followers):
            self._chronicle.save(self.jobs.job(job_id), now)

    def notice_stalls(self) -> None:
        """Judge now who should be heard and is not, in every job that is followed."""
        notice_stalls(self.jobs, self._fleet, tuple(self._followers), time.time())
