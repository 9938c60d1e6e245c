"""What it costs a rank to be asked: the witness inside two ranks of gloo, with and without it by
turns; and looks at the native stack of a program that computes.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.result import MissingError, Result
from rankdeck_agent.job.native_stack import NativeReader
from rankdeck_agent.wire.inside_rank import INSIDE_FILE, INSIDE_RANK

ROUNDS, STEPS = 7, 4000
COUNTS = """
import signal, time
steps, since = 0, time.process_time()
def tell(*_):
    global steps, since
    now = time.process_time()
    print(steps, now - since, flush=True)
    steps, since = 0, time.process_time()
signal.signal(signal.SIGUSR1, tell)
print("begins", flush=True)
while True:
    steps += 1
"""
PROGRAM = f"""
import json, resource, time, torch
import torch.distributed as d
d.init_process_group("gloo")
some = torch.ones(1000)
for _ in range(200):
    d.all_reduce(some)
cpu, wall = time.process_time(), time.monotonic()
for _ in range({STEPS}):
    d.all_reduce(some)
found = {{"cpu": time.process_time() - cpu, "wall": time.monotonic() - wall}}
found["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if d.get_rank() == 0:
    print(json.dumps(found))
d.barrier()
d.destroy_process_group()
"""


def run() -> list[Result]:
    if importlib.util.find_spec("torch") is None:
        raise MissingError("torch: tests/support/torch.sh PYTHON")
    with tempfile.TemporaryDirectory() as place:
        inside = Path(place, "inside")
        inside.mkdir()
        (inside / INSIDE_FILE).write_text(INSIDE_RANK)
        Path(place, "program.py").write_text(PROGRAM)
        pairs = [(_once(place, witness=True), _once(place, witness=False)) for _ in range(ROUNDS)]
    results: list[Result] = []
    for key, unit, scale in (("cpu", "us CPU a call", 1e6 / STEPS), ("peak", "MiB", 1 / 1024)):
        ours = median(with_it[key] for with_it, _ in pairs) * scale
        peer = median(without[key] for _, without in pairs) * scale
        results.append(
            Result(
                name=f"witness.{key}", value=ours, unit=unit, peer="the same rank alone",
                peer_value=peer, budget=1.05,
            )
        )  # fmt: skip
    return [*results, _look()]


def _look() -> Result:
    """What three looks at a rank take of its time, against an equal time without them."""
    with subprocess.Popen(
        [sys.executable, "-c", COUNTS], stdout=subprocess.PIPE, text=True
    ) as rank:
        assert rank.stdout is not None
        rank.stdout.readline()
        try:
            pairs = [(_counted(rank, looks=3), _counted(rank, looks=0)) for _ in range(ROUNDS)]
        finally:
            rank.kill()
    ours, peer = (median(some) for some in zip(*pairs, strict=True))
    return Result(
        name="witness.look", value=peer, unit="steps a CPU second", peer="while looked at 3 times",
        peer_value=ours, budget=1.05,
    )  # fmt: skip


def _counted(rank: subprocess.Popen[str], *, looks: int) -> float:
    """Steps per CPU second of the rank over some seconds, in which it is looked at so often."""
    reader = NativeReader()
    began = time.monotonic()
    for _ in range(looks):
        reader.read(rank.pid)
        time.sleep(0.3)
    time.sleep(max(0.0, 2.0 - (time.monotonic() - began)))
    assert rank.stdout is not None
    os.kill(rank.pid, signal.SIGUSR1)
    steps, seconds = rank.stdout.readline().split()
    return float(steps) / float(seconds)


def _once(place: str, *, witness: bool) -> dict[str, float]:
    """The figures of rank 0."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    if witness:
        env |= {
            "PYTHONPATH": f"{place}/inside", "TORCH_FR_BUFFER_SIZE": "2000",
            "RANKDECK_WITNESS": f"{place}/inside/0",
        }  # fmt: skip
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")
    done = subprocess.run(
        [*torchrun, f"{place}/program.py"], env=env, capture_output=True, text=True, check=True,
        timeout=300,
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
