"""Every way in which a real Slurm ends a job, and what Rankdeck says of it;
login nodes and controllers that go away.
"""

import time
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.lab.root import slurm
from tests.support.lab.root.people import Operator
from tests.support.polling import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.left_out]
SLEEP = ["sh", "-c", 'echo "run ${SLURM_RESTART_COUNT:-0}"; exec sleep 600']
ONCE = [
    "sh",
    "-c",
    'echo "run ${SLURM_RESTART_COUNT:-0}"; [ "${SLURM_RESTART_COUNT:-0}" != 0 ] || exec sleep 600',
]
"""Sleeps in its first run and ends in the second."""


def start(user: Operator, command: list[str] | None = None, **spec: Any) -> str:
    """The id of a job that Slurm has taken."""
    asked = {"launch": "plain", "ranks_per_node": 1, "command": command or SLEEP, **spec}
    return user.run("--detach", "--no-preflight", **asked)["job"]


def running(user: Operator, job: str) -> dict[str, Any]:
    """The job, once all its ranks have begun."""
    return user.until(job, lambda found: all(r["state"] == "running" for r in found["ranks"]))


def ended(user: Operator, job: str, limit: float = 120) -> dict[str, Any]:
    """The job, once it is over."""
    return user.until(job, lambda found: found["state"] in ("done", "failed", "cancelled"), limit)


def says(user: Operator, job: str, key: str) -> Any:
    """What Slurm says of the job, once it was asked."""
    return user.until(job, lambda found: found["slurm"])["slurm"][key]


def number(user: Operator, job: str) -> str:
    return says(user, job, "id")


def told(job: dict[str, Any]) -> str:
    """The sentence for its end."""
    return job["slurm"]["text"]


# ---- verdicts


def test_a_time_limit_is_told_as_such(user: Operator) -> None:
    asked = {"launch": "plain", "ranks_per_node": 1, "command": SLEEP}
    seen = user.run("--no-preflight", **asked, slurm={"time": "1"})  # the shortest there is

    found = user.job(seen["job"])

    assert {key for key, said in seen.items() if said != found[key]} <= {"nodes_said"}
    assert found["slurm"]["state"] == "TIMEOUT"
    assert found["first_failure"]["what"] == "scheduler"
    assert "time limit" in told(found)
    assert "slurm: {time" in found["slurm"]["do"]
    assert {rank["state"] for rank in found["ranks"]} == {"cancelled"}


@pytest.mark.kept
def test_a_memory_limit_names_the_node(user: Operator) -> None:
    command = [
        "python3",
        "-c",
        "import os, time; x = bytearray(int(os.environ['SLURM_PROCID']) * 300 << 20); time.sleep(60)",
    ]

    found = user.run("--no-preflight", launch="plain", ranks_per_node=1, command=command, slurm={"mem": "80M"})  # fmt: skip

    assert found["state"] == "failed"
    assert found["slurm"]["state"] == "OUT_OF_MEMORY"
    assert found["first_failure"]["node"] == "n2"
    assert "memory" in told(found)


def test_scancel_by_hand_is_no_failure_of_a_rank(user: Operator) -> None:
    job = start(user)
    running(user, job)
    user.on("n1", f"scancel {number(user, job)}")

    found = ended(user, job)

    assert (found["state"], found["first_failure"]) == ("cancelled", None)
    assert "not through Rankdeck" in told(found)


@pytest.mark.kept
def test_a_job_that_is_held_waits_and_says_so(user: Operator) -> None:
    job = start(user, slurm={"args": ["--hold"]})

    found = user.job(job)

    assert (found["state"], found["stalled"]) == ("pending", [])
    assert found["slurm"]["stuck"]
    assert "scontrol release" in found["slurm"]["do"]

    user.on("n1", f"scontrol release {number(user, job)}")
    running(user, job)


def test_a_job_that_is_cancelled_by_hand_in_the_queue_is_no_failure(user: Operator) -> None:
    job = start(user, slurm={"args": ["--hold"]})
    user.on("n1", f"scancel {number(user, job)}")

    found = ended(user, job)

    assert (found["state"], found["first_failure"]) == ("cancelled", None)
    assert {rank["state"] for rank in found["ranks"]} == {"cancelled"}


def test_a_dependency_that_cannot_be_met_is_told(user: Operator) -> None:
    first = user.run("--no-preflight", launch="plain", ranks_per_node=1, command=["true"])
    done = first["slurm"]["id"]
    job = start(user, slurm={"dependency": f"afternotok:{done}"})

    assert eventually(lambda: says(user, job, "stuck")), user.job(job)
    assert "will never start" in told(user.job(job))


def test_a_job_that_waits_for_nodes_says_which_place_it_has(user: Operator) -> None:
    running(user, start(user, slurm={"exclusive": True}))
    job = start(user)

    placed = lambda: says(user, job, "position") == 1  # noqa: E731

    assert eventually(placed), user.job(job)["slurm"]
    assert says(user, job, "waits")
    assert user.job(job)["stalled"] == []


# ---- runs


