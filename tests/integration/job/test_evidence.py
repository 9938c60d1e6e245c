"""What ends carry with them, from real processes that fail, crash and are killed."""

import json
import os
import signal
import sys
import uuid
from pathlib import Path

import pytest
from tests.integration.job.conftest import mpi_daemon, until

from rankdeck_agent.job.cgroups import memory_files
from rankdeck_agent.job.kernel_evidence import own_ring

pytestmark = pytest.mark.slow
PYTHON = sys.executable
CRASH_LOG = Path("/proc/sys/debug/exception-trace")
SLEEPER = "echo up; while :; do sleep 0.2; done"


@pytest.fixture
def job():
    return f"e-{uuid.uuid4().hex[:8]}"


def rank(number, *argv):
    return {"name": f"rank {number}", "argv": list(argv), "rank": number}


def only(events, kind):
    (event,) = [e for e in events if e["kind"] == kind]
    return event


def test_a_rank_that_failed_tells_its_exception_and_one_that_did_not_tells_nothing(node, job):
    program = "print('step 1', flush=True); raise ValueError('bad shape (3, 4)')"
    ranks = [rank(0, PYTHON, "-c", program), rank(1, "sh", "-c", "echo fine")]
    node.run(job, [0, 1], ranks)
    events = {e["rank"]: e for e in node.closed(job) if e["kind"] == "exited"}

    # Output and errors come on two ways: which is read first is open.
    assert {"step 1", "ValueError: bad shape (3, 4)"} <= set(events[0]["said"])
    assert not {"said", "kernel"} & set(events[1])


def test_a_launcher_that_failed_tells_its_last_words(node, job):
    script = "i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); done; echo gone >&2; exit 137"
    node.run(job, [], [{"name": "mpirun", "argv": ["sh", "-c", script]}])
    end = only(node.closed(job), "ended")

    assert (end["code"], end["signal"]) == (137, None)
    assert end["said"] == [*(f"line {n}" for n in range(41, 100)), "gone"]


def test_a_rank_that_its_launcher_starts_elsewhere_than_planned_is_told(node, job):
    shim = ["${RANKDECK_RUN}/rank-shim", "sh", "-c", "echo of rank 7"]
    launcher = {"name": "torchrun", "argv": shim, "env": {"RANK": "7"}}
    node.run(job, [0], [launcher])
    refused = only(node.closed(job), "refused")

    assert "said that rank 7 began, which the plan has not on this node" in refused["text"]
    assert b"of rank 7" in node.log(job, -1, "out")
    assert b"no place for the output of rank '7'" in node.log(job, -1, "err")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_launcher_that_was_killed_has_its_signal(node, job, number):
    node.run(job, [], [{"name": "torchrun", "argv": ["sh", "-c", SLEEPER]}])
    os.kill(until(lambda: node.events(job, "process"))[0]["pid"], number)

    assert only(node.closed(job), "ended")["signal"] == number


@pytest.mark.parametrize("background", [False, True])
def test_a_daemon_that_was_killed_has_its_signal(node, job, background):
    node.run(job, [0], [])
    wait = f"echo $$ >{node.state}/pid; echo sorry >&2; while :; do sleep 0.2; done"
    daemon = f"setsid sh -c '{wait}' & exit 0" if background else wait
    command = mpi_daemon(node.state, daemon)
    node.job("spawn", job, "n1", stdin={"id": "d1", "command": command})
    written = node.state / "pid"
    pid = int(until(lambda: written.exists() and written.read_text()))
    if background:  # its first process has ended, and what it left is known
        first = node.events(job, "process")[0]["pid"]
        until(lambda: not Path(f"/proc/{first}").exists())
        until(lambda: node.log(job, -1, "err"))
    os.kill(pid, signal.SIGKILL)
    end = until(lambda: node.events(job, "ended"))[0]

    assert (end["name"], end["signal"]) == ("daemon d1", 9)
    assert end["said"][0] == "sorry"


def test_the_kernels_line_about_a_crash_is_told_of_the_rank_that_crashed(node, job):
    if own_ring() is None:
        pytest.skip("the kernel log may not be read here, or counts other pids")
    if not CRASH_LOG.exists() or CRASH_LOG.read_text().strip() == "0":
        pytest.skip("this kernel does not log crashes (debug.exception-trace)")
    crash = "import ctypes; ctypes.string_at(0)"
    ranks = [rank(0, PYTHON, "-c", crash), rank(1, "sh", "-c", "kill -SEGV $$")]
    node.run(job, [0, 1], ranks)
    events = node.closed(job)
    pid = next(e["pid"] for e in events if e["kind"] == "started" and e["rank"] == 0)
    ends = {e["rank"]: e for e in events if e["kind"] == "exited"}

    assert [end["signal"] for end in ends.values()] == [11, 11]
    assert f"[{pid}]: segfault at 0" in ends[0]["kernel"][0]
    assert "kernel" not in ends[1]


# Eats memory in a control group of its own; "child": a child of it does, and it fails for it.
HUNGRY = """
import os, sys, time
def eat():
    open(os.path.join(sys.argv[1], "cgroup.procs"), "w").write(str(os.getpid()))
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 20)))
if sys.argv[2] == "itself":
    eat()
child = os.fork()
if child == 0:
    time.sleep(2.5)
    eat()
os.waitpid(child, 0)
sys.exit("a worker was killed")
"""


