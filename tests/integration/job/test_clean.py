"""`job clean` on a node with real jobs, through the agent's real commands."""

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.integration.job.conftest import Node, until

pytestmark = pytest.mark.slow


@pytest.fixture
def job() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def rank(script: str) -> dict[str, Any]:
    return {"name": "rank 0", "argv": ["sh", "-c", script], "rank": 0}


def clean(node: Node, *words: str) -> dict[str, Any]:
    code, out, err = node.job("clean", *words)
    assert (code, err) == (0, b"")
    return json.loads(out)


def runs(answer: dict[str, Any]) -> dict[str, list[str]]:
    return {row["ground"]: row["names"] for row in answer["rows"] if row["kind"] == "runs"}


def ended(node: Node, job: str, days: float = 0.0) -> Path:
    """The run folder of a job that ended so many days ago and has nothing left."""
    assert node.run(job, [0], [rank("head -c 300000 /dev/zero")])["ok"]
    node.closed(job)
    until(lambda: not Path(f"/tmp/rankdeck.{job}").exists())
    pid = int((node.folder(job) / "supervisor.pid").read_text().split()[0])
    until(lambda: not Path(f"/proc/{pid}").exists())
    at = time.time() - days * 86400
    os.utime(node.folder(job) / "events", (at, at))
    return node.folder(job)


def test_a_job_that_ended_long_ago_goes_and_one_that_runs_stays_and_goes_on(
    node: Node, job: str
) -> None:
    old, new, lasting = ended(node, f"{job}-old", 31), ended(node, f"{job}-new"), f"{job}-runs"
    assert node.run(lasting, [0], [rank("exec sleep 60")])["ok"]
    said = clean(node, "--dry-run")
    assert old.exists()
    did = clean(node)

    assert runs(said) == runs(did) == {
        "old": [f"{job}-old/n1"], "recent": [f"{job}-new/n1"], "runs": [f"{lasting}/n1"],
    }  # fmt: skip
    assert next(row["bytes"] for row in did["rows"] if row["ground"] == "old") > 300_000
    assert not old.parent.exists()
    assert new.exists()
    assert Path(f"/tmp/rankdeck.{lasting}").exists()
    everything = clean(node, "--keep-days", "0", "--keep-bytes", "0")
    assert runs(everything) == {"old": [f"{job}-new/n1"], "runs": [f"{lasting}/n1"]}
    assert node.cancel(lasting)["left"] == []
    assert node.events(lasting, "cancel")


def test_a_job_whose_ranks_left_a_process_behind_stays(node: Node, job: str) -> None:
    assert node.run(job, [0], [rank("setsid sleep 60 & sleep 0.2")])["ok"]
    node.closed(job)

    assert runs(clean(node, "--keep-days", "0")) == {"runs": [f"{job}/n1"]}
    node.cancel(job, 0)
    until(lambda: runs(clean(node, "--keep-days", "0")) == {"old": [f"{job}/n1"]})


def test_two_cleaners_at_once_share_the_work_and_none_fails(node: Node, job: str) -> None:
    for number in range(3):
        ended(node, f"{job}-{number}", 31)
    both = [node.popen("clean") for _ in range(2)]
    answers = [json.loads(one.communicate(timeout=40)[0]) for one in both]

    assert [one.returncode for one in both] == [0, 0]
    assert [answer["failed"] for answer in answers] == [[], []]
    assert len([name for one in answers for name in runs(one).get("old", [])]) == 3
    assert [*(node.state / "jobs").iterdir()] == []


def test_a_removed_job_is_unknown_to_the_node_in_one_sentence(node: Node, job: str) -> None:
    ended(node, job, 31)
    clean(node)
    _, out, err = node.job("inspect", job, "n1")

    assert out == b""
    assert err.decode().strip() == (
        f"rankdeck: job {job} has no run folder on node n1: never started there, or removed"
    )


def test_the_start_of_a_job_cleans_once_a_day(node: Node, job: str) -> None:
    old = ended(node, f"{job}-old", 31)
    (stamp,) = node.state.glob("cleaned.*")
    assert stamp.read_text() == ""  # the first time it only notes when that was
    at = time.time() - 2 * 86400
    os.utime(stamp, (at, at))
    ended(node, f"{job}-second")
    until(lambda: not old.exists())

    answer = json.loads(until(stamp.read_text))
    assert runs(answer)["old"] == [f"{job}-old/n1"]
    assert node.folder(f"{job}-second").exists()
