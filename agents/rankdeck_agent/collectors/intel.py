"""Intel GPUs, from /sys (xe and i915).

Linux Documentation/ABI/testing/sysfs-driver-intel-{xe,i915}-hwmon,
drivers/gpu/drm/xe/xe_gt_{freq,idle,throttle}.c, drivers/gpu/drm/i915/gt/intel_gt_sysfs_pm.c. Usage
is computed from the time that the GPU was not asleep.
"""

from collections.abc import Mapping
from functools import partial
from typing import Optional

from rankdeck_agent.collectors import pcie
from rankdeck_agent.collectors.base import (
    BootMemory,
    KeptNames,
    Reading,
    parse_signed,
    parse_unsigned,
)
from rankdeck_agent.collectors.gpu_cards import (
    CARDS,
    LOOK_AGAIN,
    MOST_CARDS,
    PERIOD,
    card_place,
    list_card_names,
    list_free_names,
    put_heat_margin,
)
from rankdeck_agent.system_files import Tree
from rankdeck_agent.text import clean_text
from rankdeck_agent.values import Record, field

_INTEL = "0x8086"
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


class IntelCard(Record):
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
        self._looked = -LOOK_AGAIN
        self._due = 0.0
        self._inventory: dict[str, str] = {}
        self._failed: dict[str, str] = {}
        self._names = KeptNames("intel", memory)
        self.cards: list[IntelCard] = []

    def collect(self, reading: Reading, now: float, prefix: str) -> None:
        """Add what is due to the reading; `prefix` distinguishes the device
        numbers from those of other vendors.
        """
        if now - self._looked >= LOOK_AGAIN:
            self._looked = now
            reading.attempt(INTEL_METRICS, lambda: self._look(prefix))
        if self.cards and now >= self._due:
            self._due = now + PERIOD * 0.75
            part = Reading()
            for card in self.cards:
                self._read(part, card, now)
            reading.add(part)
            self._failed = part.failed
        reading.failed.update(self._failed)
        if self._inventory:
            reading.inventory = {**reading.inventory, **self._inventory}

    def _look(self, prefix: str) -> None:
        names = [n for n in list_card_names(self.tree) if self._discrete(n)]
        names = sorted(names, key=lambda n: card_place(self.tree, n))[:MOST_CARDS]
        known = {card.key: card for card in self.cards}
        slots = [card_place(self.tree, name)[0] for name in names]
        found = [
            self._card(name, self._names.name(slot or name, list_free_names(number, prefix)))
            for number, (name, slot) in enumerate(zip(names, slots))
        ]

        for card in found:
            if card.key in known:
                card.before = known[card.key].before

        self.cards = found
        self._inventory = {}
        for number, (card, name) in enumerate(zip(found, names)):
            self._inventory[f"gpu.{card.key}.index"] = str(number)
            driver = self.tree.link(f"{CARDS}/{name}/device/driver")
            kind = self.tree.maybe(f"{CARDS}/{name}/device/device") or ""
            self._inventory[f"gpu.{card.key}.model"] = clean_text(f"Intel GPU {kind}".strip())
            self._inventory[f"gpu.{card.key}.pci"] = card_place(self.tree, name)[0]
            self._inventory[f"gpu.{card.key}.driver"] = clean_text(driver)

    def _discrete(self, name: str) -> bool:
        """Whether it is a discrete GPU: only those have sensors (i915_hwmon.c, xe_hwmon.c)."""
        device = f"{CARDS}/{name}/device"
        return self.tree.maybe(f"{device}/vendor") == _INTEL and bool(
            self.tree.names(f"{device}/hwmon")
        )

    def _card(self, name: str, key: str) -> IntelCard:
        device = f"{CARDS}/{name}/device"
        hwmon = f"{device}/hwmon/{self.tree.names(f'{device}/hwmon')[0]}"
        at = {"card": f"{CARDS}/{name}", "device": device, "hwmon": hwmon}
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
                    (metric,),
                    lambda m=metric, s=sensor: put_heat_margin(
                        reading, m, self.tree, [s], card.key
                    ),
                    card.key,
                )

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
