"""A slow disk for one process of a benchmark, by a real control group, v1 or v2, and the kernel's
count of waits for disks. Needs root.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_V1, _V2 = Path("/sys/fs/cgroup/blkio"), Path("/sys/fs/cgroup")
_COUNTS = Path("/proc/sys/kernel/task_delayacct")


def lacking() -> str:
    """Why no disk can be made slow here; "" if one can."""
    if os.geteuid():
        return "needs root"
    return "" if _parent() else "needs a control group that may limit disks"


def make_group(name: str) -> Path:
    """A new control group without processes, whose reads can be limited. Raises OSError."""
    parent = _parent()
    if parent is None:
        raise OSError(lacking())
    group = parent / name
    group.mkdir()
    return group


def slow_reader(group: Path, pid: int, file: Path, rate: int) -> None:
    """Let this process read at most so many bytes a second from the disk of this file."""
    device = file.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    if (group / "io.max").exists():
        (group / "io.max").write_text(f"{number} rbps={rate}")
    else:
        (group / "blkio.throttle.read_bps_device").write_text(f"{number} {rate}")
    (group / "cgroup.procs").write_text(str(pid))


def free_reader(group: Path, pid: int) -> None:
    """Take the process out of the group again: a group of its own alone costs time at the disk."""
    (group.parent / "cgroup.procs").write_text(str(pid))


@contextmanager
def disk_waits_counted() -> Generator[None]:
    """The kernel counts for how long processes that start in this time wait for disks."""
    before = ""
    with suppress(FileNotFoundError):  # before Linux 5.14 it always counts
        before = _COUNTS.read_text()
        _COUNTS.write_text("1")
    try:
        yield
    finally:
        if before:
            _COUNTS.write_text(before)


def _parent() -> Path | None:
    if (_V1 / "blkio.throttle.read_bps_device").exists():
        return _V1
    given = _V2 / "cgroup.subtree_control"
    return _V2 if given.exists() and "io" in given.read_text().split() else None
