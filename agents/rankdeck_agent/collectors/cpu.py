"""CPUs: time, load, temperature, clock, pressure, context switches and interrupts."""

import os
import re
from collections.abc import Mapping, Sequence

from rankdeck_agent.collectors.base import (
    DEVICE_LIMIT,
    LARGEST,
    Reading,
    parse_signed,
    parse_unsigned,
    pick_evenly,
)
from rankdeck_agent.system_files import Tree

_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "soc_thermal")
_ZONES = re.compile(r"x86_pkg_temp|cpu[-_]?thermal|soc[-_]?thermal|bcm\d+_thermal|cpu\d*-thermal")
_CPUFREQ = "sys/devices/system/cpu/cpufreq"
_CLOCKS = 4
"""Most cores that are asked for their clock: each answer may disturb the core."""
_LOOK_AGAIN = 60.0
_PRESSURE: Mapping[str, tuple[tuple[bytes, str, str], ...]] = {
    "cpu": ((b"some", "psi.cpu", "psi.cpu_waiting"),),
    "memory": ((b"some", "", "psi.mem_waiting"), (b"full", "psi.mem", "psi.mem_stalled")),
    "io": ((b"some", "", "psi.io_waiting"), (b"full", "psi.io", "psi.io_stalled")),
    "irq": ((b"full", "", "psi.irq_stalled"),),
}
"""File of /proc/pressure -> (line, metric of its mean over 10 s or "", metric of its total)."""
_STALLS = re.compile(rb"^(some|full) avg10=(\d{1,3}(?:\.\d+)?) .*total=(\d{1,20})$", re.MULTILINE)
_SHARES = ("cpu.used", "cpu.core_used", "cpu.iowait", "cpu.steal")
_LOADS = ("cpu.load1", "cpu.load5", "cpu.load15")
_MODES = (
    "user",
    "nice",
    "system",
    "idle",
    "iowait",
    "irq",
    "softirq",
    "steal",
    "guest",
    "guest_nice",
)
"""Columns of a processor in /proc/stat."""
_MODE_TIMES = tuple(f"cpu.time_{mode}" for mode in _MODES)
_TICKS = os.sysconf("SC_CLK_TCK")
_TASK_ROWS: Mapping[bytes, str] = {
    b"ctxt": "kernel.context_switches",
    b"processes": "kernel.forks",
    b"procs_running": "kernel.procs_running",
    b"procs_blocked": "kernel.procs_blocked",
}
"""Row of /proc/stat -> its metric."""
_INTERRUPTS = re.compile(rb"^intr (\d{1,20})\b", re.MULTILINE)
Times = tuple[int, int, int, int]
"""(total, idle, waiting for disks, stolen), in clock ticks since boot."""


class CpuCollector:
    """CPU time as shares between two readings; load, number of cores,
    temperature, clock and pressure.
    """

    name = "cpu"
    lane = "proc"
    period = 0.0
    metrics: tuple[str, ...] = (
        *_SHARES,
        *_MODE_TIMES,
        *_TASK_ROWS.values(),
        "kernel.interrupts",
        *_LOADS,
        "cpu.cores",
        "cpu.temp",
        "cpu.freq",
        *(metric for rows in _PRESSURE.values() for row in rows for metric in row[1:] if metric),
    )

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._before: dict[str, Times] = {}
        self._looked = -_LOOK_AGAIN
        self._temps: list[str] = []
        self._clocks: Sequence[str] = ()
        self._inventory: dict[str, str] = {}

    def collect(self, now: float) -> Reading:
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            self._look()
        reading = Reading()
        reading.inventory = self._inventory
        reading.attempt(
            (*_SHARES, *_MODE_TIMES, *_TASK_ROWS.values(), "cpu.cores"),
            lambda: self._stat(reading),
        )
        reading.attempt(_LOADS, lambda: self._loads(reading))

        temps = self._numbers(reading, "cpu.temp", self._temps)
        if temps:
            reading.put("cpu.temp", round(max(temps) * 1e-3, 3))
        clocks = self._numbers(reading, "cpu.freq", self._clocks)
        if clocks:
            reading.put("cpu.freq", sum(clocks) / len(clocks) * 1e3)

        for name, rows in _PRESSURE.items():
            metrics = [metric for row in rows for metric in row[1:] if metric]
            reading.attempt(metrics, lambda n=name: self._pressure(reading, n))
        return reading

    def _look(self) -> None:
        self._temps = _sensors(self._tree) or [f"{zone}/temp" for zone in cpu_zones(self._tree)]
        policies = [n for n in self._tree.names(_CPUFREQ) if n.startswith("policy")]
        files = [f"{_CPUFREQ}/{n}/scaling_cur_freq" for n in policies]
        self._clocks = pick_evenly([file for file in files if self._tree.exists(file)], _CLOCKS)
        self._inventory = {"cpu.model": _model(self._tree)}

    def _loads(self, reading: Reading) -> None:
        for metric, load in zip(_LOADS, self._tree.read("proc/loadavg").split()):
            reading.put(metric, float(load))

    def _stat(self, reading: Reading) -> None:
        data = self._tree.read("proc/stat")
        columns = _columns(data)
        _put_modes(reading, columns)
        _put_tasks(reading, data)

        now = {core: _times(ticks) for core, ticks in columns.items()}
        reading.put("cpu.cores", len(now) - ("" in now))
        before, self._before = self._before, now
        if not before:
            reading.pending.update(_SHARES)
            return
        for core, times in now.items():
            if core in before:
                _put_shares(reading, core, before[core], times)

    def _pressure(self, reading: Reading, name: str) -> None:
        found = _STALLS.findall(self._tree.read(f"proc/pressure/{name}"))
        lines = {line: (float(mean), int(total)) for line, mean, total in found}
        for line, mean, total in _PRESSURE[name]:
            if line in lines:
                reading.put(total, lines[line][1] / 1e6)
                if mean:
                    reading.put(mean, lines[line][0])

    def _numbers(self, reading: Reading, metric: str, files: Sequence[str]) -> list[int]:
        """The numbers of the files that can be read; the metric fails only if none can."""
        numbers: list[int] = []
        for name in files:
            try:
                numbers.append(parse_signed(self._tree.read(name)))
            except (OSError, ValueError) as error:  # noqa: PERF203  each file for itself
                reading.fail((metric,), error)
        if numbers:
            reading.failed.pop(metric, None)
        return numbers


