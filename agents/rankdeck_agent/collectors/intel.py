"""Intel's discrete GPUs, from what the drivers xe and i915 show under /sys; no library.

Files: linux Documentation/ABI/testing/sysfs-driver-intel-{xe,i915}-hwmon, drivers/gpu/drm/xe/xe_gt_{freq,idle,throttle}.c,
drivers/gpu/drm/i915/gt/intel_gt_sysfs_pm.c. How busy they are is said by how long they were not asleep.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from rankdeck_agent.collectors.amd import BASE, card_names, place
from rankdeck_agent.collectors.base import Reading, signed, whole
from rankdeck_agent.files import Tree, clean

_VENDOR = "0x8086"
_LOOK_AGAIN, _PERIOD = 60.0, 2.0
_LIMIT = 64
# Metric, factor, files of which the first that is there is read; {hwmon}, {device}, {card} are folders.
_ROWS: tuple[tuple[str, float, tuple[str, ...]], ...] = (
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
METRICS = (*(row[0] for row in _ROWS), "gpu.power", "gpu.active", "gpu.throttle_reasons")


@dataclass
class IntelCard:
    """One GPU: which file is read for what."""

    key: str
    files: Mapping[str, tuple[str, float]]
    idle: Optional[str]
    throttle: str
    before: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """Metric that is made of two readings -> when, number."""


class Intel:
    """Every discrete Intel GPU below a root. Used from one thread."""

    def __init__(self, root: str) -> None:
        self._tree = Tree(root)
        self._looked = -_LOOK_AGAIN
        self._due = 0.0
        self._inventory: dict[str, str] = {}
        self._failed: dict[str, str] = {}
        self.cards: list[IntelCard] = []

    def collect(self, reading: Reading, now: float, prefix: str) -> None:
        """Add what is due now to the reading; `prefix` keeps the numbers apart from those of other makes."""
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            reading.attempt(METRICS, lambda: self._look(prefix))
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
        names = [n for n in card_names(self._tree) if self._discrete(n)]
        names = sorted(names, key=lambda n: place(self._tree, n))[:_LIMIT]
        known = {card.key: card for card in self.cards}
        found = [self._card(name, f"{prefix}{number}") for number, name in enumerate(names)]
        for card in found:
            if card.key in known:
                card.before = known[card.key].before
        self.cards = found
        self._inventory = {}
        for card, name in zip(found, names):
            driver = self._tree.link(f"{BASE}/{name}/device/driver")
            number = self._tree.maybe(f"{BASE}/{name}/device/device") or ""
            self._inventory[f"gpu.{card.key}.model"] = clean(f"Intel GPU {number}".strip())
            self._inventory[f"gpu.{card.key}.pci"] = place(self._tree, name)[0]
            self._inventory[f"gpu.{card.key}.driver"] = clean(driver)

    def _discrete(self, name: str) -> bool:
        """Whether it is a card of its own: only those have sensors (i915_hwmon.c, xe_hwmon.c)."""
        device = f"{BASE}/{name}/device"
        return self._tree.maybe(f"{device}/vendor") == _VENDOR and bool(
            self._tree.names(f"{device}/hwmon")
        )

    def _card(self, name: str, key: str) -> IntelCard:
        device = f"{BASE}/{name}/device"
        hwmon = f"{device}/hwmon/{self._tree.names(f'{device}/hwmon')[0]}"
        at = {"card": f"{BASE}/{name}", "device": device, "hwmon": hwmon}
        files: dict[str, tuple[str, float]] = {}
        for metric, factor, paths in _ROWS:
            if file := self._first(paths, at):
                files[metric] = file, factor
        return IntelCard(key, files, self._first(_IDLE, at), _THROTTLE.format(**at))

    def _first(self, paths: tuple[str, ...], at: Mapping[str, str]) -> Optional[str]:
        return next((p.format(**at) for p in paths if self._tree.exists(p.format(**at))), None)

    def _read(self, reading: Reading, card: IntelCard, now: float) -> None:
        for metric, (file, factor) in card.files.items():
            reading.attempt(
                (metric,),
                lambda m=metric, f=file, x=factor: reading.put(
                    m, signed(self._tree.read(f)) * x, card.key
                ),
                card.key,
            )
        energy = reading.values.get("gpu.energy", {}).get(card.key)
        if energy is not None:
            watts = _rate(card, "gpu.power", now, energy)
            if watts is not None:
                reading.put("gpu.power", round(watts, 3), card.key)
        if card.idle is not None:
            reading.attempt(("gpu.active",), lambda: self._active(reading, card, now), card.key)
        if self._tree.exists(card.throttle):
            metrics = ("gpu.throttle_reasons",)
            reading.attempt(metrics, lambda: self._reasons(reading, card), card.key)

    def _active(self, reading: Reading, card: IntelCard, now: float) -> None:
        asleep = _rate(card, "gpu.active", now, whole(self._tree.read(card.idle or "")) / 1e3)
        if asleep is not None:
            reading.put("gpu.active", round(100 * min(1.0, max(0.0, 1 - asleep)), 1), card.key)

    def _reasons(self, reading: Reading, card: IntelCard) -> None:
        bits = 0
        for name, bit in _REASONS.items():
            if self._tree.maybe(f"{card.throttle}/{name}") == "1":
                bits |= bit
        reading.put("gpu.throttle_reasons", bits, card.key)


def _rate(card: IntelCard, metric: str, now: float, number: float) -> Optional[float]:
    """How fast a counter grew since the reading before; None at the first, and where it was cleared."""
    before = card.before.get(metric)
    card.before[metric] = now, number
    if before is None or now <= before[0] or number < before[1]:
        return None
    return (number - before[1]) / (now - before[0])
