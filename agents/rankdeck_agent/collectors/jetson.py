"""The GPU of a Jetson (Tegra), for which NVML reports little or nothing.

Paths differ by board and release; jetson_stats (jtop/core/gpu.py, power.py, temperature.py)
lists the same ones.
"""

import re
from typing import Optional

from rankdeck_agent.collectors.base import (
    SHARED_MEMORY,
    Reading,
    memory_in_use,
    parse_signed,
    parse_unsigned,
)
from rankdeck_agent.collectors.gpu_cards import LOOK_AGAIN, PERIOD
from rankdeck_agent.system_files import ASLEEP, Tree
from rankdeck_agent.text import clean_text

_DEVFREQ = "sys/class/devfreq"
_DEVICE = re.compile(r"(?:[0-9a-f]+\.)?(?:gpu|ga10b|gv11b|gp10b|gm20b|gk20a)(?:\.\d)?")
_OLDER_LOADS = ("sys/devices/gpu.0/load", "sys/devices/platform/gpu.0/load")
_ZONES = "sys/class/thermal"
_HWMON = "sys/class/hwmon"
_RAIL = re.compile(r"in(\d)_label")
_ONLY = "0"
JETSON_METRICS = ("gpu.used", "gpu.clock", "gpu.temp", "gpu.power", "gpu.mem_used", "gpu.mem_total")


class Jetson:
    """The GPU of a Jetson; does nothing on other machines. Used from one thread."""

    def __init__(self, root: str) -> None:
        self.tree = Tree(root)
        self._looked = -LOOK_AGAIN
        self._due = 0.0
        self._failed: dict[str, str] = {}
        self._clock = self._heat = ""
        self._rail: Optional[tuple[str, str]] = None
        self._inventory: dict[str, str] = {}
        self.load = ""
        """The file with the GPU's load; "" if this is no Jetson."""

    def look(self, now: float) -> bool:
        """Whether this is a Jetson; looks at most once a minute."""
        if now - self._looked >= LOOK_AGAIN:
            self._looked = now
            self._find()
        return bool(self.load)

    def collect(self, reading: Reading, now: float) -> None:
        """Add what is due to the reading; `now` in monotonic seconds."""
        if not self.look(now):
            return
        if now >= self._due:
            self._due = now + PERIOD * 0.75
            part = Reading()
            self._read(part)
            reading.add(part)
            self._failed = part.failed
        reading.failed.update(self._failed)
        reading.inventory = {**reading.inventory, **self._inventory}

    def _find(self) -> None:
        tree = self.tree
        names = [n for n in tree.names(_DEVFREQ) if _DEVICE.fullmatch(n)]
        places = [(f"{_DEVFREQ}/{n}/device/load", f"{_DEVFREQ}/{n}/cur_freq") for n in names]
        places += [(file, "") for file in _OLDER_LOADS]
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
            f"gpu.{_ONLY}.model": clean_text(model),
            f"gpu.{_ONLY}.memory": SHARED_MEMORY,
        }

    def _find_rail(self) -> Optional[tuple[str, str]]:
        """(voltage file, current file) of the GPU's power rail (ina3221); None if there is none."""
        for name in self.tree.names(_HWMON):
            base = f"{_HWMON}/{name}"
            for file in self.tree.names(base):
                rail = _RAIL.fullmatch(file)
                if rail and "GPU" in (self.tree.maybe(f"{base}/{file}") or ""):
                    return f"{base}/in{rail[1]}_input", f"{base}/curr{rail[1]}_input"
        return None

    def _read(self, reading: Reading) -> None:
        read = self.tree.read
        # In per mille.
        reading.measure("gpu.used", lambda: parse_unsigned(read(self.load)) / 10, _ONLY)
        if self._clock:
            reading.measure("gpu.clock", lambda: parse_unsigned(read(self._clock)), _ONLY)
        if self._heat:
            reading.attempt(("gpu.temp",), lambda: self._degrees(reading), _ONLY)
        if self._rail:
            reading.measure("gpu.power", self._watts, _ONLY)
        reading.attempt(("gpu.mem_used", "gpu.mem_total"), lambda: self._memory(reading), _ONLY)

    def _degrees(self, reading: Reading) -> None:
        try:
            reading.put("gpu.temp", parse_signed(self.tree.read(self._heat)) / 1e3, _ONLY)
        except OSError as error:
            # A GPU with nothing to do is switched off, and its sensor with it.
            if error.errno not in ASLEEP or parse_unsigned(self.tree.read(self.load)):
                raise

    def _watts(self) -> float:
        volts, amperes = (parse_unsigned(self.tree.read(file)) / 1e3 for file in self._rail or ())
        return round(volts * amperes, 3)

    def _memory(self, reading: Reading) -> None:
        used, total = memory_in_use(self.tree.read("proc/meminfo"))
        reading.put_all({"gpu.mem_used": used, "gpu.mem_total": total}, _ONLY)
