"""Processors: time, load, clock, temperature and pressure."""

import re
from collections.abc import Sequence

from rankdeck_agent.collectors.base import Reading, whole
from rankdeck_agent.files import MISSING, Tree

_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "soc_thermal")
_ZONES = re.compile(r"x86_pkg_temp|cpu[-_]?thermal|soc[-_]?thermal|bcm\d+_thermal|cpu\d*-thermal")
_CLOCKS = 4
"""Cores asked for their clock: each answer may disturb the core."""
_LOOK_AGAIN = 60.0
_PRESSURE = (("psi.cpu", "cpu", b"some"), ("psi.mem", "memory", b"full"), ("psi.io", "io", b"full"))
_TIMES = ("cpu.used", "cpu.core_used", "cpu.iowait", "cpu.steal")
_AVG10 = re.compile(rb"avg10=(\d+(?:\.\d+)?)")

Times = tuple[int, int, int, int]
"""total, idle, waiting for disks, stolen: in ticks since boot."""


class CpuCollector:
    """CPU time as shares between two readings, and what else the kernel says of processors."""

    name = "cpu"
    lane = "proc"
    period = 0.0
    metrics: tuple[str, ...] = (
        *_TIMES,
        "cpu.load1",
        "cpu.cores",
        "cpu.temp",
        "cpu.freq",
        *(row[0] for row in _PRESSURE),
    )

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._before: dict[str, Times] = {}
        self._looked = -_LOOK_AGAIN
        self._temps: list[str] = []
        self._clocks: list[str] = []
        self._inventory: dict[str, str] = {}

    def collect(self, now: float) -> Reading:
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            self._look()
        reading = Reading()
        reading.inventory = self._inventory
        reading.attempt((*_TIMES, "cpu.cores"), lambda: self._times(reading))
        reading.attempt(("cpu.load1",), lambda: self._load(reading))
        self._highest(reading, "cpu.temp", self._temps, 1e-3)
        self._mean(reading, "cpu.freq", self._clocks, 1e3)
        for metric, name, kind in _PRESSURE:
            reading.attempt(
                (metric,), lambda m=metric, n=name, k=kind: self._pressure(reading, m, n, k)
            )
        return reading

    def _look(self) -> None:
        self._temps = _sensors(self._tree) or _zones(self._tree)
        self._clocks = _some(_clock_files(self._tree), _CLOCKS)
        self._inventory = {"cpu.model": _model(self._tree)}

    def _times(self, reading: Reading) -> None:
        now = parse_times(self._tree.read("proc/stat"))
        reading.put("cpu.cores", len(now) - ("" in now))
        before, self._before = self._before, now
        if not before:
            reading.pending.update(_TIMES)
            return
        for core, times in now.items():
            if core in before:
                _put_shares(reading, core, before[core], times)

    def _load(self, reading: Reading) -> None:
        reading.put("cpu.load1", float(self._tree.read("proc/loadavg").split()[0]))

    def _pressure(self, reading: Reading, metric: str, name: str, kind: bytes) -> None:
        for line in self._tree.read(f"proc/pressure/{name}").splitlines():
            found = _AVG10.search(line) if line.startswith(kind) else None
            if found:
                reading.put(metric, float(found.group(1)))

    def _highest(self, reading: Reading, metric: str, files: Sequence[str], scale: float) -> None:
        numbers = self._numbers(reading, metric, files)
        if numbers:
            reading.put(metric, round(max(numbers) * scale, 3))

    def _mean(self, reading: Reading, metric: str, files: Sequence[str], scale: float) -> None:
        numbers = self._numbers(reading, metric, files)
        if numbers:
            reading.put(metric, sum(numbers) / len(numbers) * scale)

    def _numbers(self, reading: Reading, metric: str, files: Sequence[str]) -> list[int]:
        """What the files that answer say; failed only when none does."""
        numbers: list[int] = []
        for name in files:
            try:
                numbers.append(whole(self._tree.read(name)))
            except (OSError, ValueError) as error:  # noqa: PERF203  each file for itself
                reading.fail((metric,), error)
        if numbers:
            reading.failed.pop(metric, None)
        return numbers


