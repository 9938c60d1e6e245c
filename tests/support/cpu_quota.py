"""CPU quotas for processes of tests and benchmarks, by a real control group, v1 or v2.

Needs root or a delegated group.
"""

import os
from contextlib import suppress
from pathlib import Path

_PERIOD = 100_000
"""Microseconds of a period of the kernel's CPU quota."""
_V1 = Path("/sys/fs/cgroup/cpu")
_V2 = Path("/sys/fs/cgroup")


def lacking() -> str:
    """Why no CPU quota can be set here; "" if it can."""
    return "" if _parent() else "needs a control group that may limit CPU"


def limit_cpu(pids: list[int], share: float, name: str) -> Path:
    """Give these processes together `share` of one core, in a new control group; returns it.

    Raises OSError.
    """
    parent = _parent()
    if parent is None:
        raise OSError(lacking())
    group = parent / name
    group.mkdir()
    quota = round(share * _PERIOD)
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota} {_PERIOD}")
    else:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
    for pid in pids:
        (group / "cgroup.procs").write_text(str(pid))
    return group


def release(group: Path) -> None:
    """Remove the control group; what still runs in it goes on in the group above."""
    for pid in (group / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):  # it has just ended
            (group.parent / "cgroup.procs").write_text(pid)
    group.rmdir()


def _parent() -> Path | None:
    """A control group in which groups with a CPU quota can be made."""
    if (_V1 / "cpu.cfs_quota_us").exists():
        return _V1 if os.access(_V1, os.W_OK) else None
    rows = Path("/proc/self/cgroup").read_text().splitlines()
    path = next((row[3:] for row in rows if row.startswith("0::")), "")
    own = _V2 / path.strip("/")
    for group in (own, *own.parents):
        given = group / "cgroup.subtree_control"
        if given.exists() and "cpu" in given.read_text().split() and os.access(group, os.W_OK):
            return group
    return None
