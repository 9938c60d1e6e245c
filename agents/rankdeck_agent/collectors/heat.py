"""Sensors of every chip: heat, alarms of fans and voltages; the CPU's margin, counts of throttling."""

import re
from dataclasses import dataclass

from rankdeck_agent.collectors.base import Reading, signed, whole
from rankdeck_agent.files import Tree, clean

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
"""Of one chip: a CPU has one per core, and the package is the first."""
_CORES = 32
_LOOK_AGAIN = 300.0


@dataclass(frozen=True)
class Chip:
    """A chip with sensors, as the kernel names it."""

    device: str
    inputs: tuple[str, ...]
    alarms: tuple[str, ...]
    warnings: tuple[tuple[str, str, str], ...] = ()
    """(metric, sensor, file) of what is out of its limits but not critical."""
    margin: tuple[str, str] = ("", "")
    """Files of the temperature of the CPU package and of its critical one."""


class HeatCollector:
    """Temperatures and alarms of all chips, throttle counts of the CPU."""

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
        self._throttles: dict[str, tuple[str, ...]] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        if now - self._looked >= _LOOK_AGAIN:
            reading.attempt(self.metrics, self._look)
            self._looked = now
        for chip in self._chips:
            self.doing = chip.device
            self._chip(reading, chip)
        self.doing = ""
        for device, files in self._throttles.items():
            reading.attempt(
                ("cpu.throttles",),
                lambda d=device, f=files: self._count(reading, d, f),
                device,
            )
        return reading

    def _look(self) -> None:
        self._chips = _chips(self._tree)
        # Chosen once: a sum over other cores would look like a count that moved.
        self._throttles = self._throttles or _throttles(self._tree)

    def _chip(self, reading: Reading, chip: Chip) -> None:
        device = chip.device
        if chip.inputs:
            reading.attempt(("hwmon.temp",), lambda: self._hottest(reading, chip), device)
        if chip.alarms:
            reading.attempt(("hwmon.alarm",), lambda: self._alarm(reading, chip), device)
        for metric in dict.fromkeys(warning[0] for warning in chip.warnings):
            reading.attempt((metric,), lambda m=metric: self._warn(reading, chip, m), device)
        if chip.margin[0]:
            reading.attempt(("cpu.margin",), lambda: self._margin(reading, chip))

    def _hottest(self, reading: Reading, chip: Chip) -> None:
        temps: list[int] = []
        refused: list[Exception] = []
        for file in chip.inputs:
            try:
                temps.append(signed(self._tree.read(file)))
            except (OSError, ValueError) as error:  # noqa: PERF203  each for itself
                refused.append(error)
        if temps:
            reading.put("hwmon.temp", max(temps) / 1e3, chip.device)
        elif refused:
            raise refused[0]

    def _alarm(self, reading: Reading, chip: Chip) -> None:
        raised = any(whole(self._tree.read(file)) for file in chip.alarms)
        reading.put("hwmon.alarm", int(raised), chip.device)

    def _warn(self, reading: Reading, chip: Chip, metric: str) -> None:
        files = [(sensor, file) for of, sensor, file in chip.warnings if of == metric]
        raised = [s for s, file in files if whole(self._tree.read(file)) and self._outside(s, file)]
        reading.put(metric, int(bool(raised)), chip.device)

    def _outside(self, sensor: str, file: str) -> bool:
        """Whether its limits say so too: boards whose limits nobody has set raise alarms for ever."""
        texts = [self._tree.maybe(f"{sensor}_{part}") for part in ("input", "min", "max")]
        if file.endswith("_fault") or texts[0] is None or texts[1:] == [None, None]:
            return True
        now, low, high = (signed((text or "0").encode()) for text in texts)
        return (low > 0 and now < low) or (high > low and now > high)

    def _margin(self, reading: Reading, chip: Chip) -> None:
        temp, crit = (signed(self._tree.read(file)) for file in chip.margin)
        # Boards without a limit of their own say 0.
        if crit > 0:
            left = (crit - temp) / 1e3
            known = reading.values.get("cpu.margin", {}).get("", left)
            reading.put("cpu.margin", min(left, known))

    def _count(self, reading: Reading, device: str, files: tuple[str, ...]) -> None:
        total = sum(whole(self._tree.read(file)) for file in files)
        reading.put("cpu.throttles", total, device)


def _chips(tree: Tree) -> list[Chip]:
    found: list[Chip] = []
    taken: dict[str, int] = {}
    for folder in tree.names(_HWMON)[:_CHIPS]:
        base = f"{_HWMON}/{folder}"
        name = clean(tree.maybe(f"{base}/name") or folder)
        taken[name] = taken.get(name, 0) + 1
        device = name if taken[name] == 1 else f"{name}.{taken[name]}"
        found.append(_chip(tree, base, name, device))
    return found


def _chip(tree: Tree, base: str, name: str, device: str) -> Chip:
    files = tree.names(base)
    inputs = [f for f in files if _INPUT.fullmatch(f)][:_SENSORS]
    alarms = [f for f in files if _ALARM.fullmatch(f)][:_SENSORS]
    found = [w for w in map(_WARNING.fullmatch, files) if w][: 2 * _SENSORS]
    warnings = tuple(
        (_METRIC_OF[w["what"]], f"{base}/{w['what']}{w['number']}", f"{base}/{w[0]}") for w in found
    )
    margin = ("", "")
    if name in _PACKAGES and {"temp1_input", "temp1_crit"} <= set(files):
        margin = (f"{base}/temp1_input", f"{base}/temp1_crit")
    # An undervoltage of a Raspberry Pi has its own metric.
    if name == "rpi_volt":
        alarms, warnings = [], ()
    return Chip(device, _under(base, inputs), _under(base, alarms), warnings, margin)


def _under(base: str, names: list[str]) -> tuple[str, ...]:
    return tuple(f"{base}/{name}" for name in names)


def _throttles(tree: Tree) -> dict[str, tuple[str, ...]]:
    """Device -> files to add up: each package once, and some cores together."""
    found: dict[str, tuple[str, ...]] = {}
    cores: list[str] = []
    numbers = [n for n in map(_CPU.fullmatch, tree.names(_CPUS)) if n]
    for name in sorted(numbers, key=lambda n: int(n[1])):
        base = f"{_CPUS}/{name[0]}"
        count = f"{base}/thermal_throttle/package_throttle_count"
        if tree.exists(count):
            package = tree.maybe(f"{base}/topology/physical_package_id") or "0"
            found.setdefault(f"package{clean(package, 8)}", (count,))
            cores.append(f"{base}/thermal_throttle/core_throttle_count")
    step = max(1, len(cores) // _CORES)
    if cores:
        found["cores"] = tuple(cores[::step][:_CORES])
    return found
