"""The job's own cgroup, where one can be made: killing it leaves no process behind."""

import errno
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from rankdeck_agent.job.folder import RunFolder

_REMOVE_TRIES = 20


def _own(hierarchy: str) -> tuple[Optional[Path], Optional[Path]]:
    """Where groups are mounted and our own one; `hierarchy` "" is the second version, else a name of the first."""
    mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    groups = Path("/proc/self/cgroup").read_text(errors="replace").splitlines()
    point = next((row.split()[4] for row in mounts if _is_of(row, hierarchy)), None)
    for row in groups:
        _, names, path = [*row.split(":", 2), "", ""][:3]
        if point and hierarchy in names.split(","):
            return Path(point), Path(point + path)
    return None, None


def _is_of(mount: str, hierarchy: str) -> bool:
    kind, _, options = mount.partition(" - ")[2].partition(" ")
    if not hierarchy:
        return kind == "cgroup2"
    return kind == "cgroup" and hierarchy in re.split(r"[ ,]", options)


def memory_files(group: Optional[Path]) -> Iterator[Path]:
    """Files that may count out-of-memory kills around the job, the nearest first."""
    for hierarchy, name in (("", "memory.events"), ("memory", "memory.oom_control")):
        try:
            point, own = _own(hierarchy)
        except OSError:
            continue
        if point is None or own is None:
            continue
        begin = own if hierarchy or group is None else group
        for folder in (begin, *begin.parents):
            if point in (folder, *folder.parents):
                yield folder / name


def make(folder: RunFolder) -> Optional[Path]:
    """A new cgroup v2 below our own, noted in the run folder; None where it is not ours to make."""
    try:
        _, own = _own("")
        if own is None:
            return None
        group = own / f"rankdeck.{folder.job}.{folder.node}"
        group.mkdir()
        if not os.access(group / "cgroup.procs", os.W_OK):
            group.rmdir()
            return None
        (folder / "cgroup").write_text(str(group))
    except OSError:
        return None
    return group


def join(group: Path) -> None:
    """Move the calling process in."""
    try:
        (group / "cgroup.procs").write_text("0")
    except OSError:
        # The search by environment variable finds the process as well.
        return


def kill(folder: RunFolder) -> None:
    """Kill everything in the job's cgroup, if it has one."""
    try:
        group = Path((folder / "cgroup").read_text())
        (group / "cgroup.kill").write_text("1")
    except OSError:
        return


def remove(folder: RunFolder) -> None:
    """Take the cgroup away once it is empty; processes just killed may need a moment."""
    for _ in range(_REMOVE_TRIES):
        if _removed(folder / "cgroup"):
            return
        time.sleep(0.05)


def _removed(note: Path) -> bool:
    try:
        Path(note.read_text()).rmdir()
    except OSError as error:
        return error.errno != errno.EBUSY
    return True
