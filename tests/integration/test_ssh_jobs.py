"""Jobs over real SSH with the real agent: launch, follow, resume, cancel."""

import asyncio
import sys
import time
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.polling import until
from tests.support.sshd import nodes

from rankdeck.backends.ssh import SshBackend
from rankdeck.errors import LaunchError
from rankdeck.model.job import Chunk, JobSpec, Launch, MpiOptions, State
from rankdeck.remote.attach import Agents
from rankdeck.remote.ssh import Connections
from rankdeck.state.jobs import Jobs

pytestmark = pytest.mark.slow

MPIRUN = next(
    (str(p) for p in [Path(sys.executable).with_name("mpirun")] if p.exists()), ""
)


class Console:
    """What a session does with a backend, in a few lines."""

    def __init__(self, cluster, connections):
        self.cluster, self.connections = cluster, connections
        self.backend = SshBackend(connections, Agents(connections))
        self.jobs = Jobs()
        self.kinds = []
        self.chunks = []
        self.followers = {}
        self.counter = 0

    async def launch(self, script, **options):
        self.counter += 1
        launch = options.pop("launch", Launch.PLAIN)
        command = ("sh", "-c", script)
        spec = JobSpec(
            name="t",
            launch=launch,
            command=command,
            **{"nodes": 2, "grace": 1.0, **options},
        )
        job = f"t-{time.time_ns()}-{self.counter}"
        plan = await self.backend.launch(self.backend.plan(self.cluster, spec, job))
        return self.jobs.add(plan, time.time()).id

    async def follow(self, job):
        follower = self.backend.follow(
            self.jobs.job(job).plan, self.jobs.positions(job)[0]
        )
        self.followers[job] = follower
        async with aclosing(aiter(follower)) as events:
            async for event in events:
                if isinstance(event, Chunk):
                    self.chunks.append(event)
                else:
                    self.kinds.append((event.node, getattr(event, "kind", "tail")))
                self.jobs.apply(event)

    def watch(self, job, ranks, backlog=None):
        self.followers[job].watch(self.jobs.resume_offsets(job, ranks, backlog))

    def state(self, job):
        return self.jobs.job(job).state

    def texts(self, job, rank):
        return [line.text for line in self.jobs.log(job, rank).lines]


@asynccontextmanager
async def console(tmp_path, names=("n1", "n2")):
    async with (
        nodes(tmp_path, names) as found,
        Connections(found.cluster) as connections,
    ):
        one = Console(found.cluster, connections)
        one.nodes = found
        try:
            yield one
        finally:
            for record in one.jobs.all():
                if not record.state.final:
                    await one.backend.cancel(record.plan, 0)


async def test_a_job_runs_to_its_end_and_every_line_comes_once(tmp_path):
    async with console(tmp_path) as c:
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
            assert sorted(c.texts(job, rank)) == sorted(
                [f"line {i}" for i in range(500)] + ["bad"]
            )


async def test_the_rank_that_fails_first_is_named_with_its_last_words(tmp_path):
    async with console(tmp_path) as c:
        job = await c.launch(
            '[ "$RANKDECK_NODE" = n2 ] && { echo my last words; exit 3; }; sleep 0.7; exit 9'
        )
        await c.follow(job)
        failed = c.jobs.job(job)

        assert (failed.state, failed.exit_code) == (State.FAILED, 3)
        assert failed.first_failure.node == "n2"
        assert failed.first_failure.rank in (2, 3)
        assert "my last words" in failed.first_failure.lines


