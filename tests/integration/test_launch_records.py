"""What is written down of a job while it is launched: real SSH, real agents, one history."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.polling import until
from tests.support.sshd import Nodes, nodes_with_agent

from rankdeck.backends.follow import BELIEVE_AFTER
from rankdeck.config.files import console_state_folder
from rankdeck.errors import LaunchError
from rankdeck.job_control import FOUND, NOT_ASKED
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State
from rankdeck.opening import open_cluster_session
from rankdeck.session import Session
from rankdeck.state.history import History
from rankdeck.state.jobs import Jobs
from rankdeck.state.launch_lock import is_launched, launch_of
from rankdeck.values import replace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SLEEPS = JobSpec(
    name="sleeps", launch=Launch.PLAIN, nodes=2, grace=0.5,
    command=("sh", "-c", "echo here; exec sleep 60"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Folders of its own for each console under test."""
    for name in ("STATE", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    return


@asynccontextmanager
async def opened(cluster: Cluster) -> AsyncIterator[Session]:
    async with open_cluster_session(cluster, telemetry=False) as session:
        yield session


def written(cluster: Cluster) -> tuple[Job, ...]:
    with History(console_state_folder() / "history.db") as history:
        return history.load(cluster.name)


def planned(session: Session, created: float = 0.0) -> Plan:
    """A job as a console that was killed before any node got it leaves it."""
    plan = session.control.plan(SLEEPS)
    with History(console_state_folder() / "history.db") as history:
        history.save(Jobs().add(plan, created or time.time()))
    return plan


async def left_running(cluster: Cluster) -> str:
    """The id of a job that runs, and whose console has gone."""
    async with opened(cluster) as first:
        job_id = await first.control.launch(SLEEPS)
        await first.following.started(job_id)
    return job_id


async def without(found: Nodes, name: str) -> Cluster:
    """The cluster, one node of which does not answer."""
    await found.sshd[name].stop()
    return replace(found.cluster, access=replace(found.cluster.access, connect_limit=0.5))


async def test_a_job_is_in_the_history_before_anything_runs_on_a_node(
    tmp_path: Path,
) -> None:
    async with nodes_with_agent(tmp_path) as found, opened(found.cluster) as session:
        launch = asyncio.create_task(session.control.launch(SLEEPS))
        await until(lambda: [*tmp_path.glob("n*/state/jobs/*/*")])
        known = written(found.cluster)
        job_id = await launch
        await session.control.cancel(job_id)

    assert [job.id for job in known] == [job_id]


async def test_a_refused_launch_is_kept_as_a_failed_job_with_the_reason(
    tmp_path: Path,
) -> None:
    async with nodes_with_agent(tmp_path) as found:
        cluster = await without(found, "n2")
        async with opened(cluster) as session:
            with pytest.raises(LaunchError) as refused:
                await session.control.launch(SLEEPS)

    (job,) = written(found.cluster)
    assert job.state is State.FAILED
    assert job.troubles == (str(refused.value),)


async def test_a_node_that_fails_at_a_launch_is_named_before_the_others_are_ended(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    known: list[tuple[str, ...]] = []

    async with nodes_with_agent(tmp_path) as found:
        cluster = await without(found, "n2")

        def tell(said: object) -> None:
            told.append(str(said))
            known.extend(job.troubles for job in written(found.cluster) if not job.state.final)

        async with opened(cluster) as session:
            with pytest.raises(LaunchError) as refused:
                await session.control.launch(SLEEPS, tell)

    assert told == [f"{refused.value} · ending what was started …"]
    assert known == [(str(refused.value),)]
    (job,) = written(found.cluster)
    assert job.troubles == (str(refused.value),)


async def test_a_launch_that_is_interrupted_is_kept_as_a_failed_job(
    tmp_path: Path,
) -> None:
    async with nodes_with_agent(tmp_path) as found, opened(found.cluster) as session:
        launch = asyncio.create_task(session.control.launch(SLEEPS))
        await until(lambda: written(found.cluster))
        launch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await launch

    (job,) = written(found.cluster)
    assert job.state is State.FAILED
    assert job.troubles == ("its launch was interrupted",)


async def test_a_job_that_was_saved_and_never_started_is_failed_when_a_console_opens(
    tmp_path: Path,
) -> None:
    async with nodes_with_agent(tmp_path) as found:
        async with opened(found.cluster) as first:
            plan = planned(first)
        async with opened(found.cluster) as second:
            await second.following.caught_up()
            job = second.jobs.job(plan.job)

    assert job.state is State.FAILED
    assert job.troubles == ("it was never started: none of its nodes knows it",)


async def test_a_job_that_another_console_is_starting_is_not_called_unstarted(
    tmp_path: Path,
) -> None:
    async with nodes_with_agent(tmp_path) as found, opened(found.cluster) as first:
        plan = planned(first)
        with launch_of(plan.job):
            async with opened(found.cluster) as second:
                with pytest.raises(TimeoutError):
                    # Longer than a node is asked until its word is believed.
                    async with asyncio.timeout(BELIEVE_AFTER + 1):
                        await second.following.finished(plan.job)
                waiting = second.jobs.job(plan.job)

    assert waiting.state is State.PENDING


def test_the_word_of_a_launch_ends_with_it() -> None:
    with launch_of("some-job"):
        during = is_launched("some-job")

    assert during
    assert not is_launched("some-job")


async def test_a_job_that_the_history_does_not_know_is_found_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes_with_agent(tmp_path) as found:
        job_id = await left_running(found.cluster)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
        async with opened(found.cluster) as second:
            silent = await second.control.find_running()
            await until(lambda: second.jobs.job(job_id).state is State.RUNNING)
            job = second.jobs.job(job_id)
            report = await second.control.cancel(job_id)

    assert silent == {}
    assert job.name == "sleeps"
    assert job.troubles == (FOUND,)
    assert [(r.rank, r.node) for r in job.ranks] == [
        (0, "n1"),
        (1, "n1"),
        (2, "n2"),
        (3, "n2"),
    ]
    assert (report.state, report.left, report.unverified) == (State.CANCELLED, (), {})


async def test_a_job_that_was_found_in_part_is_said_so_and_completed_when_the_other_node_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes_with_agent(tmp_path) as found:
        job_id = await left_running(found.cluster)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
        async with found.sshd["n2"].frozen(), opened(found.cluster) as second:
            await second.control.find_running()
            part = second.jobs.job(job_id)
        async with opened(found.cluster) as third:
            await third.control.find_running(60)
            await until(lambda: third.jobs.job(job_id).state is State.RUNNING)
            whole = third.jobs.job(job_id)
            report = await third.control.cancel(job_id)

    assert [(r.rank, r.node) for r in part.ranks] == [(0, "n1"), (1, "n1")]
    assert part.troubles == (FOUND, f"n2 {NOT_ASKED}")
    assert [rank.rank for rank in whole.ranks] == [0, 1, 2, 3]
    assert whole.troubles == (FOUND,)
    assert (report.state, report.left, report.unverified) == (State.CANCELLED, (), {})


async def test_a_node_that_does_not_answer_is_named_and_holds_up_nothing(
    tmp_path: Path,
) -> None:
    async with nodes_with_agent(tmp_path) as found:
        cluster = await without(found, "n2")
        async with opened(cluster) as session:
            silent = await session.control.find_running(8.0)

    assert list(silent) == ["n2"]


async def test_jobs_are_known_without_waiting_for_a_node_whose_ssh_server_is_frozen(
    tmp_path: Path,
) -> None:
    async with nodes_with_agent(tmp_path) as found:
        job_id = await left_running(found.cluster)
        async with found.sshd["n2"].frozen(), opened(found.cluster) as second:
            silent = await second.control.find_running()
            await second.following.caught_up(60, silent)
            job = second.jobs.job(job_id)
        async with opened(found.cluster) as last:
            await last.control.cancel(job_id)

    assert list(silent) == ["n2"]
    assert [r.state for r in job.ranks if r.node == "n1"] == [State.RUNNING] * 2
    assert job.troubles == ()  # it was not waited for until it counts as lost


async def test_a_job_of_another_cluster_file_is_not_taken_up(tmp_path: Path) -> None:
    async with nodes_with_agent(tmp_path) as found, opened(found.cluster) as first:
        job_id = await first.control.launch(SLEEPS)
        async with opened(replace(found.cluster, name="other")) as second:
            await second.control.find_running()
            known = second.jobs.knows(job_id)
        await first.control.cancel(job_id)

    assert not known