def parse_times(data: bytes) -> dict[str, Times]:
    """Core ("" for all of them) -> times, from /proc/stat; raises ValueError."""
    found: dict[str, Times] = {}
    for line in data.split(b"\n"):
        if not line.startswith(b"cpu"):
            # The lines after the processors are the longest of the file.
            break
        name, *fields = line.split()
        ticks = [int(f) for f in fields[:8]]
        ticks += [0] * (8 - len(ticks))
        if not name[3:].isdigit() and name != b"cpu":
            raise ValueError("not the times of a processor")
        found[name[3:].decode()] = (sum(ticks), ticks[3], ticks[4], ticks[7])
    if not found:
        raise ValueError("no processors in it")
    return found


def _put_shares(reading: Reading, core: str, before: Times, now: Times) -> None:
    total, idle, wait, steal = (b - a for a, b in zip(before, now))
    # Idle and waiting time may step back: neither is then a part of the whole.
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
        # The first input is the package: the others cost an interrupt per core.
        path = f"sys/class/hwmon/{name}/temp1_input"
        if tree.maybe(f"sys/class/hwmon/{name}/name") in _SENSORS and tree.exists(path):
            found.append(path)
    return found


def _zones(tree: Tree) -> list[str]:
    zones = [n for n in tree.names("sys/class/thermal") if n.startswith("thermal_zone")]
    types = {z: tree.maybe(f"sys/class/thermal/{z}/type") or "" for z in zones}
    return [f"sys/class/thermal/{z}/temp" for z in zones if _ZONES.fullmatch(types[z])]


def _clock_files(tree: Tree) -> list[str]:
    base = "sys/devices/system/cpu/cpufreq"
    files = [f"{base}/{n}/scaling_cur_freq" for n in tree.names(base) if n.startswith("policy")]
    return [f for f in files if tree.exists(f)]


def _some(names: Sequence[str], count: int) -> list[str]:
    step = max(1, len(names) // count)
    return list(names[::step][:count])


def _model(tree: Tree) -> str:
    try:
        text = tree.read("proc/cpuinfo").decode("utf-8", "replace")
    except OSError:
        return ""
    found = re.search(
        r"^(?:model name|Model|cpu model|Hardware)\s*:\s*([ -~]{1,100})", text, re.MULTILINE
    )
    return found.group(1).strip() if found else ""


_LONG = 240.0
"""Seconds; with a look a minute this is five looks."""
_TASKS = 16384
_KINDS = ("nvidia", "other")

Task = tuple[str, bytes]
"""Process id, and when it started: ids come back."""


class TaskCollector:
    """How many processes are long in state D, those of NVIDIA's driver apart."""

    name = "tasks"
    lane = "slow"
    period = 60.0
    metrics: tuple[str, ...] = ("kernel.dstate",)

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._since: dict[Task, float] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        reading.attempt(self.metrics, lambda: self._count(reading, now))
        return reading

    def _count(self, reading: Reading, now: float) -> None:
        counts = dict.fromkeys(_KINDS, 0)
        waiting: dict[Task, float] = {}
        pids = [n for n in self._tree.names("proc", _TASKS) if _number(n)]
        for pid in pids:
            stat = self._stat(pid)
            if stat is None or stat[1] != b"D":
                continue
            task = (pid, stat[2])
            waiting[task] = self._since.get(task, now)
            if now - waiting[task] >= _LONG:
                counts["nvidia" if stat[0].startswith(b"nvidia") else "other"] += 1
        self._since = waiting
        if pids:
            for kind, count in counts.items():
                reading.put("kernel.dstate", count, kind)

    def _stat(self, pid: str) -> "tuple[bytes, bytes, bytes] | None":
        """Name, state and start of a process; None if it has ended meanwhile."""
        try:
            data = self._tree.once(f"proc/{pid}/stat")
        except OSError as error:
            if error.errno in MISSING or isinstance(error, ProcessLookupError):
                return None
            raise
        # The name may hold anything, also ") D ".
        name, _, rest = data.partition(b"(")[2].rpartition(b")")
        fields = rest.split()
        return (name, fields[0], fields[19]) if len(fields) > 19 else None


def _number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) <= 10
