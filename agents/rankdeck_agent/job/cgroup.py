"""A cgroup of the job's own, where one can be had: its kill leaves nothing behind."""

import errno
import os
import time
from pathlib import Path
from typing import Optional

from rankdeck_agent.job.folder import RunFolder

_REMOVE_TRIES = 20


def _own_group() -> Optional[Path]:
    mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    points = [line.split()[4] for line in mounts if " - cgroup2 " in line]
    groups = Path("/proc/self/cgroup").read_text(errors="replace").splitlines()
    inside = [line[3:] for line in groups if line.startswith("0::/")]
    return Path(points[0] + inside[0]) if points and inside else None


def make(folder: RunFolder) -> Optional[Path]:
    """A new cgroup v2 below our own, noted in the run folder; None where it is not ours to make."""
    try:
        own = _own_group()
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
        # The sweep by marker finds the process as well.
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
