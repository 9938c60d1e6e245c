"""A job that fails on a sick node: run, jobs and an open console
all tell of the node; real agents.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_main_path import Console
from tests.support.agent_file import put_agent_in_demo
from tests.support.polling import until

from rankdeck.cli import choose
from rankdeck.cli.shapes import job_shape
from rankdeck.demo import cluster
from rankdeck.opening import open_cluster_session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

JOB = """
job: sick
launch: plain
nodes: 2
ranks_per_node: 1
command: [sh, -c, 'sleep {lasts}; [ $RANK = 1 ] && exit 3; sleep 60']
grace: 1
abort: {{countdown: 1}}
"""


@pytest.fixture
def console(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    """The demo with a GPU that has fallen off the bus of the second node, and one in the third."""
    monkeypatch.delenv("RANKDECK_STATE")
    console = Console(own_folders)
    console.env |= {"XDG_STATE_HOME": str(own_folders / "state")}
    try:
        put_agent_in_demo()
        cluster.start_demo(["gpu:xid79@sakura", "gpu:hot@koishi"])
        yield console
    finally:
        cluster.stop_demo()


def of_gpus(notes: list[dict]) -> dict[tuple[str, str], dict]:
    """The demo nodes share this machine, whose disks and load are no matter here."""
    return {(n["node"], n["check"]): n for n in notes if n["simulated"]}


def test_run_tells_what_the_jobs_own_nodes_said_and_jobs_repeats_it(
    console: Console,
) -> None:
    file = console.file("sick.yaml", JOB.format(lasts=6))

    result = console.run("run", file, "--json", "--no-preflight")
    ran = json.loads(result.stdout.splitlines()[-1])
    (listed,) = console.objects("jobs")

    said = of_gpus(ran["nodes_said"])
    assert result.returncode == 3
    assert ("sakura", "kernel.xid") in said
    assert "Xid 79" in said["sakura", "kernel.xid"]["text"]
    assert {node for node, _ in said} == {"sakura"}
    assert "on its nodes: sakura: SIMULATED" in result.stderr
    assert said.keys() <= of_gpus(listed["nodes_said"]).keys()


async def test_an_open_console_notes_it_for_a_job_of_the_command_line(
    console: Console,
) -> None:
    file = console.file("sick.yaml", JOB.format(lasts=1))
    async with open_cluster_session(choose.choose_cluster("demo")) as session:
        await session.hearing.settle(20)
        result = await asyncio.to_thread(console.run, "run", file, "--json", "--no-preflight")
        job_id = json.loads(result.stdout.splitlines()[-1])["job"]

        def noted() -> dict:
            known = session.jobs.knows(job_id)
            return of_gpus(job_shape(session.jobs.job(job_id))["nodes_said"]) if known else {}

        await until(lambda: ("sakura", "kernel.xid") in noted())
        await until(lambda: session.jobs.job(job_id).state.final)
        shown = noted()
    async with open_cluster_session(choose.choose_cluster("demo"), telemetry=False) as again:
        kept = of_gpus(job_shape(again.jobs.job(job_id))["nodes_said"])

    assert told(kept) == told(shown)


def told(notes: dict) -> dict:
    """What two consoles say alike: `run` looks at a node later, and
    hears the simulated fault again.

    Of their clocks, counts and of what was there before, that of the one that saw more is kept.
    """
    ours = {"at": 0, "before": False, "count": 0, "seconds": None}
    return {key: {**note, **ours} for key, note in notes.items()}
