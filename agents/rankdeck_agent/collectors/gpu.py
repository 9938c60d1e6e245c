"""GPUs of all vendors under one set of metrics: NVIDIA through
NVML, AMD, Intel and Jetson from /sys.

Intel (xe, i915): linux Documentation/ABI/testing/sysfs-driver-intel-{xe,i915}-hwmon,
drivers/gpu/drm/xe/xe_gt_{freq,idle,throttle}.c, drivers/gpu/drm/i915/gt/intel_gt_sysfs_pm.c. Usage
is computed from the time that the GPU was not asleep.

Jetson (Tegra), for which NVML reports little or nothing: paths differ by board and release;
jetson_stats (jtop/core/gpu.py, power.py, temperature.py) lists the same ones.
"""

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.collectors import nvidia, pcie
from rankdeck_agent.collectors.base import (
    SHARED_MEMORY,
    BootMemory,
    KeptNames,
    Reading,
    memory_in_use,
    own_memory,
    parse_signed,
    parse_unsigned,
)
from rankdeck_agent.files import Tree, clean_text, failure_reason, user_name
from rankdeck_agent.gpu_release import STOPPED
from rankdeck_agent.text import print_complaint

_CARDS = "sys/class/drm"
_AMD = "0x1002"
_LOOK_AGAIN = 60.0
_LIMIT = 64
_LOAD, _CARE = 2.0, 30.0
_ABSURD = 200
"""Degrees from which on a limit is none."""
_LIMITS = ("crit", "emergency")
"""Ends of the files with a sensor's limits; the first that is set counts."""
_COUNT = re.compile(r"^(ue|ce):\s*(\d{1,20})\s*$", re.MULTILINE)

# (metric, files of which the first that exists is read, factor, seconds between two readings).
_AMD_ROWS: tuple[tuple[str, tuple[str, ...], float, float], ...] = (
    ("gpu.used", ("gpu_busy_percent",), 1, _LOAD),
    ("gpu.mem_used", ("mem_info_vram_used",), 1, _LOAD),
    ("gpu.mem_total", ("mem_info_vram_total",), 1, _CARE),
    ("gpu.power", ("{hwmon}/power1_average", "{hwmon}/power1_input"), 1e-6, _LOAD),
    ("gpu.power_limit", ("{hwmon}/power1_cap",), 1e-6, _CARE),
    ("gpu.energy", ("{hwmon}/energy1_input",), 1e-6, _CARE),
    ("gpu.clock", ("{hwmon}/freq1_input",), 1, _LOAD),
    ("gpu.clock_mem", ("{hwmon}/freq2_input",), 1, _LOAD),
    ("gpu.pcie_replays", ("pcie_replay_count",), 1, _CARE),
)
_NAMES = (
    ("model", "product_name"),
    ("uuid", "unique_id"),
    ("serial", "serial_number"),
    ("vbios", "vbios_version"),
)
AMD_METRICS: tuple[str, ...] = (
    *(row[0] for row in _AMD_ROWS),
    *pcie.METRICS,
    "gpu.temp",
    "gpu.margin",
    "gpu.mem_temp",
    "gpu.mem_margin",
    "gpu.ecc_corrected",
    "gpu.ecc_uncorrected",
)


@dataclass
class AmdCard:
    """One AMD GPU and its files."""

    key: str
    path: str
    hwmon: str
    sensors: dict[str, str]
    """Label (edge, junction, mem) -> start of the file names."""
    blocks: tuple[str, ...]
    """The RAS files; each has the error counts of one block."""
    index: int
    """Its place among the cards that are there now, as the vendor's own tools number them."""
    pci: str
    """Its PCI address; "" if not known."""
    slot: pcie.Slot


