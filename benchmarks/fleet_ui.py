"""1,000 and 5,000 nodes at 1 Hz on the fleet screen, in a
terminal: ours and Textual's DataTable.
"""

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.terminal import terminal

from benchmarks.measure import LIMIT, environment, must_live, resident_of
from benchmarks.result import Result

WARM, SPAN = 5.0, 15.0
"""Seconds of warm-up, and of measurement."""
BUDGETS = {1000: 3.0, 5000: 4.0}
"""Percent of a core for painting, without what the model takes."""
BYTES = 8192.0
RESIDENT = 80.0
"""MiB with 1,000 nodes."""
BEGUN = {"deck": "1 Fleet", "table": "node0"}


@dataclass(frozen=True)
class Cost:
    """What a process used during the measurement."""

    painting: float
    """Percent of a core for everything but the model."""
    taking: float
    judging: float
    heard: float
    """Samples per second that were received."""
    sent: float
    """Bytes a second to the terminal."""
    resident: float
    """MiB."""


def run() -> list[Result]:
    return [result for nodes in BUDGETS for result in _compare(nodes)]


def _compare(nodes: int) -> list[Result]:
    deck, table = (_watch(what, nodes) for what in BEGUN)
    heard = f"{deck.heard:.0f} samples a second taken in"
    return [
        Result(
            name=f"fleet_ui.{nodes}.paint", value=deck.painting, unit="% core", peer="DataTable",
            peer_value=table.painting, budget=BUDGETS[nodes], on_ratio=False, note=heard,
        ),
        Result(name=f"fleet_ui.{nodes}.take", value=deck.taking, unit="% core", note="decoded samples into the model"),
        Result(name=f"fleet_ui.{nodes}.judge", value=deck.judging, unit="% core", note="health of the nodes that changed, and silence"),
        Result(
            name=f"fleet_ui.{nodes}.bytes", value=deck.sent, unit="B/s", peer="DataTable", peer_value=table.sent,
            budget=BYTES, on_ratio=False,
        ),
        Result(
            name=f"fleet_ui.{nodes}.resident", value=deck.resident, unit="MiB", peer="DataTable", peer_value=table.resident,
            budget=RESIDENT if nodes <= 1000 else None, on_ratio=False,
        ),
    ]  # fmt: skip


def _watch(what: str, nodes: int) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model"
        argv = (sys.executable, "-m", "benchmarks.fleet_app", what, str(nodes), str(file))
        with terminal(argv, environment()) as shown:
            shown.wait_for(BEGUN[what])
            _settle(file)
            sent, before = shown.sent, _model(file)
            time.sleep(SPAN)
            must_live(what, shown.process)
            sent, after = shown.sent - sent, _model(file)
            resident = resident_of(shown.process.pid)
    seconds, cpu, taking, judging, heard = (b - a for a, b in zip(before, after, strict=True))
    share = 100 / seconds
    return Cost(
        painting=(cpu - taking - judging) * share,
        taking=taking * share,
        judging=judging * share,
        heard=heard / seconds,
        sent=sent / SPAN,
        resident=resident,
    )


def _settle(file: Path) -> None:
    """Wait until the first second is recorded, and a little longer."""
    deadline = time.monotonic() + LIMIT
    while not file.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("no sample was taken in")
        time.sleep(0.1)
    time.sleep(WARM)


def _model(file: Path) -> list[float]:
    """Clock; CPU seconds in all, of receiving and of judging; samples."""
    return [float(word) for word in file.read_text().split()]
