"""Nodes on which a user's processes do not see one another: /proc
with hidepid=2, as sites set it.
"""

import json
import os
import shutil
import signal
import subprocess
import uuid

import pytest
from tests.integration.job.conftest import Node, _end_everything, until

pytestmark = pytest.mark.slow
HIDDEN = 'mount -t proc -o hidepid=2 proc /proc && exec setpriv --regid=65534 --clear-groups --bounding-set=-all --inh-caps=-all "$@"'
"""Without capabilities, and outside of group 0, a user does not see a process
that may not be dumped, be it its own.
"""


@pytest.fixture
def hidden(tmp_path):
    """A node with such a /proc."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root and setpriv for a /proc with hidepid")
    prefix = ("unshare", "-m", "sh", "-c", HIDDEN, "sh")
    looks = [*prefix, "grep", "-q", "hidepid=", "/proc/mounts"]
    if subprocess.run(looks, check=False, capture_output=True, timeout=300).returncode:
        pytest.skip("needs a kernel that mounts a /proc of its own with hidepid")
    node = Node("n1", tmp_path / "state", prefix)
    yield node
    _end_everything([node])


def started(node, script):
    job = f"t-{uuid.uuid4().hex[:8]}"
    rank = {"name": "rank 0", "argv": ["sh", "-c", script], "rank": 0}
    assert node.run(job, [0], [rank])["ok"]
    return job


def test_a_job_runs_to_its_end_while_a_console_follows(hidden):
    job = started(hidden, "sleep 5; echo done")
    follow = hidden.popen("follow", job, "n1")
    try:
        events = hidden.closed(job, 60)
    finally:
        follow.kill()
        follow.communicate()

    (end,) = [event for event in events if event["kind"] == "exited"]
    assert end["code"] == 0
    assert "gone" not in [event["kind"] for event in events]
    assert hidden.log(job, 0) == b"done\n"


def test_a_supervisor_that_was_killed_is_noticed(hidden):
    job = started(hidden, "sleep 600")
    pid = int((hidden.folder(job) / "supervisor.pid").read_text().split()[0])
    follow = hidden.popen("follow", job, "n1")
    try:
        os.kill(pid, signal.SIGKILL)
        events = hidden.closed(job, 60)
    finally:
        follow.kill()
        follow.communicate()

    assert "the supervisor of this node is gone" in [event.get("text") for event in events]


def test_a_cancel_ends_the_job_and_says_so(hidden):
    job = started(hidden, "trap '' TERM; sleep 600")
    until(lambda: hidden.events(job, "started"))

    answer = hidden.cancel(job, 0.5)

    assert answer["left"] == []
    assert hidden.events(job, "closed")


def test_a_running_job_is_listed_as_alive(hidden):
    job = started(hidden, "sleep 600")

    rows = [json.loads(line) for line in hidden.job("list", "--plans")[1].splitlines()]

    assert [row["alive"] for row in rows if row.get("job") == job] == [True], rows
