"""A session takes up what an earlier one left behind; no node is reached."""

import time
from pathlib import Path

import pytest
from tests.support.node_events import node_event

from rankdeck.backends import remote_log
from rankdeck.config.clusters import read_cluster
from rankdeck.config.files import console_state_folder
from rankdeck.config.jobs import read_job
from rankdeck.errors import UnknownJobError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.model.job_events import NodeEvent
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State
from rankdeck.opening import open_cluster_session
from rankdeck.state.history import History
from rankdeck.state.jobs import Jobs

CLUSTER = "cluster: gone\nnodes:\n  - {name: n1, address: 127.0.0.1, port: 9}\n"
JOB = "job: hello\nlaunch: plain\ncommand: [echo, hi]\n"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """One whose node does not answer; `hello.yaml` is a job for it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "gone.yaml").write_text(CLUSTER)
    (tmp_path / "hello.yaml").write_text(JOB)
    return read_cluster(tmp_path / "gone.yaml")


async def test_a_job_that_ran_when_the_console_closed_is_followed_again(
    tmp_path: Path, cluster: Cluster
) -> None:
    async with open_cluster_session(cluster, telemetry=False) as first:
        plan = first.control.plan(read_job(tmp_path / "hello.yaml"))
        job = first.jobs.add(plan, time.time())
    with History(console_state_folder() / "history.db") as history:
        history.save(job)

    async with open_cluster_session(cluster, telemetry=False) as second:
        await second.following.caught_up(limit=0.0)
        assert [job.id for job in second.jobs.all()] == [plan.job]
        assert not second.jobs.job(plan.job).state.final


def ended(plan: Plan) -> tuple[Job, list[NodeEvent]]:
    """The job as it is once its rank failed, and what its node said."""
    jobs, now = Jobs(), time.time() - 60
    jobs.add(plan, now)
    said = [
        ("started", {"rank": 0, "pid": 5}),
        ("exited", {"rank": 0, "code": 3, "signal": None}),
        ("closed", {}),
    ]
    events = [
        node_event(plan.job, "n1", kind, now + seq, seq=seq, **fields)
        for seq, (kind, fields) in enumerate(said)
    ]
    for event in events:
        jobs.apply(event)
    return jobs.job(plan.job), events


async def test_a_replay_is_listed_after_reopening_played_anew_and_forgotten(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_log, "LIMIT", 0.2)  # three times it waits for the node in vain
    async with open_cluster_session(cluster, telemetry=False) as session:
        job, events = ended(session.control.plan(read_job(tmp_path / "hello.yaml")))
    with History(console_state_folder() / "history.db") as history:
        history.save(job)
        history.add_events(events)

    async with open_cluster_session(cluster, telemetry=False) as first:
        name = await first.control.replay(job.id, 1e6)
        await first.following.finished(name)
        passing = await first.control.replay(job.id, 1e6, keep=False)
        assert {one.id for one in first.jobs.replays()} == {name, passing}
        assert name.startswith("replay-")

    async with open_cluster_session(cluster, telemetry=False) as second:
        (kept,) = second.jobs.replays()
        assert (kept.id, kept.state, kept.clock) == (name, State.FAILED, None)
        assert kept.plan.replay_of == job.id
        assert [one.id for one in second.jobs.all()] == [job.id]
        assert second.jobs.find(job.name).id == job.id
        assert await second.control.replay(name, 1e6) == name
        again = await second.following.finished(name)
        assert (again.state, again.exit_code, again.clock) == (State.FAILED, 3, events[-1].at)
        # A new one takes the place of one that goes on.
        await second.control.replay(name, 1e-3)
        assert second.jobs.job(name).state is not State.FAILED
        second.following.forget(job.id)
        second.following.forget(name)
        with pytest.raises(UnknownJobError):
            second.following.forget(name)
        assert [one.id for one in second.jobs.all()] == [job.id]

    async with open_cluster_session(cluster, telemetry=False) as third:
        assert third.jobs.replays() == ()
        assert [one.id for one in third.jobs.all()] == [job.id]