class Amd:
    """Every AMD GPU below a root. Used from one thread."""

    def __init__(self, root: str, prefix: str = "", memory: Optional[BootMemory] = None) -> None:
        self.tree = Tree(root)
        self._prefix = prefix
        self._looked = -_LOOK_AGAIN
        self._names = KeptNames("amd", memory)
        self.cards: list[AmdCard] = []
        self._due: dict[float, float] = {}
        self._failed: dict[float, dict[str, str]] = {}
        self._inventory: dict[str, str] = {}

    def collect(self, reading: Reading, now: float) -> None:
        """Add what is due to the reading; `now` in monotonic seconds."""
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            reading.attempt(AMD_METRICS, self._look)
        for every in (_LOAD, _CARE) if self.cards else ():
            if now >= self._due.get(every, 0.0):
                self._due[every] = now + every - _LOAD / 4
                self._read(reading, every)
            reading.failed.update(self._failed[every])
        if self._inventory:
            reading.inventory = {**reading.inventory, **self._inventory}

    def _read(self, reading: Reading, every: float) -> None:
        part = Reading()
        for card in self.cards:
            self._rows(part, card, every)
            (self._heat if every == _LOAD else self._care)(part, card)
        reading.add(part)
        self._failed[every] = part.failed

    def _look(self) -> None:
        cards = list(_cards(self.tree, self._prefix, self._names))
        if [(c.key, c.path) for c in cards] != [(c.key, c.path) for c in self.cards]:
            self.cards = cards
            self._inventory = _inventory(self.tree, cards)

    def _rows(self, reading: Reading, card: AmdCard, every: float) -> None:
        for metric, names, factor, period in _AMD_ROWS:
            if period == every:
                paths = [f"{card.path}/{n.format(hwmon=card.hwmon)}" for n in names]
                reading.measure(metric, lambda p=paths, f=factor: self._first(p) * f, card.key)

    def _first(self, paths: list[str]) -> int:
        for path in paths[:-1]:
            if self.tree.exists(path):
                return parse_unsigned(self.tree.read(path))
        return parse_unsigned(self.tree.read(paths[-1]))

    def _heat(self, reading: Reading, card: AmdCard) -> None:
        core = card.sensors.get("edge") or card.sensors.get("junction")
        memory = card.sensors.get("mem")
        if core:
            reading.measure("gpu.temp", lambda: _degrees(self.tree, f"{core}_input"), card.key)
        if memory:
            reading.measure(
                "gpu.mem_temp", lambda: _degrees(self.tree, f"{memory}_input"), card.key
            )
        # Each sensor has limits of its own: the one that is nearest to its limit counts.
        chip = [card.sensors[name] for name in ("edge", "junction") if name in card.sensors]
        for metric, sensors in (("gpu.margin", chip), ("gpu.mem_margin", [memory])):
            reading.attempt(
                (metric,), lambda m=metric, s=sensors: _put_margin(reading, m, self.tree, s, card.key),
                card.key,
            )  # fmt: skip

    def _care(self, reading: Reading, card: AmdCard) -> None:
        read = partial(pcie.read_link, reading, self.tree, card.slot, card.key)
        reading.attempt(pcie.METRICS, read, card.key)
        if card.blocks:
            metrics = ("gpu.ecc_corrected", "gpu.ecc_uncorrected")
            reading.attempt(metrics, lambda: self._errors(reading, card), card.key)

    def _errors(self, reading: Reading, card: AmdCard) -> None:
        total = {"ce": 0, "ue": 0}
        for block in card.blocks:
            text = self.tree.read(block)[:256].decode("ascii", "replace")
            found = _COUNT.findall(text)
            if not found:
                raise ValueError(f"{block.rpartition('/')[2]}: not a count of errors")
            for kind, count in found:
                total[kind] += int(count)
        reading.put("gpu.ecc_corrected", total["ce"], card.key)
        reading.put("gpu.ecc_uncorrected", total["ue"], card.key)


def _degrees(tree: Tree, file: str) -> float:
    return round(parse_signed(tree.read(file)) / 1e3, 3)


def _put_margin(
    reading: Reading, metric: str, tree: Tree, sensors: Iterable[Optional[str]], device: str
) -> None:
    """Store how many degrees the nearest of the sensors is below its own
    limit; nothing if none has a limit.
    """
    left: list[float] = []
    for sensor in filter(None, sensors):
        files = [f"{sensor}_{name}" for name in _LIMITS]
        limits = [_degrees(tree, file) for file in files if tree.exists(file)]
        # 0 means that no limit is set.
        known = [limit for limit in limits if 0 < limit < _ABSURD]
        if known:
            left.append(known[0] - _degrees(tree, f"{sensor}_input"))
    if left:
        reading.put(metric, round(min(left), 3), device)