def _columns(data: bytes) -> dict[str, list[int]]:
    """Core ("" for all of them) -> its clock ticks in each of _MODES,
    from /proc/stat; raises ValueError.
    """
    found: dict[str, list[int]] = {}
    for line in data.split(b"\n"):
        if not line.startswith(b"cpu"):
            # Stop here: the lines after the CPUs are the longest of the file.
            break
        name, *fields = line.split()
        ticks = [int(field) for field in fields[: len(_MODES)]]
        if not name[3:].isdigit() and name != b"cpu":
            raise ValueError("not the times of a processor")
        found[name[3:].decode()] = ticks
    if not found:
        raise ValueError("no processors in it")
    return found


def _times(ticks: Sequence[int]) -> Times:
    # Guest time, in the last two columns, is part of user time.
    counted = [*ticks[:8], 0, 0, 0, 0, 0, 0, 0, 0][:8]
    return sum(counted), counted[3], counted[4], counted[7]


def _put_modes(reading: Reading, columns: Mapping[str, Sequence[int]]) -> None:
    cores = [core for core in columns if core][:DEVICE_LIMIT]
    for metric, ticks in zip(_MODE_TIMES, zip(*(columns[core] for core in cores))):
        # Without a check of each: a large machine has thousands of
        # them, and they are whole numbers.
        seconds = [tick / _TICKS if tick else 0 for tick in ticks]
        if max(seconds) <= LARGEST:
            reading.values[metric] = dict(zip(cores, seconds))


def _put_tasks(reading: Reading, data: bytes) -> None:
    found = _INTERRUPTS.search(data)
    if found:
        reading.put("kernel.interrupts", int(found.group(1)))
    for line in data[max(0, data.rfind(b"\nctxt ")) :].splitlines():
        name, _, number = line.partition(b" ")
        if name in _TASK_ROWS:
            reading.put(_TASK_ROWS[name], parse_unsigned(number))


def _put_shares(reading: Reading, core: str, before: Times, now: Times) -> None:
    total, idle, wait, steal = (b - a for a, b in zip(before, now))
    # Idle and iowait time may go backwards: then they must not reduce the total.
    total -= min(0, idle) + min(0, wait)
    idle, wait, steal = max(0, idle), max(0, wait), max(0, steal)
    if total <= 0:
        return
    used = _percent(total - idle - wait, total)
    if core:
        reading.put("cpu.core_used", used, core)
        return
    reading.put("cpu.used", used)
    reading.put("cpu.iowait", _percent(wait, total))
    reading.put("cpu.steal", _percent(steal, total))


def _percent(part: int, total: int) -> float:
    return round(min(100.0, max(0.0, 100.0 * part / total)), 2)


def _sensors(tree: Tree) -> list[str]:
    found: list[str] = []
    for name in tree.names("sys/class/hwmon"):
        # The first input is the package; reading the others costs an interrupt per core.
        path = f"sys/class/hwmon/{name}/temp1_input"
        if tree.maybe(f"sys/class/hwmon/{name}/temp2_label") == "Tdie":
            # The first is then Tctl, which some processors report up to
            # 27 degrees too high (k10temp.c).
            path = f"sys/class/hwmon/{name}/temp2_input"
        if tree.maybe(f"sys/class/hwmon/{name}/name") in _SENSORS and tree.exists(path):
            found.append(path)
    return found


def cpu_zones(tree: Tree) -> list[str]:
    """Folders of the thermal zones of the CPU."""
    zones = [n for n in tree.names("sys/class/thermal") if n.startswith("thermal_zone")]
    types = {z: tree.maybe(f"sys/class/thermal/{z}/type") or "" for z in zones}
    named = [z for z in zones if _ZONES.fullmatch(types[z])]
    # Grace has no others.
    chosen = named or [z for z in zones if types[z] == "acpitz"]
    return [f"sys/class/thermal/{z}" for z in chosen]


def _model(tree: Tree) -> str:
    try:
        text = tree.read("proc/cpuinfo").decode("utf-8", "replace")
    except OSError:
        return ""
    found = re.search(
        r"^(?:model name|Model|cpu model|Hardware)\s*:\s*([ -~]{1,100})", text, re.MULTILINE
    )
    return found.group(1).strip() if found else ""
