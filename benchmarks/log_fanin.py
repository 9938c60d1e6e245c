"""Output of many ranks on the screen and over SSH: the cost of a line, and that none is lost."""

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import log_ssh
from benchmarks.measure import PYTHONPATH, ROOT, environment
from benchmarks.result import Result
from benchmarks.terminal import terminal

BUDGET = 0.12
"""Share of a core for 16 panes at 100,000 lines a second, without decoding."""
BYTES = 80.0
"""KB a second to the terminal."""
LIMIT = 90.0


@dataclass(frozen=True, slots=True)
class Poured:
    """How a program in a terminal handled the lines."""

    cpu: float
    """Share of a core."""
    rate: float
    """Lines per second that it handled."""
    kilobytes: float
    """KB per second to the terminal."""

    @property
    def at_full_rate(self) -> float:
        """CPU seconds per 100,000 lines."""
        return self.cpu / self.rate * 100_000


def run() -> list[Result]:
    decode, deck, richlog = (_pour(what) for what in ("decode", "deck", "richlog"))
    screen = deck.at_full_rate - decode.at_full_rate
    note = f"{deck.rate:,.0f} lines/s taken, the peer {richlog.rate:,.0f}; decoding {100 * decode.cpu:.1f} %"
    return [
        Result(name="16 panes, 100,000 lines/s", value=screen, unit="cores", budget=BUDGET, on_ratio=False,
               peer="16 RichLog, per 100,000 lines", peer_value=richlog.at_full_rate, note=note),
        Result(name="16 panes, to the terminal", value=deck.kilobytes, unit="KB/s", budget=BYTES, on_ratio=False,
               peer="16 RichLog", peer_value=richlog.kilobytes),
        *log_ssh.run(),
    ]  # fmt: skip


def _pour(what: str) -> Poured:
    env = environment(PYTHONPATH=f"{ROOT}:{PYTHONPATH}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "told"
        argv = (sys.executable, "-m", "benchmarks.log_screen", what, str(file))
        with terminal(argv, env) as screen:
            seconds = 0
            while not file.exists() and seconds < LIMIT:
                screen.read_for(1.0)
                seconds += 1
            screen.read_for(0.2)
            told = json.loads(file.read_text())
    return Poured(told["cpu"], told["rate"], screen.total / 1000 / told["seconds"])
