"""Memory: installed, available, out-of-memory kills, and EDAC errors."""

import re
from collections.abc import Mapping, Sequence

from rankdeck_agent.collectors.base import Reading, whole
from rankdeck_agent.files import Tree, clean

_SIZE = re.compile(
    rb"^(MemTotal|MemAvailable|SwapTotal|SwapFree|HardwareCorrupted):\s+(\d{1,15}) kB", re.MULTILINE
)
_KILLS = re.compile(rb"^oom_kill (\d{1,20})$", re.MULTILINE)
_SIZES = ("mem.total", "mem.available", "mem.used", "mem.swap_used", "mem.corrupted")


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


_BASE = "sys/devices/system/edac/mc"
_CONTROLLER = re.compile(r"mc\d{1,4}")
_DIMM = re.compile(r"(?:dimm|rank)\d{1,4}")
_ROW = re.compile(r"csrow\d{1,4}")
_DIMMS = 256
_LOOK_AGAIN = 300.0
Counts = tuple[str, str]
"""The files of corrected and of uncorrected errors."""
_COUNTS = ("edac.ce", "edac.ue")
_OF_CONTROLLERS = ("edac.mc_ce", "edac.mc_ue")
_OF_ROWS = ("edac.row_ce", "edac.row_ue")


class EdacCollector:
    """Corrected and uncorrected errors since the driver was loaded."""

    name = "edac"
    lane = "slow"
    period = 10.0
    metrics: tuple[str, ...] = (*_COUNTS, *_OF_CONTROLLERS, *_OF_ROWS)

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._looked = -_LOOK_AGAIN
        self._files: dict[str, Counts] = {}
        self._controllers: dict[str, Counts] = {}
        self._rows: dict[str, Counts] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            reading.attempt(_COUNTS, self._look)
        self._read(reading, _COUNTS, self._files)
        self._read(reading, _OF_CONTROLLERS, self._controllers)
        self._read(reading, _OF_ROWS, self._rows)
        return reading

    def _read(self, reading: Reading, metrics: Sequence[str], rows: Mapping[str, Counts]) -> None:
        for device, files in rows.items():
            for metric, file in zip(metrics, files):
                reading.attempt(
                    (metric,),
                    lambda m=metric, f=file, d=device: reading.put(m, whole(self._tree.read(f)), d),
                    device,
                )

    def _look(self) -> None:
        files: dict[str, Counts] = {}
        rows: dict[str, Counts] = {}
        controllers = list(filter(_CONTROLLER.fullmatch, self._tree.names(_BASE)))
        self._controllers = {
            n: (f"{_BASE}/{n}/ce_count", f"{_BASE}/{n}/ue_count") for n in controllers
        }
        for name in controllers:
            files.update(_controller(self._tree, name, set(files)))
            rows.update(_chip_select_rows(self._tree, name))
        self._files, self._rows = files, rows


def _controller(tree: Tree, name: str, taken: set[str]) -> dict[str, Counts]:
    base = f"{_BASE}/{name}"
    dimms = [n for n in tree.names(base) if _DIMM.fullmatch(n)][:_DIMMS]
    # With DIMMs the controller stands for what it cannot lay at the door of one.
    kind = "noinfo_count" if dimms else "count"
    files = {name: (f"{base}/ce_{kind}", f"{base}/ue_{kind}")}
    for dimm in dimms:
        label = clean(tree.maybe(f"{base}/{dimm}/dimm_label") or "")
        free = label and label not in taken and label not in files
        device = label if free else f"{name}/{dimm}"
        files[device] = (f"{base}/{dimm}/dimm_ce_count", f"{base}/{dimm}/dimm_ue_count")
    return files


def _chip_select_rows(tree: Tree, name: str) -> dict[str, Counts]:
    """What kernels with the older interface count (Documentation/ABI/testing/sysfs-devices-edac); `unknown`: of no row."""
    base = f"{_BASE}/{name}"
    rows = [n for n in tree.names(base) if _ROW.fullmatch(n)][:_DIMMS]
    counts = {f"{name}/{row}": (f"{base}/{row}/ce_count", f"{base}/{row}/ue_count") for row in rows}
    if tree.exists(f"{base}/ce_noinfo_count"):
        counts[f"{name}/unknown"] = (f"{base}/ce_noinfo_count", f"{base}/ue_noinfo_count")
    return counts
