"""A console that is killed while it launches a job: the job is known, and can be ended."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration import test_main_path
from tests.integration.test_main_path import Console
from tests.support.polling import wait_until

from rankdeck.config.clusters import read_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
console = test_main_path.console
MOMENTS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 1.0)
"""Seconds after `starting on` in which the console is killed."""
KILLS = [
    (moment, (signal.SIGKILL, signal.SIGHUP)[place % 2]) for place, moment in enumerate(MOMENTS)
]
LASTS = """
job: {name}
launch: plain
nodes: {nodes}
ranks_per_node: 2
command: [sh, -c, 'echo here; exec sleep 300']
grace: 1
"""


def kill_when(
    console: Console, file: str, begun: Callable[[], object], number: signal.Signals
) -> None:
    """Start the job of this file, and send its console this signal once `begun` returns."""
    with console.start("run", file, "--no-preflight") as process:
        assert process.stderr is not None
        assert "starting on" in process.stderr.readline()
        begun()
        os.kill(process.pid, number)
        process.communicate(timeout=300)


def running(name: str) -> set[str]:
    """Jobs of this name of which processes run on this machine."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        found |= {w[13:].decode() for w in words if w.startswith(b"RANKDECK_JOB=")}
    return {job for job in found if job.startswith(f"{name}-")}


def check_known_and_ended(console: Console, name: str, codes: tuple[int, ...] = (0,)) -> None:
    known: list[dict[str, Any]] = [job for job in console.objects("jobs") if job["name"] == name]
    assert {job["job"] for job in known} >= running(name)
    for job in known:
        report = console.run("cancel", job["job"])
        assert report.returncode in codes, report.stdout + report.stderr
    wait_until(lambda: not running(name), what="the end of its ranks")


@pytest.mark.parametrize(("moment", "number"), KILLS)
def test_jobs_knows_and_cancel_ends_what_a_killed_console_had_begun(
    console: Console, moment: float, number: signal.Signals
) -> None:
    name = f"killed{number}-{round(moment * 100)}"
    file = console.file("killed.yaml", LASTS.format(name=name, nodes=3))
    # The moment is what is tried here, not a wait for something.
    kill_when(console, file, lambda: time.sleep(moment), number)

    check_known_and_ended(console, name)
    for job in console.objects("jobs"):
        assert job["name"] != name or job["state"] in ("failed", "cancelled")


@pytest.fixture
def beside_mute(console: Console) -> Iterator[Console]:
    """The embedded cluster with one more node, which takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        file = read_cluster_file(console)
        port = mute.getsockname()[1]
        row = f"nodes:\n- {{name: mute, address: 127.0.0.1, port: {port}, slots: 2}}\n"
        wider = console.file("wider.yaml", file.replace("nodes:\n", row, 1))
        assert len(read_cluster(Path(wider)).nodes) == 4
        yield Console(console.folder, wider)


def read_cluster_file(console: Console) -> str:
    (path,) = (console.folder / "state").glob("**/demo/cluster.yaml")
    return path.read_text()


@pytest.mark.kept
def test_a_console_killed_while_a_node_says_nothing_leaves_a_job_that_is_known(
    beside_mute: Console,
) -> None:
    name = "beside-mute"
    file = beside_mute.file("mute.yaml", LASTS.format(name=name, nodes=4))
    kill_when(
        beside_mute, file, lambda: wait_until(lambda: running(name), what="ranks"), signal.SIGKILL
    )

    # The node that says nothing cannot be verified, all others are.
    check_known_and_ended(beside_mute, name, codes=(1,))
