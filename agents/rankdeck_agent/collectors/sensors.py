"""Sensors under /sys/class/hwmon: temperatures, fans, voltages; CPU
throttling; the Raspberry Pi's firmware.
"""

import fcntl
import os
import re
import struct
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Optional

from rankdeck_agent.collectors.base import (
    KeptNames,
    Reading,
    own_memory,
    parse_signed,
    parse_unsigned,
    pick_evenly,
)
from rankdeck_agent.collectors.cpu import cpu_zones
from rankdeck_agent.system_files import ASLEEP, Tree
from rankdeck_agent.text import clean_text
from rankdeck_agent.values import Value

_HWMON = "sys/class/hwmon"
_CPUS = "sys/devices/system/cpu"
_PACKAGES = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
_INPUT = re.compile(r"(temp\d{1,3})_input")
_CPU = re.compile(r"cpu(\d{1,5})")
_ALARM = re.compile(r"(?:temp|in|curr|power)\d{1,3}_(?:crit|lcrit|emergency)_alarm")
_WARNING = re.compile(
    r"(?P<what>fan|in|curr)(?P<number>\d{1,3})_(?:alarm|fault|min_alarm|max_alarm)"
)
_METRIC_OF = {"fan": "hwmon.fan", "in": "hwmon.voltage", "curr": "hwmon.voltage"}
_CHIPS = 64
_SENSORS = 16
"""Most sensors of one chip: a CPU has one per core, and the first is the package."""
_CORES = 32
_TRIPS = 12
"""Most trip points of a thermal zone (THERMAL_MAX_TRIPS)."""
_ABSURD = 200_000
"""A limit of so many thousandths of a degree is none."""
_LOOK_AGAIN = 300.0


class Chip(Value):
    """A chip with sensors, as the kernel names it."""

    device: str
    inputs: tuple[str, ...]
    alarms: tuple[str, ...]
    warnings: tuple[tuple[str, str, str], ...] = ()
    """(metric, sensor, file) of each alarm that is not critical."""
    margin: tuple[str, str] = ("", "")
    """(file of the CPU package's temperature, file of its critical temperature)."""


