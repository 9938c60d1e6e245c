"""Programs inside shells that fail although the shell ends well: real
processes, told by the real agent.
"""

import os
import platform
import signal
import subprocess
import uuid
from pathlib import Path

import pytest
from tests.integration.job.conftest import until

from rankdeck_agent.job.process_chains import list_children
from rankdeck_agent.job.processes import list_processes
from rankdeck_agent.job.wrapped import WrappedPrograms

pytestmark = pytest.mark.slow
OPEN = Path("/proc/self/fd")
KERNEL = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
needs_kernel = pytest.mark.skipif(
    KERNEL < (6, 15), reason="the kernel tells the end of processes of others from Linux 6.15 on"
)


@pytest.fixture
def job():
    return f"w-{uuid.uuid4().hex[:8]}"


def end_of(node, job, *words):
    """The event of the end of rank 0, whose command is this."""
    node.run(job, [0], [{"name": "rank 0", "argv": [*words], "rank": 0}])
    (end,) = [event for event in node.closed(job) if event["kind"] == "exited"]
    return end


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_program_that_crashed_at_once_is_told_by_the_words_of_its_shell(node, job, shell):
    end = end_of(node, job, shell, "-c", "sh -c 'kill -SEGV $$'; exit 0")

    assert end["code"] == 0
    assert end["inside"][1:] == [None, 11]
    assert "Segmentation fault" in end["said"][-1]


@needs_kernel
@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("sh -c 'sleep 4; exit 3'; exit 0", [3, None]),
        ("sh -c 'sleep 4; kill -KILL $$' 2>/dev/null; exit 0", [None, 9]),
        ("sh -c 'sleep 4; exit 7' | cat", [7, None]),
    ],
)
def test_a_program_that_failed_after_a_while_is_told_by_the_kernel(node, job, script, told):
    end = end_of(node, job, "bash", "-c", f"{script}; exit 0")

    assert end["code"] == 0
    assert end["inside"][1:] == told


@pytest.mark.parametrize(
    "script",
    [
        "sh -c 'sleep 3; kill -SEGV $$'; for i in 1 2 3 4; do echo again; done; sh -c 'sleep 5'",
        "sleep 900 & sh -c 'sleep 4'; kill $!; wait",
        "grep nothing /dev/null; sleep 3; exit 0",
        "sh -c 'sleep 3'",
    ],
)
def test_a_program_that_was_started_again_or_a_helper_that_was_ended_is_no_failure(
    node, job, script
):
    end = end_of(node, job, "bash", "-c", script + "; exit 0")

    assert end["code"] == 0
    assert "inside" not in end


def test_no_descriptor_of_a_process_stays_open():
    watched = WrappedPrograms()
    before = len([*OPEN.iterdir()])
    with subprocess.Popen(["bash", "-c", "sleep 900; exit 0"]) as shell:
        (program,) = until(lambda: list_children(shell.pid))
        watched.saw(list_processes(), {0: shell.pid})
        during = len([*OPEN.iterdir()])
        shell.kill()
        os.kill(program, signal.SIGKILL)
    watched.failed_program(0)

    assert during > before
    assert len([*OPEN.iterdir()]) == before