def test_a_job_that_was_preempted_and_ended_well_is_done(user: Operator, root: Operator) -> None:
    job = start(user, ONCE, slurm={"partition": "low", "requeue": True, "exclusive": True})
    running(user, job)
    user.on("n4", "srun -p high -N 2 --exclusive true")
    assert eventually(lambda: says(user, job, "attempt") == 1), user.job(job)
    # Slurm waits for two minutes before it starts a job again.
    root.on("n3", f"scontrol update jobid={number(user, job)} starttime=now")

    found = ended(user, job)

    assert (found["state"], found["exit_code"]) == ("done", 0)
    (run,) = found["slurm"]["attempts"]
    assert "higher priority" in run["text"]
    assert run["nodes"] == ["n1", "n2"]
    assert found["slurm"]["attempt"] == 1
    assert user.lines(job) == ["run 0", "run 1"] * 2
    for run in ("0", "1"):
        said = [line["text"] for line in user.objects("logs", job, "--attempt", run)]
        assert said == [f"run {run}"] * 2


def test_a_preempted_job_that_is_not_queued_again_says_so(user: Operator) -> None:
    job = start(user, slurm={"partition": "low", "requeue": False, "exclusive": True})
    running(user, job)
    user.on("n4", "srun -p high -N 2 --exclusive true")

    found = ended(user, job)

    assert (found["state"], found["slurm"]["state"]) == ("failed", "PREEMPTED")
    assert "higher priority" in told(found)


def test_a_job_whose_folder_was_removed_holds_up_no_other_and_is_let_go(user: Operator) -> None:
    lost, other = start(user, nodes=1), start(user, ["sleep", "5"], nodes=1)
    running(user, lost)
    user.on("n4", f"rm -r ~/.local/state/rankdeck/jobs/{lost}; scancel {number(user, lost)}")

    assert ended(user, other)["state"] == "done"
    kept = lambda: user.on("n4", "ls ~/.local/state/rankdeck/slurm/open").split()  # noqa: E731
    assert eventually(lambda: not any(lost in name for name in kept()), 120), kept()


@pytest.fixture
def crash(root: Operator) -> Iterator[Callable[[str], None]]:
    """Crashes a worker; it is booted again afterwards."""
    down: list[str] = []

    def end(node: str) -> None:
        down.append(node)
        root.lab.crash(node)

    yield end
    for node in down:
        root.lab.boot(node)
        slurm.prepare(root, node)


def test_a_node_that_failed_is_named(user: Operator, crash: Callable[[str], None]) -> None:
    job = start(user, slurm={"requeue": False})
    running(user, job)
    crash("n2")

    found = ended(user, job)

    assert (found["state"], found["slurm"]["state"]) == ("failed", "NODE_FAIL")
    assert found["first_failure"]["node"] == "n2", found["first_failure"]
    assert "node n2 failed" in told(found)


def test_a_job_goes_on_elsewhere_when_its_node_failed(
    user: Operator, crash: Callable[[str], None]
) -> None:
    job = start(user, ONCE, nodes=1, slurm={"requeue": True, "nodelist": "n1"})
    running(user, job)
    user.on("n4", f"scontrol update jobid={number(user, job)} reqnodelist=")
    crash("n1")

    again = lambda: says(user, job, "attempt") == 1  # noqa: E731
    assert eventually(again, 90), user.job(job)
    assert says(user, job, "attempts")[0]["nodes"] == ["n1"]
    assert user.job(job)["state"] == "pending"


# ---- who asks


def through_second_login(user: Operator) -> Operator:
    """The same operator, whose login node is another machine under the same name."""
    file = Path(user.file)
    cluster = yaml.safe_load(file.read_text())
    cluster["nodes"][-1]["address"] = user.lab.address("n3")
    second = file.with_suffix(".second.yaml")
    second.write_text(yaml.safe_dump(cluster))
    other = copy(user)
    other.file = str(second)
    return other


def test_a_second_login_node_closes_nothing(user: Operator) -> None:
    job = start(user)
    running(user, job)
    other = through_second_login(user)

    assert other.job(job)["state"] == "running"
    assert other.job(job)["troubles"] == []
    (report,) = other.objects("cancel", job)

    assert report["left"] == []
    assert user.job(job)["state"] == "cancelled"


def test_a_login_node_that_was_rebooted_loses_no_job(user: Operator, root: Operator) -> None:
    job = start(user)
    running(user, job)
    root.lab.crash("n4")
    root.lab.boot("n4")
    slurm.prepare(root, "n4")

    assert user.job(job)["state"] == "running", user.job(job)
    user.on("n1", f"scancel {number(user, job)}")

    assert ended(user, job)["state"] == "cancelled"


