"""Memory: what is there, what can be had, and who was killed for it."""

import re

from rankdeck_agent.collectors.base import Reading
from rankdeck_agent.files import Tree

_SIZE = re.compile(
    rb"^(MemTotal|MemAvailable|SwapTotal|SwapFree|HardwareCorrupted):\s+(\d{1,15}) kB",
    re.MULTILINE,
)
_KILLS = re.compile(rb"^oom_kill (\d{1,20})$", re.MULTILINE)
_SIZES = (
    "mem.total",
    "mem.available",
    "mem.used",
    "mem.swap_used",
    "mem.corrupted",
)


class MemoryCollector:
    """Memory in bytes. Free memory is not in it: only what can be had tells anything."""

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
        found = _SIZE.findall(self._tree.read("proc/meminfo"))
        sizes = {name: int(value) * 1024 for name, value in found}
        total = sizes.get(b"MemTotal")
        if not total:
            raise ValueError("no MemTotal in it")
        reading.put("mem.total", total)
        available = sizes.get(b"MemAvailable")
        if available is not None:
            reading.put("mem.available", available)
            reading.put("mem.used", round(100.0 * max(0, total - available) / total, 2))
        if b"HardwareCorrupted" in sizes:
            reading.put("mem.corrupted", sizes[b"HardwareCorrupted"])
        if b"SwapTotal" in sizes and b"SwapFree" in sizes:
            reading.put("mem.swap_used", max(0, sizes[b"SwapTotal"] - sizes[b"SwapFree"]))

    def _kills(self, reading: Reading) -> None:
        found = _KILLS.search(self._tree.read("proc/vmstat"))
        if found:
            reading.put("mem.oom_kills", int(found.group(1)))
