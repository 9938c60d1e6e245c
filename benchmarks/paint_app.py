"""The console on made-up nodes for key_paint: `python -m benchmarks.paint_app FILE NODES`.

Each stretch of work that held up the screen is written to FILE: clock, milliseconds of CPU, what
ran. CPU of that thread alone: what other people do on the machine makes waits longer, not these.
"""

import asyncio
import os
import sys
import time
from asyncio import events
from pathlib import Path

from tests.ui import preview

LONG = 0.004
"""Seconds of CPU from which on it is worth a line."""


def record(file: Path) -> None:
    """From now on measure every call that the event loop makes."""
    out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    run = events.Handle._run  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportAttributeAccessIssue]

    def measured(handle: asyncio.Handle) -> None:
        begin = time.thread_time()
        run(handle)  # pyright: ignore[reportUnknownVariableType]
        took = time.thread_time() - begin
        if took >= LONG:
            line = f"{time.monotonic():.3f} {took * 1000:.2f} {_name(handle)}\n"
            os.write(out, line.encode())

    events.Handle._run = measured  # pyright: ignore[reportAttributeAccessIssue]


def _name(handle: asyncio.Handle) -> str:
    callback = getattr(handle, "_callback", None)
    task = getattr(callback, "__self__", None)
    return task.get_name() if isinstance(task, asyncio.Task) else repr(callback)[:80]


def longest(file: Path, since: float) -> tuple[float, str]:
    """Milliseconds of CPU of the longest stretch after that moment (monotonic), and what it was."""
    lines = [line.split(" ", 2) for line in file.read_text().splitlines()]
    found = [(float(took), what) for at, took, what in lines if float(at) >= since]
    return max(found, default=(LONG * 1000, "none as long"))


if __name__ == "__main__":
    record(Path(sys.argv.pop(1)))
    sys.exit(preview.main())