def _cards(tree: Tree, prefix: str, names: KeptNames) -> Iterable[AmdCard]:
    # In the order of PCI addresses, as the vendor's own tools number them.
    ours = [c for c in _card_names(tree) if tree.maybe(f"{_CARDS}/{c}/device/vendor") == _AMD]
    for number, card in enumerate(sorted(ours, key=lambda c: card_place(tree, c))[:_LIMIT]):
        path = f"{_CARDS}/{card}/device"
        pci = card_place(tree, card)[0]
        # What tells a card from all others: its UUID or serial number with its PCI
        # address, or its path.
        made = tree.maybe(f"{path}/unique_id") or tree.maybe(f"{path}/serial_number") or ""
        key = names.name(f"{made} {pci or path}", _numbers(number, prefix))
        hwmon = next(iter(tree.names(f"{path}/hwmon")), "")
        sensors = _sensors(tree, f"{path}/hwmon/{hwmon}") if hwmon else {}
        counts = tree.names(f"{path}/ras")
        blocks = tuple(f"{path}/ras/{n}" for n in counts if n.endswith("_err_count"))
        yield AmdCard(
            key, path, f"hwmon/{hwmon}", sensors, blocks, number, pci, pcie.slot_of(tree, path)
        )


def _numbers(wanted: int, prefix: str) -> Iterable[str]:
    """The names that a new card may get: its number, then all others."""
    return (f"{prefix}{number}" for number in (wanted, *range(16 * _LIMIT)))


def _card_names(tree: Tree) -> list[str]:
    """card0, card1, …: the graphics cards of all vendors."""
    return [n for n in tree.names(_CARDS) if re.fullmatch(r"card\d{1,4}", n)]


def card_place(tree: Tree, card: str) -> tuple[str, int]:
    """(PCI address or "", number) of a card, to sort by."""
    uevent = tree.maybe(f"{_CARDS}/{card}/device/uevent") or ""
    slot = re.search(r"PCI_SLOT_NAME=([0-9a-f:.]+)", uevent)
    return (slot.group(1) if slot else "", int(card[4:]))


def _sensors(tree: Tree, hwmon: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in tree.names(hwmon):
        if re.fullmatch(r"temp\d{1,2}_label", name):
            found[tree.maybe(f"{hwmon}/{name}") or ""] = f"{hwmon}/{name[:-6]}"
    if not found and tree.exists(f"{hwmon}/temp1_input"):
        found["edge"] = f"{hwmon}/temp1"
    return found


def _inventory(tree: Tree, cards: Iterable[AmdCard]) -> dict[str, str]:
    found: dict[str, str] = {}
    for card in cards:
        for what, name in _NAMES:
            text = tree.maybe(f"{card.path}/{name}")
            if text:
                found[f"gpu.{card.key}.{what}"] = clean_text(text)
        found.setdefault(f"gpu.{card.key}.model", "AMD GPU")
        found[f"gpu.{card.key}.index"] = str(card.index)
        if card.pci:
            found[f"gpu.{card.key}.pci"] = card.pci
    return found


_INTEL = "0x8086"
_PERIOD = 2.0
# (metric, factor, files of which the first that exists is read);
# {hwmon}, {device}, {card} are folders.
_INTEL_ROWS: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    ("gpu.temp", 1e-3, ("{hwmon}/temp2_input", "{hwmon}/temp1_input")),  # xe: package; i915
    ("gpu.mem_temp", 1e-3, ("{hwmon}/temp3_input",)),
    ("gpu.power_limit", 1e-6, ("{hwmon}/power1_max", "{hwmon}/power2_max")),
    ("gpu.energy", 1e-6, ("{hwmon}/energy1_input", "{hwmon}/energy2_input")),  # card; package
    ("gpu.clock", 1e6, ("{device}/tile0/gt0/freq0/act_freq", "{card}/gt/gt0/rps_act_freq_mhz")),
    ("gpu.mem_total", 1, ("{device}/tile0/physical_vram_size_bytes", "{card}/lmem_total_bytes")),
)
_IDLE = ("{device}/tile0/gt0/gtidle/idle_residency_ms", "{card}/gt/gt0/rc6_residency_ms")
_THROTTLE = "{device}/tile0/gt0/freq0/throttle"
# Bits as in NVML: power limit, hardware slowdown, hardware thermal.
_REASONS = {"reason_pl1": 0x4, "reason_pl2": 0x4, "reason_pl4": 0x4, "reason_prochot": 0x8,
            "reason_vr_thermalert": 0x40, "reason_thermal": 0x40}  # fmt: skip
