"""Copy an image to two nodes over real SSH: ours, and `scp` of the same file to both at once."""

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.support.lab.rootless import Lab, missing

from benchmarks.result import MissingError, Result

SIZE = 256 << 20
ROUNDS = 3
BUDGET = 1.5
"""Of the wall time of the peer that leaves the nodes as safe: on the disk, and compared."""


def run() -> list[Result]:
    if why := missing():
        raise MissingError(why)
    with tempfile.TemporaryDirectory(prefix="lab.") as folder:
        lab = Lab(Path(folder).resolve(), count=2)
        lab.up()
        try:
            return _measured(lab)
        finally:
            lab.down()


def _measured(lab: Lab) -> list[Result]:
    file = lab.folder / "console" / "image.sif"
    with file.open("wb") as image:
        for _ in range(SIZE >> 20):
            image.write(os.urandom(1 << 20))
    cluster = str(lab.cluster_file())
    ours = [sys.executable, "-m", "rankdeck", "-c", cluster, "images", "push", str(file), "n[1-2]"]
    safe = _scp(lab, file, f" && ssh -F {lab.ssh_config} $n 'sync scp.sif; sha256sum scp.sif'")
    bare = _scp(lab, file, "")
    _timed(lab, ours)  # copies the agent to the nodes
    rounds = [[_timed(lab, argv) for argv in (ours, safe, bare)] for _ in range(ROUNDS)]
    push, checked, quick = (median(row) for row in zip(*rounds, strict=True))
    note = f"{2 * SIZE / 1e6 / push:.0f} MB/s to both together"
    return [
        Result(name="images.push_2_nodes", value=push, unit="s", peer="scp, sync, sha256sum",
               peer_value=checked, budget=BUDGET, note=note),
        Result(name="images.push_2_nodes", value=push, unit="s", peer="scp alone", peer_value=quick,
               note=f"scp {2 * SIZE / 1e6 / quick:.0f} MB/s"),
    ]  # fmt: skip


def _scp(lab: Lab, file: Path, then: str) -> list[str]:
    one = f"scp -q -F {lab.ssh_config} {file} $n:scp.sif{then}"
    return ["bash", "-c", f"for n in {' '.join(lab.nodes)}; do ({one}) & done; wait"]


def _timed(lab: Lab, argv: Sequence[str]) -> float:
    for node in lab.nodes:
        lab.ssh(node, "rm -f image.sif scp.sif")
    began = time.monotonic()
    done = lab.enter(argv, limit=120)
    seconds = time.monotonic() - began
    if done.returncode:
        raise RuntimeError(f"{argv[-1][:60]} failed: {done.stdout[-500:]}{done.stderr[-500:]}")
    return seconds