class HeatCollector:
    """Hottest temperature and alarms of each chip; throttle counts of the CPU."""

    name = "heat"
    lane = "slow"
    period = 30.0
    metrics: tuple[str, ...] = (
        "hwmon.temp",
        "hwmon.alarm",
        "hwmon.fan",
        "hwmon.voltage",
        "cpu.margin",
        "cpu.throttles",
    )

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._looked = -_LOOK_AGAIN
        self._chips: list[Chip] = []
        self._margins: list[tuple[str, str]] = []
        """(file of a temperature of the CPU, file of its critical temperature)."""
        self._names = KeptNames("sensors", own_memory(root))
        self._throttles: dict[str, tuple[str, ...]] = {}
        self._answered: set[str] = set()
        """Chips that have told of their alarms."""

    def collect(self, now: float) -> Reading:
        reading = Reading()
        if now - self._looked >= _LOOK_AGAIN:
            reading.attempt(self.metrics, self._look)
            self._looked = now

        for chip in self._chips:
            self.doing = chip.device
            self._chip(reading, chip)
        for files in self._margins:
            reading.attempt(("cpu.margin",), partial(self._margin, reading, *files))
        self.doing = ""

        for device, files in self._throttles.items():
            counts = (parse_unsigned(self._tree.read(file)) for file in files)
            reading.measure("cpu.throttles", partial(sum, counts), device)
        return reading

    def _look(self) -> None:
        self._chips = list(_chips(self._tree, self._names))
        packages = [chip.margin for chip in self._chips if chip.margin[0]]
        self._margins = packages or list(_zone_limits(self._tree))
        # Chosen only once: a sum over other cores would look like growth.
        self._throttles = self._throttles or _throttles(self._tree)

    def _chip(self, reading: Reading, chip: Chip) -> None:
        device = chip.device
        if chip.inputs:
            reading.attempt(("hwmon.temp",), lambda: self._hottest(reading, chip), device)
        if chip.alarms:
            reading.attempt(("hwmon.alarm",), lambda: self._alarm(reading, chip), device)
        for metric in dict.fromkeys(warning[0] for warning in chip.warnings):
            reading.measure(metric, partial(self._warned, chip, metric), device)

    def _hottest(self, reading: Reading, chip: Chip) -> None:
        temps: list[int] = []
        refused: list[Exception] = []
        for file in chip.inputs:
            try:
                temps.append(parse_signed(self._tree.read(file)))
            except (OSError, ValueError) as error:  # noqa: PERF203  each for itself
                refused.append(error)
        if temps:
            reading.put("hwmon.temp", max(temps) / 1e3, chip.device)
            return
        awake = [error for error in refused if not _sleeps(error)]
        if awake:
            raise awake[0]

    def _alarm(self, reading: Reading, chip: Chip) -> None:
        try:
            reading.put("hwmon.alarm", self._raised(chip), chip.device)
        except OSError as error:
            # What has told of its alarms has to go on.
            if chip.device in self._answered or not _sleeps(error):
                raise
        else:
            self._answered.add(chip.device)

    def _raised(self, chip: Chip) -> int:
        raised = (file for file in chip.alarms if parse_unsigned(self._tree.read(file)))
        return int(any(self._has_limit(file.rpartition("_")[0]) for file in raised))

    def _has_limit(self, file: str) -> bool:
        """Whether the limit that an alarm is about is one: some boards leave
        0, or more than any part endures.
        """
        text = self._tree.maybe(file)
        if text is None or "/temp" not in file:
            return True
        return 0 < parse_signed(text.encode()) < _ABSURD

    def _warned(self, chip: Chip, metric: str) -> int:
        files = [(sensor, file) for of, sensor, file in chip.warnings if of == metric]
        raised = [
            s
            for s, file in files
            if parse_unsigned(self._tree.read(file)) and self._outside(s, file)
        ]
        return int(bool(raised))

    def _outside(self, sensor: str, file: str) -> bool:
        """Whether the value is really outside its limits: boards without
        valid limits raise alarms for ever.
        """
        texts = [self._tree.maybe(f"{sensor}_{part}") for part in ("input", "min", "max")]
        if file.endswith("_fault") or texts[0] is None or texts[1:] == [None, None]:
            return True
        now, low, high = (parse_signed((text or "0").encode()) for text in texts)
        return (low > 0 and now < low) or (high > low and now > high)

    def _margin(self, reading: Reading, now: str, limit: str) -> None:
        temp, crit = (parse_signed(self._tree.read(file)) for file in (now, limit))
        # 0 or an absurd one means that the board has no limit.
        if 0 < crit < _ABSURD:
            left = (crit - temp) / 1e3
            known = reading.values.get("cpu.margin", {}).get("", left)
            reading.put("cpu.margin", min(left, known))


