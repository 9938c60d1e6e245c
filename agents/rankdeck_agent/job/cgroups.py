"""The cgroup of a job: makes it, kills what is in it, counts its out-of-memory kills."""

import contextlib
import errno
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.wire.run_folder import CGROUP

_PROC = Path("/proc")


_REMOVE_TRIES = 20
_FREEZES = 1.0
"""Seconds to wait for a cgroup to freeze: a process that waits for a disk freezes later."""


def _own(hierarchy: str) -> tuple[Optional[Path], Optional[Path]]:
    """(mount point of cgroups, our own cgroup), or two Nones; `hierarchy`: ""
    for cgroup v2, or a controller of v1.
    """
    point = mount_point(hierarchy)
    own = group_of("self", hierarchy, point) if point else None
    return (point, own) if own else (None, None)


def mount_point(hierarchy: str) -> Optional[Path]:
    """Where the cgroups of a hierarchy are mounted, None if nowhere; "": cgroup v2,
    else a controller of v1. Raises OSError.
    """
    mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    point = next((row.split()[4] for row in mounts if _is_of(row, hierarchy)), None)
    return Path(point) if point else None


def group_of(pid: object, hierarchy: str, point: Path) -> Optional[Path]:
    """The cgroup of a process below a mount point; None if it is in none of that hierarchy.

    Raises OSError.
    """
    groups = (_PROC / str(pid) / "cgroup").read_text(errors="replace").splitlines()
    for row in groups:
        _, names, path = [*row.split(":", 2), "", ""][:3]
        if hierarchy in names.split(","):
            return Path(str(point) + path)
    return None


def _is_of(mount: str, hierarchy: str) -> bool:
    kind, _, options = mount.partition(" - ")[2].partition(" ")
    if not hierarchy:
        return kind == "cgroup2"
    return kind == "cgroup" and hierarchy in re.split(r"[ ,]", options)


def memory_files(group: Optional[Path]) -> Iterator[Path]:
    """Files that may count the job's out-of-memory kills: of its
    cgroup first, then of those above it.
    """
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


def make_cgroup(folder: RunFolder) -> Optional[Path]:
    """A new cgroup v2 for the job below our own, recorded in the run
    folder; None if it cannot be made.
    """
    try:
        _, own = _own("")
        if own is None:
            return None
        group = own / f"rankdeck.{folder.job}.{folder.node}"
        group.mkdir()
        if not os.access(group / "cgroup.procs", os.W_OK):
            group.rmdir()
            return None
        (folder / CGROUP).write_text(str(group))
    except OSError:
        return None
    return group


def enter_cgroup(group: Optional[Path]) -> None:
    """Move the calling process into the cgroup, as far as possible."""
    with contextlib.suppress(OSError):
        if group is not None:
            (group / "cgroup.procs").write_text("0")


def kill_cgroup(folder: RunFolder) -> None:
    """Kill everything in the job's cgroup, if it has one."""
    try:
        group = Path((folder / CGROUP).read_text())
        if (group / "cgroup.kill").exists():
            (group / "cgroup.kill").write_text("1")
        else:
            kill_frozen(group)
    except OSError:
        return


def kill_frozen(group: Path) -> None:
    """Kill everything in a cgroup on a kernel before 5.14, frozen so that
    nothing can fork meanwhile. Raises OSError.
    """
    (group / "cgroup.freeze").write_text("1")
    try:
        deadline = time.monotonic() + _FREEZES
        while "frozen 1" not in (group / "cgroup.events").read_text():
            if time.monotonic() >= deadline:
                break
            time.sleep(0.01)
        for file in group.rglob("cgroup.procs"):
            for pid in file.read_text().split():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(int(pid), signal.SIGKILL)
    finally:
        (group / "cgroup.freeze").write_text("0")


def is_cgroup_populated(folder: RunFolder) -> bool:
    """Whether anything runs in the job's cgroup, even processes too
    short-lived to be found in /proc.
    """
    try:
        group = Path((folder / CGROUP).read_text())
        return "populated 1" in (group / "cgroup.events").read_text()
    except OSError:
        return False


def remove_cgroup(folder: RunFolder) -> None:
    """Remove the job's cgroup; tries again for a second, because killed
    processes may need a moment to end.
    """
    for _ in range(_REMOVE_TRIES):
        try:
            Path((folder / CGROUP).read_text()).rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
        else:
            return
        time.sleep(0.05)
