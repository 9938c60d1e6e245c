"""Kubernetes jobs that hang: the ranks are asked inside their pods, by a command and, while no
console is open, by the black box on the control host. Real kubectl exec, torchrun and mpirun.
"""

import tempfile
from pathlib import Path

import pytest
from tests.integration.test_mpi_arrivals import built
from tests.support.hanging_torch import hanging_torch
from tests.support.kubernetes.roles import smallest_role
from tests.support.kubernetes.site import Endpoints, Site
from tests.support.polling import wait_until
from tests.support.programs import UNPACKED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
EXEC = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]}


@pytest.fixture
def user(tmp_path: Path, kubernetes, kubectl):
    """`user(*rules)`: somebody with the smallest Role and these rules, on the double."""
    pytest.importorskip("torch")

    def make(*rules: dict) -> Site:
        double = kubernetes()
        role = smallest_role()
        role["rules"] += rules
        config = double.user("operator", [role], "default")
        return Site(
            tmp_path / "site", Endpoints(config, images={"plain": "any"}, double=double), kubectl
        )

    return make


def hanging(site: Site, patience: int) -> str:
    """Start a job of torchrun of which rank 3 never enters its ninth all_reduce; its id."""
    command = ["python3", "${RANKDECK_RUN}/hangs.py"]
    more = {"command": command, "files": {"hangs.py": hanging_torch(patience)}}
    return site.detached(site.job_file("hangs", "torchrun", ranks_per_node=2, **more))


def running(site: Site) -> list[str]:
    return [one["metadata"]["name"] for one in site.pods() if one["status"]["phase"] == "Running"]


@pytest.mark.kept
def test_who_keeps_the_others_waiting_is_told_while_they_wait(user) -> None:
    site = user(EXEC)
    job = hanging(site, 600)

    told = site.until(job, lambda one: one["stalled"], 120)["stalled"][0]

    assert told["ranks"] == [3], told
    assert "never entered all_reduce" in told["text"]
    where = site.rankdeck("inspect", job)
    assert "rank 3 on gpu-1 never entered all_reduce" in where.stdout
    assert "hangs.py" in where.stdout
    assert site.rankdeck("cancel", "--yes", job).returncode == 0


def test_where_a_rank_of_an_mpi_program_in_c_stands_is_told(user) -> None:
    site = user(EXEC)
    UNPACKED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=UNPACKED) as folder:
        _, program = built(Path(folder), "openmpi5")
        job = site.detached(site.job_file("absent", "mpi", ranks_per_node=2, command=[str(program), "absent"]))  # fmt: skip
        told = site.until(job, lambda one: one["stalled"], 120)["stalled"][0]
        assert site.rankdeck("cancel", "--yes", job).returncode == 0

    assert told["ranks"] == [2], told
    assert "load_batch" in told["text"]


def test_who_held_up_the_others_is_named_by_a_command_afterwards(user) -> None:
    site = user(EXEC)
    job = hanging(site, 40)
    wait_until(lambda: site.pods() and not running(site), 200, "the end of the pods")

    first = site.until(job, lambda one: one["state"] == "failed", 60)["first_failure"]

    assert (first["what"], first["rank"]) == ("rank", 3), first
    assert "never entered all_reduce" in first["evidence"][0]


def test_without_the_right_the_missing_one_is_named(user) -> None:
    site = user()
    job = hanging(site, 600)
    site.until(job, lambda one: one["state"] == "running", 120)

    said = site.rankdeck("inspect", job)

    assert (
        "you may run nothing in pods: the rights to `get` and `create` `pods/exec` are missing"
        in said.stdout
    )
    assert not [path for _, path in site.where.double.api.requests if "/exec" in path]
    assert site.rankdeck("cancel", "--yes", job).returncode == 0
