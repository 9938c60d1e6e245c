"""Real mpirun over two nodes that cannot reach each other by ssh."""

import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from tests.integration.job.conftest import until

from rankdeck_agent import wire

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

OPENMPI5 = str(Path(sys.executable).with_name("mpirun"))
OPENMPI4 = "/usr/bin/mpirun"
COMMON = [
    "--allow-run-as-root",
    "--hostfile",
    wire.RUN_TOKEN + "/hosts",
    "--map-by",
    "ppr:2:node",
    "--bind-to",
    "none",
]
AGENT = "/tmp/rankdeck.{job}/launch-agent"
FLAVOURS = {
    "openmpi5": [
        OPENMPI5, *COMMON, "--prtemca", "plm_ssh_agent", AGENT, "--prtemca", "plm_ssh_no_tree_spawn", "1",
        "--mca", "btl_tcp_if_include", "lo",
    ],
    "openmpi4": [
        OPENMPI4, *COMMON, "--mca", "plm_rsh_agent", AGENT, "--mca", "plm_rsh_no_tree_spawn", "1",
        "--mca", "oob_tcp_if_include", "lo", "--mca", "btl_tcp_if_include", "lo",
    ],
}  # fmt: skip


@pytest.fixture(params=sorted(FLAVOURS))
def mpirun(request):
    argv = FLAVOURS[request.param]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"no {argv[0]} here")
    return argv


def _begin(nodes, console, mpirun, program):
    job = f"mpi-{uuid.uuid4().hex[:8]}"
    first, second = nodes
    hosts = {"path": "hosts", "text": "n1 slots=2\nn2 slots=2\n"}
    # Fresh pid namespaces over one /tmp: session folders of an mpirun killed in an earlier
    # run would have the same host name and pid.
    more = {
        "env": {"TMPDIR": wire.RUN_TOKEN + "/tmp"},
        "files": [{"path": "tmp/keep", "text": ""}, hosts],
    }
    assert second.run(job, [2, 3], [], **more)["ok"]
    argv = [word.replace(AGENT, AGENT.format(job=job)) for word in mpirun]
    argv += [f"/tmp/rankdeck.{job}/rank", *program]
    assert first.run(job, [0, 1], [{"name": "mpirun", "argv": argv}], **more)["ok"]
    return job, console(first, {"n2": second}, job)


def test_a_job_runs_on_both_nodes_and_every_rank_leaves_its_record(two_nodes, console, mpirun):
    script = "hostname; echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $RANKDECK_NODE; exit 0"
    job, asked = _begin(two_nodes, console, mpirun, ["sh", "-c", script])
    first, second = two_nodes
    events = first.closed(job, 60)
    assert [e["code"] for e in events if e["kind"] == "ended"] == [0], first.log(job, -1, "err")
    assert [spawn["host"] for spawn in asked.spawned] == ["n2"]
    second.closed(job, 30)
    for rank in range(4):
        node = two_nodes[rank // 2]
        assert node.log(job, rank) == f"{node.name}\nrank {rank} of 4 on {node.name}\n".encode()
        assert [e["code"] for e in node.events(job, "exited") if e["rank"] == rank] == [0]


@pytest.mark.left_out("openmpi4")
def test_mpirun_killed_with_sigkill_leaves_nothing_after_cancel(two_nodes, console, mpirun):
    script = "trap '' TERM; echo up; while :; do sleep 1; done"
    job, _ = _begin(two_nodes, console, mpirun, ["sh", "-c", script])

    for node in two_nodes:
        until(lambda node=node: len(node.events(job, "started")) == 2, 60)
    launcher = two_nodes[0].events(job, "process")[0]["pid"]

    kill(two_nodes[0], launcher)
    end = until(lambda: two_nodes[0].events(job, "ended"))[0]
    assert (end["name"], end["code"], end["signal"]) == ("mpirun", None, 9)
    for node in two_nodes:
        assert node.cancel(job, 0.5)["left"] == []
        node.closed(job, 10)


def kill(node, pid):
    """KILL, by a pid as the node counts."""
    subprocess.run([*node.prefix, "kill", "-9", str(pid)], check=True)


def parent(node, pid):
    """The pid of its parent, as the node counts."""
    look = [*node.prefix, "ps", "-o", "ppid=", "-p", str(pid)]
    return int(subprocess.run(look, capture_output=True, text=True, check=True).stdout)


@pytest.mark.left_out("openmpi4")
def test_a_daemon_killed_with_sigkill_is_recorded_with_its_signal(two_nodes, console, mpirun):
    script = "echo up; while :; do sleep 1; done"
    job, _ = _begin(two_nodes, console, mpirun, ["sh", "-c", script])
    second = two_nodes[1]
    until(lambda: len(second.events(job, "started")) == 2, 60)
    shim = parent(second, second.events(job, "started")[0]["pid"])
    daemon = parent(second, shim)
    kill(second, daemon)
    end = until(lambda: second.events(job, "ended"), 30)[0]

    # Open MPI 5 leaves a process before the daemon that waits for
    # it, and turns any signal into 255.
    assert end["name"].startswith("daemon ")
    assert (end["code"], end["signal"]) in ((None, 9), (255, None))
    # Its mpirun was not killed: the code is its own, with Open MPI 5 sometimes even 0.
    launcher = until(lambda: two_nodes[0].events(job, "ended"), 60)[0]
    assert launcher["signal"] is None


@pytest.mark.left_out("openmpi5")
def test_a_rank_that_fails_is_told_from_those_that_mpirun_then_ends(two_nodes, console, mpirun):
    script = "echo up; [ $OMPI_COMM_WORLD_RANK != 3 ] || { sleep 1; echo broken >&2; exit 5; }; sleep 600"
    job, _ = _begin(two_nodes, console, mpirun, ["sh", "-c", script])
    ends = {}
    for node in two_nodes:
        for event in node.closed(job, 60):
            if event["kind"] in ("exited", "ended"):
                ends[event.get("rank", event.get("name"))] = event

    assert (ends[3]["code"], ends[3]["said"]) == (5, ["up", "broken"])
    # None: mpirun has killed its shim, too, which alone knew how it ended.
    assert {ends[rank]["signal"] for rank in range(3)} <= {9, 15, None}
    assert not any(ends[rank]["code"] for rank in range(3))
    assert ends["mpirun"]["code"] == 5
    assert any("5" in line for line in ends["mpirun"]["said"])


@pytest.mark.left_out("openmpi4")
def test_nobody_is_told_that_shims_were_killed_where_mpirun_killed_the_ranks(
    two_nodes, console, mpirun
):
    script = "[ $OMPI_COMM_WORLD_RANK != 0 ] || { sleep 2; exit 3; }; trap '' TERM; sleep 60 & wait; sleep 60"
    job, _ = _begin(two_nodes, console, mpirun, ["sh", "-c", script])
    for node in two_nodes:
        node.closed(job, 60)
        assert [event["text"] for event in node.events(job, "trouble")] == []
