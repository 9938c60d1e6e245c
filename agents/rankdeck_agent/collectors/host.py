"""The host: its CPUs (time, load, clock, pressure), tasks that hang, memory, EDAC
errors, and the limits of the agent's cgroup.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Callable, Optional

from rankdeck_agent.collectors.base import (
    DEVICE_LIMIT,
    LARGEST,
    Reading,
    memory_sizes,
    parse_signed,
    parse_unsigned,
    pick_evenly,
)
from rankdeck_agent.files import MISSING, Tree, clean_text
from rankdeck_agent.older_python import is_ascii

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


_LONG = 240.0
"""Seconds in state D that count as long: five looks, one per minute."""
_TASKS = 16384
_KINDS = ("nvidia", "other")

Task = tuple[str, bytes]
"""(process id, start time): process ids are reused."""


class TaskCollector:
    """How many processes have been in state D for long; those of
    NVIDIA's driver are counted apart.
    """

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
        names = self._tree.names("proc", _TASKS)
        pids = [n for n in names if is_ascii(n) and n.isdecimal() and len(n) <= 10]
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
        """(name, state, start) of a process; None if it has ended meanwhile. Raises OSError."""
        try:
            data = self._tree.once(f"proc/{pid}/stat")
        except OSError as error:
            if error.errno in MISSING or isinstance(error, ProcessLookupError):
                return None
            raise
        # The name may contain anything, even ") D ".
        name, _, rest = data.partition(b"(")[2].rpartition(b")")
        fields = rest.split()
        return (name, fields[0], fields[19]) if len(fields) > 19 else None


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


_EDAC = "sys/devices/system/edac/mc"
_CONTROLLER = re.compile(r"mc\d{1,4}")
_DIMM = re.compile(r"(?:dimm|rank)\d{1,4}")
_ROW = re.compile(r"csrow\d{1,4}")
_DIMMS = 256
_EDAC_LOOK = 300.0
Counts = tuple[str, str]
"""(file of corrected errors, file of uncorrected errors)."""
_COUNTS = ("edac.ce", "edac.ue")
_OF_CONTROLLERS = ("edac.mc_ce", "edac.mc_ue")
_OF_ROWS = ("edac.row_ce", "edac.row_ue")


class EdacCollector:
    """Corrected and uncorrected memory errors since the driver was loaded, per
    DIMM, controller and chip-select row.
    """

    name = "edac"
    lane = "slow"
    period = 10.0
    metrics: tuple[str, ...] = (*_COUNTS, *_OF_CONTROLLERS, *_OF_ROWS)

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._looked = -_EDAC_LOOK
        self._files: dict[str, Counts] = {}
        self._controllers: dict[str, Counts] = {}
        self._rows: dict[str, Counts] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        if now - self._looked >= _EDAC_LOOK:
            self._looked = now
            reading.attempt(_COUNTS, self._look)
        self._read(reading, _COUNTS, self._files)
        self._read(reading, _OF_CONTROLLERS, self._controllers)
        self._read(reading, _OF_ROWS, self._rows)
        return reading

    def _read(self, reading: Reading, metrics: Sequence[str], rows: Mapping[str, Counts]) -> None:
        for device, files in rows.items():
            for metric, file in zip(metrics, files):
                reading.measure(metric, lambda f=file: parse_unsigned(self._tree.read(f)), device)

    def _look(self) -> None:
        files: dict[str, Counts] = {}
        rows: dict[str, Counts] = {}
        controllers = list(filter(_CONTROLLER.fullmatch, self._tree.names(_EDAC)))
        self._controllers = {
            n: (f"{_EDAC}/{n}/ce_count", f"{_EDAC}/{n}/ue_count") for n in controllers
        }
        for name in controllers:
            files.update(_controller(self._tree, name, set(files)))
            rows.update(_chip_select_rows(self._tree, name))
        self._files, self._rows = files, rows


def _controller(tree: Tree, name: str, taken: set[str]) -> dict[str, Counts]:
    base = f"{_EDAC}/{name}"
    dimms = [n for n in tree.names(base) if _DIMM.fullmatch(n)][:_DIMMS]
    # If there are DIMMs, the controller counts only errors that cannot be attributed to one.
    kind = "noinfo_count" if dimms else "count"
    files = {name: (f"{base}/ce_{kind}", f"{base}/ue_{kind}")}
    for dimm in dimms:
        label = clean_text(tree.maybe(f"{base}/{dimm}/dimm_label") or "")
        free = label and label not in taken and label not in files
        device = label if free else f"{name}/{dimm}"
        files[device] = (f"{base}/{dimm}/dimm_ce_count", f"{base}/{dimm}/dimm_ue_count")
    return files


def _chip_select_rows(tree: Tree, name: str) -> dict[str, Counts]:
    """Counts of the older kernel interface
    (Documentation/ABI/testing/sysfs-devices-edac); `unknown`: not of a known row.
    """
    base = f"{_EDAC}/{name}"
    rows = [n for n in tree.names(base) if _ROW.fullmatch(n)][:_DIMMS]
    counts = {f"{name}/{row}": (f"{base}/{row}/ce_count", f"{base}/{row}/ue_count") for row in rows}
    if tree.exists(f"{base}/ce_noinfo_count"):
        counts[f"{name}/unknown"] = (f"{base}/ce_noinfo_count", f"{base}/ue_noinfo_count")
    return counts


_CGROUP = "sys/fs/cgroup"
_DEPTH = 16
_NO_LIMIT = 1 << 60
"""A memory limit from this size on means no limit: cgroup v1 has no word for that."""


@dataclass(frozen=True)
class Files:
    """Name of a file in cgroup v2 (`second`), and its hierarchy and name in cgroup v1 (`first`)."""

    second: str
    hierarchy: str
    first: str


_LIMIT = Files("memory.max", "memory", "memory.limit_in_bytes")
_USED = Files("memory.current", "memory", "memory.usage_in_bytes")
_CORES = Files("cpuset.cpus.effective", "cpuset", "cpuset.effective_cpus")
_QUOTA = Files("cpu.max", "cpu", "cpu.cfs_quota_us")
_PERIOD = Files("cpu.max", "cpu", "cpu.cfs_period_us")
_STAT = Files("cpu.stat", "cpu", "cpu.stat")


class CgroupCollector:
    """The tightest limits of the agent's cgroup and those above it."""

    name = "cgroup"
    lane = "slow"
    period = 10.0
    metrics: tuple[str, ...] = (
        "cgroup.cores",
        "cgroup.mem_limit",
        "cgroup.mem_used",
        "cgroup.throttled",
    )

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)

    def collect(self, now: float) -> Reading:
        reading = Reading()
        groups = Groups(self._tree)
        reading.attempt(self.metrics, groups.find)
        rows: tuple[tuple[str, Callable[[], None]], ...] = (
            ("cgroup.mem_limit", lambda: _memory(reading, groups)),
            ("cgroup.cores", lambda: _cores(reading, groups)),
            ("cgroup.throttled", lambda: _throttled(reading, groups)),
        )
        for metric, read in rows:
            reading.attempt((metric,), read)
        return reading


