"""The run folder of a Slurm job: its id, what the console set for it, the marks of its ranks, where its output begins.

The folder `marks` holds empty files whose names say that a rank or the batch script began or ended: nodes and login
node share only a file system, and one look at the folder shows every new name. A name is written once and never changed.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Optional

from rankdeck_agent.files import Names
from rankdeck_agent.job.folder import SLURM_SETTINGS, RunFolder, post_mortem
from rankdeck_agent.slurm.rows import SlurmJobRow, is_later
from rankdeck_agent.text import plain, table

ID = "slurm.id"
"""A file of the run folder: Slurm's id of the job, and the PATH on which its commands are, one a line."""
MARKS = "marks"
"""The folder in it that has the marks."""
_TAIL = 1 << 16
"""Bytes at the end of a part of a log."""
BATCH = -1
"""In the place of a rank: the batch script."""
ASKED, SEEN = "asked", "seen"
"""How the marks of a cancel begin: it was asked for, and what Slurm said of the job then."""


class RunMark(NamedTuple):
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
        self._folder = run / MARKS
        self._names = Names(self._folder)
        self._known: set[str] = set()
        self.others: set[str] = set()
        """Names that are not of a rank: those that a cancel left."""

    def look(self, now: float) -> list[RunMark]:
        """What began and ended, oldest first; raises OSError where the folder cannot be read."""
        fresh = [name for name in self._names.read(now) if name not in self._known]
        self.others.update(name for name in fresh if name.startswith((ASKED, SEEN)))
        found = [mark for name in fresh for mark in self._read(name)]
        self._known.update(fresh)
        return sorted(found, key=lambda mark: (mark.attempt, mark.at, not mark.began))

    def _read(self, name: str) -> Iterator[RunMark]:
        if (mark := read(name)) is not None:
            yield mark._replace(at=(self._folder / name).stat().st_mtime)


def read(name: str) -> Optional[RunMark]:
    """The mark of this name: `0.3.began.4711.n1`, `0.3.ended.7`, `1.batch.began.n1`; None for other names."""
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
    return RunMark(int(words[0]), rank, True, 0.0, host=plain(host, 64), pid=number)


def read_id(folder: RunFolder) -> tuple[str, str]:
    """Slurm's id of the job, and the PATH on which its commands are; "" while it is not known."""
    try:
        number, path = (folder / ID).read_text().splitlines()[:2]
    except (OSError, ValueError):
        return "", ""
    return (number, path) if number.isdecimal() else ("", "")


def submit_time(folder: RunFolder) -> float:
    """When Slurm took the job, by the file server's clock; not a number where that is not known: it is neither before nor after."""
    try:
        return (folder / ID).stat().st_mtime
    except OSError:
        return float("nan")


def later_job(folder: RunFolder, seen: SlurmJobRow) -> bool:
    """Whether this is a later job with the number of ours: the controller began to count again.

    Ours lies in its run folder, unless the user or the site moved it.
    """
    moved = bool(seen.folder) and seen.folder != plain(os.path.realpath(folder.path), 500)
    return moved and is_later(seen, submit_time(folder))


def write_id(folder: RunFolder, number: str, path: str) -> None:
    """Note the id: from now on the keeper owns the events of the job."""
    fresh = folder / f"{ID}.new"
    fresh.write_text(f"{number}\n{path}\n")
    fresh.replace(folder / ID)


def not_taken(folder: RunFolder) -> None:
    """Close a job that Slurm has never had."""
    why = "sbatch printed no job id, and Slurm has no job from this folder"
    post_mortem(folder / "events", [{"kind": "trouble", "text": why}])


def settings(folder: RunFolder) -> dict[str, Any]:
    """What the console set for this job; empty if that cannot be read."""
    try:
        return table((folder / SLURM_SETTINGS).read_text()) or {}
    except OSError:
        return {}


def log_starts(folder: RunFolder) -> list[dict[str, int]]:
    """Of each attempt where its output begins: `rank.3/out` -> bytes; a log that is not named began empty."""
    found: dict[int, dict[str, int]] = {0: {}}
    for path in (*folder.path.glob("attempt.*"), *folder.path.glob("rank.*/attempt.*")):
        number = path.name.partition(".")[2]
        if number.isdecimal() and len(number) < 6:
            above = "" if path.parent == folder.path else f"{path.parent.name}/"
            sizes = _sizes(path).items()
            found.setdefault(int(number), {}).update({above + name: size for name, size in sizes})
    return [found.get(number, {}) for number in range(max(found) + 1)]


def _sizes(path: Path) -> dict[str, int]:
    """The lines `NAME BYTES` of a file that a batch script left."""
    words = (row.rpartition(" ") for row in path.read_text(errors="replace").splitlines())
    return {name: int(size) for name, _, size in words if size.isdecimal()}


def launcher_start(folder: RunFolder, attempt: int) -> Optional[int]:
    """Where the launcher's output of an attempt begins, in bytes; None if there is no such attempt yet."""
    if attempt == 0:
        return 0
    try:
        return _sizes(folder / f"attempt.{attempt}").get("launcher/out")
    except OSError:
        return None


def part_of_log(path: Path, begin: Optional[int], end: Optional[int]) -> list[str]:
    """The last lines of a part of a log."""
    try:
        with path.open("rb") as file:
            stop = os.fstat(file.fileno()).st_size if end is None else end
            file.seek(max(begin or 0, stop - _TAIL))
            return file.read(max(0, stop - file.tell())).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def attached(folder: RunFolder) -> Optional[dict[str, Any]]:
    """What the console set for a job that Rankdeck did not submit; None of one that it did."""
    row = settings(folder)
    return row if "attached" in row else None
