"""What a process cost while a row ran: its largest memory and its share of a core."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import cpu_of, resident_of

PERIOD = 0.2


@dataclass(slots=True)
class Cost:
    """Grows while the block of `metered` runs."""

    memory: float = 0.0
    """MiB at the worst."""
    cpu: float = 0.0
    """Share of one core, over all the time."""


@contextmanager
def metered(pid: int) -> Generator[Cost]:
    """Watch a process until the end of the block, or its own."""
    cost, over = Cost(), threading.Event()
    thread = threading.Thread(target=_watch, args=(pid, cost, over), daemon=True)
    thread.start()
    try:
        yield cost
    finally:
        over.set()
        thread.join(5)


def _is_still_us(pid: int) -> bool:
    """Whether a child has been forked and not yet become its program: its memory is ours."""
    ours = Path("/proc/self/cmdline").read_bytes()
    return Path(f"/proc/{pid}/cmdline").read_bytes() == ours


def _watch(pid: int, cost: Cost, over: threading.Event) -> None:
    try:
        began, before = time.monotonic(), cpu_of(pid)
        while True:
            if not _is_still_us(pid):
                cost.memory = max(cost.memory, resident_of(pid))
            if over.wait(PERIOD):
                return
            cost.cpu = (cpu_of(pid) - before) / (time.monotonic() - began)
    except OSError:  # it has ended: what was seen until then stands
        return
