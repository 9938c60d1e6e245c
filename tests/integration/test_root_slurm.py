"""The sbatch scripts that Rankdeck writes, submitted to a real Slurm in the root lab."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.lab import RootLab
from tests.support.lab.root import OLD_SANDBOX, SIF, slurm
from tests.support.lab.root.people import Operator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]
SITE = next(
    (path for path in Path(sys.prefix).glob("lib/python3.*/site-packages/torch")), None
)
SAMPLES = Path(__file__).resolve().parents[2] / "sample-clusters/jobs/programs"
CLUSTER = """\
cluster: site
backend: slurm
slurm: {partition: debug, time: "00:05:00"}
nodes:
  - {name: "n[1-2]", slots: 2}
"""
HELLO = """\
from mpi4py import MPI
w = MPI.COMM_WORLD
print(f"rank {w.rank} of {w.size} on {MPI.Get_processor_name()} sum {w.allreduce(w.rank)}")
"""


@pytest.fixture(scope="module")
def user(root_lab: RootLab) -> Operator:
    slurm.start(Operator(root_lab, "root"))
    return Operator(root_lab, "lab")


class Ran:
    """A script after `sbatch --wait`: its exit status, what Slurm says, and each rank's lines."""

    def __init__(self, user: Operator, **spec: object) -> None:
        folder = user.lab.shared
        (user.lab.folder / "site.yaml").write_text(CLUSTER)
        file = user.lab.folder / "job.yaml"
        file.write_text(yaml.safe_dump({"job": "submitted", "nodes": 2, **spec}))
        planned = user.lab.rankdeck(
            "-c", str(user.lab.folder / "site.yaml"), "run", str(file), "--dry-run"
        )
        assert planned.returncode == 0, planned.stderr
        script = folder / "job.sbatch"
        script.write_text(planned.stdout)
        said = user.on(
            "n1", f"cd {folder} && sbatch --wait {script.name}; echo status $?", 120
        )
        self.said = said
        self.status = int(said.rpartition("status ")[2])
        self.folder = max(folder.glob("rankdeck-submitted-*/"), key=lambda p: p.name)

    def lines(self, stream: str = "out") -> dict[int, list[str]]:
        return {
            int(path.stem): path.read_text().splitlines()
            for path in sorted(self.folder.glob(f"*.{stream}"))
        }


def test_mpi_ranks_are_started_by_srun_through_pmix(user: Operator) -> None:
    ran = Ran(
        user,
        launch="mpi",
        command=["python3", "${RANKDECK_RUN}/hello.py"],
        files={"hello.py": HELLO},
        container={"runtime": "apptainer", "image": SIF},
    )

    assert ran.status == 0, ran.said
    wanted = {r: [f"rank {r} of 4 on n{1 + r // 2} sum 6"] for r in range(4)}
    assert ran.lines() == wanted, ran.lines("err")


def test_a_plain_rank_has_its_variables_and_its_exit_code(user: Operator) -> None:
    ran = Ran(
        user,
        launch="plain",
        command=["sh", "-c", 'echo "$SLURM_PROCID $A"; echo bad >&2; exit $SLURM_PROCID'],
        env={"A": "it's, a \"b\" $c"},
    )  # fmt: skip

    assert ran.status == 3, ran.said
    assert ran.lines()[0] == ['0 it\'s, a "b" $c']
    assert ran.lines("err")[0][0] == "bad"


def test_tensorflow_workers_know_each_other(user: Operator) -> None:
    ran = Ran(user, launch="tensorflow", command=["sh", "-c", 'echo "$TF_CONFIG"'])

    assert ran.status == 0, ran.said
    told: list[dict[str, Any]] = [json.loads(row[0]) for row in ran.lines().values()]
    assert [row["task"]["index"] for row in told] == [0, 1]
    workers = told[0]["cluster"]["worker"]
    assert [worker.partition(":")[0] for worker in workers] == ["n1", "n2"]
    assert told[1]["cluster"]["worker"] == workers


@pytest.mark.skipif(SITE is None, reason="needs torch in this environment")
def test_torchrun_trains_on_both_nodes(user: Operator) -> None:
    assert SITE is not None
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the image has Python 3.11, and torch is built for this one")
    ran = Ran(
        user,
        launch="torchrun",
        command=["${RANKDECK_RUN}/ddp.py", "--steps", "10"],
        files={"ddp.py": (SAMPLES / "ddp.py").read_text()},
        env={"OMP_NUM_THREADS": "1", "PYTHONPATH": "/opt/site"},
        container={
            "runtime": "apptainer",
            "image": OLD_SANDBOX,
            "mounts": [f"{SITE.parent}:/opt/site:ro"],
        },
    )

    assert ran.status == 0, (ran.said, ran.lines("err"))
    written = "\n".join(
        path.read_text()
        for path in [*ran.folder.rglob("stdout.log"), *ran.folder.glob("*.out")]
    )
    for rank in range(4):
        assert f"rank {rank} of 4 on n{1 + rank // 2}, cpu, gloo" in written
