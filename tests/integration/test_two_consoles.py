"""Jobs that one console starts and another sees: real SSH, real agents, one history."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.integration import test_main_path
from tests.integration.test_main_path import Console
from tests.support.polling import until

from rankdeck.cli import choose
from rankdeck.cli.shapes import job_shape
from rankdeck.model.job import Job
from rankdeck.model.rank import State
from rankdeck.opening import open_cluster_session
from rankdeck.session import Session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
console = test_main_path.console

FAILS = """
job: fails
launch: plain
nodes: 2
ranks_per_node: 2
command: [sh, -c, 'echo "rank $RANK began"; [ $RANK = 2 ] && { sleep 1; echo "CUDA out of memory" >&2; exit 3; }; sleep 60']
grace: 1
abort: {countdown: 1}
"""
LASTS = """
job: lasts
launch: plain
nodes: 2
ranks_per_node: 1
command: [sh, -c, 'echo here; sleep 60']
grace: 1
"""


@pytest.fixture
def folders(console: Console, monkeypatch: pytest.MonkeyPatch) -> Console:
    """The same folders for this process as for the command line."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, console.env[name])
    monkeypatch.delenv("RANKDECK_STATE", raising=False)
    return console


@asynccontextmanager
async def opened() -> AsyncIterator[Session]:
    async with open_cluster_session(choose.choose_cluster("demo"), telemetry=False) as session:
        yield session


def of_name(session: Session, name: str) -> Job | None:
    return next((job for job in session.jobs.all() if job.name == name), None)


def all_wrote(job: Job | None) -> bool:
    return job is not None and all(rank.lines for rank in job.ranks)


async def asked(console: Console, *arguments: str) -> list[dict]:
    return await asyncio.to_thread(console.objects, *arguments)


async def test_an_open_console_sees_a_job_of_the_command_line_and_its_end(
    folders: Console,
) -> None:
    file = folders.file("lasts.yaml", LASTS)
    async with opened() as session:
        (started,) = await asked(folders, "run", file, "--detach")
        await until(lambda: of_name(session, "lasts") is not None)
        job_id = started["job"]
        await until(lambda: session.jobs.job(job_id).state is State.RUNNING)
        await until(lambda: session.jobs.job(job_id).ranks[1].last_line == "here")
        await asked(folders, "cancel", job_id)
        await until(lambda: session.jobs.job(job_id).state.final)

        assert session.jobs.job(job_id).state is State.CANCELLED


async def test_run_jobs_and_every_console_say_the_same_of_a_failure(
    folders: Console,
) -> None:
    file = folders.file("fails.yaml", FAILS)
    async with opened() as session:
        result = await asyncio.to_thread(folders.run, "run", file, "--json")
        ran = json.loads(result.stdout.splitlines()[-1])
        await until(lambda: session.jobs.knows(ran["job"]))
        await until(lambda: session.jobs.job(ran["job"]).state.final)
        watched = json.loads(json.dumps(job_shape(session.jobs.job(ran["job"]))))
    (listed,) = [j for j in await asked(folders, "jobs") if j["job"] == ran["job"]]
    async with opened() as session:
        reopened = json.loads(json.dumps(job_shape(session.jobs.job(ran["job"]))))

    assert result.returncode == 3
    assert ran["first_failure"]["rank"] == 2
    assert ran["first_failure"]["explained"]
    assert listed["first_failure"] == ran["first_failure"]
    assert reopened == listed
    for said in (watched, listed):
        assert said["state"] == ran["state"] == "failed"
        assert said["first_failure"]["rank"] == ran["first_failure"]["rank"]
        assert said["first_failure"]["explained"] == ran["first_failure"]["explained"]


async def test_a_job_outlives_the_console_that_saw_it_first_and_is_finished_by_the_other(
    folders: Console,
) -> None:
    text = LASTS.replace("lasts", "orphan").replace("sleep 60", "sleep 8; exit 0")
    file = folders.file("orphan.yaml", text)
    async with opened() as session:
        with folders.start("run", file) as process:
            await until(lambda: all_wrote(of_name(session, "orphan")))
            os.kill(process.pid, 9)
        await until(lambda: of_name(session, "orphan").state.final)
        job = of_name(session, "orphan")
    (listed,) = [j for j in await asked(folders, "jobs") if j["job"] == job.id]

    assert job.state is State.DONE
    assert listed["state"] == "done"


def test_the_table_of_jobs_says_in_short_what_the_summary_of_run_said(
    console: Console,
) -> None:
    file = console.file("fails.yaml", FAILS.replace("job: fails", "job: shortly"))
    ran = console.run("run", file, "--no-preflight")
    summary = ran.stderr.splitlines()
    table = console.run("jobs").stdout.splitlines()
    (row,) = [line for line in table if line.startswith("shortly")]
    who = next(x.partition(": ")[2] for x in summary if x.startswith("first failure"))
    means = next(x.partition(": ")[2] for x in summary if x.startswith("  means"))

    assert who.partition(";")[0] in row
    assert means in row
