"""A log far longer than a console wants: only what is looked at is asked of the node."""

import asyncio
import os
import signal
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from rankdeck.backends.follow import SshFollower
from rankdeck.backends.remote_log import RemoteLogs
from rankdeck.backends.ssh import SshBackend
from rankdeck.following import Following, wait_for_condition
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_events import NodeEvent
from rankdeck.model.job_spec import Abort
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State
from rankdeck.model.rank_output import LogPlace
from rankdeck.remote.agent import Agents
from rankdeck.state.fleet import Fleet
from rankdeck.state.history_thread import HistoryThread, open_history
from rankdeck.state.job_recorder import JobRecorder
from rankdeck.state.jobs import Jobs
from rankdeck.state.lines import JobPositions
from rankdeck.values import replace
from rankdeck_agent.job import processes
from rankdeck_agent.job.layout import make_run_folder, unlink_links
from rankdeck_agent.wire import NodePlan
from tests.support.local import local_shell
from tests.support.node_events import node_event
from tests.unit.test_history import PLAN

SIZE = 128 << 20
"""Bytes of the log; most of them are a hole in the file."""
BACKLOG = 1 << 16
SLACK = 1 << 16
"""Bytes of frames and events beside the output."""
EVENTS = (
    '{"seq": 0, "at": 1.0, "kind": "ready", "pid": 1, "boot": "b"}',
    '{"seq": 1, "at": 1.0, "kind": "started", "rank": 0, "pid": 1}',
)
FAILED = '{"seq": 2, "at": 9.0, "kind": "exited", "rank": 0, "code": 3, "signal": null}'
CLOSED = '{"seq": 3, "at": 9.0, "kind": "closed"}'


class Console:
    """What opens on a job of an earlier console."""

    def __init__(self, shell, history: HistoryThread, plan: Plan, start) -> None:
        fleet, agents = Fleet(CLUSTER), Agents(shell)
        self.jobs, self.plan, self.shell = Jobs(), plan, shell
        self.jobs.add(plan, 1.0)
        recorder, backend = JobRecorder(history, fleet, "c"), SshBackend(agents)
        self.following = Following(self.jobs, fleet, recorder, backend, start)
        self.following.begin(self._cancel)
        self.reading = RemoteLogs(agents)

    async def _cancel(self, job_id: str) -> None:
        raise AssertionError(f"{job_id} was to be cancelled")

    @property
    def log(self):
        return self.jobs.log(self.plan.job, 0)

    async def shows(self, text: str) -> None:
        # Not `last`: that may only have been told, before any output was asked for.
        await wait_for_condition(lambda: self._newest() == text, 60.0)
        assert self._newest() == text

    def _newest(self) -> str:
        lines = self.log.lines
        return lines[-1].text if lines else ""


