"""The folder `marks` of a Slurm job: empty files whose names tell that a rank or the batch script began or ended.

Nodes and login node share only a file system. One listing of one folder tells everything, however many ranks
there are, and a listing is what NFS looks up anew. A name is written once and never changed.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Optional

from rankdeck_agent.job.journal import plain

FOLDER = "marks"
BATCH = -1
"""In the place of a rank: the batch script."""
ASKED, SEEN = "asked", "seen"
"""How the marks of a cancel begin: it was asked for, and what Slurm said of the job then."""
SHELL = """\
attempt=${SLURM_RESTART_COUNT:-0}
mark() { : >"$RANKDECK_RUN/marks/$attempt.$1" || :; }
"""
"""For the batch script. `$attempt` counts how often Slurm queued the job again."""


class Mark(NamedTuple):
    """What one name tells. `at`: epoch seconds by the file server's clock."""

    attempt: int
    rank: int
    """BATCH for the batch script."""
    began: bool
    at: float
    host: str = ""
    pid: int = 0
    status: Optional[int] = None


class Marks:
    """The names that are new since the last look."""

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER
        self._known: set[str] = set()
        self.others: set[str] = set()
        """Names that tell of no rank: what a cancel left."""

    def look(self) -> list[Mark]:
        """What began and ended, oldest first; raises OSError where the folder cannot be read."""
        fresh = [name for name in os.listdir(self._folder) if name not in self._known]  # noqa: PTH208
        self.others.update(name for name in fresh if name.startswith((ASKED, SEEN)))
        found = [mark for name in fresh for mark in self._read(name)]
        self._known.update(fresh)
        return sorted(found, key=lambda mark: (mark.attempt, mark.at, not mark.began))

    def _read(self, name: str) -> Iterator[Mark]:
        if (mark := read(name)) is not None:
            yield mark._replace(at=(self._folder / name).stat().st_mtime)


def read(name: str) -> Optional[Mark]:
    """The mark of this name: `0.3.began.4711.n1`, `0.3.ended.7`, `1.batch.began.n1`; None for other names."""
    words = name.split(".", 4)
    if len(words) < 4 or not words[0].isdigit() or len(words[0]) > 6:
        return None
    who, what, rest = words[1], words[2], words[3:]
    rank = BATCH if who == "batch" else int(who) if who.isdigit() and len(who) < 8 else None
    if rank is None or what not in ("began", "ended"):
        return None
    if what == "ended":
        status = int(rest[0]) if rest[0].isdigit() and len(rest[0]) < 4 else None
        return Mark(int(words[0]), rank, False, 0.0, status=status)
    pid, host = ("0", ".".join(rest)) if rank == BATCH else (rest[0], ".".join(rest[1:]))
    number = int(pid) if pid.isdigit() and len(pid) < 10 else 0
    return Mark(int(words[0]), rank, True, 0.0, host=plain(host, 64), pid=number)
