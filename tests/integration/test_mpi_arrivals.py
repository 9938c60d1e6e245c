"""MPI ranks that really wait for each other, in C and Python, under Open MPI and MPICH: who keeps
the others waiting, by their native stacks; and programs that only look like it.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_main_path import Console, demo_console
from tests.integration.test_stalls import need
from tests.support.programs import UNPACKED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int rank, size;
static double mine = 1, all;

__attribute__((noinline)) static void load_batch(void) { sleep(900); puts("never"); }

__attribute__((noinline)) static void exchange(void)
{
    MPI_Recv(&all, 1, MPI_DOUBLE, rank ^ 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    puts("never");
}

__attribute__((noinline)) static void add(void)
{
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

__attribute__((noinline)) static void compute(double seconds)
{
    volatile double x = 1;
    for (time_t end = time(0) + (time_t)seconds; time(0) < end;) x = x * 1.0000001 + 1e-9;
}

int main(int argc, char **argv)
{
    const char *does = argv[1];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int step = 0; step < 12; step++) {
        add();
        printf("step %d\n", step);
        fflush(stdout);
    }
    if (!strcmp(does, "absent") && rank == 2) load_batch();
    if (!strcmp(does, "receive")) exchange();
    if (!strcmp(does, "mixed") && rank == 1) MPI_Barrier(MPI_COMM_WORLD);
    if (!strcmp(does, "left") && rank == 3) { MPI_Finalize(); return 0; }
    if (!strcmp(does, "computes")) { if (rank == 2) compute(25); }
    if (!strcmp(does, "talks")) for (time_t end = time(0) + 25; all < 1e18;) { add(); MPI_Barrier(MPI_COMM_WORLD); int on = time(0) < end; MPI_Bcast(&on, 1, MPI_INT, 0, MPI_COMM_WORLD); if (!on) break; }
    if (!strcmp(does, "naps")) sleep(25);
    add();
    MPI_Finalize();
    return 0;
}
"""
JOB = """
job: {name}
launch: mpi
{mpi}
command: {command}
"""
TWO = "nodes: 2\nranks_per_node: 2\n"
ONE = "nodes: 1\nranks_per_node: 4\n"
WHEEL = Path(sys.executable).parent
LIBRARY = "/usr/lib/x86_64-linux-gnu/libmpi.so.40"


def built(folder: Path, kind: str) -> tuple[str, Path]:
    """(`mpi:` of a job file, the program) for this MPI; skips where it is not installed."""
    source, program = folder / "program.c", folder / f"program-{kind}"
    source.write_text(PROGRAM)
    compilers = {
        "openmpi5": [str(WHEEL / "mpicc")],
        "openmpi4": ["cc", f"-I{WHEEL.parent / 'include'}"],
        "mpich": ["mpicc.mpich"],
    }
    mpi = {
        "openmpi5": f"{TWO}mpi: {{}}",
        "openmpi4": f"{ONE}mpi: {{flavour: openmpi4, path: /usr/bin/mpirun.openmpi}}",
        # UCX of Debian's MPICH does not reach from one of these nodes to the other.
        "mpich": f"{ONE}mpi: {{flavour: mpich, path: /usr/bin/mpiexec.hydra}}",
    }
    need("mpirun")
    compiler = compilers[kind]
    if not shutil.which(compiler[0]) or (kind == "openmpi4" and not Path(LIBRARY).exists()):
        pytest.skip(f"needs {kind}")
    library = [LIBRARY] if kind == "openmpi4" else []
    build = [*compiler, "-O1", "-g", source, *library, "-o", program]
    subprocess.run(build, check=True, cwd=folder)
    return mpi[kind], program


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One that the nodes see too: they have a /tmp of their own."""
    UNPACKED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=UNPACKED.parent) as place:
        yield Path(place)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with demo_console(tmp_path_factory.mktemp("arrivals")) as console:
        yield console


def started(console: Console, name: str, mpi: str, command: str) -> str:
    file = console.file(f"{name}.yaml", JOB.format(name=name, mpi=mpi, command=command))
    (found,) = console.objects("run", file, "--detach", "--no-preflight")
    return found["job"]


def told(console: Console, name: str, mpi: str, command: str) -> dict:
    """The first stall of such a job that its ranks told, as a new console says it."""
    job_id = started(console, name, mpi, command)
    try:
        console.told(job_id)
        found = console.until(job_id, lambda job: any(map(said_itself, job["stalled"])))
        return next(one for one in found["stalled"] if said_itself(one))
    finally:
        console.run("cancel", job_id, "--grace", "1")


def said_itself(stall: dict) -> bool:
    return stall["kind"] == "absent" or "are in MPI_" in stall["text"]


@pytest.mark.left_out("openmpi4", "mpich")
@pytest.mark.parametrize("kind", ["openmpi5", "openmpi4", "mpich"])
def test_a_rank_outside_of_the_collective_is_named_with_its_place(
    console: Console, folder: Path, kind: str
) -> None:
    mpi, program = built(folder, kind)

    found = told(console, f"absent-{kind}", mpi, f'["{program}", absent]')

    assert (found["kind"], found["ranks"]) == ("absent", [2])
    assert found["text"].startswith("rank 2 on ")
    assert "never entered MPI_Allreduce (ranks 0-1,3 wait there)" in found["text"]
    assert found["text"].endswith("it is in sleep ← load_batch; it sleeps")


@pytest.mark.left_out
@pytest.mark.parametrize("kind", ["openmpi5", "mpich"])
def test_ranks_that_receive_from_each_other_are_told_as_a_deadlock(
    console: Console, folder: Path, kind: str
) -> None:
    mpi, program = built(folder, kind)

    found = told(console, f"receive-{kind}", mpi, f'["{program}", receive]')

    assert "a deadlock, all 4 ranks wait for each other" in found["text"]
    assert "ranks 0-3 are in MPI_Recv ← exchange" in found["text"]
    assert found["odd"] == []


@pytest.mark.left_out
@pytest.mark.parametrize("kind", ["openmpi5"])
def test_collectives_that_do_not_match_are_told_with_their_names(
    console: Console, folder: Path, kind: str
) -> None:
    mpi, program = built(folder, kind)

    found = told(console, f"mixed-{kind}", mpi, f'["{program}", mixed]')

    assert (
        "ranks 0,2-3 are in MPI_Allreduce ← add; rank 1 is in MPI_Barrier ← main" in found["text"]
    )
    assert found["ranks"] == [1]


@pytest.mark.left_out
@pytest.mark.parametrize("kind", ["openmpi5", "openmpi4", "mpich"])
def test_a_rank_that_finalizes_early_is_named(console: Console, folder: Path, kind: str) -> None:
    mpi, program = built(folder, kind)

    found = told(console, f"left-{kind}", mpi, f'["{program}", left]')

    assert "ranks 0-2 are in MPI_Allreduce ← add; rank 3 is in MPI_Finalize ← main" in found["text"]
    assert found["ranks"] == [3]


@pytest.mark.left_out
@pytest.mark.parametrize("does", ["computes", "talks", "naps"])
def test_a_program_that_computes_talks_or_sleeps_in_silence_accuses_nobody(
    console: Console, folder: Path, does: str
) -> None:
    mpi, program = built(folder, "openmpi5")
    job_id = started(console, does, mpi, f'["{program}", {does}]')

    process = console.start("attach", job_id)
    try:
        said = process.communicate(timeout=200)[1]
    finally:
        process.kill()

    assert console.job(job_id)["state"] == "done"
    assert "never entered" not in said
    assert "deadlock" not in said
