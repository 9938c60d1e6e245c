"""Notes when the logs of ranks on other machines grow, and looks seldom at those that do not."""

import os
from pathlib import Path

_SOON, _SELDOM = 1.0, 4.0
"""Seconds between two looks at a log: while it grows, and at most."""


class _Log:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = _indexed(path)
        self.pause = _SOON
        self.due = 0.0


class Growth:
    """Writes the time index (`out.idx`) of the logs in these folders."""

    def __init__(self, places: list[Path], streams: tuple[str, ...]) -> None:
        self._logs = [_Log(place / name) for place in places for name in streams]

    def look(self, now: float) -> None:
        """Look at the logs that are due; `now` is monotonic, in seconds."""
        for log in self._logs:
            if now >= log.due:
                grown = _stamp(log)
                log.pause = _SOON if grown else min(log.pause * 2, _SELDOM)
                log.due = now + log.pause

    def finish(self) -> None:
        """Look at every log once more."""
        for log in self._logs:
            _stamp(log)


def _stamp(log: _Log) -> bool:
    """Note since when the log is so long, by the file server's clock; whether it has grown."""
    try:
        seen = os.stat(log.path)  # noqa: PTH116  one call, no Path of its own
    except OSError:
        return False
    if seen.st_size <= log.size:
        return False
    with log.path.with_name(log.path.name + ".idx").open("a") as index:
        index.write(f"{log.size} {seen.st_mtime:.6f}\n")
    log.size = seen.st_size
    return True


def _indexed(path: Path) -> int:
    """How long the log was when an earlier keeper looked last; 0 where there was none."""
    index = path.with_name(path.name + ".idx")
    if not index.exists():
        return 0
    return path.stat().st_size if path.exists() else 0
