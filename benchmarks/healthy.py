"""Healthy hours: runs real programs, several jobs at once, and counts every accusation in them.

`python -m benchmarks healthy [--hours H] [--at-once N] [--busy B] [--load L] [--only NAME,…]
[--file FILE]`: FILE gets one JSON line a job, and the table adds up all of them.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fault_run import Watching, watching
from benchmarks.fault_sites import DemoSite, demo_site
from benchmarks.healthy_programs import PROGRAMS, Program
from benchmarks.healthy_run import HealthyRun, Piece
from rankdeck.values import value_table

LONGEST = 600.0
"""Seconds after which a job is cancelled, so that every program has its turn."""
_LOOK = 2.0


def main(words: Sequence[str]) -> int:
    """Run healthy jobs and print the table; returns 1 if anybody was accused in this run."""
    options = _options(words)
    before = len(read_pieces(options.file))
    for one in (signal.SIGINT, signal.SIGTERM):  # whoever ends us: all is cleaned up
        signal.signal(one, signal.default_int_handler)
    if options.hours:
        with demo_site() as site, watching(site) as watch:
            run_turns(Turns(site, watch, options))
    pieces = read_pieces(options.file)
    print(healthy_table(pieces))
    return 1 if any(piece.told for piece in pieces[before:]) else 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks healthy", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="0 prints the table only")
    parser.add_argument("--at-once", type=int, default=4, metavar="N", help="jobs")
    parser.add_argument(
        "--busy", type=float, default=5.0, metavar="B", help="cores that all jobs would use"
    )
    parser.add_argument(
        "--load", type=float, default=10.0, metavar="L", help="above it no job is started"
    )
    parser.add_argument("--only", default="", metavar="NAME,…", help="beginnings of names")
    parser.add_argument("--file", type=Path, default=Path("healthy.jsonl"))
    options = parser.parse_args(words)
    chosen = [one for one in PROGRAMS if one.name.startswith(tuple(options.only.split(",")))]
    options.programs = [one for one in chosen if one.is_here]
    for one in chosen:
        if not one.is_here:
            print(f"{one.name}: skipped: {one.needs} is not here", file=sys.stderr)
    if not options.programs:
        parser.error("no such program here; known: " + ", ".join(one.name for one in PROGRAMS))
    return options


def read_pieces(file: Path) -> list[Piece]:
    """What was run until now."""
    lines = file.read_text().splitlines() if file.exists() else []
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [Piece(**dict[str, Any](row, told=tuple(row["told"]))) for row in rows]


@dataclass(slots=True)
class Turns:
    """Whose turn it is, for several slots at once."""

    site: DemoSite
    watch: Watching
    options: argparse.Namespace
    until: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _taken: dict[str, float] = field(default_factory=dict[str, float])
    """Program -> seconds that it has run, or will at most."""
    _running: list[Program] = field(default_factory=list[Program])
    _number: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _starting: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.until = time.monotonic() + self.options.hours * 3600
        for piece in read_pieces(self.options.file):
            self._take(piece.program, piece.seconds)

    @property
    def left(self) -> float:
        """Seconds until the time is over."""
        return self.until - time.monotonic()

    def stop(self) -> None:
        """End all jobs now."""
        self.until = 0.0
        self._over.set()

    def next(self) -> HealthyRun | None:
        """A job of the program that has run least; None while the cores are taken."""
        with self._lock:
            room: float = self.options.busy - sum(one.busy for one in self._running)
            fit: list[Program] = [one for one in self.options.programs if one.busy <= room]
            if not fit:
                return None
            program = min(fit, key=lambda one: self._taken.get(one.name, 0.0))
            self._running.append(program)
            self._take(program.name, LONGEST)
            self._number += 1
            return HealthyRun(
                program, self.site, self.watch, self._number, self._starting, self._over
            )

    def keep(self, program: Program, piece: Piece) -> None:
        """Add a job that is over to the file, and show it."""
        with self._lock:
            self._running.remove(program)
            if piece.counts:  # one that fails has its next turn after all others
                self._take(piece.program, piece.seconds - LONGEST)
            with self.options.file.open("a") as file:
                file.write(json.dumps(value_table(piece)) + "\n")
        words = f"{piece.program}: {piece.state} after {piece.seconds:.0f} s"
        print(f"{words} (load {piece.load:.1f})", *piece.told, sep="\n    ", file=sys.stderr)

    def _take(self, program: str, seconds: float) -> None:
        self._taken[program] = self._taken.get(program, 0.0) + seconds


def run_turns(turns: Turns) -> None:
    """Run jobs in all slots until the time is over, or the user ends it."""
    count: int = turns.options.at_once
    with ThreadPoolExecutor(count) as slots:
        running = [slots.submit(_run_slot, turns) for _ in range(count)]
        try:
            for one in running:
                one.result()
        except KeyboardInterrupt:
            turns.stop()


def _run_slot(turns: Turns) -> None:
    while turns.left > 0:
        run = turns.next() if os.getloadavg()[0] < turns.options.load else None
        if run is None:
            time.sleep(_LOOK)
        else:
            ends = min(time.monotonic() + LONGEST, turns.until)
            turns.keep(run.program, run.go(ends))


def healthy_table(pieces: Sequence[Piece]) -> str:
    """Program, jobs, hours, accusations; then what was said, and what does not count."""
    names = dict.fromkeys(piece.program for piece in pieces)
    rows = [_row(name, [one for one in pieces if one.program == name]) for name in names]
    rows.append(_row("all", pieces))
    told = [f"{one.program}: {text}" for one in pieces if one.counts for text in one.told]
    ended = [f"not healthy: {one.program}: {one.state}" for one in pieces if not one.counts]
    return "\n".join([f"{'program':30} jobs  hours  accused", *rows, *told, *ended])


def _row(name: str, pieces: Sequence[Piece]) -> str:
    healthy = [one for one in pieces if one.counts]
    hours = sum(one.seconds for one in healthy) / 3600
    return f"{name:30} {len(healthy):4}  {hours:5.2f}  {sum(map(bool, (p.told for p in healthy)))}"
