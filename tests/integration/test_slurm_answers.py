"""What `submit` makes of a Slurm that answers nonsense: it ends, fails, and says no more than a few lines."""

import os
import subprocess
from pathlib import Path

import pytest
from benchmarks.matrix.steering import planted
from tests.support.slurm import KINDS, lying_slurm

from rankdeck import plugins
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job import JobSpec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
SAYS = {
    "refused": "planted",
    "id": "sbatch told no number of a job: ",
    "queue": "Slurm job 7: Slurm does not tell how it ended",
}


def submit(folder: Path) -> Path:
    """The script as a launch lays it on the login node."""
    cluster = Cluster(
        name="c", backend="slurm", nodes=(Node(name="login"),), options={"login": "login"}
    )
    spec = JobSpec(name="t", launch="mpi", command=("true",))
    plan = plugins.find("backends", "slurm")(None).plan(cluster, spec, "t-1")
    for file in plan.nodes[0].files:
        (folder / file.path).write_text(file.text)
    return folder / "submit"


@pytest.mark.parametrize("kind", KINDS)
def test_a_slurm_that_answers_nonsense_ends_the_job_with_a_sentence(tmp_path, kind) -> None:
    path = lying_slurm(tmp_path / "bin", kind, planted())
    run = tmp_path / "run"
    run.mkdir()
    done = subprocess.run(
        ["sh", str(submit(run))], env={**os.environ, "PATH": path, "RANKDECK_RUN": str(run)},
        capture_output=True, timeout=100, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert SAYS[kind.partition("-")[0]].encode() in done.stderr
    assert len(done.stdout) < 10_000
    assert kind.startswith("refused") or len(done.stderr) < 10_000