INTEL_METRICS = (
    *(row[0] for row in _INTEL_ROWS),
    "gpu.power",
    "gpu.active",
    "gpu.margin",
    "gpu.mem_margin",
    "gpu.throttle_reasons",
    *pcie.METRICS,
)


@dataclass
class IntelCard:
    """One Intel GPU: metric -> (file, factor), and other files."""

    key: str
    files: Mapping[str, tuple[str, float]]
    idle: Optional[str]
    throttle: str
    slot: pcie.Slot
    before: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """Metric computed from two readings -> (when, number) of the last one."""


class Intel:
    """Every discrete Intel GPU below a root. Used from one thread."""

    def __init__(self, root: str, memory: Optional[BootMemory] = None) -> None:
        self.tree = Tree(root)
        self._looked = -_LOOK_AGAIN
        self._due = 0.0
        self._inventory: dict[str, str] = {}
        self._failed: dict[str, str] = {}
        self._names = KeptNames("intel", memory)
        self.cards: list[IntelCard] = []

    def collect(self, reading: Reading, now: float, prefix: str) -> None:
        """Add what is due to the reading; `prefix` distinguishes the device
        numbers from those of other vendors.
        """
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            reading.attempt(INTEL_METRICS, lambda: self._look(prefix))
        if self.cards and now >= self._due:
            self._due = now + _PERIOD * 0.75
            part = Reading()
            for card in self.cards:
                self._read(part, card, now)
            reading.add(part)
            self._failed = part.failed
        reading.failed.update(self._failed)
        if self._inventory:
            reading.inventory = {**reading.inventory, **self._inventory}

    def _look(self, prefix: str) -> None:
        names = [n for n in _card_names(self.tree) if self._discrete(n)]
        names = sorted(names, key=lambda n: card_place(self.tree, n))[:_LIMIT]
        known = {card.key: card for card in self.cards}
        slots = [card_place(self.tree, name)[0] for name in names]
        found = [
            self._card(name, self._names.name(slot or name, _numbers(number, prefix)))
            for number, (name, slot) in enumerate(zip(names, slots))
        ]

        for card in found:
            if card.key in known:
                card.before = known[card.key].before

        self.cards = found
        self._inventory = {}
        for number, (card, name) in enumerate(zip(found, names)):
            self._inventory[f"gpu.{card.key}.index"] = str(number)
            driver = self.tree.link(f"{_CARDS}/{name}/device/driver")
            kind = self.tree.maybe(f"{_CARDS}/{name}/device/device") or ""
            self._inventory[f"gpu.{card.key}.model"] = clean_text(f"Intel GPU {kind}".strip())
            self._inventory[f"gpu.{card.key}.pci"] = card_place(self.tree, name)[0]
            self._inventory[f"gpu.{card.key}.driver"] = clean_text(driver)

    def _discrete(self, name: str) -> bool:
        """Whether it is a discrete GPU: only those have sensors (i915_hwmon.c, xe_hwmon.c)."""
        device = f"{_CARDS}/{name}/device"
        return self.tree.maybe(f"{device}/vendor") == _INTEL and bool(
            self.tree.names(f"{device}/hwmon")
        )

    def _card(self, name: str, key: str) -> IntelCard:
        device = f"{_CARDS}/{name}/device"
        hwmon = f"{device}/hwmon/{self.tree.names(f'{device}/hwmon')[0]}"
        at = {"card": f"{_CARDS}/{name}", "device": device, "hwmon": hwmon}
        files: dict[str, tuple[str, float]] = {}
        for metric, factor, paths in _INTEL_ROWS:
            file = self._first(paths, at)
            if file:
                files[metric] = file, factor
        return IntelCard(
            key,
            files,
            self._first(_IDLE, at),
            _THROTTLE.format(**at),
            pcie.slot_of(self.tree, device),
        )

    def _first(self, paths: tuple[str, ...], at: Mapping[str, str]) -> Optional[str]:
        return next((p.format(**at) for p in paths if self.tree.exists(p.format(**at))), None)

    def _read(self, reading: Reading, card: IntelCard, now: float) -> None:
        for metric, (file, factor) in card.files.items():
            reading.measure(
                metric, lambda f=file, x=factor: parse_signed(self.tree.read(f)) * x, card.key
            )

        energy = reading.values.get("gpu.energy", {}).get(card.key)
        if energy is not None:
            watts = _rate(card, "gpu.power", now, energy)
            if watts is not None:
                reading.put("gpu.power", round(watts, 3), card.key)

        for metric, of in (("gpu.margin", "gpu.temp"), ("gpu.mem_margin", "gpu.mem_temp")):
            if of in card.files:
                sensor = card.files[of][0].rpartition("_")[0]
                reading.attempt(
                    (metric,), lambda m=metric, s=sensor: _put_margin(reading, m, self.tree, [s], card.key),
                    card.key,
                )  # fmt: skip

        link = partial(pcie.read_link, reading, self.tree, card.slot, card.key)
        reading.attempt(pcie.METRICS, link, card.key)
        if card.idle is not None:
            reading.attempt(("gpu.active",), lambda: self._active(reading, card, now), card.key)
        if self.tree.exists(card.throttle):
            reading.measure("gpu.throttle_reasons", lambda: self._reasons(card), card.key)

    def _active(self, reading: Reading, card: IntelCard, now: float) -> None:
        asleep = _rate(
            card, "gpu.active", now, parse_unsigned(self.tree.read(card.idle or "")) / 1e3
        )
        if asleep is not None:
            reading.put("gpu.active", round(100 * min(1.0, max(0.0, 1 - asleep)), 1), card.key)

    def _reasons(self, card: IntelCard) -> int:
        bits = 0
        for name, bit in _REASONS.items():
            if self.tree.maybe(f"{card.throttle}/{name}") == "1":
                bits |= bit
        return bits


