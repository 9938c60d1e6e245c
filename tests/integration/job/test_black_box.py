"""The black box of a job: real failures that no console sees, and folders in which the job itself
has written.
"""

import json
import os
import signal
import subprocess
import sys
import uuid

import pytest
from tests.integration.job.conftest import until

from rankdeck.state.black_box import NodeBox, read_node_box
from rankdeck_agent.wire.black_box import CANCELLED, ENDED, FAILED, GONE
from rankdeck_agent.wire.job_events import Origin, Part
from rankdeck_agent.wire.run_folder import BLACK_BOX

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
STEPS = "for i in 1 2 3 4 5 6 7 8 9 10 11; do echo step $i; sleep 1; done; "
FAILURES = {
    "exits": "exit 3",
    "segfault": "kill -SEGV $$",
    "abort": "kill -ABRT $$",
    "bus error": "kill -BUS $$",
    "division": "kill -FPE $$",
    "illegal instruction": "kill -ILL $$",
    "killed": "kill -KILL $$",
    "terminated": "kill -TERM $$",
    "hung up": "kill -HUP $$",
    "broken pipe": "kill -PIPE $$",
    "not found": "exec /no/such/program",
    "not executable": "exec /etc/hostname",
    "exception": "exec {python} -c 'raise RuntimeError(\"step\")'",
    "no memory": "ulimit -v 200000; exec {python} -c 'bytearray(1 << 30)'",
    "cpu limit": "ulimit -t 1; while :; do :; done",
    "file too large": "ulimit -f 8; exec head -c 1000000 /dev/zero > $RANKDECK_RUN/large",
    "floods": "head -c 3000000 /dev/zero | tr '\\0' 'x'; echo; echo step last; exit 9",
    "removes its log": "rm $RANKDECK_RUN/rank.0/out; exit 4",
    "leaves a child": "sleep 2 & exit 5",
    "exec fails in a shell": "false",
}
"""What a rank does after some steps: twenty kinds of failures."""


@pytest.fixture
def job() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def start(node, job, script, **more):
    rank = {"name": "r0", "argv": ["sh", "-c", script], "rank": 0, "env": {"RANKDECK_RANK": "0"}}
    return node.run(job, [0], [rank], tty=False, **more)


def box_of(node, job) -> NodeBox:
    code, out, err = node.job("box", job, node.name)
    assert code == 0, err
    origin = Origin(node.name, Part.SUPERVISOR, "ssh", (0,))
    return read_node_box(node.name, origin, 0.0, json.loads(out))


def frozen(node, job, why) -> NodeBox:
    """The box when it has been frozen for this reason, and what came after it was written too."""

    def found():
        box = box_of(node, job)
        return box if why in [one for _, one in box.frozen] else None

    return until(found, 90)


def test_twenty_failures_that_no_console_sees_are_all_recorded_without_a_gap(node, job):
    jobs = {f"{job}-{place}": does for place, does in enumerate(FAILURES.values())}
    for name, does in jobs.items():
        start(node, name, STEPS + does.replace("{python}", sys.executable))
    boxes = {name: frozen(node, name, ENDED) for name in jobs}

    assert len(boxes) == 20
    for name, box in boxes.items():
        assert box.frozen[0][1] == FAILED, jobs[name]
        assert box.gaps == 0, jobs[name]
        assert len(box.readings) >= 2, jobs[name]
        assert "cpu.used" in box.readings[-1][1], jobs[name]
        assert box.looks.get(0), jobs[name]
        assert box.odd == 0
        assert box.trouble == ""
        if "rm $" not in jobs[name]:
            assert b"step" in box.tails[0, "out"][1], jobs[name]


def test_a_cancel_freezes_the_box(node, job):
    start(node, job, "echo begun; sleep 100")
    until(lambda: box_of(node, job).readings)
    node.cancel(job)

    box = frozen(node, job, CANCELLED)
    assert box.tails[0, "out"] == (0, b"begun\n")


def test_a_killed_supervisor_leaves_a_frozen_box(node, job):
    pid = start(node, job, "echo begun; sleep 100")["pid"]
    until(lambda: box_of(node, job).readings)
    os.kill(pid, signal.SIGKILL)

    assert frozen(node, job, GONE).readings
    assert not recorders_of(node, job)


def test_a_cancel_does_not_take_the_recorder_for_a_process_of_the_job_and_it_ends_by_itself(
    node, job
):
    start(node, job, "sleep 100")
    until(lambda: box_of(node, job).readings)

    answer = node.cancel(job)

    assert answer["left"] == []
    frozen(node, job, CANCELLED)
    until(lambda: not recorders_of(node, job))


def recorders_of(node, job) -> list[str]:
    """Open files in the black box of the job, by any process."""
    where = str(node.folder(job) / BLACK_BOX)
    listed = subprocess.run(
        ["sh", "-c", "ls -l /proc/[0-9]*/fd 2>/dev/null"], capture_output=True, text=True
    ).stdout
    return [line for line in listed.splitlines() if where in line]


def test_a_job_that_fills_the_disk_or_spoils_the_folder_is_not_disturbed(node, job):
    start(
        node,
        job,
        f"rm -rf $RANKDECK_RUN/{BLACK_BOX}; ln -s /proc/self $RANKDECK_RUN/{BLACK_BOX}; sleep 8; echo ok",
    )

    node.closed(job)

    assert node.events(job, "exited")[0]["code"] == 0
    assert box_of(node, job).readings == []


def test_what_a_job_writes_in_its_box_is_not_believed(node, job):
    start(node, job, "sleep 100")
    until(lambda: box_of(node, job).readings)
    place = node.folder(job) / BLACK_BOX
    head = {"kind": "box", "version": 1, "job": job, "node": node.name}
    forged = [
        {"kind": "activity", "at": 1.0, "rows": [[7, "R", "", 1.0, 0.5]]},
        {"kind": "tail", "rank": 7, "stream": "out", "o": 0, "data": "eA=="},
        {"kind": "health", "body": {"at": 5, "level": 9, "heartbeat": 5}},
        {"kind": "frozen", "at": "now", "why": "failed"},
        {"kind": "closed"},
    ]
    lines = [json.dumps(row) for row in (head, *forged)]
    (place / "90000001").write_text("\n".join(lines) + '\n{"kind":"health","body":{"at"')
    (place / "90000002").write_text(json.dumps({**head, "version": 2}) + "\n{}\n")
    (place / "90000003").write_text(json.dumps({**head, "job": "other"}) + "\n{}\n")
    os.mkfifo(place / "90000004")
    (place / "90000005").symlink_to("/etc/passwd")

    box = box_of(node, job)

    assert list(box.looks) in ([], [0])
    assert (7, "out") not in box.tails
    assert box.frozen == []
    assert box.odd >= 4
    assert box.trouble in ("another version of Rankdeck has written it", "it is of another job")
