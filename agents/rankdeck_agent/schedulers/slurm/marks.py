"""The marks in the run folder of a Slurm job: empty files whose names say that a rank or the batch
script began or ended.

Nodes and login node share only a file system, and listing one folder shows all that is new. A name
is written once and never changed.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Optional

from rankdeck_agent.folder_names import FolderNames
from rankdeck_agent.text import plain_line

MARKS = "marks"
"""Folder in the run folder that has the marks."""
BATCH = -1
"""Used as the rank of the batch script."""
ASKED, SEEN = "asked", "seen"
"""How the names that a cancel leaves begin: it was requested; what Slurm answered about the job."""


class RunMark(NamedTuple):
    """What the name of one mark says. `at`: epoch seconds by the file server's clock."""

    attempt: int
    """How often Slurm had queued the job again."""
    rank: int
    """BATCH for the batch script."""
    began: bool
    """True: it began; False: it ended."""
    at: float
    host: str = ""
    pid: int = 0
    status: Optional[int] = None


class Marks:
    """Reads the marks of a run folder, each once."""

    def __init__(self, run: Path) -> None:
        self._folder = run / MARKS
        self._names = FolderNames(self._folder)
        self._known: set[str] = set()
        self.others: set[str] = set()
        """Names that a cancel left."""

    def look(self, now: float) -> list[RunMark]:
        """The new marks, oldest first; `now` in monotonic seconds. Raises OSError."""
        fresh = [name for name in self._names.read(now) if name not in self._known]
        self.others.update(name for name in fresh if name.startswith((ASKED, SEEN)))
        found = [mark for name in fresh for mark in self._read(name)]
        self._known.update(fresh)
        return sorted(found, key=lambda mark: (mark.attempt, mark.at, not mark.began))

    def _read(self, name: str) -> Iterator[RunMark]:
        mark = parse_run_mark(name)
        if mark is not None:
            yield mark._replace(at=(self._folder / name).stat().st_mtime)


def parse_run_mark(name: str) -> Optional[RunMark]:
    """The mark of this name: `0.3.began.4711.n1`, `0.3.ended.7`,
    `1.batch.began.n1`; None for other names.
    """
    words = name.split(".", 4)
    if len(words) < 4 or not words[0].isdecimal() or len(words[0]) > 6:
        return None
    who, what, rest = words[1], words[2], words[3:]
    rank = BATCH if who == "batch" else int(who) if who.isdecimal() and len(who) < 8 else None
    if rank is None or what not in ("began", "ended"):
        return None
    if what == "ended":
        status = int(rest[0]) if rest[0].isdecimal() and len(rest[0]) < 4 else None
        return RunMark(int(words[0]), rank, False, 0.0, status=status)
    pid, host = ("0", ".".join(rest)) if rank == BATCH else (rest[0], ".".join(rest[1:]))
    number = int(pid) if pid.isdecimal() and len(pid) < 10 else 0
    return RunMark(int(words[0]), rank, True, 0.0, host=plain_line(host, 64), pid=number)
