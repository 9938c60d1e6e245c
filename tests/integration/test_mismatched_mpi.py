"""Launcher and program of different MPIs, for real: every rank says that
it is alone, and the launcher says 0.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.support import mpich
from tests.support.lab import Lab

from rankdeck.rules.messages import believes_alone, lone_line

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
MPIRUN = Path(sys.executable).parent / "mpirun"
PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  printf("Hello from rank %d of %d\n", rank, size);
  return MPI_Finalize();
}
"""
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that is linked with MPICH."""
    if why := mpich.lacking():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("alone")
    (folder / "hello.c").write_text(PROGRAM)
    subprocess.run(["mpicc.mpich", "hello.c", "-o", "hello"], cwd=folder, check=True)
    return folder / "hello"


def said_by(launcher: Path, program: Path, *args: str) -> dict[int, list[str]]:
    """The lines of three ranks; the launcher must succeed."""
    if not launcher.exists():
        pytest.skip(f"needs {launcher}")
    done = subprocess.run(
        [launcher, *args, "-n", "3", program],
        env={**os.environ, **ROOT},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return {rank: [line] for rank, line in enumerate(done.stdout.splitlines())}


def test_open_mpi_starts_ranks_of_mpich_that_are_each_alone(program: Path) -> None:
    lines = said_by(MPIRUN, program, "--map-by", ":OVERSUBSCRIBE")

    assert len(lines) == 3
    assert believes_alone(lines)


def test_the_launcher_of_the_same_mpi_joins_them(program: Path) -> None:
    lines = said_by(Path("/usr/bin/mpiexec.mpich"), program)

    assert len(lines) == 3
    assert not believes_alone(lines)


def test_a_job_of_two_nodes_shows_it_in_its_logs(lab: Lab, program: Path) -> None:
    if not MPIRUN.exists():
        pytest.skip(f"needs {MPIRUN}")
    copy = lab.shared / "hello"
    shutil.copy(program, copy)
    job = {
        "job": "alone",
        "launch": "mpi",
        "nodes": 2,
        "ranks_per_node": 1,
        "mpi": {"flavour": "openmpi5", "path": str(MPIRUN)},
        "command": [str(copy)],
    }
    file = lab.folder / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    where = str(lab.cluster_file())
    ran = lab.rankdeck("-c", where, "run", "--no-preflight", str(file), "--json", limit=100)
    assert ran.stdout, ran.stderr
    name = json.loads(ran.stdout.splitlines()[-1])["job"]
    logs = lab.rankdeck("-c", where, "logs", name, "--json", limit=60)
    lines: dict[int, list[str]] = {}
    for row in map(json.loads, logs.stdout.splitlines()):
        if row["rank"] is not None and row["rank"] >= 0:
            lines.setdefault(row["rank"], []).append(row["text"])

    assert sorted(lines) == [0, 1], logs.stdout
    assert believes_alone(lines)
    assert lone_line(lines) == "Hello from rank 0 of 1"
