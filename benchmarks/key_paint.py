"""From a key to the paint it causes, in a real tmux: the fleet of 1,000 nodes and 16 live panes against less."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import ROOT, environment
from benchmarks.result import MissingError, Result
from benchmarks.terminal import Terminal, terminal

KEYS = 120
PAUSE = 0.11
BUDGET = 50.0
"""Milliseconds for 99 of 100 keys."""
LIMIT = 2.0


@dataclass(frozen=True, slots=True)
class Case:
    """A program, the keys that bring it where it is measured, and what tells that it painted."""

    name: str
    argv: Sequence[str]
    first: bytes
    ready: bytes
    keys: tuple[bytes, bytes]
    painted: bytes


def run() -> list[Result]:
    """Milliseconds to the first byte of the paint, half of the keys and 99 of 100."""
    if shutil.which("tmux") is None or shutil.which("less") is None:
        raise MissingError("tmux and less (apt-get install tmux less)")
    preview = (sys.executable, "-m", "tests.ui.preview", "1000")
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text"
        text.write_text("".join(f"line {n}\n" for n in range(100_000)))
        cases = (
            Case("less", ("less", str(text)), b"", b"line 40", (b"j", b"j"), b""),
            Case("fleet of 1,000", preview, b"", b"node0001", (b"j", b"k"), "▸".encode()),
            Case("16 live panes", preview, b"2\r", b"16 ranks", (b"\t", b"\t"), "━".encode()),
        )  # fmt: skip
        times = {case.name: _times(case, Path(folder)) for case in cases}
    return [
        Result(name=f"key to paint, {name}, {part}", value=_at(found, share), unit="ms",
               peer="less", peer_value=_at(times["less"], share), budget=BUDGET if share > 0.9 else None, on_ratio=False)
        for name, found in times.items() if name != "less"
        for part, share in (("p50", 0.5), ("p99", 0.99))
    ]  # fmt: skip


def _at(times: list[float], share: float) -> float:
    return sorted(times)[min(int(share * len(times)), len(times) - 1)]


def _times(case: Case, folder: Path) -> list[float]:
    env = environment(
        PYTHONPATH=f"{ROOT}:{ROOT}/console:{ROOT}/agents",
        TMUX_TMPDIR=str(folder),
        LC_ALL="C.UTF-8",
    )
    env.pop("TMUX", None)
    tmux = ("tmux", "-f", os.devnull, "-L", "paint")
    try:
        with terminal((*tmux, "-u", "new-session", *case.argv), env) as screen:
            return _measure(case, screen)
    finally:
        subprocess.run((*tmux, "kill-server"), env=env, check=False, timeout=10, capture_output=True)  # fmt: skip


def _measure(case: Case, screen: Terminal) -> list[float]:
    if case.first:
        screen.wait_for(b"nodes")
        screen.read_for(3.0)
        for key in case.first:
            screen.write(bytes([key]))
            screen.read_for(1.0)
    elif not screen.wait_for(case.ready):
        raise RuntimeError(f"{case.name} never came on the screen")
    screen.read_for(2.0)
    times: list[float] = []
    for number in range(KEYS):
        begin = time.monotonic()
        screen.write(case.keys[number % 2])
        if not screen.wait_for(case.painted, LIMIT):
            raise RuntimeError(f"{case.name}: a key was not painted")
        times.append((time.monotonic() - begin) * 1000)
        screen.read_for(PAUSE)
    return times
