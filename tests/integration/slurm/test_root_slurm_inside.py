"""Inside the allocation of a real Slurm job: the agent beside the ranks,
where nobody may log in to the nodes.
"""

from pathlib import Path

import pytest
import yaml
from tests.support.lab.root.people import Operator
from tests.support.polling import eventually
from tests.support.reasons import reasons

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.left_out]
STUCK = """\
import os, time
def load_batch():
    os.read(os.pipe()[0], 1)
def all_reduce():
    time.sleep(600)
print("step 2", flush=True)
load_batch() if os.environ["SLURM_PROCID"] == "2" else all_reduce()
"""


def test_the_stuck_rank_is_named_with_its_node(user: Operator) -> None:
    job = user.run(
        "--detach", "--no-preflight", launch="plain", files={"stuck.py": STUCK},
        command=["python3", "${RANKDECK_RUN}/stuck.py"], slurm={"exclusive": True, "mem": "200M"},
    )["job"]  # fmt: skip
    begun = lambda: len(user.lines(job)) == 4  # noqa: E731
    assert eventually(begun), user.job(job)

    (found,) = user.objects("inspect", job)

    assert found["missing"] == {}
    looks = {look["rank"]: look for group in found["groups"] for look in group["looks"]}
    pids = {rank["rank"]: rank["node"] for rank in user.job(job)["ranks"]}
    assert {rank: look["node"] for rank, look in looks.items()} == pids
    assert found["odd"] == [2], found
    assert "rank 2" in found["answer"]
    assert looks[2]["last"] == "step 2"


def test_a_job_that_waits_has_no_rank_to_look_at(user: Operator) -> None:
    job = user.run(
        "--detach", "--no-preflight", launch="plain", command=["true"], slurm={"args": ["--hold"]}
    )["job"]

    (found,) = user.objects("inspect", job)

    assert "no rank of the job runs" in str(found["missing"])


def no_login_to_workers(user: Operator) -> None:
    """As with pam_slurm: who has no key there gets in by srun alone."""
    file = Path(user.file)
    cluster = yaml.safe_load(file.read_text())
    for node in cluster["nodes"]:
        node |= {} if node["name"] == "login" else {"address": user.lab.address("n3"), "port": 1}
    file.write_text(yaml.safe_dump(cluster))


def test_nodes_that_nobody_may_log_in_to_are_heard_from_inside_the_job(user: Operator) -> None:
    no_login_to_workers(user)
    command = ["sh", "-c", "until [ -e $RANKDECK_RUN/go ]; do sleep 0.2; done"]
    job = user.run("--detach", "--no-preflight", launch="plain", ranks_per_node=1, command=command)["job"]  # fmt: skip
    begun = lambda: {rank["state"] for rank in user.job(job)["ranks"]} == {"running"}  # noqa: E731
    assert eventually(begun), user.job(job)

    steps = lambda: user.on("n4", "squeue --steps --noheader --format=%j").split()  # noqa: E731
    found = {node["name"]: node for node in user.objects("status", "--watch", "15")[-1]["nodes"]}

    for name in ("n1", "n2"):
        assert reasons(found[name]) == {}
        assert found[name]["values"]["cpu.cores"], name
        assert found[name]["agent"].startswith("heard from inside Slurm job"), found[name]["agent"]
    # It ends with the console, and takes nothing from the ranks.
    assert eventually(lambda: "rankdeck" not in steps()), steps()
    assert {rank["state"] for rank in user.job(job)["ranks"]} == {"running"}


@pytest.mark.kept
def test_the_first_step_of_a_job_that_asks_for_it_finds_a_bad_node(user: Operator) -> None:
    file = Path(user.file)
    cluster = yaml.safe_load(file.read_text())
    cluster["expect"] = {"gpu_count": 2}
    file.write_text(yaml.safe_dump(cluster))
    command = ["sh", "-c", "echo began"]

    bad = user.run("--no-preflight", launch="plain", command=command, slurm={"preflight": True})
    good = user.run("--no-preflight", launch="plain", command=command)

    assert (bad["state"], bad["exit_code"]) == ("failed", 1)
    said = bad["first_failure"]["lines"]
    assert any("RANKDECK CRITICAL: n2" in line for line in said), said
    assert any("0 of 2 GPUs" in line for line in said), said
    assert any("no rank was started" in line for line in said), said
    assert user.lines(bad["job"]) == []
    assert (good["state"], user.lines(good["job"])) == ("done", ["began"] * 4)