def test_a_controller_that_is_down_ends_no_job(user: Operator, root: Operator) -> None:
    go = f"{user.lab.shared}/state/go.{time.time()}"
    job = start(user, ["sh", "-c", f"until [ -e {go} ]; do sleep 0.2; done; echo over"])
    running(user, job)
    # Not SIGKILL: a controller that has not yet saved that the job began
    # takes its node for broken afterwards.
    root.on("n3", "pkill slurmctld; while pgrep -x slurmctld; do sleep 0.1; done")
    try:
        root.on("n3", f"touch {go}")
        assert eventually(lambda: "over" in user.lines(job))
        found = user.until(job, lambda found: found["troubles"], limit=180)
        assert found["state"] == "running", found
        assert "Slurm does not answer: " in found["troubles"][0], found
        asked = {"launch": "plain", "ranks_per_node": 1, "command": ["true"]}
        other = user.lab.folder / "unanswered.yaml"
        other.write_text(yaml.safe_dump({"job": "unanswered", **asked}))
        done = user.lab.rankdeck("-c", user.file, "run", str(other), "--no-preflight", limit=180)
        assert "Slurm has not taken the job: " in done.stderr, done.stderr
    finally:
        root.on("n3", "slurmctld")

    found = ended(user, job)
    assert found["state"] == "done"
    assert found["troubles"][-1].endswith("Slurm answers again"), found


@pytest.mark.kept
def test_what_slurm_refuses_stays_in_the_history(user: Operator) -> None:
    done = refused(user, {"partition": "nowhere"})

    assert "invalid partition specified: nowhere" in done.stderr, done.stderr
    newest = user.objects("jobs")[0]
    assert newest["state"] == "failed"
    assert "nowhere" in " ".join(newest["troubles"]), newest


def refused(user: Operator, options: dict[str, Any]) -> Any:
    file = user.lab.folder / "refused.yaml"
    job = {
        "job": "refused",
        "launch": "plain",
        "ranks_per_node": 1,
        "command": ["true"],
        "slurm": options,
    }
    file.write_text(yaml.safe_dump(job))
    return user.lab.rankdeck("-c", user.file, "run", str(file), "--no-preflight", limit=60)


CHATTY = """\
#!/bin/sh
echo "$(basename "$0"): this cluster is going down for maintenance on Monday" >&2
exec "$(PATH=/usr/bin:/bin command -v "$(basename "$0")")" "$@"
"""


def test_a_line_on_stderr_of_every_command_changes_nothing_and_that_of_sbatch_is_shown(
    user: Operator,
) -> None:
    chatty = user.lab.shared / "chatty"
    chatty.mkdir(exist_ok=True)
    for name in ("sbatch", "squeue", "scontrol", "scancel", "sacct", "sinfo", "srun"):
        (chatty / name).write_text(CHATTY)
        (chatty / name).chmod(0o755)
    file = Path(user.file)
    cluster = yaml.safe_load(file.read_text())
    cluster["environment"] = {"PATH": f"{chatty}:/usr/bin:/bin"}
    file.write_text(yaml.safe_dump(cluster))

    done = user.run("--no-preflight", launch="plain", ranks_per_node=1, command=["echo", "here"])
    # What sbatch says of a job is for its user; the others are asked again and again.
    said = ["login: sbatch: this cluster is going down for maintenance on Monday"]
    assert (done["state"], done["troubles"]) == ("done", said)
    assert user.lines(done["job"]) == ["here", "here"]

    job = start(user)
    running(user, job)
    (report,) = user.objects("cancel", job)
    assert (report["state"], report["left"]) == ("cancelled", [])
    user.until(job, lambda found: found["slurm"]["state"] == "CANCELLED")


def test_a_job_that_asks_for_a_drained_node_says_so(user: Operator, root: Operator) -> None:
    root.on("n3", "scontrol update nodename=n2 state=drain reason=cable")

    job = start(user, nodes=1, slurm={"nodelist": "n2"})

    assert "drained" in says(user, job, "text"), user.job(job)["slurm"]
    root.on("n3", "scontrol update nodename=n2 state=resume")
    running(user, job)


@pytest.fixture
def limited(root: Operator) -> Iterator[Callable[[], int]]:
    """The controller limits calls; how many it has turned away."""
    slurm.limit_calls(root, on=True)
    log = "grep -c 'RPC rate limit exceeded' /var/log/slurmctld.log"
    before = int(root.on("n3", log))
    yield lambda: int(root.on("n3", log)) - before
    root.on("n3", "scancel --user=lab")
    slurm.limit_calls(root, on=False)


def test_a_controller_that_limits_calls_never_has_to_turn_us_away(
    root: Operator, limited: Callable[[], int]
) -> None:
    user = slurm.through(Operator(root.lab, "lab"), 6)
    small = {"nodes": 1, "slurm": {"mem": "100M"}}
    jobs = [start(user, ["sleep", "15"], **small) for _ in range(3)]

    assert [ended(user, job, 120)["state"] for job in jobs] == ["done"] * 3
    assert limited() == 0

    # Nor does it lead us to say anything wrong that the user's own calls use up what there is.
    job = start(user, ["sleep", "5"], **small)
    user.on("n4", "for n in $(seq 150); do timeout 20 squeue >/dev/null 2>&1 & done; wait", 120)
    assert limited() > 0
    found = ended(user, job, 150)
    assert (found["state"], found["slurm"]["state"]) == ("done", "COMPLETED"), found
