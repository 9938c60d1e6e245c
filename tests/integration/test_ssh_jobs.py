"""Jobs over real SSH with the real agent: launch, follow, resume, cancel."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from benchmarks.fault_plants import processes
from tests.support.jobs import console
from tests.support.polling import until

from rankdeck.backends.follow import SHORTEST_SILENCE
from rankdeck.backends.node_link import TICK, LinkState
from rankdeck.errors import LaunchError
from rankdeck.model.job_spec import Launch, MpiOptions
from rankdeck.model.rank import State
from rankdeck.remote.agent import Agents
from rankdeck.state.launch_lock import launch_of
from rankdeck.values import replace

pytestmark = pytest.mark.slow

MPIRUN = next((str(p) for p in [Path(sys.executable).with_name("mpirun")] if p.exists()), "")


async def test_a_cut_link_loses_no_line_and_doubles_none(tmp_path):
    stop = tmp_path / "stop"
    async with console(tmp_path) as c:
        job = await c.launch(
            f'i=0; while [ ! -e {stop} ]; do echo "line $i"; i=$((i+1)); sleep 0.05; done; echo "end $i"'
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(c.follow(job))
            await until(lambda: job in c.followers)
            c.watch(job, range(4))
            for cut in range(1, 4):
                seen = len(c.texts(job, 0))
                await until(lambda seen=seen: len(c.texts(job, 0)) > seen + 5)
                c.nodes.sshd["n1"].cut()
                await until(lambda cut=cut: c.kinds.count(("n1", "disconnected")) >= cut)
            stop.touch()

        assert c.state(job) is State.DONE
        for rank in range(4):
            *lines, end = c.texts(job, rank)
            assert lines == [f"line {i}" for i in range(len(lines))]
            assert end == f"end {len(lines)}"
            assert c.jobs.log(job, rank).gaps == ()


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


@pytest.mark.left_out
async def test_cancel_waits_no_longer_than_its_time_for_a_link_that_dropped_and_stays_silent(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("rankdeck.backends.ssh.CANCEL_SLACK", 3.0)
    async with console(tmp_path) as c:
        job = await c.launch("trap '' TERM; sleep 300; sleep 300")
        plan = c.jobs.job(job).plan
        login = c.connections._logins
        login._access = replace(login._access, connect_limit=3600)
        async with asyncio.TaskGroup() as tasks:
            cancelling = tasks.create_task(c.backend.cancel(plan, 1.5))
            await asyncio.sleep(0.6)
            async with c.nodes.sshd["n2"].frozen(), asyncio.timeout(30):
                report = await cancelling

        assert list(report.unverified) == ["n2"]
        assert report.state is State.LOST


async def test_nothing_is_left_half_launched(tmp_path):
    async with console(tmp_path) as c:
        await c.nodes.sshd["n2"].stop()
        try:
            with pytest.raises(LaunchError, match=r"n2.*refused"):
                await c.launch("sleep 300")
            listed = await Agents(c.connections).call("n1", ("job", "list"), limit=30)
        finally:
            await c.nodes.sshd["n2"].start()

        assert b'"closed": false' not in listed.out


def _starters(home: Path) -> set[int]:
    """The programs below this home that stay to start one job after the
    other, not those that they fork for one.
    """
    found = {one.name: one for one in Path("/proc").glob("[0-9]*") if _stays(one, home)}
    return {int(name) for name, one in found.items() if _parent(one) not in found}


def _parent(process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / "stat").read_text().rpartition(")")[2].split()[1]
    return ""


def _stays(process: Path, home: Path) -> bool:
    with contextlib.suppress(OSError):
        ours = b"HOME=" + bytes(home) in (process / "environ").read_bytes()
        asked = ours and b"job\0run\0--each" in (process / "cmdline").read_bytes()
        return asked and (process / "fd/0").readlink() != Path(os.devnull)
    return False


async def test_jobs_that_start_often_are_started_by_one_program_on_each_node(tmp_path):
    async with console(tmp_path) as c, c.agents.starting_often():
        first = await c.launch("echo one")
        staying = _starters(tmp_path)
        second = await c.launch("echo two")

        assert len(staying) == 2
        assert _starters(tmp_path) == staying
        for job, said in ((first, "one"), (second, "two")):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(c.follow(job))
                await until(lambda job=job: job in c.followers)
                c.watch(job, range(2))
            assert c.state(job) is State.DONE
            assert c.texts(job, 0) == [said]
        with pytest.raises(LaunchError, match=r"started on node n[12] before"):
            await c.backend.launch(c.jobs.job(first).plan)
    await until(lambda: not _starters(tmp_path))


async def test_a_program_that_starts_jobs_and_is_killed_is_replaced(tmp_path):
    async with console(tmp_path) as c, c.agents.starting_often():
        job = await c.launch("sleep 300")
        for pid in _starters(tmp_path):
            with contextlib.suppress(ProcessLookupError):  # a fork of one, seen before its parent
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(LaunchError, match="Killed"):
            await c.launch("echo never")
        again = await c.launch("echo again")

        listed = await c.agents.call("n1", ("job", "list"), limit=30)
        running = [row["job"] for row in listed.rows if not row["closed"]]
        assert job in running
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(c.follow(again))
        assert c.state(again) is State.DONE


async def test_a_node_that_stops_answering_is_lost_and_found_again(tmp_path):
    async with console(tmp_path) as c:
        job = await c.launch("sleep 4")
        plan = c.jobs.job(job).plan
        async with impatiently_followed(c, job):
            before = time.time()
            await c.nodes.sshd["n2"].stop()
            await until(lambda: c.jobs.job(job).ranks[2].state is State.LOST)
            assert c.state(job) is State.RUNNING
            await c.nodes.sshd["n2"].start()

        (broken, lost) = (c.events("n2", kind)[0] for kind in ("disconnected", "lost"))
        assert before - 2.5 < broken.body.heard <= broken.at
        assert lost.body.heard == broken.body.heard < lost.at - 0.4
        assert plan.nodes[1].node == "n2"
        assert c.state(job) is State.DONE
        assert c.jobs.job(job).troubles == ()


def _signal_follow(job, node, number):
    """Signal the program that tells this console of the job, on that node."""
    words = f"job\0follow\0{job}\0{node}\0".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if words in (folder / "cmdline").read_bytes():
                os.kill(int(folder.name), number)


async def test_a_node_that_says_nothing_is_lost_though_its_connection_stands(tmp_path):
    async with console(tmp_path) as c:
        job = await c.launch("sleep 10")
        async with impatiently_followed(c, job):
            _signal_follow(job, "n2", signal.SIGSTOP)
            await until(lambda: c.jobs.job(job).ranks[2].state is State.LOST, 60)
            assert c.events("n2", "disconnected") == []
            _signal_follow(job, "n2", signal.SIGCONT)
            await until(lambda: c.jobs.job(job).ranks[2].state is not State.LOST, 60)

        assert c.state(job) is State.DONE
        assert [t for t in c.jobs.job(job).troubles if "does not answer" in t] == []


@pytest.mark.left_out
async def test_a_job_whose_run_folder_is_gone_for_a_while_is_named_and_goes_on(tmp_path):
    async with console(tmp_path) as c:
        job = await c.launch("for i in $(seq 100); do echo line $i; sleep 0.1; done")
        follow = c.backend.follow
        c.backend.follow = lambda *asked: _impatient(follow(*asked))
        (folder,) = tmp_path.glob(f"**/jobs/{job}/n2")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(c.follow(job))
            await until(lambda: {r.state for r in c.jobs.job(job).ranks} == {State.RUNNING})
            c.watch(job, range(4))
            folder.rename(folder.with_name("away"))
            await until(lambda: c.jobs.job(job).ranks[2].state is State.LOST)
            said = c.jobs.job(job).first_failure
            folder.with_name("away").rename(folder)

        assert "is gone" in c.events("n2", "lost")[0].body.why
        assert said is not None
        assert "removed, or its file system is not mounted" in said.explained[0].means
        assert c.state(job) is State.DONE
        assert c.jobs.job(job).troubles == ()
        assert c.texts(job, 2) == [f"line {i}" for i in range(1, 101)]


async def test_cancel_ends_what_runs_on_without_a_run_folder(tmp_path):
    async with console(tmp_path) as c:
        job = await c.launch("sleep 300")
        (folder,) = tmp_path.glob(f"**/jobs/{job}/n2")
        await until(lambda: (folder / "events").read_text().count('"started"') == 2)
        shutil.rmtree(folder)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(c.follow(job))
            report = await c.backend.cancel(c.jobs.job(job).plan, 0.5)

        assert (report.left, dict(report.unverified)) == ((), {})
        assert [*processes(job)] == []
        assert c.state(job) is State.CANCELLED


def _impatient(follower):
    follower._lost_after = 0.5
    return follower


@contextlib.asynccontextmanager
async def impatiently_followed(c, job):
    """Follow the job, whose ranks run then, with no patience for silent nodes."""
    follow = c.backend.follow
    c.backend.follow = lambda *asked: _impatient(follow(*asked))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(c.follow(job))
        await until(lambda: {r.state for r in c.jobs.job(job).ranks} == {State.RUNNING})
        yield


async def test_a_cancelled_job_with_a_dead_node_comes_to_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr("rankdeck.backends.ssh.CANCEL_SLACK", 1.0)
    async with console(tmp_path) as c:
        job = await c.launch("sleep 300")
        async with impatiently_followed(c, job):
            await c.nodes.sshd["n2"].stop()
            await until(lambda: c.jobs.job(job).ranks[2].state is State.LOST)
            report = await c.backend.cancel(c.jobs.job(job).plan, 0.2)
            c.jobs.cancelled(job, report, time.time())
        await c.nodes.sshd["n2"].start()

        assert list(report.unverified) == ["n2"]
        assert report.state is State.LOST
        assert c.state(job).final
        assert any("n2: not verified" in trouble for trouble in c.jobs.job(job).troubles)
        await c.backend.cancel(replace(c.jobs.job(job).plan), 0)


async def test_a_node_is_not_lost_while_a_console_starts_the_job_there(tmp_path):
    async with console(tmp_path) as c:
        job = await c.launch("sleep 300")
        async with impatiently_followed(c, job):
            with launch_of(job):
                await c.nodes.sshd["n2"].stop()
                await asyncio.sleep(3.0)
                during = c.jobs.job(job).ranks[2].state
            await until(lambda: c.jobs.job(job).ranks[2].state is State.LOST)
            await c.nodes.sshd["n2"].start()
            await c.backend.cancel(c.jobs.job(job).plan, 0.2)

        assert during is State.RUNNING


async def test_a_node_that_was_silent_while_a_console_started_the_job_is_followed_on(tmp_path):
    async with console(tmp_path) as c:
        job = await c.launch("sleep 300")
        async with impatiently_followed(c, job):
            with launch_of(job):
                _signal_follow(job, "n2", signal.SIGSTOP)
                await asyncio.sleep(SHORTEST_SILENCE + 2 * TICK)
                _signal_follow(job, "n2", signal.SIGCONT)
                await asyncio.sleep(3.0)
            during = c.jobs.job(job).ranks[2].state
            await c.backend.cancel(c.jobs.job(job).plan, 0.2)

        assert during is State.RUNNING
        assert c.state(job) is State.CANCELLED


async def test_a_rank_of_a_plain_job_cannot_start_a_command_on_another_node(tmp_path):
    mark, done = tmp_path / "taken", tmp_path / "done"
    wait = f"until [ -e {done} ]; do sleep 0.05; done"
    ask = f'"/tmp/rankdeck.$RANKDECK_JOB"/launch-agent n2 "touch {mark}"'
    async with console(tmp_path) as c:
        script = f'[ "$RANKDECK_RANK" = 0 ] || {{ {wait}; exit 0; }}; {ask}; touch {done}'
        job = await c.launch(script)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(c.follow(job))

        told = "n1: asked to start a command on n2, but has no launcher of MPI: refused"
        assert told in c.jobs.job(job).troubles
        assert [e.body.ok for e in c.events("n1", "answered")] == [False]
        assert not mark.exists()


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


async def test_what_a_node_wrote_is_read_after_its_part_of_the_job_is_over(tmp_path):
    async with console(tmp_path) as c:
        job = await c.launch('echo "here is $RANK"; [ "$RANK" = 0 ] || sleep 300', ranks_per_node=1)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(c.follow(job))
            # Nobody looked at its output while it ran.
            await until(
                lambda: (
                    job in c.followers and c.followers[job]._links["n1"].state is LinkState.ENDED
                ),
                60,
            )
            c.watch(job, (0, 1))
            try:
                await until(lambda: c.texts(job, 0) == ["here is 0"], 60)
                await until(lambda: c.texts(job, 1) == ["here is 1"])
                await until(lambda: not c.followers[job].behind)
            finally:
                await c.followers[job].close()
                await following
