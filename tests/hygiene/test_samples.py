"""Everything that ships as a sample is read, and what can run here is run."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankdeck.cli.check import look_at
from rankdeck.config.files import find_shipped
from rankdeck.model.cluster import Cluster
from rankdeck.model.job_spec import JobSpec

SAMPLES = find_shipped("sample-clusters")
PROGRAMS = SAMPLES / "jobs" / "programs"
MPIRUN = Path(sys.executable).parent / "mpirun"


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.yaml")), ids=lambda p: p.stem)
def test_a_sample_cluster_is_read(path: Path) -> None:
    cluster = look_at(path)[0]

    assert isinstance(cluster, Cluster)
    assert cluster.name == path.stem


@pytest.mark.parametrize("path", sorted((SAMPLES / "jobs").glob("*.yaml")), ids=lambda p: p.stem)
def test_a_sample_job_is_read_with_its_program(path: Path) -> None:
    job = look_at(path)[0]

    assert isinstance(job, JobSpec)
    assert job.name == path.stem
    assert all(f"${{RANKDECK_RUN}}/{name}" in job.command for name in job.files)


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.py")), ids=lambda p: p.stem)
def test_a_sample_program_runs_on_the_oldest_python(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 9))


def mpirun(program: str, *args: str, **env: str) -> "subprocess.CompletedProcess[str]":
    if not MPIRUN.exists():
        pytest.skip("no mpirun beside this Python")
    pytest.importorskip("mpi4py")
    command = [
        str(MPIRUN),
        "--allow-run-as-root",
        "--oversubscribe",
        "-np",
        "4",
        sys.executable,
    ]
    return subprocess.run(
        [*command, str(PROGRAMS / program), *args],
        env={**os.environ, **env}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_hello_is_heard_from_every_rank() -> None:
    done = mpirun("hello.py")

    assert done.returncode == 0, done.stderr
    assert all(f"Hello from rank {rank} of 4" in done.stdout for rank in range(4))


@pytest.mark.slow
def test_the_stencil_converges_and_reports_like_himeno() -> None:
    done = mpirun("stencil.py", "9", "10", "11", STENCIL_SECONDS="1")
    gosa = [float(line.split()[-1]) for line in done.stdout.splitlines() if "Gosa" in line]

    assert done.returncode == 0, done.stderr
    assert "I-decomp = 2 J-decomp = 2 K-decomp = 1" in done.stdout
    assert gosa[-1] < gosa[0]
    assert float(done.stdout.rpartition("MFLOPS measured :")[2]) > 0


@pytest.mark.slow
def test_rank_2_fails_in_mid_run_with_its_code() -> None:
    done = mpirun("fail.py", FAIL_AFTER="1", FAIL_CODE="3")

    assert done.returncode == 3
    assert "step 1 of rank 0" in done.stdout


def test_chatty_numbers_its_lines() -> None:
    env = {**os.environ, "CHATTY_LINES": "1000", "RANKDECK_RANK": "5"}
    done = subprocess.run(
        [sys.executable, PROGRAMS / "chatty.py"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()

    assert len(lines) == 1000
    assert lines[999].startswith("000000999 rank 5 ")