async def test_a_cut_link_loses_no_line_and_doubles_none(tmp_path):
    async with console(tmp_path) as c:
        job = await c.launch(
            'i=0; while [ $i -lt 60 ]; do echo "line $i"; i=$((i+1)); sleep 0.05; done'
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(c.follow(job))
            await until(lambda: job in c.followers)
            c.watch(job, range(4))
            for _ in range(3):
                seen = len(c.texts(job, 0))
                await until(lambda seen=seen: len(c.texts(job, 0)) > seen + 5)
                c.nodes.sshd["n1"].cut()

        assert c.state(job) is State.DONE
        assert c.kinds.count(("n1", "disconnected")) >= 2
        for rank in range(4):
            assert c.texts(job, rank) == [f"line {i}" for i in range(60)]
            assert c.jobs.log(job, rank).gaps == ()


async def test_another_console_finds_the_job_and_reads_it_from_the_start(tmp_path):
    async with console(tmp_path) as c:
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


async def test_the_log_of_a_closed_job_can_still_be_read(tmp_path):
    async with console(tmp_path) as c:
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


async def test_cancel_leaves_nothing_even_of_ranks_that_ignore_it(tmp_path):
    async with console(tmp_path) as c:
        job = await c.launch("trap '' TERM; setsid sleep 300 & sleep 300; sleep 300")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(c.follow(job))
            await until(
                lambda: {r.state for r in c.jobs.job(job).ranks} == {State.RUNNING}
            )
            began = time.monotonic()
            report = await c.backend.cancel(c.jobs.job(job).plan, 0.5)
            c.jobs.cancelled(job, report)

        assert (report.state, report.left, dict(report.unverified)) == (
            State.CANCELLED,
            (),
            {},
        )
        assert time.monotonic() - began < 8
        assert c.state(job) is State.CANCELLED
        assert c.jobs.job(job).first_failure is None


async def test_cancel_goes_on_when_the_link_drops_in_the_middle(tmp_path):
    async with console(tmp_path) as c:
        job = await c.launch("trap '' TERM; sleep 300; sleep 300")
        plan = c.jobs.job(job).plan
        async with asyncio.TaskGroup() as tasks:
            cancelling = tasks.create_task(c.backend.cancel(plan, 1.5))
            await asyncio.sleep(0.6)
            c.nodes.sshd["n2"].cut()

        assert cancelling.result().left == ()
        assert dict(cancelling.result().unverified) == {}


async def test_nothing_is_left_half_launched(tmp_path):
    async with console(tmp_path) as c:
        await c.nodes.sshd["n2"].stop()
        try:
            with pytest.raises(LaunchError, match=r"n2.*refused"):
                await c.launch("sleep 300")
            listed = await c.connections.run(
                "n1", (*await c.backend._agents.agent_path("n1"), "job", "list")
            )
        finally:
            await c.nodes.sshd["n2"].start()

        assert b'"closed": false' not in listed.out


async def test_a_node_that_stops_answering_is_lost_and_found_again(tmp_path):
    async with console(tmp_path) as c:
        job = await c.launch("sleep 4")
        plan = c.jobs.job(job).plan
        follow = c.backend.follow
        c.backend.follow = lambda plan, seen: _impatient(follow(plan, seen))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(c.follow(job))
            await until(
                lambda: {r.state for r in c.jobs.job(job).ranks} == {State.RUNNING}
            )
            await c.nodes.sshd["n2"].stop()
            await until(lambda: c.jobs.job(job).ranks[2].state is State.LOST)
            assert c.state(job) is State.RUNNING
            await c.nodes.sshd["n2"].start()

        assert plan.nodes[1].node == "n2"
        assert c.state(job) is State.DONE
        assert c.jobs.job(job).troubles


def _impatient(follower):
    follower._lost_after = 0.5
    return follower


async def test_a_cancelled_job_with_a_dead_node_comes_to_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr("rankdeck.backends.ssh.CANCEL_SLACK", 1.0)
    async with console(tmp_path) as c:
        job = await c.launch("sleep 300")
        follow = c.backend.follow
        c.backend.follow = lambda plan, seen: _impatient(follow(plan, seen))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(c.follow(job))
            await until(
                lambda: {r.state for r in c.jobs.job(job).ranks} == {State.RUNNING}
            )
            await c.nodes.sshd["n2"].stop()
            await until(lambda: c.jobs.job(job).ranks[2].state is State.LOST)
            report = await c.backend.cancel(c.jobs.job(job).plan, 0.2)
            c.jobs.cancelled(job, report)
        await c.nodes.sshd["n2"].start()

        assert list(report.unverified) == ["n2"]
        assert report.state is State.LOST
        assert c.state(job).final
        assert any(
            "n2: not verified" in trouble for trouble in c.jobs.job(job).troubles
        )
        await c.backend.cancel(replace(c.jobs.job(job).plan), 0)


@pytest.mark.slow
@pytest.mark.skipif(not MPIRUN, reason="no mpirun of Open MPI 5 beside the interpreter")
async def test_an_mpi_job_gets_its_daemons_over_our_own_connections(tmp_path):
    options = MpiOptions(path=MPIRUN)
    async with console(tmp_path) as c:
        job = await c.launch(
            'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE"; [ "$OMPI_COMM_WORLD_RANK" != 2 ] || exit 3; sleep 20',
            launch=Launch.MPI,
            mpi=options,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(c.follow(job))
            await until(lambda: job in c.followers)
            c.watch(job, range(4))
        failed = c.jobs.job(job)

        assert failed.state is State.FAILED
        assert (failed.first_failure.rank, failed.first_failure.node) == (2, "n2")
        assert failed.exit_code == 3
        for rank in range(4):
            assert c.texts(job, rank)[0] == f"rank {rank} of 4"
