"""What the witness inside a rank costs: two ranks of gloo, with and without it, by turns."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.result import MissingError, Result
from rankdeck_agent.job.witness import INSIDE_RANK

ROUNDS, STEPS = 7, 4000
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
        (inside / "sitecustomize.py").write_text(INSIDE_RANK)
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
    return results


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
