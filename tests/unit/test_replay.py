"""A recording taken in again: the same end, in the same order, with pauses cut short."""

import asyncio
import time

from rankdeck.backends import remote_log
from rankdeck.backends.remote_log import Player, Replay
from rankdeck.model.job import Job
from rankdeck.model.rank import State
from rankdeck.model.rank_output import Chunk
from rankdeck.state.jobs import Jobs
from tests.support.node_events import node_event
from tests.unit.test_jobs_state import PLAN, Feed


def story() -> tuple[Job, list]:
    """A job in which rank 2 fails an hour after it wrote, and the recording of it."""
    feed, told = Feed(), []

    def hear(event) -> None:
        told.append(event)
        real(event)

    real, feed.jobs.apply = feed.jobs.apply, hear
    feed.start_all()
    feed.jobs.apply(Chunk("t-1", "n2", 2, "out", 0, 101.0, b"step 1\nboom\n"))
    feed.exit(2, code=3, at=3700.0)
    for rank in (0, 1, 3):
        feed.exit(rank, code=None, signal=15, at=3701.0)
    feed.tell("n1", "closed", 3702.0)
    feed.tell("n2", "closed", 3702.0)
    return feed.job, told


async def test_a_replay_ends_as_the_job_did() -> None:
    job, told = story()
    jobs = Jobs()
    jobs.add(PLAN, 100.0)

    await Player(jobs, Replay(PLAN, 100.0, tuple(told)), speed=1e6).run()

    again = jobs.job("t-1")
    assert (again.state, again.exit_code, again.ranks) == (
        job.state,
        job.exit_code,
        job.ranks,
    )
    assert again.first_failure == job.first_failure
    assert again.clock == 3702.0


async def test_an_hour_of_nothing_does_not_take_an_hour(monkeypatch) -> None:
    monkeypatch.setattr(remote_log, "PAUSE", 0.2)
    _, told = story()
    jobs = Jobs()
    jobs.add(PLAN, 100.0)

    async with asyncio.timeout(60):
        await Player(jobs, Replay(PLAN, 100.0, tuple(told)), speed=4.0).run()

    assert jobs.job("t-1").state is State.FAILED


async def test_in_between_the_moment_of_the_past_is_shown() -> None:
    plan, now = PLAN, time.time()
    event = node_event("t-1", "n1", "started", now + 1000, seq=0, rank=0, pid=5)
    jobs = Jobs()
    jobs.add(plan, now)

    async with asyncio.TaskGroup() as tasks:
        playing = tasks.create_task(Player(jobs, Replay(plan, now, (event,)), speed=1.0).run())
        async with asyncio.timeout(60):
            while jobs.job("t-1").clock is None:  # noqa: ASYNC110 - plain data, no Event
                await asyncio.sleep(0.01)
        assert now <= jobs.job("t-1").clock < now + 1001
        assert jobs.job("t-1").ranks[0].state is State.PENDING
        playing.cancel()


async def test_a_held_replay_stands_still_and_a_wound_one_shows_that_moment() -> None:
    _, told = story()
    jobs = Jobs()
    jobs.add(PLAN, 100.0)
    player = Player(jobs, Replay(PLAN, 100.0, tuple(told)), speed=1e6)
    await player.run()
    assert jobs.job("t-1").state is State.FAILED

    player.held = True
    player.wind(-1000.0)
    async with asyncio.TaskGroup() as tasks:
        playing = tasks.create_task(player.run())
        async with asyncio.timeout(60):
            while jobs.job("t-1").ranks[2].state is not State.RUNNING:  # noqa: ASYNC110 - plain data, no Event
                await asyncio.sleep(0.01)
            assert jobs.job("t-1").clock == 2702.0
            assert jobs.log("t-1", 2).last == "boom"

            player.wind(999.0)
            while jobs.job("t-1").ranks[2].state is not State.FAILED:  # noqa: ASYNC110 - plain data, no Event
                await asyncio.sleep(0.01)
            assert jobs.job("t-1").clock == 3701.0
        assert jobs.job("t-1").state is State.RUNNING

        player.held = False
        await playing
    assert jobs.job("t-1").state is State.FAILED
