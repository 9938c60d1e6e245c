"""A session takes up what an earlier one left behind; no node is reached."""

import time
from pathlib import Path

import pytest

from rankdeck.config.clusters import read_cluster
from rankdeck.config.jobs import read_job
from rankdeck.config.paths import state_folder
from rankdeck.session import open_session
from rankdeck.state.history import History

CLUSTER = "cluster: gone\nnodes:\n  - {name: n1, address: 127.0.0.1, port: 9}\n"
JOB = "job: hello\nlaunch: plain\ncommand: [echo, hi]\n"


async def test_a_job_that_ran_when_the_console_closed_is_followed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "gone.yaml").write_text(CLUSTER)
    (tmp_path / "hello.yaml").write_text(JOB)
    cluster = read_cluster(tmp_path / "gone.yaml")
    async with open_session(cluster, telemetry=False) as first:
        plan = first.plan(read_job(tmp_path / "hello.yaml"))
        job = first.jobs.add(plan, time.time())
    with History(state_folder() / "history.db") as history:
        history.save(job)

    async with open_session(cluster, telemetry=False) as second:
        await second.following.caught_up(limit=0.0)
        assert [job.id for job in second.jobs.all()] == [plan.job]
        assert not second.jobs.job(plan.job).state.final
