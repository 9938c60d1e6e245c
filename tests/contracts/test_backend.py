"""Contract tests of the launch backends; `PLACES` has one cluster for each backend."""

import asyncio
import time
from contextlib import suppress

import pytest

from rankdeck.model.rank import State
from rankdeck.remote.ssh import Connections
from tests.support.jobs import Console, console
from tests.support.polling import until

pytestmark = pytest.mark.slow

PLACES = {"ssh": console}


@pytest.fixture(params=sorted(PLACES))
def place(request):
    return PLACES[request.param]


async def test_a_job_runs_to_its_end_and_every_line_comes_once(place, tmp_path):
    async with place(tmp_path) as c:
        job = await c.launch(
            'i=0; while [ $i -lt 500 ]; do echo "line $i"; i=$((i+1)); done; echo bad >&2'
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(c.follow(job))
            await until(lambda: job in c.followers)
            c.watch(job, range(4))
        done = c.jobs.job(job)

        assert (done.state, done.exit_code, done.first_failure) == (State.DONE, 0, None)
        assert {rank.state for rank in done.ranks} == {State.DONE}
        for rank in range(4):
            assert sorted(c.texts(job, rank)) == sorted([f"line {i}" for i in range(500)] + ["bad"])


async def test_the_rank_that_fails_first_is_named_with_its_last_words(place, tmp_path):
    async with place(tmp_path) as c:
        job = await c.launch(
            '[ "$RANKDECK_NODE" = n2 ] && { echo my last words; exit 3; }; sleep 0.7; exit 9'
        )
        await c.follow(job)
        failed = c.jobs.job(job)

        assert (failed.state, failed.exit_code) == (State.FAILED, 3)
        assert failed.first_failure.node == "n2"
        assert failed.first_failure.rank in (2, 3)
        assert "my last words" in failed.first_failure.lines


async def test_another_console_finds_the_job_and_reads_it_from_the_start(place, tmp_path):
    async with place(tmp_path) as c:
        job = await c.launch(
            'i=0; while [ $i -lt 30 ]; do echo "line $i"; i=$((i+1)); sleep 0.05; done'
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(0.8):
                await c.follow(job)
        saved = c.jobs.job(job)
        async with Connections(c.cluster) as connections:
            other = Console(c.cluster, connections)
            other.jobs.restore(saved)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(other.follow(job))
                await until(lambda: job in other.followers)
                other.watch(job, [0, 3])
            c.jobs.restore(other.jobs.job(job))

            assert other.state(job) is State.DONE
            assert other.texts(job, 3) == [f"line {i}" for i in range(30)]


async def test_the_log_of_a_closed_job_can_still_be_read(place, tmp_path):
    async with place(tmp_path) as c:
        job = await c.launch("echo hello")
        await c.follow(job)
        assert c.texts(job, 0) == []
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(c.follow(job))
            follower = c.followers[job]
            await until(lambda: c.followers[job] is not follower)
            c.watch(job, [0])

        assert c.texts(job, 0) == ["hello"]
        assert c.state(job) is State.DONE


@pytest.mark.parametrize(("by", "state"), [("user", State.CANCELLED), ("abort", State.FAILED)])
async def test_cancel_leaves_nothing_even_of_ranks_that_ignore_it(place, tmp_path, by, state):
    async with place(tmp_path) as c:
        job = await c.launch("trap '' TERM; setsid sleep 300 & sleep 300; sleep 300")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(c.follow(job))
            await until(lambda: {r.state for r in c.jobs.job(job).ranks} == {State.RUNNING})
            report = await c.backend.cancel(c.jobs.job(job).plan, 0.5, by=by)
            c.jobs.cancelled(job, report, time.time())

        assert (report.state, report.left, dict(report.unverified)) == (
            State.CANCELLED,
            (),
            {},
        )
        for node in c.jobs.job(job).nodes:
            assert [e.body.by for e in c.events(node, "cancel")] == [by]
        assert c.state(job) is state
        assert c.jobs.job(job).first_failure is None
