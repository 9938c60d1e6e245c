"""The control group of the agent: CPU and memory limits of a container or slice."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Callable, Optional

from rankdeck_agent.collectors.base import Reading, whole
from rankdeck_agent.files import Tree

_BASE = "sys/fs/cgroup"
_DEPTH = 16
_NO_LIMIT = 1 << 60
"""The first version of control groups has no word for it, only a very large number."""


@dataclass(frozen=True)
class Files:
    """Names of the same file in both versions of control groups, and the first one's hierarchy."""

    second: str
    hierarchy: str
    first: str


_LIMIT = Files("memory.max", "memory", "memory.limit_in_bytes")
_USED = Files("memory.current", "memory", "memory.usage_in_bytes")
_CORES = Files("cpuset.cpus.effective", "cpuset", "cpuset.effective_cpus")
_QUOTA = Files("cpu.max", "cpu", "cpu.max")
_STAT = Files("cpu.stat", "cpu", "cpu.stat")


class CgroupCollector:
    """The tightest limits from the agent's own group up to the root."""

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
    """The folders of the agent's group and of those around it, innermost first."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._paths: dict[str, str] = {}

    def find(self) -> None:
        text = self._tree.read("proc/self/cgroup").decode("utf-8", "replace")
        for line in text.splitlines():
            _, hierarchies, path = [*line.split(":", 2), "", ""][:3]
            for hierarchy in hierarchies.split(","):
                self._paths[hierarchy] = path

    def read(self, files: Files) -> Iterator[tuple[str, bytes]]:
        """`(folder, content)` of each group that has the file."""
        own = self._paths.get("")
        second = own is not None and self._tree.exists(f"{_BASE}/cgroup.controllers")
        path = own if second else self._paths.get(files.hierarchy)
        if path is None:
            return
        base = _BASE if second else f"{_BASE}/{files.hierarchy}"
        name = files.second if second else files.first
        for folder in _upwards(base, path):
            data = self._file(f"{folder}/{name}")
            if data is not None:
                yield folder, data

    def beside(self, folder: str, files: Files) -> Optional[bytes]:
        """The file in either spelling, in a folder that `read` gave."""
        data = self._file(f"{folder}/{files.second}")
        return self._file(f"{folder}/{files.first}") if data is None else data

    def _file(self, name: str) -> Optional[bytes]:
        try:
            return self._tree.read(name)
        except FileNotFoundError:
            return None


def _upwards(base: str, path: str) -> Iterator[str]:
    parts = [p for p in path.split("/") if p not in ("", ".", "..")][:_DEPTH]
    for length in range(len(parts), -1, -1):
        yield "/".join([base, *parts[:length]])


def _memory(reading: Reading, groups: Groups) -> None:
    limits = [
        (whole(data), folder) for folder, data in groups.read(_LIMIT) if data.strip() != b"max"
    ]
    limit, folder = min(limits, default=(_NO_LIMIT, ""))
    if limit >= _NO_LIMIT:
        return
    reading.put("cgroup.mem_limit", limit)
    used = groups.beside(folder, _USED)
    if used is not None:
        reading.put("cgroup.mem_used", whole(used))


def _cores(reading: Reading, groups: Groups) -> None:
    cores = [float(_listed(data)) for _, data in groups.read(_CORES)][:1]
    for _, data in groups.read(_QUOTA):
        quota, _, period = data.decode("ascii", "replace").strip().partition(" ")
        if quota != "max":
            cores.append(int(quota) / int(period))
    if cores:
        reading.put("cgroup.cores", round(min(cores), 2))


def _listed(data: bytes) -> int:
    """How many numbers a list such as "0-3,8" has."""
    total = 0
    for part in data.decode("ascii", "replace").strip().split(","):
        first, dash, last = part.partition("-")
        if first:
            total += int(last) - int(first) + 1 if dash else 1
    return total


def _throttled(reading: Reading, groups: Groups) -> None:
    counts = [
        whole(line.partition(b" ")[2])
        for _, data in groups.read(_STAT)
        for line in data.splitlines()
        if line.startswith(b"nr_throttled ")
    ]
    if counts:
        reading.put("cgroup.throttled", max(counts))
