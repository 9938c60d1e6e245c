"""What processes of a job may tell their supervisor: of themselves, and nothing else."""

import sys
import uuid

import pytest
from tests.integration.job.conftest import until
from tests.integration.job.test_job import _rank

pytestmark = pytest.mark.slow

FORGED = (
    "again n2: was asked again: nothing of the job is left there",
    "trouble n2: not verified: no answer",
    "cancel 5 user",
    "answer 1 ok",
    "daemon 1",
    "slurm TIMEOUT",
    "exited 1 0",
    "started 1 1 1",
    "exited 7 0",
    "started",
    "spawn ../../x",
)
CONNECT = """
import os, socket, sys
one = socket.socket(socket.AF_UNIX)
os.chdir(os.environ["RANKDECK_RUN"])
one.connect("orders")
one.sendall(sys.argv[1].encode() + b"\\n")
print(one.recv(16).decode(), end="")
"""


@pytest.fixture
def job():
    return f"o-{uuid.uuid4().hex[:8]}"


def states(rows):
    """Rank -> exit code, of what the supervisor has recorded."""
    return {row["rank"]: row["code"] for row in rows if row["kind"] == "exited"}


def test_a_rank_that_writes_to_the_fifo_changes_nothing_of_others(node, job):
    writes = "; ".join(f"echo {one!r} > $RANKDECK_RUN/control" for one in FORGED)
    node.run(
        job, [0, 1], [_rank(f"sleep 1; {writes}; sleep 1; exit 3"), _rank("sleep 4; exit 7", 1)]
    )

    rows = node.closed(job, 60)

    assert states(rows) == {0: 3, 1: 7}
    assert [row["rank"] for row in rows if row["kind"] == "started"] in ([0, 1], [1, 0])
    known = {"ready", "started", "exited", "refused", "closed"}
    assert {row["kind"] for row in rows} == known
    first, last = (row for row in rows if row["kind"] == "refused")
    assert first["text"] == "a process of the job sent `again`, which it may not send: left out"
    assert last["count"] >= len(FORGED) - 1


@pytest.mark.parametrize("order", ["again x", "cancel 5 user", "trouble x"])
def test_a_process_of_the_job_is_known_at_the_socket_and_refused(node, job, order, tmp_path):
    (tmp_path / "connect.py").write_text(CONNECT)
    command = f"{sys.executable} {tmp_path}/connect.py {order!r}"
    apart = f"env -i RANKDECK_RUN=$RANKDECK_RUN setsid {command}"
    node.run(job, [0], [_rank(f"{command}; ({command} & wait); {apart}; sleep 1; exit 3")])

    rows = node.closed(job, 60)

    assert node.log(job, 0).split() == [b"no"] * 3
    assert {row["kind"] for row in rows} == {"ready", "started", "exited", "refused", "closed"}
    assert states(rows) == {0: 3}


def test_a_command_of_the_agent_is_believed_at_the_socket(node, job):
    node.run(job, [0], [_rank("sleep 60")])
    until(lambda: node.events(job, "started"))

    node.cancel(job, 0.5)

    (cancel,) = node.events(job, "cancel")
    assert (cancel["by"], cancel["grace"]) == ("user", 0.5)
    assert node.events(job, "refused") == []