def _sleeps(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in ASLEEP


def _zone_limits(tree: Tree) -> Iterator[tuple[str, str]]:
    """(temperature, critical temperature) of the thermal zones of the CPU, for machines
    without a chip of it (Grace, ARM boards).
    """
    for zone in cpu_zones(tree):
        for number in range(_TRIPS):
            point = f"{zone}/trip_point_{number}"
            if tree.maybe(f"{point}_type") == "critical":
                yield f"{zone}/temp", f"{point}_temp"


def _chips(tree: Tree, names: KeptNames) -> Iterator[Chip]:
    for folder in tree.names(_HWMON)[:_CHIPS]:
        base = f"{_HWMON}/{folder}"
        name = clean_text(tree.maybe(f"{base}/name") or folder)
        of = _device_of(tree, folder) or folder
        numbered = (f"{name}.{number}" for number in range(2, 100 * _CHIPS))
        device = names.name(f"{name} {of}", chain((name,), numbered))
        yield _chip(tree, base, name, device)


def _device_of(tree: Tree, chip: str) -> str:
    """The path of the device of a chip, which stays the same after a reboot; "" if it has none."""
    link = tree.path(f"{_HWMON}/{chip}/device")
    return os.path.realpath(link) if os.path.exists(link) else ""  # noqa: PTH110


def _chip(tree: Tree, base: str, name: str, device: str) -> Chip:
    files = tree.names(base)
    inputs = [f"{base}/{f}" for f in files if _INPUT.fullmatch(f)][:_SENSORS]
    alarms = [f"{base}/{f}" for f in files if _ALARM.fullmatch(f)][:_SENSORS]
    found = [w for w in map(_WARNING.fullmatch, files) if w][: 2 * _SENSORS]
    warnings = tuple(
        (_METRIC_OF[w["what"]], f"{base}/{w['what']}{w['number']}", f"{base}/{w[0]}") for w in found
    )
    margin = ("", "")
    if name in _PACKAGES and {"temp1_input", "temp1_crit"} <= set(files):
        margin = (f"{base}/temp1_input", f"{base}/temp1_crit")
    # The undervoltage of a Raspberry Pi has its own metric.
    if name == "rpi_volt":
        alarms, warnings = [], ()
    return Chip(device, tuple(inputs), tuple(alarms), warnings, margin)


def _throttles(tree: Tree) -> dict[str, tuple[str, ...]]:
    """Device -> files to add up: one device per package, and `cores` for up to _CORES cores."""
    found: dict[str, tuple[str, ...]] = {}
    cores: list[str] = []
    numbers = [n for n in map(_CPU.fullmatch, tree.names(_CPUS)) if n]
    for name in sorted(numbers, key=lambda n: int(n[1])):
        base = f"{_CPUS}/{name[0]}"
        count = f"{base}/thermal_throttle/package_throttle_count"
        if tree.exists(count):
            package = tree.maybe(f"{base}/topology/physical_package_id") or "0"
            found.setdefault(f"package{clean_text(package, 8)}", (count,))
            cores.append(f"{base}/thermal_throttle/core_throttle_count")
    if cores:
        found["cores"] = tuple(pick_evenly(cores, _CORES))
    return found


# Start of the file name -> (metric, factor to base units) (linux
# Documentation/hwmon/sysfs-interface.rst).
_KINDS = {
    "temp": ("sensor.temp", 1e-3),
    "fan": ("sensor.fan", 1),
    "in": ("sensor.voltage", 1e-3),
    "curr": ("sensor.current", 1e-3),
    "power": ("sensor.power", 1e-6),
}
_FILE = re.compile(r"((temp|fan|in|curr|power)\d{1,3})_(?:input|average)")
_OF_ONE_KIND = 16
"""Most sensors of one kind of one chip: a CPU has one per core, and the first is the package."""
_NOT_IN_NAMES = re.compile(r"[^a-z0-9:_]")


class SensorCollector:
    """Temperatures, fans, voltages, currents and power of each
    sensor; the device is `chip/sensor`.
    """

    name = "sensors"
    lane = "slow"
    period = 60.0
    metrics: tuple[str, ...] = tuple(metric for metric, _ in _KINDS.values())

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._looked = -_LOOK_AGAIN
        self._files: list[tuple[str, float, str, str]] = []
        """(metric, factor, `chip/sensor`, file)."""
        self._inventory: dict[str, str] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            reading.attempt(self.metrics, self._look)
        for metric, factor, device, file in self._files:
            self.doing = device
            try:
                number = parse_signed(self._tree.read(file))
            except (OSError, ValueError):
                # Empty slots and sleeping sensors always fail; `hwmon.*` reports what matters.
                continue
            reading.put(metric, round(number * factor, 6), device)
        self.doing = ""
        reading.inventory = self._inventory
        return reading

    def _look(self) -> None:
        self._files, self._inventory = [], {}
        for name in self._tree.names(_HWMON)[:_CHIPS]:
            chip = self._chip(name)
            self._inventory[f"sensor.{chip}.name"] = clean_text(
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
        """A name such as `platform_coretemp_0`: bus and device,
        which stay the same after a reboot.
        """
        device = _device_of(self._tree, name)
        parts = [_plain(part) for part in device.split("/")[-2:]]
        return clean_text("_".join(filter(None, parts)) or _plain(name))


def _plain(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name.lower()).strip("_")


_MODELS = ("proc/device-tree/model", "sys/firmware/devicetree/base/model")
_WORDS = (
    "sys/devices/platform/soc/soc:firmware/get_throttled",
    "sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled",
)
_MAILBOX = "dev/vcio"
_GET_THROTTLED = 0x00030046
"""Tag of the firmware's property interface."""
_ASK = 0xC0006400 | struct.calcsize("P") << 16
"""_IOWR(100, 0, char *): the size is that of a pointer."""
_ANSWERED = 0x80000000
_UNDERVOLT = 1 << 0
_HELD_DOWN = 1 << 1 | 1 << 2 | 1 << 3
"""Bits for: clock capped, throttled, soft temperature limit."""
_SINCE_BOOT = 16
_PERIOD = 5.0
_NO_PI = 3600.0
_NOW = ("pi.undervolt", "pi.throttled")
_SEEN = ("pi.undervolt_seen", "pi.throttled_seen")


class PiCollector:
    """Undervoltage and throttling of a Raspberry Pi: the firmware's throttle word,
    or the kernel's alarm if there is none.
    """

    name = "pi"
    lane = "slow"
    period = _PERIOD
    metrics: tuple[str, ...] = (*_NOW, *_SEEN)

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._seen: dict[str, int] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        alarm = _alarm(self._tree)
        if not alarm and not any("Raspberry Pi" in (self._tree.maybe(f) or "") for f in _MODELS):
            self.period = _NO_PI
            return reading
        self.period = _PERIOD
        reading.attempt(self.metrics, lambda: self._word(reading))
        if alarm and "pi.undervolt" not in reading.values:
            reading.attempt(("pi.undervolt",), lambda: self._volt(reading, alarm))
        self._remember(reading)
        return reading

    def _word(self, reading: Reading) -> None:
        word = _from_file(self._tree)
        if word is None:
            self.doing = "the firmware"
            word = _from_firmware(self._tree.path(_MAILBOX))
            self.doing = ""
        for metric, bits in zip(_NOW, (_UNDERVOLT, _HELD_DOWN)):
            reading.put(metric, int(word & bits != 0))
            seen = word >> _SINCE_BOOT & bits != 0
            reading.put(f"{metric}_seen", int(seen))

    def _volt(self, reading: Reading, alarm: str) -> None:
        reading.put("pi.undervolt", int(parse_unsigned(self._tree.read(alarm)) != 0))
        reading.failed.pop("pi.undervolt", None)

    def _remember(self, reading: Reading) -> None:
        """Keep `…_seen` at 1 once it was 1: the kernel's driver clears the firmware's own bits."""
        for now, seen in zip(_NOW, _SEEN):
            values = [reading.values.get(m, {}).get("", 0) for m in (now, seen)]
            if any(values) or self._seen.get(seen):
                self._seen[seen] = 1
                reading.put(seen, 1)
                reading.failed.pop(seen, None)


def _alarm(tree: Tree) -> str:
    for name in tree.names(_HWMON):
        if tree.maybe(f"{_HWMON}/{name}/name") == "rpi_volt":
            return f"{_HWMON}/{name}/in0_lcrit_alarm"
    return ""


def _from_file(tree: Tree) -> Optional[int]:
    """The word from /sys, hexadecimal without 0x; None if this kernel has no such file."""
    for path in _WORDS:
        if tree.exists(path):
            return int(tree.text(path)[:16], 16)
    return None


def _from_firmware(path: str) -> int:
    """The word from the firmware's mailbox, as vcgencmd reads it; raises OSError, ValueError."""
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        # Total size, request code, then tag, value size, request, value (0: clear nothing), end.
        message = bytearray(struct.pack("<8I", 32, 0, _GET_THROTTLED, 4, 0, 0, 0, 0))
        fcntl.ioctl(handle, _ASK, message, True)
    finally:
        os.close(handle)
    _, code, _, _, _, value, _, _ = struct.unpack("<8I", message)
    if code != _ANSWERED:
        raise ValueError(f"the firmware does not know its throttle word ({code:#x})")
    return value
