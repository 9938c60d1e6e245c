"""Limits of the agent's control group: cores, memory, throttling."""

from collections.abc import Iterator
from typing import Callable, Optional

from rankdeck_agent.collectors.base import Reading, parse_unsigned
from rankdeck_agent.system_files import Tree
from rankdeck_agent.values import Value

_CGROUP = "sys/fs/cgroup"
_DEPTH = 16
_NO_LIMIT = 1 << 60
"""A memory limit from this size on means no limit: cgroup v1 has no word for that."""


class Files(Value):
    """Name of a file in cgroup v2 (`second`), and its hierarchy and name in cgroup v1 (`first`)."""

    second: str
    hierarchy: str
    first: str


_LIMIT = Files("memory.max", "memory", "memory.limit_in_bytes")
_USED = Files("memory.current", "memory", "memory.usage_in_bytes")
_CORES = Files("cpuset.cpus.effective", "cpuset", "cpuset.effective_cpus")
_QUOTA = Files("cpu.max", "cpu", "cpu.cfs_quota_us")
_PERIOD = Files("cpu.max", "cpu", "cpu.cfs_period_us")
_STAT = Files("cpu.stat", "cpu", "cpu.stat")


class CgroupCollector:
    """The tightest limits of the agent's cgroup and those above it."""

    name = "cgroup"
    lane = "slow"
    period = 10.0
    metrics: tuple[str, ...] = (
        "cgroup.cores",
        "cgroup.mem_limit",
        "cgroup.mem_used",
        "cgroup.throttled",
    )

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)

    def collect(self, now: float) -> Reading:
        reading = Reading()
        groups = Groups(self._tree)
        reading.attempt(self.metrics, groups.find)
        rows: tuple[tuple[str, Callable[[], None]], ...] = (
            ("cgroup.mem_limit", lambda: _memory(reading, groups)),
            ("cgroup.cores", lambda: _cores(reading, groups)),
            ("cgroup.throttled", lambda: _throttled(reading, groups)),
        )
        for metric, read in rows:
            reading.attempt((metric,), read)
        return reading


class Groups:
    """Reads files of the agent's cgroup and of those above it, innermost first."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._paths: dict[str, str] = {}

    def find(self) -> None:
        """Read to which cgroups the agent belongs; raises OSError."""
        text = self._tree.read("proc/self/cgroup").decode("utf-8", "replace")
        for line in text.splitlines():
            _, hierarchies, path = [*line.split(":", 2), "", ""][:3]
            for hierarchy in hierarchies.split(","):
                self._paths[hierarchy] = path

    def read(self, files: Files) -> Iterator[tuple[str, bytes]]:
        """`(folder, content)` for each cgroup that has the file."""
        own = self._paths.get("")
        second = own is not None and self._tree.exists(f"{_CGROUP}/cgroup.controllers")
        path = own if second else self._paths.get(files.hierarchy)
        if path is None:
            return
        base = _CGROUP if second else f"{_CGROUP}/{files.hierarchy}"
        name = files.second if second else files.first
        parts = [p for p in path.split("/") if p not in ("", ".", "..")][:_DEPTH]
        for length in range(len(parts), -1, -1):
            folder = "/".join([base, *parts[:length]])
            data = self._file(f"{folder}/{name}")
            if data is not None:
                yield folder, data

    def beside(self, folder: str, files: Files) -> Optional[bytes]:
        """The file, with its v2 or v1 name, in a folder that `read`
        returned; None if there is none.
        """
        data = self._file(f"{folder}/{files.second}")
        return self._file(f"{folder}/{files.first}") if data is None else data

    def _file(self, name: str) -> Optional[bytes]:
        try:
            return self._tree.read(name)
        except FileNotFoundError:
            return None


def _memory(reading: Reading, groups: Groups) -> None:
    limits = [
        (parse_unsigned(data), folder)
        for folder, data in groups.read(_LIMIT)
        if data.strip() != b"max"
    ]
    limit, folder = min(limits, default=(_NO_LIMIT, ""))
    if limit >= _NO_LIMIT:
        return
    reading.put("cgroup.mem_limit", limit)
    used = groups.beside(folder, _USED)
    if used is not None:
        reading.put("cgroup.mem_used", parse_unsigned(used))


def _cores(reading: Reading, groups: Groups) -> None:
    cores = [float(_listed(data)) for _, data in groups.read(_CORES)][:1]
    for folder, data in groups.read(_QUOTA):
        quota, _, period = data.decode("ascii", "replace").strip().partition(" ")
        # Version 1 has the period in a file of its own, and -1 for no quota.
        period = period or (groups.beside(folder, _PERIOD) or b"").decode("ascii", "replace")
        if quota not in ("max", "-1"):
            cores.append(int(quota) / int(period))
    if cores:
        reading.put("cgroup.cores", round(min(cores), 2))


def _listed(data: bytes) -> int:
    """How many numbers are in a list such as "0-3,8"."""
    total = 0
    for part in data.decode("ascii", "replace").strip().split(","):
        first, dash, last = part.partition("-")
        if first:
            total += int(last) - int(first) + 1 if dash else 1
    return total


def _throttled(reading: Reading, groups: Groups) -> None:
    counts = [
        parse_unsigned(line.partition(b" ")[2])
        for _, data in groups.read(_STAT)
        for line in data.splitlines()
        if line.startswith(b"nr_throttled ")
    ]
    if counts:
        reading.put("cgroup.throttled", max(counts))
