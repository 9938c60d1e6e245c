"""The run folder of a Slurm job: Slurm's id of it, the console's settings, and where each attempt's
output begins.
"""

import os
import time
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.job.folder import RunFolder, post_mortem
from rankdeck_agent.older_python import find_paths
from rankdeck_agent.private_files import read_json_table, replace_private
from rankdeck_agent.schedulers.slurm.commands import Slurm, slurm_in
from rankdeck_agent.schedulers.slurm.job_reports import SlurmJobRow, is_later
from rankdeck_agent.text import plain_line
from rankdeck_agent.wire.job_events import JobEvent, Trouble
from rankdeck_agent.wire.schedulers.job_files import SLURM_SETTINGS

ID = "slurm.id"
"""File in the run folder with two lines: Slurm's id of the job,
and the PATH for Slurm's commands.
"""
_TAIL = 1 << 16
"""Bytes that are read from the end of a part of a log."""


def read_id(folder: RunFolder) -> tuple[str, str]:
    """(Slurm's id of the job, the PATH for Slurm's commands); two "" while the id is not known."""
    try:
        number, path = (folder / ID).read_text().splitlines()[:2]
    except (OSError, ValueError):
        return "", ""
    return (number, path) if number.isdecimal() else ("", "")


def slurm_of(folder: RunFolder) -> Slurm:
    """Slurm's commands with the environment that the cluster file gives to this job."""
    _, path = read_id(folder)
    slurm = slurm_in(read_job_settings(folder))
    return slurm._replace(variables={**slurm.variables, **({"PATH": path} if path else {})})


def submit_time(folder: RunFolder) -> float:
    """When Slurm accepted the job, by the file server's clock; NaN if not
    known, so that comparisons are false.
    """
    try:
        return (folder / ID).stat().st_mtime
    except OSError:
        return float("nan")


def is_from(folder: RunFolder, seen: SlurmJobRow) -> bool:
    """Whether this job has the run folder as working directory, as
    far as Slurm's answer shows it.
    """
    return seen.folder == plain_line(os.path.realpath(folder.path), 500)


def later_job(folder: RunFolder, seen: SlurmJobRow) -> bool:
    """Whether this is a later job with the same number, because the
    controller has begun to count again.

    Our job has its run folder as working directory, unless the user or the site changed that.
    """
    moved = bool(seen.folder) and not is_from(folder, seen)
    return moved and is_later(seen, submit_time(folder))


def write_id(folder: RunFolder, number: str, path: str) -> None:
    """Record the id; from now on the keeper writes the job's events."""
    replace_private(folder / ID, f"{number}\n{path}\n".encode())


def not_taken(folder: RunFolder) -> None:
    """Close a job that never reached Slurm."""
    why = "sbatch printed no job id, and Slurm has no job from this folder"
    post_mortem(folder.events, [JobEvent(time.time(), Trouble(why))])


def read_job_settings(folder: RunFolder) -> dict[str, Any]:
    """The console's settings for this job; empty if they cannot be read."""
    return read_json_table(folder / SLURM_SETTINGS)


def attempt_log_starts(folder: RunFolder) -> list[dict[str, int]]:
    """For each attempt, log (`rank.3/out`) -> byte where the attempt's output
    begins; a log that is missing begins at 0.
    """
    found: dict[int, dict[str, int]] = {0: {}}
    for path in (
        *find_paths(folder.path, "attempt.*"),
        *find_paths(folder.path, "rank.*/attempt.*"),
    ):
        number = path.name.partition(".")[2]
        if number.isdecimal() and len(number) < 6:
            above = "" if path.parent == folder.path else f"{path.parent.name}/"
            sizes = _sizes(path).items()
            found.setdefault(int(number), {}).update({above + name: size for name, size in sizes})
    return [found.get(number, {}) for number in range(max(found) + 1)]


def _sizes(path: Path) -> dict[str, int]:
    """Name -> bytes, from the lines `NAME BYTES` of a file that a batch script wrote."""
    words = (row.rpartition(" ") for row in path.read_text(errors="replace").splitlines())
    return {name: int(size) for name, _, size in words if size.isdecimal()}


def launcher_start(folder: RunFolder, attempt: int) -> Optional[int]:
    """The byte where the launcher's output of an attempt begins; None
    if there is no such attempt yet.
    """
    if attempt == 0:
        return 0
    try:
        return _sizes(folder / f"attempt.{attempt}").get("launcher/out")
    except OSError:
        return None


def part_of_log(path: Path, begin: Optional[int], end: Optional[int]) -> list[str]:
    """The last lines of the log between these bytes; `end` None is the end of the file.

    Empty if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            stop = os.fstat(file.fileno()).st_size if end is None else end
            file.seek(max(begin or 0, stop - _TAIL))
            return file.read(max(0, stop - file.tell())).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def attached_settings(folder: RunFolder) -> Optional[dict[str, Any]]:
    """The settings of a job that Rankdeck did not submit; None if Rankdeck submitted it."""
    row = read_job_settings(folder)
    return row if "attached" in row else None
