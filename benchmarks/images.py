"""An image to two nodes over real SSH, beside two `scp` of the same file."""

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
"""Of the peer's wall time, with the console's start and both digests, which scp does without."""


def run() -> list[Result]:
    if why := missing():
        raise MissingError(why)
    with tempfile.TemporaryDirectory(prefix="lab.") as folder:
        lab = Lab(Path(folder).resolve(), count=2)
        lab.up()
        try:
            return [_measured(lab)]
        finally:
            lab.down()


def _measured(lab: Lab) -> Result:
    file = lab.folder / "console" / "image.sif"
    with file.open("wb") as image:
        for _ in range(SIZE >> 20):
            image.write(os.urandom(1 << 20))
    cluster = str(lab.cluster_file())
    ours = [sys.executable, "-m", "rankdeck", "-c", cluster, "images", "push", str(file), "n[1-2]", "--replace"]  # fmt: skip
    copies = " & ".join(f"scp -q -F {lab.ssh_config} {file} {n}:scp.sif" for n in lab.nodes)  # fmt: skip
    peer = ["bash", "-c", f"{copies} & wait"]
    _timed(lab, ours)  # the agent goes to the nodes once
    pairs = [(_timed(lab, ours), _timed(lab, peer)) for _ in range(ROUNDS)]
    rate = 2 * SIZE / 1e6
    return Result(
        name="images.push_2_nodes", value=median(a for a, _ in pairs), unit="s",
        peer="scp to both at once", peer_value=median(b for _, b in pairs), budget=BUDGET,
        note=f"{rate / median(a for a, _ in pairs):.0f} MB/s to both, scp {rate / median(b for _, b in pairs):.0f}",
    )  # fmt: skip


def _timed(lab: Lab, argv: Sequence[str]) -> float:
    for node in lab.nodes:
        lab.ssh(node, "rm -f image.sif scp.sif")
    began = time.monotonic()
    done = lab.enter(argv, limit=120)
    seconds = time.monotonic() - began
    if done.returncode:
        raise RuntimeError(f"{argv[-1][:60]} failed: {done.stdout[-500:]}{done.stderr[-500:]}")  # fmt: skip
    return seconds
