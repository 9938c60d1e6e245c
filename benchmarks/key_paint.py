"""From a key to the paint it causes, in a real tmux: the fleet of 1,000
nodes and 16 live panes against less.

Waits are as long as the machine is busy. What the console itself can keep a key waiting is its
longest stretch of work without looking at the keyboard, in CPU time: that figure is the same on a
busy machine.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import PYTHONPATH, ROOT, environment
from benchmarks.paint_app import longest
from benchmarks.result import MissingError, Result
from benchmarks.terminal import Terminal, terminal

KEYS = 120
PAUSE = 0.11
BUDGET = 50.0
"""Milliseconds for 99 of 100 keys."""
STRETCH = 30.0
"""Milliseconds of CPU for the longest stretch of work between two looks at the keyboard."""
LIMIT = 2.0


@dataclass(frozen=True, slots=True)
class Case:
    """A program, the keys that lead to what is measured, and how to see that it has painted."""

    name: str
    argv: Sequence[str]
    first: bytes
    ready: bytes
    keys: tuple[bytes, bytes]
    painted: bytes
    work: Path | None = None
    """The file in which the program records long stretches of work."""


@dataclass(frozen=True, slots=True)
class Found:
    """Milliseconds of each key; the longest stretch of work in that time, and what it was."""

    times: list[float]
    stretch: tuple[float, str] = (0.0, "")


def run() -> list[Result]:
    """Milliseconds to the first byte of the paint, half of the keys and 99
    of 100; the longest stretch of work.
    """
    if shutil.which("tmux") is None or shutil.which("less") is None:
        raise MissingError("tmux and less (apt-get install tmux less)")
    with tempfile.TemporaryDirectory() as folder:
        text, work = Path(folder) / "text", Path(folder) / "work"
        deck = (sys.executable, "-m", "benchmarks.paint_app", str(work), "1000")
        text.write_text("".join(f"line {n}\n" for n in range(100_000)))
        cases = (
            Case("less", ("less", str(text)), b"", b"line 40", (b"j", b"j"), b""),
            Case("fleet of 1,000", deck, b"", b"node0001", (b"j", b"k"), "▸".encode(), work),
            Case("16 live panes", deck, b"2\r", b"16 ranks", (b"\t", b"\t"), "━".encode(), work),
        )  # fmt: skip
        found = {case.name: _found(case, Path(folder)) for case in cases}
    less = found.pop("less")
    return [result for name, one in found.items() for result in _results(name, one, less)]


def _results(name: str, found: Found, less: Found) -> list[Result]:
    longest, what = found.stretch
    return [
        *(
            Result(name=f"key to paint, {name}, {part}", value=_at(found.times, share), unit="ms",
                   peer="less", peer_value=_at(less.times, share), budget=BUDGET if share > 0.9 else None, on_ratio=False)
            for part, share in (("p50", 0.5), ("p99", 0.99))
        ),
        Result(name=f"longest work, {name}", value=longest, unit="ms CPU", budget=STRETCH, on_ratio=False, note=what),
    ]  # fmt: skip


def _at(times: list[float], share: float) -> float:
    return sorted(times)[min(int(share * len(times)), len(times) - 1)]


def _found(case: Case, folder: Path) -> Found:
    env = environment(PYTHONPATH=f"{ROOT}:{PYTHONPATH}", TMUX_TMPDIR=str(folder), LC_ALL="C.UTF-8")
    env.pop("TMUX", None)
    tmux = ("tmux", "-f", os.devnull, "-L", "paint")
    try:
        with terminal((*tmux, "-u", "new-session", *case.argv), env) as screen:
            return _measure(case, screen)
    finally:
        subprocess.run(
            (*tmux, "kill-server"), env=env, check=False, timeout=10, capture_output=True
        )


def _measure(case: Case, screen: Terminal) -> Found:
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
    since = time.monotonic()
    for number in range(KEYS):
        begin = time.monotonic()
        screen.write(case.keys[number % 2])
        if not screen.wait_for(case.painted, LIMIT):
            raise RuntimeError(f"{case.name}: a key was not painted")
        times.append((time.monotonic() - begin) * 1000)
        screen.read_for(PAUSE)
    return Found(times, longest(case.work, since)) if case.work else Found(times)
