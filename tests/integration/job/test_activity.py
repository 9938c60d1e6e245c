"""What a supervisor says that its ranks do: real processes, looked at by the real agent."""

import json
import os
import signal
import uuid

import pytest
from tests.integration.job.conftest import until
from tests.support import cpu_quota

from rankdeck_agent.job.activity import ActivityWatch
from rankdeck_agent.job.folder import RunFolder

pytestmark = [pytest.mark.slow, pytest.mark.left_out]
BURNS = "while :; do :; done"


@pytest.fixture
def job():
    return f"t-{uuid.uuid4().hex[:8]}"


def rank(script, number):
    return {"name": f"r{number}", "argv": ["sh", "-c", script], "rank": number}


def looks(node, job):
    """Rank -> its rows, oldest first, as the file has them now."""
    place = node.folder(job) / "activity"
    lines = place.read_text().splitlines() if place.exists() else []
    found: dict[int, list] = {}
    for row in (row for line in lines for row in json.loads(line)["rows"]):
        found.setdefault(row[0], []).append(row)
    return found


def pid_of(node, job, number):
    started = node.events(job, "started")
    return next((e["pid"] for e in started if e["rank"] == number), None)


def test_what_each_rank_does_is_told_apart(node, job):
    node.run(job, [0, 1, 2], [rank(BURNS, 0), rank("sleep 60", 1), rank(BURNS, 2)])
    pid = until(lambda: pid_of(node, job, 2))
    until(lambda: looks(node, job).get(2))
    os.kill(pid, signal.SIGSTOP)

    until(lambda: looks(node, job)[2][-1][1] == "T")
    found = looks(node, job)
    assert found[0][-1][3] > 0.1
    assert found[1][-1][1] == "S"
    assert found[1][-1][3] < 0.05
    assert found[1][-1][4] is None


@pytest.mark.skipif(bool(cpu_quota.lacking()), reason=cpu_quota.lacking() or "can")
def test_a_rank_that_a_cpu_quota_holds_back_is_seen_as_throttled(node, job):
    node.run(job, [0, 1], [rank(BURNS, 0), rank(BURNS, 1)])
    pid = until(lambda: pid_of(node, job, 1))
    group = cpu_quota.limit_cpu([pid], 0.1, f"rankdeck-{job}")
    try:
        until(lambda: (looks(node, job).get(1) or [[None] * 7])[-1][5])
        found = looks(node, job)
    finally:
        cpu_quota.release(group)

    assert found[1][-1][5] > 0.5
    assert found[0][-1][5] in (None, 0.0)


def test_ranks_that_share_a_core_are_seen_to_wait_for_it(node, job):
    core = min(os.sched_getaffinity(0))
    node.run(
        job,
        [0, 1, 2],
        [
            *(rank(f"exec taskset -c {core} sh -c '{BURNS}'", n) for n in (0, 1)),
            rank("sleep 60", 2),
        ],
    )
    until(lambda: all(len(looks(node, job).get(n, ())) >= 2 for n in range(3)))
    found = looks(node, job)

    assert all(found[n][-1][7] > 0.9 for n in (0, 1))
    assert all(found[n][-1][9] > 0.3 for n in (0, 1))
    assert found[2][-1][7] < 0.1


def test_a_rank_that_only_computes_makes_no_moves_and_one_that_writes_does(node, job):
    node.run(job, [0, 1], [rank(BURNS, 0), rank("while :; do echo x; done >/dev/null", 1)])
    until(lambda: all(len(looks(node, job).get(n, ())) >= 2 for n in (0, 1)))
    found = looks(node, job)

    assert found[0][-1][6] < 10
    assert found[1][-1][6] > 1000


def test_a_follower_tells_the_looks_of_the_last_minute_before_it_has_caught_up(node, job):
    node.run(job, [0], [rank("sleep 60", 0)])
    until(lambda: len(looks(node, job).get(0, ())) >= 2)
    follower = node.popen("follow", job, node.name)
    kinds = []
    while "now" not in kinds:
        kinds.append(json.loads(follower.stdout.readline())["kind"])
    follower.stdin.close()
    follower.wait(60)

    assert kinds.count("activity") >= 2


@pytest.mark.kept
def test_a_rank_that_failed_leaves_what_it_did(node, job):
    node.run(job, [0], [rank("sleep 60 & wait; sleep 60", 0)])
    pid = until(lambda: pid_of(node, job, 0))
    until(lambda: looks(node, job).get(0))
    os.kill(pid, signal.SIGKILL)

    (end,) = until(lambda: node.events(job, "exited"))
    state, wchan, cores = end["activity"]
    assert state == "S"
    assert isinstance(wchan, str)
    assert cores < 0.05


@pytest.mark.kept
def test_the_file_goes_with_the_last_rank(node, job):
    node.run(job, [0], [rank("sleep 60", 0)])
    until(lambda: looks(node, job))
    node.cancel(job, 0)
    node.closed(job)

    assert not (node.folder(job) / "activity").exists()


def test_where_the_file_cannot_be_written_nothing_else_happens(tmp_path):
    one = ActivityWatch(RunFolder(tmp_path / "gone", "j", "n1"))
    one._roots = {os.getpid(): True}
    for now in (10.0, 20.0):
        one.look({0: os.getpid()}, now)

    assert one.of_failed(0).state in "RS"
