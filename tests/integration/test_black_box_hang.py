"""A job that hangs and gives up while no console is open: the next one knows who held up the
others.
"""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.integration.test_main_path import demo_console
from tests.support.hanging_torch import hanging_torch

TORCHRUN = Path(sys.executable).with_name("torchrun")
pytestmark = [pytest.mark.slow, pytest.mark.left_out, pytest.mark.timeout(500)]
GIVES_UP_BY_ITSELF = """\
import os, threading, time
from mpi4py import MPI
world = MPI.COMM_WORLD
def give_up():
    print("no answer from the others", flush=True)
    world.Abort(3)
def load_samples():
    os.mkfifo("samples")
    open("samples").read()
for step in range(1000):
    clock = threading.Timer(40, give_up)
    if world.rank == 0:
        clock.start()
    if step == 8 and world.rank == 3:
        load_samples()
    world.allreduce(step)
    print("step", step, flush=True)
    time.sleep(0.2)
    clock.cancel()
"""
NEVER_COMES = """\
import datetime, time
import torch.distributed as dist, os
if os.environ["RANK"] == "3":
    time.sleep(600)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=40))
"""
JOB = {
    "job": "hangs", "nodes": 2, "ranks_per_node": 2, "grace": 1,
    "command": ["python3", "${RANKDECK_RUN}/prog.py"], "workdir": "${RANKDECK_RUN}",
}  # fmt: skip
TORCH_JOB = {
    **JOB, "launch": "torchrun", "torch": {"path": str(TORCHRUN)}, "files": {"prog.py": hanging_torch(30, "while True: pass")},
}  # fmt: skip
MUTE_JOB = {**TORCH_JOB, "files": {"prog.py": NEVER_COMES}}
MPI_JOB = {**JOB, "launch": "mpi", "files": {"prog.py": GIVES_UP_BY_ITSELF}}


@pytest.mark.parametrize(
    ("job", "told"),
    [
        pytest.param(
            TORCH_JOB, "never entered all_reduce", id="torch",
            marks=pytest.mark.skipif(not TORCHRUN.exists(), reason="PyTorch is not installed"),
        ),
        pytest.param(
            MUTE_JOB, "never entered init_process_group", id="torch, before anything was written",
            marks=pytest.mark.skipif(not TORCHRUN.exists(), reason="PyTorch is not installed"),
        ),
        pytest.param(MPI_JOB, "in load_samples", id="MPI, by the program's own clock"),
    ],
)  # fmt: skip
def test_who_held_up_the_others_is_named_by_a_console_that_opens_afterwards(
    tmp_path: Path, job: Mapping[str, object], told: str
) -> None:
    with demo_console(tmp_path) as console:
        file = console.file("hangs.yaml", json.dumps(job))
        (started,) = console.objects("run", file, "--detach", "--no-preflight")
        places = list((console.folder / "state").rglob(f"jobs/{started['job']}/*/"))
        limit = time.monotonic() + 300
        while not all((place / "box/end/tails").exists() for place in places):
            assert time.monotonic() < limit
            time.sleep(1)
        time.sleep(10)  # torchrun ends the other ranks

        first = console.wait_for(started["job"], "failed")["first_failure"]

    assert (first["what"], first["rank"], first["between"]) == ("rank", 3, []), first
    assert told in first["evidence"][0]