CLUSTER = Cluster(name="lab", nodes=(Node(name="n1"),))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A job with one rank and a huge log, as it lies on its node."""
    monkeypatch.setenv("RANKDECK_STATE", str(tmp_path))
    plan = NodePlan(f"huge-{os.getpid()}", "n1", (0,))
    folder = make_run_folder(plan)
    with (folder.place(0) / "out").open("wb") as file:
        file.truncate(SIZE - BACKLOG)  # a hole, as a log that somebody emptied begins
        file.seek(0, 2)
        file.write(b"." * BACKLOG + b"\nthe end\n")
    (folder / "events").write_text("\n".join(EVENTS) + "\n")
    here = processes.find_process(os.getpid())
    (folder / "supervisor.pid").write_text(f"{here.pid} {here.start}")
    yield folder
    unlink_links(folder)


@asynccontextmanager
async def opened(folder, home: Path):
    plan = NodePlan(folder.job, "n1", (0,))
    whole = Plan(
        job=plan.job,
        name="huge",
        cluster="lab",
        backend="ssh",
        nodes=(plan,),
        abort=Abort(),
    )
    tasks: list[asyncio.Task[None]] = []

    def start(work) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    async with local_shell(home) as shell, open_history(home / "history.db") as history:
        try:
            yield Console(shell, history, whole, start)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


@pytest.mark.long
async def test_a_new_console_asks_only_for_the_end_of_a_job_that_runs(job, tmp_path: Path) -> None:
    async with opened(job, tmp_path) as console:
        console.following.watch(job.job, (0,), BACKLOG)
        await console.shows("the end")
        with (job.place(0) / "out").open("ab") as file:
            file.write(b"and more\n")
        await console.shows("and more")

        assert console.shell.sent < BACKLOG + SLACK
        # Before the only gap there is nothing: it is everything but the end.
        (gap,) = console.log.gaps
        assert (gap.start, gap.end) == (0, SIZE + 9 - BACKLOG)


@pytest.mark.long
async def test_a_new_console_asks_only_for_the_end_of_a_job_that_is_over(
    job, tmp_path: Path
) -> None:
    (job / "events").write_text("\n".join([*EVENTS, CLOSED]) + "\n")
    async with opened(job, tmp_path) as console:
        console.following.watch(job.job, (0,), BACKLOG)
        await console.following.caught_up()

        # Caught up is only who has heard the end, and what was asked for with it.
        assert console.log.lines[-1].text == "the end"
        assert await console.following.finished(job.job)
        assert console.shell.sent < BACKLOG + SLACK
        assert console.shell.opened.count("job follow") == 1


@pytest.mark.long
async def test_of_a_rank_that_failed_unwatched_only_the_last_words_come(
    job, tmp_path: Path
) -> None:
    (job / "events").write_text("\n".join([*EVENTS, FAILED, CLOSED]) + "\n")
    async with opened(job, tmp_path) as console:
        console.following.follow(console.jobs.job(job.job))
        await console.following.finished(job.job)

        assert console.log.lines[-1].text == "the end"
        assert console.shell.sent < 2 * SLACK


@pytest.mark.long
async def test_a_place_far_up_and_the_next_match_come_from_one_agent(job, tmp_path: Path) -> None:
    async with opened(job, tmp_path) as console:
        output = console.reading.of(console.jobs.job(job.job), 0)
        part = await output.read(LogPlace(0, "out", SIZE - 1), 100)
        reports = [
            one async for one in output.find(LogPlace(0, "out", part.end), "the end", back=True)
        ]

        assert b"".join(chunk.data for chunk in part.chunks) == b"the end\n"
        # It is told where it is before the half gigabyte above it has been read.
        assert reports[0].at == SIZE + 1
        assert reports[0].share < 0.1
        assert (reports[-1].count, reports[-1].before, reports[-1].whole) == (1, 0, True)
        assert console.shell.opened.count("job browse") == 1
        assert console.shell.sent < SLACK


@pytest.mark.long
async def test_an_agent_that_has_ended_meanwhile_is_started_again(job, tmp_path: Path) -> None:
    async with opened(job, tmp_path) as console:
        output = console.reading.of(console.jobs.job(job.job), 0)
        channel = await output._browsing.open()
        channel.end()
        await channel.wait()
        part = await output.read(LogPlace(0, "out", -9), 100)

        assert part.end == SIZE + 9
        assert console.shell.opened.count("job browse") == 2


@pytest.mark.left_out
@pytest.mark.slow
async def test_the_output_of_a_job_that_another_console_saw_end_comes_though_its_node_was_silent(
    job, tmp_path: Path
) -> None:
    async with opened(job, tmp_path) as console:
        console.following.watch(job.job, (0,), BACKLOG)
        await console.shows("the end")
        heard: list[NodeEvent] = []
        console.following.listen(
            job.job, lambda item: heard.append(item) if isinstance(item, NodeEvent) else None
        )
        agent = console.shell.channels[console.shell.opened.index("job follow")].process
        agent.send_signal(signal.SIGSTOP)
        with (job.place(0) / "out").open("ab") as file:
            file.write(b"and more\n")
        console.jobs.tell(replace(console.jobs.job(job.job), state=State.DONE))
        await wait_for_condition(lambda: any(event.kind == "lost" for event in heard), 40.0)
        agent.send_signal(signal.SIGCONT)

        await console.shows("and more")


@pytest.mark.long
async def test_who_tells_a_thousand_things_at_once_leaves_turns_to_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankdeck.backends.follow.TURN", 0.0)
    turns = took = 0
    async with local_shell(tmp_path) as shell, asyncio.TaskGroup() as tasks:
        follower = SshFollower(Agents(shell), PLAN, {}, JobPositions().of)
        follower._waiting.extend(
            node_event(PLAN.job, "n1", "trouble", 1.0, text="t") for _ in range(1000)
        )

        async def take() -> None:
            nonlocal took
            async for _ in follower:
                took += 1
                if took == 1000:
                    await follower.close()

        taking = tasks.create_task(take())
        while took < 1000:
            turns += 1
            await asyncio.sleep(0)
        taking.cancel()

    assert turns > 500


async def test_who_stops_taking_events_midway_leaves_no_error(tmp_path: Path) -> None:
    async with local_shell(tmp_path) as shell:
        follower = SshFollower(Agents(shell), PLAN, {}, JobPositions().of)
        follower._waiting.extend(
            node_event(PLAN.job, "n1", "trouble", 1.0, text="t") for _ in range(2)
        )
        async with aclosing(aiter(follower)) as events:
            assert (await anext(events)).body.text == "t"


@pytest.mark.long
async def test_what_a_quiet_rank_says_does_not_wait_behind_a_flood(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("RANKDECK_STATE", str(tmp_path))
    node = NodePlan(f"flood-{os.getpid()}", "n1", (0, 1))
    folder, before = make_run_folder(node), 0
    (folder / "events").write_text("\n".join(EVENTS) + "\n")
    here = processes.find_process(os.getpid())
    (folder / "supervisor.pid").write_text(f"{here.pid} {here.start}")
    with (folder.place(0) / "out").open("wb") as file:
        file.truncate(SIZE)
    quiet = folder.place(1) / "out"
    quiet.touch()
    async with local_shell(tmp_path) as shell:
        read = JobPositions()
        follower = SshFollower(
            Agents(shell), replace(PLAN, job=node.job, nodes=(node,)), {}, read.of
        )
        follower.watch(node.ranks, None)
        taken = 0
        async for item in follower:
            if not read.take(item):
                continue
            if item.rank == 1:
                break
            # One that is slow: it paints or prints.
            await asyncio.sleep(0.02)
            taken += len(item.data)
            if taken > 4 << 20 and not before:
                before = taken
                quiet.write_bytes(b"quiet\n")
    unlink_links(folder)

    assert taken - before < 2 << 20
