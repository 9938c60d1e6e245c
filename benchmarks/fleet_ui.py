"""1,000 and 5,000 nodes at 1 Hz on the fleet screen, in a terminal: ours beside Textual's DataTable."""

import sys
import time
from dataclasses import dataclass

from tests.support.terminal import terminal

from benchmarks.measure import cpu_of, environment, must_live, resident_of
from benchmarks.result import Result

WARM, SPAN = 5.0, 15.0
"""Seconds before and while it is measured."""
BUDGETS = {1000: 3.0, 5000: 4.0}
"""Percent of a core for painting, over what the model itself takes."""
BYTES = 8192.0
RESIDENT = 80.0
"""MiB with 1,000 nodes."""
BEGUN = {"deck": "5 Events", "table": "node00", "model": "READY"}


@dataclass(frozen=True)
class Cost:
    """What a process took while it was watched."""

    cpu: float
    """Percent of a core."""
    sent: float
    """Bytes a second to the terminal."""
    resident: float
    """MiB."""


def run() -> list[Result]:
    return [result for nodes in BUDGETS for result in _compare(nodes)]


def _compare(nodes: int) -> list[Result]:
    found = {what: _watch(what, nodes) for what in BEGUN}
    deck, table, model = found["deck"], found["table"], found["model"]
    return [
        Result(
            name=f"fleet_ui.{nodes}.ui", value=deck.cpu - model.cpu, unit="% core", peer="DataTable",
            peer_value=table.cpu - model.cpu, budget=BUDGETS[nodes], on_ratio=False,
        ),
        Result(name=f"fleet_ui.{nodes}.model", value=model.cpu, unit="% core", note="samples made, taken in and judged"),
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
    argv = (sys.executable, "-m", "benchmarks.fleet_app", what, str(nodes))
    with terminal(argv, environment()) as shown:
        shown.wait_for(BEGUN[what])
        time.sleep(WARM)
        pid = shown.process.pid
        begin, cpu, sent = time.monotonic(), cpu_of(pid), shown.sent
        time.sleep(SPAN)
        must_live(what, shown.process)
        seconds = time.monotonic() - begin
        return Cost(
            (cpu_of(pid) - cpu) / seconds * 100,
            (shown.sent - sent) / seconds,
            resident_of(pid),
        )