@pytest.fixture
def small_group():
    """A control group that may hold 24 MiB."""
    name = f"rankdeck-test-{uuid.uuid4().hex[:8]}"
    limits = {"memory.events": "memory.max", "memory.oom_control": "memory.limit_in_bytes"}
    for file in memory_files(None):
        if not file.exists():
            continue
        group = file.parent / name
        try:
            group.mkdir()
            (group / limits[file.name]).write_text(str(24 << 20))
        except OSError:
            if group.exists():
                group.rmdir()
            continue
        yield group
        until(lambda group=group: not (group / "cgroup.procs").read_text())
        group.rmdir()
        return
    pytest.skip("no control group with a memory limit can be made here")


@pytest.mark.parametrize("who", ["itself", "child"])
def test_a_rank_that_runs_out_of_memory_tells_that_the_kernel_killed_it(
    node, job, small_group, who
):
    argv = (PYTHON, "-c", HUNGRY, str(small_group), who)
    node.run(job, [0], [rank(0, *argv)])
    events = node.closed(job, 60)
    pid, end = only(events, "started")["pid"], only(events, "exited")

    assert (end["code"], end["signal"]) == ((None, 9) if who == "itself" else (1, None))
    if own_ring() is None:
        assert who == "child" or "out-of-memory kills" in end["kernel"][0]
        return
    killed = [line for line in end["kernel"] if "Killed process" in line]
    assert len(killed) == 1
    assert (f"process {pid} " in killed[0]) is (who == "itself")


def test_a_kill_for_want_of_memory_in_another_group_is_told_where_the_kernel_log_is_not_read(
    two_nodes, job, small_group
):
    """As in a container with a limit of its own."""
    node = two_nodes[0]
    node.run(job, [0], [rank(0, PYTHON, "-c", HUNGRY, str(small_group), "itself")])
    end = only(node.closed(job, 60), "exited")

    assert end["signal"] == 9
    assert end["kernel"][0].startswith("out-of-memory kills")


@pytest.mark.parametrize("by", ["user", "abort", "system"])
def test_a_cancel_tells_who_asked_for_it(node, job, by):
    pid = node.run(job, [0], [rank(0, "sh", "-c", SLEEPER)], grace=0.2)["pid"]
    until(lambda: b"up" in node.log(job, 0))
    if by == "system":
        os.kill(pid, signal.SIGTERM)
    else:
        words = () if by == "user" else ("--by", by)
        node.job("cancel", job, "n1", "--grace", "0.2", *words)

    assert only(node.closed(job), "cancel")["by"] == by


def test_a_cancelled_rank_tells_its_own_end_even_where_it_had_to_be_killed(node, job):
    stubborn = "trap '' TERM; i=0; while [ $i -lt 30 ]; do echo line $i; i=$((i+1)); done; while :; do sleep 0.2; done"
    node.run(job, [0], [rank(0, "sh", "-c", stubborn)])
    until(lambda: b"line 29" in node.log(job, 0))
    assert node.cancel(job, 0.2)["left"] == []
    end = only(node.closed(job), "exited")

    assert (end["code"], end["signal"]) == (None, 9)
    assert end["said"] == ["line 27", "line 28", "line 29"]


def test_the_loss_of_a_supervisor_tells_when_and_which_ranks_still_run(node, job):
    ranks = [
        rank(0, "sh", "-c", "trap '' HUP PIPE; echo up; while :; do sleep 0.2; done"),
        rank(1, "sh", "-c", "echo up; exit 0"),
        # Notices that nobody reads any more, as most programs do.
        rank(2, PYTHON, "-c", "import time\nwhile True: print('up'); time.sleep(0.2)"),
    ]
    pid = node.run(job, [0, 1, 2], ranks)["pid"]
    until(lambda: node.events(job, "exited"))
    until(lambda: all(b"up" in node.log(job, number) for number in (0, 2)))
    os.kill(pid, signal.SIGKILL)
    until(lambda: (node.folder(job) / "rank.2" / "exit").exists())
    rows = [json.loads(line) for line in follow_all(node, job)]
    again = [json.loads(line) for line in follow_all(node, job)]
    trouble = only(rows, "gone")
    ends = {e["rank"]: e for e in rows if e["kind"] == "exited"}

    assert trouble["text"] == "the supervisor of this node is gone"
    assert trouble["running"] == [0]
    last = max((node.folder(job) / f"rank.{n}/out").stat().st_mtime for n in range(3))
    assert trouble["last"] == pytest.approx(last, abs=0.01)
    assert set(ends) == {1, 2}
    assert ends[1]["code"] == 0
    assert ends[2]["code"] not in (0, None)
    assert trouble["seq"] < ends[2]["seq"]
    assert trouble["last"] - 0.05 < ends[2]["at"] < trouble["at"]
    assert only(again, "gone") == trouble


def follow_all(node, job):
    """Every row that a console is sent that looks at nothing."""
    process = node.popen("follow", job, node.name)
    rows = process.stdout.readlines()
    process.communicate()
    return rows
