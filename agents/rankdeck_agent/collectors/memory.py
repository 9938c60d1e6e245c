"""Memory in use, and out-of-memory kills."""

import re

from rankdeck_agent.collectors.base import Reading, memory_sizes
from rankdeck_agent.system_files import Tree

_KILLS = re.compile(rb"^oom_kill (\d{1,20})$", re.MULTILINE)
_SIZES = (
    "mem.total", "mem.available", "mem.used", "mem.huge", "mem.huge_free", "mem.arc",
    "mem.swap_used", "mem.corrupted",
)  # fmt: skip
_HUGE = re.compile(
    rb"^(Hugetlb|Hugepagesize|HugePages_(?:Total|Free)): +(\d{1,15})\b", re.MULTILINE
)
_ARC = re.compile(rb"^(c_min|size) +4 +(\d{1,20})$", re.MULTILINE)
"""Rows of ZFS's arcstats: its cache now, and the size to which it shrinks for programs."""


class MemoryCollector:
    """Memory in bytes, and out-of-memory kills.

    Not free memory: only available memory is meaningful.
    """

    name = "memory"
    lane = "proc"
    period = 0.0
    metrics: tuple[str, ...] = (*_SIZES, "mem.oom_kills")

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)

    def collect(self, now: float) -> Reading:
        reading = Reading()
        reading.attempt(_SIZES, lambda: self._sizes(reading))
        reading.attempt(("mem.oom_kills",), lambda: self._kills(reading))
        return reading

    def _sizes(self, reading: Reading) -> None:
        meminfo = self._tree.read("proc/meminfo")
        sizes = memory_sizes(meminfo)
        total = sizes.get(b"MemTotal")
        if not total:
            raise ValueError("no MemTotal in it")
        reading.put("mem.total", total)
        available = sizes.get(b"MemAvailable")
        if available is not None:
            reading.put("mem.available", available)
            self._used(reading, meminfo, total, available)
        if b"HardwareCorrupted" in sizes:
            reading.put("mem.corrupted", sizes[b"HardwareCorrupted"])
        if b"SwapTotal" in sizes and b"SwapFree" in sizes:
            reading.put("mem.swap_used", max(0, sizes[b"SwapTotal"] - sizes[b"SwapFree"]))

    def _used(self, reading: Reading, meminfo: bytes, total: int, free: int) -> None:
        """The share in use of what programs can get: huge pages are set
        aside, and ZFS gives its cache back.
        """
        rows = {name: int(number) for name, number in _HUGE.findall(meminfo)}
        page = rows.get(b"Hugepagesize", 0) * 1024
        # Of all sizes together, since Linux 4.19; the others count only pages of the default size.
        huge = rows.get(b"Hugetlb", 0) * 1024 or rows.get(b"HugePages_Total", 0) * page
        if huge:
            reading.put("mem.huge", huge)
            reading.put("mem.huge_free", min(huge, rows.get(b"HugePages_Free", 0) * page))
        arc = self._arc()
        if arc:
            reading.put("mem.arc", arc)
        common = max(1, total - huge)
        used = max(0, common - free - arc)
        reading.put("mem.used", round(100.0 * used / common, 2))

    def _arc(self) -> int:
        """Bytes of the cache of ZFS that it gives back; MemAvailable does not count them."""
        path = "proc/spl/kstat/zfs/arcstats"
        if not self._tree.exists(path):
            return 0
        rows = {name: int(number) for name, number in _ARC.findall(self._tree.read(path))}
        return max(0, rows.get(b"size", 0) - rows.get(b"c_min", 0))

    def _kills(self, reading: Reading) -> None:
        found = _KILLS.search(self._tree.read("proc/vmstat"))
        if found:
            reading.put("mem.oom_kills", int(found.group(1)))
