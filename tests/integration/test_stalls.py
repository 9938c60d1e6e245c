"""Ranks that really hang under Open MPI and torchrun, on a busy machine: who it is, and soon."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_main_path import Console, demo_console

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
MPI = """\
    import os, signal, time
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    rank = world.Get_rank()
    wait = world.Barrier
"""
TORCH = """\
    import threading, time, torch
    import torch.distributed as d
    d.init_process_group("gloo")
    rank = d.get_rank()
    some = torch.ones(1000)
    wait = lambda: d.all_reduce(some)
    def work():
        raise RuntimeError("the batch is gone")
"""
JOB = """
job: {name}
launch: {launch}
nodes: 2
ranks_per_node: 2
env: {{OMP_NUM_THREADS: "1"}}
command: [{command}"${{RANKDECK_RUN}}/program.py"]
files:
  program.py: |
{head}\
    for step in range(12):
        print("step", step, flush=True)
        time.sleep(0.2)
        wait()
    if rank == {culprit}:
        {does}
    wait()
"""
SLEEPS = "time.sleep(900)"
STOPS = "os.kill(os.getpid(), signal.SIGSTOP)"
RAISES = "threading.Thread(target=work).start(); threading.Event().wait(900)"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with demo_console(tmp_path_factory.mktemp("stalls")) as console:
        yield console


@pytest.fixture(autouse=True, scope="module")
def busy() -> Iterator[None]:
    """Somebody else computes on the machine, on as many cores as it has: other
    tests, where they run beside this one.
    """
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    burners = [
        subprocess.Popen(["sh", "-c", "while :; do :; done"])
        for _ in range((os.cpu_count() or 2) * alone)
    ]
    yield
    for burner in burners:
        burner.kill()
        burner.wait()


def need(program: str) -> None:
    if not Path(sys.executable).with_name(program).exists():
        pytest.skip(f"needs {program} beside this Python")


def stalled(console: Console, launch: str, culprit: int, does: str) -> dict:
    """What is said of a job that hangs, by consoles that were just opened."""
    need("torchrun" if launch == "torchrun" else "mpirun")
    head, command = (TORCH, "") if launch == "torchrun" else (MPI, "python3, ")
    text = JOB.format(
        name=f"{launch}-hangs", launch=launch, command=command, head=head,
        culprit=culprit, does=does,
    )  # fmt: skip
    file = console.file("hangs.yaml", text)
    (started,) = console.objects("run", file, "--detach", "--no-preflight")
    try:
        console.told(started["job"])
        # On a machine at its limit, the first sentence may come before enough looks at the ranks.
        found = console.until(
            started["job"], lambda job: job["stalled"] and said(job["stalled"][0])
        )
        return found["stalled"][0]
    finally:
        console.run("cancel", started["job"], "--grace", "1")


def said(stall: dict) -> bool:
    """Whether the stall says who is odd, where that needs looks at all ranks."""
    return stall["kind"] != "all" or bool(stall["odd"])


@pytest.mark.parametrize("launch", ["mpi", "torchrun"])
def test_a_rank_that_sleeps_while_three_wait_in_a_collective_is_named(
    console: Console, launch: str
) -> None:
    found = stalled(console, launch, 2, SLEEPS)

    assert (found["kind"], found["odd"]) == ("absent", [2])
    assert found["text"].startswith("rank 2 on ")
    assert "never entered" in found["text"]


@pytest.mark.kept
def test_a_stopped_rank_is_named_with_what_lets_it_go_on(console: Console) -> None:
    found = stalled(console, "mpi", 3, STOPS)

    assert (found["kind"], found["ranks"]) == ("stopped", [3])
    assert "`kill -CONT " in found["text"]


def test_a_rank_that_raised_in_a_thread_and_hangs_is_named_with_its_words(
    console: Console,
) -> None:
    found = stalled(console, "torchrun", 1, RAISES)

    assert (found["kind"], found["ranks"]) == ("raised", [1])
    assert "raised RuntimeError: the batch is gone and has not ended" in found["text"]
