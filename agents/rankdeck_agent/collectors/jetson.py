"""The GPU of a Jetson (Tegra), from /sys: NVML reports little or nothing about it.

Paths differ by board and release; jetson_stats (jtop/core/gpu.py, power.py, temperature.py) lists the same ones.
"""

import re
from typing import Optional

from rankdeck_agent.collectors.base import Reading, signed, whole
from rankdeck_agent.files import Tree, clean

_DEVFREQ = "sys/class/devfreq"
_NAME = re.compile(r"(?:[0-9a-f]+\.)?(?:gpu|ga10b|gv11b|gp10b|gm20b|gk20a)(?:\.\d)?")
_OLDER = ("sys/devices/gpu.0/load", "sys/devices/platform/gpu.0/load")
_ZONES = "sys/class/thermal"
_HWMON = "sys/class/hwmon"
_RAIL = re.compile(r"in(\d)_label")
_KEY = "0"
_LOOK_AGAIN, _PERIOD = 60.0, 2.0
_SIZE = re.compile(rb"^(MemTotal|MemAvailable):\s+(\d{1,15}) kB", re.MULTILINE)
METRICS = ("gpu.used", "gpu.clock", "gpu.temp", "gpu.power", "gpu.mem_used", "gpu.mem_total")


class Jetson:
    """The one GPU of the chip; nothing on other machines. Used from one thread."""

    def __init__(self, root: str) -> None:
        self._tree = Tree(root)
        self._looked = -_LOOK_AGAIN
        self._due = 0.0
        self._failed: dict[str, str] = {}
        self._clock = self._heat = ""
        self._rail: Optional[tuple[str, str]] = None
        self._inventory: dict[str, str] = {}
        self.load = ""
        """The file with its load; "": no Jetson."""

    def look(self, now: float) -> bool:
        """Whether this is a Jetson; looks at most once a minute."""
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            self._find()
        return bool(self.load)

    def collect(self, reading: Reading, now: float) -> None:
        """Add what is due now to the reading."""
        if not self.look(now):
            return
        if now >= self._due:
            self._due = now + _PERIOD * 0.75
            part = Reading()
            self._read(part)
            reading.add(part)
            self._failed = part.failed
        reading.failed.update(self._failed)
        reading.inventory = {**reading.inventory, **self._inventory}

    def _find(self) -> None:
        tree = self._tree
        names = [n for n in tree.names(_DEVFREQ) if _NAME.fullmatch(n)]
        places = [(f"{_DEVFREQ}/{n}/device/load", f"{_DEVFREQ}/{n}/cur_freq") for n in names]
        places += [(file, "") for file in _OLDER]
        self.load, self._clock = next((p for p in places if tree.exists(p[0])), ("", ""))
        if not self.load:
            return
        zones = [n for n in tree.names(_ZONES) if n.startswith("thermal_zone")]
        hot = (
            n for n in zones if (tree.maybe(f"{_ZONES}/{n}/type") or "").lower().startswith("gpu")
        )
        self._heat = next((f"{_ZONES}/{n}/temp" for n in hot), "")
        self._rail = self._find_rail()
        model = (tree.maybe("proc/device-tree/model") or "NVIDIA Jetson").rstrip("?\0")
        self._inventory = {
            f"gpu.{_KEY}.model": clean(model),
            f"gpu.{_KEY}.memory": "shared with the CPU; in use: by the whole machine",
        }

    def _find_rail(self) -> Optional[tuple[str, str]]:
        """Files of voltage and current of the rail that feeds the GPU (ina3221)."""
        for name in self._tree.names(_HWMON):
            base = f"{_HWMON}/{name}"
            for file in self._tree.names(base):
                rail = _RAIL.fullmatch(file)
                if rail and "GPU" in (self._tree.maybe(f"{base}/{file}") or ""):
                    return f"{base}/in{rail[1]}_input", f"{base}/curr{rail[1]}_input"
        return None

    def _read(self, reading: Reading) -> None:
        read = self._tree.read
        rows = (
            # Per mille.
            (("gpu.used",), lambda: reading.put("gpu.used", whole(read(self.load)) / 10, _KEY)),
            (("gpu.clock",), lambda: reading.put("gpu.clock", whole(read(self._clock)), _KEY)),
            (("gpu.temp",), lambda: reading.put("gpu.temp", signed(read(self._heat)) / 1e3, _KEY)),
            (("gpu.power",), lambda: self._watts(reading)),
            (("gpu.mem_used", "gpu.mem_total"), lambda: self._memory(reading)),
        )
        there = (self.load, self._clock, self._heat, self._rail, True)
        for (metrics, ask), wanted in zip(rows, there):
            if wanted:
                reading.attempt(metrics, ask, _KEY)

    def _watts(self, reading: Reading) -> None:
        volts, amperes = (whole(self._tree.read(file)) / 1e3 for file in self._rail or ())
        reading.put("gpu.power", round(volts * amperes, 3), _KEY)

    def _memory(self, reading: Reading) -> None:
        sizes = {k: int(v) * 1024 for k, v in _SIZE.findall(self._tree.read("proc/meminfo"))}
        reading.put("gpu.mem_used", sizes[b"MemTotal"] - sizes[b"MemAvailable"], _KEY)
        reading.put("gpu.mem_total", sizes[b"MemTotal"], _KEY)
