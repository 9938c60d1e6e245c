"""Inside the allocation of a real Slurm job: the agent beside the ranks, where nobody may log in to the nodes."""

import pytest
from tests.support.lab.root.people import Operator, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
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