class Groups:
    """Reads files of the agent's cgroup and of those above it, innermost first."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._paths: dict[str, str] = {}

    def find(self) -> None:
        """Read to which cgroups the agent belongs; raises OSError."""
        text = self._tree.read("proc/self/cgroup").decode("utf-8", "replace")
        for line in text.splitlines():
            _, hierarchies, path = [*line.split(":", 2), "", ""][:3]
            for hierarchy in hierarchies.split(","):
                self._paths[hierarchy] = path

    def read(self, files: Files) -> Iterator[tuple[str, bytes]]:
        """`(folder, content)` for each cgroup that has the file."""
        own = self._paths.get("")
        second = own is not None and self._tree.exists(f"{_CGROUP}/cgroup.controllers")
        path = own if second else self._paths.get(files.hierarchy)
        if path is None:
            return
        base = _CGROUP if second else f"{_CGROUP}/{files.hierarchy}"
        name = files.second if second else files.first
        parts = [p for p in path.split("/") if p not in ("", ".", "..")][:_DEPTH]
        for length in range(len(parts), -1, -1):
            folder = "/".join([base, *parts[:length]])
            data = self._file(f"{folder}/{name}")
            if data is not None:
                yield folder, data

    def beside(self, folder: str, files: Files) -> Optional[bytes]:
        """The file, with its v2 or v1 name, in a folder that `read`
        returned; None if there is none.
        """
        data = self._file(f"{folder}/{files.second}")
        return self._file(f"{folder}/{files.first}") if data is None else data

    def _file(self, name: str) -> Optional[bytes]:
        try:
            return self._tree.read(name)
        except FileNotFoundError:
            return None


def _memory(reading: Reading, groups: Groups) -> None:
    limits = [
        (parse_unsigned(data), folder)
        for folder, data in groups.read(_LIMIT)
        if data.strip() != b"max"
    ]
    limit, folder = min(limits, default=(_NO_LIMIT, ""))
    if limit >= _NO_LIMIT:
        return
    reading.put("cgroup.mem_limit", limit)
    used = groups.beside(folder, _USED)
    if used is not None:
        reading.put("cgroup.mem_used", parse_unsigned(used))


def _cores(reading: Reading, groups: Groups) -> None:
    cores = [float(_listed(data)) for _, data in groups.read(_CORES)][:1]
    for folder, data in groups.read(_QUOTA):
        quota, _, period = data.decode("ascii", "replace").strip().partition(" ")
        # Version 1 has the period in a file of its own, and -1 for no quota.
        period = period or (groups.beside(folder, _PERIOD) or b"").decode("ascii", "replace")
        if quota not in ("max", "-1"):
            cores.append(int(quota) / int(period))
    if cores:
        reading.put("cgroup.cores", round(min(cores), 2))


def _listed(data: bytes) -> int:
    """How many numbers are in a list such as "0-3,8"."""
    total = 0
    for part in data.decode("ascii", "replace").strip().split(","):
        first, dash, last = part.partition("-")
        if first:
            total += int(last) - int(first) + 1 if dash else 1
    return total


def _throttled(reading: Reading, groups: Groups) -> None:
    counts = [
        parse_unsigned(line.partition(b" ")[2])
        for _, data in groups.read(_STAT)
        for line in data.splitlines()
        if line.startswith(b"nr_throttled ")
    ]
    if counts:
        reading.put("cgroup.throttled", max(counts))