def _rate(card: IntelCard, metric: str, now: float, number: float) -> Optional[float]:
    """Growth of a counter per second since the last reading; None
    at the first, or if it was reset.
    """
    before = card.before.get(metric)
    card.before[metric] = now, number
    if before is None or now <= before[0] or number < before[1]:
        return None
    return (number - before[1]) / (now - before[0])


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
        self._looked = -_LOOK_AGAIN
        self._due = 0.0
        self._failed: dict[str, str] = {}
        self._clock = self._heat = ""
        self._rail: Optional[tuple[str, str]] = None
        self._inventory: dict[str, str] = {}
        self.load = ""
        """The file with the GPU's load; "" if this is no Jetson."""

    def look(self, now: float) -> bool:
        """Whether this is a Jetson; looks at most once a minute."""
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            self._find()
        return bool(self.load)

    def collect(self, reading: Reading, now: float) -> None:
        """Add what is due to the reading; `now` in monotonic seconds."""
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
            reading.measure("gpu.temp", lambda: parse_signed(read(self._heat)) / 1e3, _ONLY)
        if self._rail:
            reading.measure("gpu.power", self._watts, _ONLY)
        reading.attempt(("gpu.mem_used", "gpu.mem_total"), lambda: self._memory(reading), _ONLY)

    def _watts(self) -> float:
        volts, amperes = (parse_unsigned(self.tree.read(file)) / 1e3 for file in self._rail or ())
        return round(volts * amperes, 3)

    def _memory(self, reading: Reading) -> None:
        used, total = memory_in_use(self.tree.read("proc/meminfo"))
        reading.put_all({"gpu.mem_used": used, "gpu.mem_total": total}, _ONLY)


