"""Preflight of a job on 16 nodes, and the same facts gathered by a loop of plain `ssh`."""

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.support.lab.rootless import Lab, missing

from benchmarks.result import MissingError, Result
from rankdeck.config.document import write_documents

NODES = 16
ROUNDS = 3
BUDGET = 0.6
"""Of the peer's wall time: 16 nodes share the cores of one machine here."""
JOB = {"job": "looked-at", "launch": "plain", "nodes": NODES, "command": ["python3"]}
FACTS = (
    "sha256sum $(readlink -f $(command -v python3)); nproc; ulimit -l; date +%s.%N; "
    "df -P ~ /tmp /dev/shm; ip -br addr; ip -br link; "
)


def run() -> list[Result]:
    if why := missing():
        raise MissingError(why)
    with tempfile.TemporaryDirectory(prefix="lab.") as folder:
        lab = Lab(Path(folder).resolve(), count=NODES)
        lab.up()
        try:
            return [_measured(lab)]
        finally:
            lab.down()


def _measured(lab: Lab) -> Result:
    job = lab.folder / "job.yaml"
    job.write_text(write_documents([JOB]))
    argv = ["-m", "rankdeck", "-c", str(lab.cluster_file(slots=1)), "preflight", str(job)]
    ours = [sys.executable, *argv]
    peer = ["bash", "-c", _loop(lab)]
    _timed(lab, ours)  # copies the agent to the nodes
    pairs = [(_timed(lab, ours), _timed(lab, peer)) for _ in range(ROUNDS)]
    return Result(
        name="preflight.16_nodes", value=median(a for a, _ in pairs), unit="s",
        peer="ssh loop, the same facts", peer_value=median(b for _, b in pairs),
        budget=BUDGET,
    )  # fmt: skip


def _loop(lab: Lab) -> str:
    """Facts of every node and a connection from each to each, one `ssh` after the other."""
    reach = "; ".join(f"timeout 2 bash -c '</dev/tcp/{lab.address(node)}/22'" for node in lab.nodes)
    lines = [f'ssh -F {lab.ssh_config} {node} "$facts"' for node in lab.nodes]
    return f"facts={_quoted(FACTS + reach)}\n" + "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _timed(lab: Lab, argv: Sequence[str]) -> float:
    began = time.monotonic()
    done = lab.enter(argv, limit=120)
    if done.returncode:
        raise RuntimeError(f"{argv[-1][:60]} failed: {done.stdout[-500:]}{done.stderr[-500:]}")
    return time.monotonic() - began
