"""`rankdeck drill` through a real Slurm: srun starts the ranks, nothing is left in the queue."""

import json

import pytest
from tests.support.lab import RootLab
from tests.support.lab.root import slurm
from tests.support.lab.root.people import Operator
from tests.support.polling import eventually

pytestmark = [pytest.mark.slow, pytest.mark.left_out, pytest.mark.timeout(1000)]


@pytest.fixture(scope="module")
def root(slurm_lab: RootLab) -> Operator:
    root = Operator(slurm_lab, "root")
    slurm.start(root)
    return slurm.through(root)


def test_a_killed_and_a_silent_rank_are_named_and_the_queue_is_empty(root: Operator) -> None:
    user = slurm.through(Operator(root.lab, "lab"))
    words = ("--only", "killed,silent", "--launch", "plain", "--nodes", "2", "--ranks-per-node", "2")  # fmt: skip
    done = user.lab.rankdeck("-c", user.file, "drill", "--yes", "--json", *words, limit=600)

    assert done.stdout, done.stderr[-3000:]
    found = json.loads(done.stdout)
    named = {one["fault"]: (one["verdict"], one["named"]) for one in found["results"]}
    assert named == {
        one["fault"]: ("right", f"rank {one['victim']}") for one in found["results"]
    }, found["results"]
    assert [one["left"] for one in found["results"]] == [{}, {}]
    assert done.returncode == 0
    assert eventually(lambda: slurm.idle(root)), root.on("n3", "squeue")