class GpuCollector:
    """Load, memory, heat, power and faults of NVIDIA, AMD, Intel and Jetson GPUs."""

    name = "gpu"
    lane = "gpu"
    period = 0.0
    metrics: tuple[str, ...] = tuple(
        dict.fromkeys(
            (*nvidia.METRICS, "gpu.on_bus", *AMD_METRICS, *INTEL_METRICS, *JETSON_METRICS)
        )
    )

    def __init__(self, root: str = "/", memory: Optional[BootMemory] = None) -> None:
        self.doing = ""
        self._root = root
        self._memory = memory or own_memory(root)
        self._tree = Tree(root)
        self._looked = -_LOOK_AGAIN
        self._on_bus = 0
        self._answered: set[str] = set()
        self.released = False
        """Set from another thread: nothing of a GPU may be held open, so nothing is read."""
        self._nvidia: Optional[nvidia.Nvidia] = None
        self._amd = Amd(root, "amd" if nvidia.has_nvidia_driver(root) else "", self._memory)
        self._intel = Intel(root, self._memory)
        self._jetson = Jetson(root)

    def collect(self, now: float) -> Reading:
        if self.released:
            return self._release()
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            # A Jetson has the driver's files, but NVML cannot read its GPU.
            there = nvidia.has_nvidia_driver(self._root) and not self._jetson.look(now)
            if self._nvidia is None and there:
                self._nvidia = nvidia.Nvidia(self._memory)
            there_now = on_bus(self._tree) if self._nvidia else 0
            if self._nvidia and 0 < self._on_bus < there_now:
                self._nvidia.start_again()
            self._on_bus = there_now

        self.doing = "NVML"
        reading = self._nvidia.collect(now) if self._nvidia else Reading()
        if self._on_bus:
            reading.put("gpu.on_bus", self._on_bus)
            _fail_hidden(reading, self._on_bus)
        self.doing = "amdgpu"
        self._amd.collect(reading, now)
        self.doing = "xe, i915"
        others = self._nvidia or self._amd.cards
        self._intel.collect(reading, now, "intel" if others else "")
        self.doing = "Tegra"
        self._jetson.collect(reading, now)

        # Most numbers are not read for every sample: those that were read once are not absent.
        self._answered.update(reading.values)
        here = others or self._intel.cards or self._jetson.load
        if not here:
            # The last one has gone: nothing more of it is awaited.
            self._answered.clear()
        reading.pending |= self._answered - reading.values.keys()
        # Without a GPU, do not wake a thread for every sample.
        self.period = 0.0 if here else _LOOK_AGAIN
        self.doing = ""
        return reading

    def _release(self) -> Reading:
        """Close all that is open of the GPUs; what was read before is not known meanwhile."""
        if self._nvidia:
            self._nvidia.start_again()
        for tree in (self._tree, self._amd.tree, self._intel.tree, self._jetson.tree):
            tree.close()
        reading = Reading()
        reading.failed = dict.fromkeys(sorted(self._answered - {"gpu.answer"}), STOPPED)
        return reading

    def close(self) -> None:
        """End the process that talks to NVML."""
        if self._nvidia:
            self._nvidia.close()


_HIDDEN = (
    "the driver has {} on the PCI bus and lists none to this process: may it open /dev/nvidia0 "
    "(permissions, the device cgroup of a job or container)?"
)


def _fail_hidden(reading: Reading, there: int) -> None:
    """Mark all metrics as failed if the driver answers but lists no GPU: what
    may not be seen is not known to be well.
    """
    answered = "gpu.driver" in reading.inventory
    listed = {"gpu.lost", "gpu.used"} & {*reading.values, *reading.pending, *reading.failed}
    if answered and not listed:
        why = _HIDDEN.format("1 GPU" if there == 1 else f"{there} GPUs")
        reading.failed.update(dict.fromkeys(sorted({*nvidia.METRICS} - {"gpu.answer"}), why))


_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_DRIVERS_GPUS = ("proc/driver/nvidia/gpus", "sys/bus/pci/drivers/nvidia")
"""Folders with an entry per GPU; in a container the first has only the container's own."""


def on_bus(tree: Tree) -> int:
    """How many GPUs the NVIDIA driver has on the PCI bus; 0 if not known."""
    for folder in _DRIVERS_GPUS:
        with contextlib.suppress(OSError):
            found = [name for name in tree.names(folder) if _ADDRESS.fullmatch(name)]
            if found:
                return len(found)
    return 0


_COMMAND_LIMIT = 200


def main() -> int:
    """`gpu-processes`: print a JSON object per process: gpu, instance (MIG),
    pid, bytes, use (percent), user, command.

    Returns the exit code.
    """
    if not nvidia.has_nvidia_driver("/"):
        return print_complaint("rankdeck-agent: no NVIDIA driver on this machine", 2)
    try:
        found = nvidia.list_gpu_programs()
    except (OSError, ValueError) as error:
        return print_complaint(f"rankdeck-agent: {failure_reason(error)}", 1)
    for row in found:
        print(json.dumps({**row, **_who(int(row["pid"]))}))
    return 0


def _who(pid: int) -> dict[str, Any]:
    """User and command of a process; both None if it has ended or belongs to somebody else."""
    folder = Path("/proc") / str(pid)
    try:
        words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").strip()
        command = clean_text(words.decode("utf-8", "replace"), _COMMAND_LIMIT)
        return {"user": user_name(folder.stat().st_uid), "command": command}
    except OSError:
        return {"user": None, "command": None}
