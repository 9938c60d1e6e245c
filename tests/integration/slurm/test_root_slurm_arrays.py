"""Arrays on a real Slurm: each task a row of its own, with its node, exit,
output and runs; ended one by one or together.
"""

from typing import Any

import pytest
from tests.support.lab.root.people import Operator
from tests.support.polling import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.left_out]
SLEEP = [
    "sh",
    "-c",
    'echo "task $SLURM_ARRAY_TASK_ID run ${SLURM_RESTART_COUNT:-0}"; exec sleep 600',
]


def array(
    user: Operator, tasks: str, command: list[str], *flags: str, **spec: Any
) -> dict[str, Any]:
    """What `run` prints of an array of these tasks."""
    options = {"array": tasks, **spec.pop("slurm", {})}
    asked = {"launch": "plain", "nodes": 1, "ranks_per_node": 1, "command": command, **spec}
    return user.run("--no-preflight", *flags, slurm=options, **asked)


def states(job: dict[str, Any]) -> dict[int, str]:
    return {rank["rank"]: rank["state"] for rank in job["ranks"]}


def until(user: Operator, job: str, wanted: dict[int, str], limit: float = 120) -> dict[str, Any]:
    """The job, once its tasks have these states."""
    return user.until(job, lambda found: found["slurm"] and states(found) == wanted, limit)


@pytest.mark.kept
def test_each_task_has_its_node_its_exit_and_its_output(user: Operator) -> None:
    command = (
        'echo "task $SLURM_ARRAY_TASK_ID"; echo "bad" >&2; [ $SLURM_ARRAY_TASK_ID != 5 ] || exit 7'
    )

    job = array(user, "1-9:2%2", ["sh", "-c", command])

    assert (job["state"], job["exit_code"]) == ("failed", 7)
    assert {rank["rank"]: rank["exit_code"] for rank in job["ranks"]} == {
        1: 0,
        3: 0,
        5: 7,
        7: 0,
        9: 0,
    }
    assert {rank["node"] for rank in job["ranks"]} <= {"n1", "n2"}
    first = job["first_failure"]
    assert (first["what"], first["rank"], first["victims"]) == ("rank", 5, [])
    assert job["slurm"]["array"] == "1-9:2%2"
    assert {task["number"]: task["state"] for task in job["slurm"]["tasks"]} == {
        1: "COMPLETED", 3: "COMPLETED", 5: "FAILED", 7: "COMPLETED", 9: "COMPLETED",
    }  # fmt: skip
    assert "1 of 5 tasks did not end well: FAILED 5" in job["slurm"]["text"]
    assert user.lines(job["job"]) == [f"task {number}" for number in (1, 3, 5, 7, 9)]
    assert [line["text"] for line in user.objects("logs", job["job"], "--rank", "7")] == [
        "task 7",
        "bad",
    ]


def test_a_task_is_cancelled_alone_and_then_all(user: Operator) -> None:
    job = array(user, "0-3%3", SLEEP, "--detach")["job"]
    until(user, job, {0: "running", 1: "running", 2: "running", 3: "pending"})

    (one,) = user.objects("cancel", job, "--task", "1")
    assert one["left"] == []
    found = until(user, job, {0: "running", 1: "cancelled", 2: "running", 3: "running"})
    task = next(task for task in found["slurm"]["tasks"] if task["number"] == 1)
    assert (task["state"], task["text"]) == ("CANCELLED", "cancelled by you, through Rankdeck")
    assert found["state"] == "running"

    (report,) = user.objects("cancel", job)
    assert (report["state"], report["left"], user.left(job)) == ("cancelled", [], 0)
    until(user, job, dict.fromkeys(range(4), "cancelled"))
    assert user.on("n1", "squeue -h") == ""


def test_a_task_that_was_queued_again_has_runs_of_its_own(user: Operator, root: Operator) -> None:
    job = array(user, "0-1", SLEEP, "--detach", slurm={"requeue": True})["job"]
    found = until(user, job, {0: "running", 1: "running"})
    number = found["slurm"]["id"]
    user.on("n4", f"scontrol requeue {number}_1")
    root.on("n3", f"sleep 2; scontrol update jobid={number}_1 starttime=now")

    again = lambda: "task 1 run 1" in user.lines(job)  # noqa: E731
    assert eventually(again, 90), user.job(job)

    tasks = {task["number"]: task for task in user.job(job)["slurm"]["tasks"]}
    assert (tasks[0]["attempt"], tasks[1]["attempt"]) == (0, 1)
    (run,) = tasks[1]["attempts"]
    assert run["nodes"] in (["n1"], ["n2"])
    assert states(user.job(job)) == {0: "running", 1: "running"}
    second = user.objects("logs", job, "--attempt", "1")
    assert [(line["rank"], line["text"]) for line in second] == [(1, "task 1 run 1")]


def test_tasks_that_wait_are_cancelled_with_their_array(user: Operator) -> None:
    job = array(user, "0-2", SLEEP, "--detach", slurm={"args": ["--hold"]})["job"]
    assert eventually(lambda: (user.job(job)["slurm"] or {}).get("stuck")), user.job(job)

    user.on("n1", f"scancel {user.job(job)['slurm']['id']}")

    found = until(user, job, dict.fromkeys(range(3), "cancelled"))
    assert eventually(lambda: user.job(job)["state"] == "cancelled"), found
    assert user.job(job)["first_failure"] is None


def test_the_processes_of_a_task_end_together_and_write_one_log(user: Operator) -> None:
    command = (
        'echo "process $SLURM_PROCID of task $SLURM_ARRAY_TASK_ID"; '
        # Not before the others have begun: srun ends the task at once.
        "[ $SLURM_ARRAY_TASK_ID.$SLURM_PROCID != 1.3 ] || { sleep 8; exit 7; }; [ $SLURM_ARRAY_TASK_ID = 0 ] || sleep 600"
    )

    job = array(user, "0-1", ["sh", "-c", command], nodes=2, ranks_per_node=2, slurm={"mem": "200M"})  # fmt: skip

    assert {rank["rank"]: rank["state"] for rank in job["ranks"]} == {0: "done", 1: "failed"}
    assert job["first_failure"]["rank"] == 1
    # The status is the highest of all processes, as srun has it: those
    # that it ended have 143. The log tells.
    assert any("task 3: Exited with exit code 7" in line for line in job["first_failure"]["lines"])
    for task in (0, 1):
        rows = user.objects("logs", job["job"], "--rank", str(task))
        said = {row["text"] for row in rows if row["stream"] == "out"}
        assert said == {f"{process}: process {process} of task {task}" for process in range(4)}


def test_tasks_that_are_mpi_jobs_reach_each_other(user: Operator) -> None:
    program = (
        "from mpi4py import MPI; w = MPI.COMM_WORLD; "
        "print('sum', w.allreduce(w.rank), 'of', w.size, flush=True)"
    )

    job = array(user, "3,5", ["python3", "-c", program], launch="mpi", nodes=2, ranks_per_node=2, slurm={"mem": "400M"})  # fmt: skip

    assert job["state"] == "done", job
    for task in (3, 5):
        rows = user.objects("logs", job["job"], "--rank", str(task))
        assert sorted(row["text"] for row in rows if row["stream"] == "out") == [
            f"{process}: sum 6 of 4" for process in range(4)
        ]
