"""A chain of processes: each forks the next and ends, so that a search
finds only pids that are already gone.

Run as a program: `chain.py MARK PAUSE session|group stay|leave`. It touches MARK in each of its
processes and ends by itself after 20 seconds; its first process stays as long, or leaves at once.
"""

import os
import signal
import sys
import time
from pathlib import Path

_SECONDS = 20


def chain(
    mark: Path | str, pause: str = "0", kind: str = "session", rank: str = "stay"
) -> list[str]:
    """The command of one."""
    return [sys.executable, __file__, str(mark), pause, kind, rank]


def is_over(mark: Path) -> bool:
    """Whether the chain with this mark has stopped."""
    last = mark.stat().st_mtime_ns
    time.sleep(0.5)
    return mark.stat().st_mtime_ns == last


def main(mark: str, pause: str, kind: str, rank: str) -> None:
    """Go on until the time is over."""
    end = time.time() + _SECONDS
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.fork():
        time.sleep(_SECONDS if rank == "stay" else 0)
        os._exit(0)
    while time.time() < end:
        if os.fork():
            os._exit(0)
        if kind == "session":
            os.setsid()
        Path(mark).touch()
        time.sleep(float(pause))


if __name__ == "__main__":
    main(*sys.argv[1:])
