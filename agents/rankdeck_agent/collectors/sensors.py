"""Every sensor of every chip under /sys/class/hwmon, as node_exporter names chips and sensors. Nothing is judged by it."""

import os
import re

from rankdeck_agent.collectors.base import Reading, signed
from rankdeck_agent.files import Tree, clean

_HWMON = "sys/class/hwmon"
# Start of the file, metric, factor to base units (linux Documentation/hwmon/sysfs-interface.rst).
_KINDS = {
    "temp": ("sensor.temp", 1e-3),
    "fan": ("sensor.fan", 1),
    "in": ("sensor.voltage", 1e-3),
    "curr": ("sensor.current", 1e-3),
    "power": ("sensor.power", 1e-6),
}
_FILE = re.compile(r"((temp|fan|in|curr|power)\d{1,3})_(?:input|average)")
_CHIPS = 64
_OF_ONE_KIND = 16
"""Of one chip: a CPU has a sensor per core, and the package is the first."""
_LOOK_AGAIN = 300.0
_NOT_IN_NAMES = re.compile(r"[^a-z0-9:_]")


class SensorCollector:
    """Temperatures, fans, voltages, currents and power of each sensor; the device is `chip/sensor`."""

    name = "sensors"
    lane = "slow"
    period = 60.0
    metrics: tuple[str, ...] = tuple(metric for metric, _ in _KINDS.values())

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._looked = -_LOOK_AGAIN
        self._files: list[tuple[str, float, str, str]] = []
        """Metric, factor, `chip/sensor`, file."""
        self._inventory: dict[str, str] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            reading.attempt(self.metrics, self._look)
        for metric, factor, device, file in self._files:
            self.doing = device
            self._read(reading, metric, factor, device, file)
        self.doing = ""
        reading.inventory = self._inventory
        return reading

    def _read(self, reading: Reading, metric: str, factor: float, device: str, file: str) -> None:
        try:
            number = signed(self._tree.read(file))
        except (OSError, ValueError):
            # Empty slots and sensors asleep refuse for ever; `hwmon.*` says what matters of them.
            return
        reading.put(metric, round(number * factor, 6), device)

    def _look(self) -> None:
        self._files, self._inventory = [], {}
        for name in self._tree.names(_HWMON)[:_CHIPS]:
            chip = self._chip(name)
            self._inventory[f"sensor.{chip}.name"] = clean(
                self._tree.maybe(f"{_HWMON}/{name}/name") or name
            )
            self._files += self._of(f"{_HWMON}/{name}", chip)

    def _of(self, base: str, chip: str) -> list[tuple[str, float, str, str]]:
        found: dict[str, tuple[str, float, str, str]] = {}
        seen = dict.fromkeys(_KINDS, 0)
        for file in self._tree.names(base):
            match = _FILE.fullmatch(file)
            if match and match[1] not in found and seen[match[2]] < _OF_ONE_KIND:
                seen[match[2]] += 1
                metric, factor = _KINDS[match[2]]
                found[match[1]] = (metric, factor, f"{chip}/{match[1]}", f"{base}/{file}")
        return list(found.values())

    def _chip(self, name: str) -> str:
        """`platform_coretemp_0`: bus and device, which stay the same from boot to boot."""
        link = self._tree.path(f"{_HWMON}/{name}/device")
        device = os.path.realpath(link) if os.path.exists(link) else ""  # noqa: PTH110
        parts = [_plain(part) for part in device.split("/")[-2:]]
        return clean("_".join(filter(None, parts)) or _plain(name))


def _plain(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name.lower()).strip("_")
