"""A real Slurm with slurmdbd, whose controller forgets jobs at once: who ended a
job, and what became of it, accounting tells.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.lab.root import slurm
from tests.support.lab.root.people import Operator
from tests.support.polling import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.left_out]
SLEEP = ["sleep", "600"]


@pytest.fixture(scope="module", autouse=True)
def accounting(root: Operator) -> Iterator[None]:
    slurm.account(root)
    yield
    slurm.account_no_more(root)


def start(user: Operator, command: list[str], **spec: Any) -> str:
    asked = {"launch": "plain", "nodes": 1, "ranks_per_node": 1, "command": command, **spec}
    return user.run("--detach", "--no-preflight", **asked)["job"]


def until(user: Operator, job: str, *states: str, limit: float = 120) -> dict[str, Any]:
    return user.until(job, lambda found: found["state"] in states, limit)


def number(user: Operator, job: str) -> str:
    return user.until(job, lambda found: found["slurm"])["slurm"]["id"]


def test_an_administrator_who_cancelled_a_job_is_named(user: Operator, root: Operator) -> None:
    job = start(user, SLEEP)
    until(user, job, "running")
    root.on("n3", f"scancel {number(user, job)}")

    found = until(user, job, "cancelled", "failed", "done")

    assert (found["state"], found["slurm"]["by"]) == ("cancelled", "root"), found["slurm"]
    assert "cancelled by root, not through Rankdeck" in found["slurm"]["text"]


def test_a_job_that_the_controller_forgot_ends_as_accounting_says(user: Operator) -> None:
    job = start(user, ["sh", "-c", "until [ -e $RANKDECK_RUN/go ]; do sleep 0.2; done; exit 7"])
    until(user, job, "running")
    # The keeper is gone when it ends, and comes back when the controller no longer knows it.
    user.on("n4", "pkill -KILL -f 'slurm [k]eep'")
    user.on("n4", f"touch ~/.local/state/rankdeck/jobs/{job}/login/go")
    gone = f"scontrol show job {number_of(user, job)} 2>&1"
    assert eventually(lambda: "Invalid job id" in user.on("n4", gone), 90), user.on("n4", gone)

    found = until(user, job, "failed", "done", "cancelled")

    assert (found["state"], found["exit_code"], found["slurm"]["state"]) == ("failed", 7, "FAILED")
    assert found["troubles"] == []


def test_tasks_that_somebody_cancels_while_they_wait_are_cancelled_and_by_whom_is_told(
    user: Operator, root: Operator
) -> None:
    command = ["sh", "-c", "[ $SLURM_ARRAY_TASK_ID = 0 ] || exec sleep 600; sleep 25"]
    job = start(user, command, slurm={"array": "0-4%1"})
    until(user, job, "running")
    root.on("n3", f"scancel --state=PENDING {number(user, job)}")

    found = until(user, job, "cancelled", "failed", "done")

    told = {(task["state"], task["text"]) for task in found["slurm"]["tasks"] if task["number"]}
    assert found["state"] == "cancelled", found["slurm"]
    assert told == {("CANCELLED", "cancelled by root, not through Rankdeck")}


def number_of(user: Operator, job: str) -> str:
    return user.on("n4", f"head -n 1 ~/.local/state/rankdeck/jobs/{job}/login/slurm.id").strip()


def test_a_deadline_that_passed_in_the_queue_is_told(user: Operator) -> None:
    first = start(user, SLEEP, nodes=2, slurm={"exclusive": True})
    until(user, first, "running")
    job = start(user, SLEEP, slurm={"deadline": "now+70seconds", "time": "1"})

    found = until(user, job, "failed", "cancelled", "done", limit=150)

    assert (found["state"], found["slurm"]["state"]) == ("failed", "DEADLINE"), found["slurm"]
    assert "deadline" in found["slurm"]["text"]


@pytest.mark.kept
def test_jobs_of_everybody_that_ended_are_listed_with_how(user: Operator, root: Operator) -> None:
    name = f"theirs-{time.time_ns()}"
    root.on("n4", f"sbatch --wait --job-name={name} --output=/dev/null --wrap='exit 3'", 150)

    theirs = lambda: [one for one in user.objects("jobs", "--ended") if one.get("name") == name]  # noqa: E731
    # What the controller has forgotten may still wait for its end in
    # the accounting, or be completing.
    over = lambda: [one for one in theirs() if one["slurm"]["code"] is not None]  # noqa: E731
    assert eventually(over, 90), user.objects("jobs", "--ended")

    (found,) = theirs()
    assert (found["slurm"]["state"], found["slurm"]["code"]) == ("FAILED", 3), found
