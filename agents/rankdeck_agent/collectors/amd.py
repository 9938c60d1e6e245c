"""AMD GPUs, from what the amdgpu driver shows under /sys; no library."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from rankdeck_agent.collectors.base import Reading, whole
from rankdeck_agent.files import Tree, clean

BASE = "sys/class/drm"
_VENDOR = "0x1002"
_LOOK_AGAIN = 60.0
_LIMIT = 64
_LOAD, _CARE = 2.0, 30.0
_GENERATIONS = {
    "2.5": 1,
    "5.0": 2,
    "5": 2,
    "8.0": 3,
    "8": 3,
    "16.0": 4,
    "16": 4,
    "32.0": 5,
    "32": 5,
    "64.0": 6,
    "64": 6,
}
_COUNT = re.compile(r"^(ue|ce):\s*(\d{1,20})\s*$", re.MULTILINE)

# Metric, file, factor, seconds between two readings; of several files the first that is there.
_ROWS: tuple[tuple[str, tuple[str, ...], float, float], ...] = (
    ("gpu.used", ("gpu_busy_percent",), 1, _LOAD),
    ("gpu.mem_used", ("mem_info_vram_used",), 1, _LOAD),
    ("gpu.mem_total", ("mem_info_vram_total",), 1, _CARE),
    ("gpu.power", ("{hwmon}/power1_average", "{hwmon}/power1_input"), 1e-6, _LOAD),
    ("gpu.power_limit", ("{hwmon}/power1_cap",), 1e-6, _CARE),
    ("gpu.energy", ("{hwmon}/energy1_input",), 1e-6, _CARE),
    ("gpu.clock", ("{hwmon}/freq1_input",), 1, _LOAD),
    ("gpu.clock_mem", ("{hwmon}/freq2_input",), 1, _LOAD),
    ("gpu.pcie_width", ("current_link_width",), 1, _CARE),
    ("gpu.pcie_width_max", ("max_link_width",), 1, _CARE),
    ("gpu.pcie_replays", ("pcie_replay_count",), 1, _CARE),
)
_SPEEDS = (("gpu.pcie_gen", "current_link_speed"), ("gpu.pcie_gen_max", "max_link_speed"))
_NAMES = (
    ("model", "product_name"),
    ("uuid", "unique_id"),
    ("serial", "serial_number"),
    ("vbios", "vbios_version"),
)
METRICS: tuple[str, ...] = (
    *(row[0] for row in _ROWS),
    *(row[0] for row in _SPEEDS),
    "gpu.temp",
    "gpu.margin",
    "gpu.mem_temp",
    "gpu.ecc_corrected",
    "gpu.ecc_uncorrected",
)


@dataclass
class AmdCard:
    """One GPU and when its files were read."""

    key: str
    path: str
    hwmon: str
    sensors: dict[str, str]
    """Label (edge, junction, mem) -> start of the file names."""
    blocks: tuple[str, ...]
    """The RAS files, each with the errors of one block."""


class Amd:
    """Every AMD GPU below a root."""

    def __init__(self, root: str, prefix: str = "") -> None:
        self._tree = Tree(root)
        self._prefix = prefix
        self._looked = -_LOOK_AGAIN
        self.cards: list[AmdCard] = []
        self._due: dict[float, float] = {}
        self._failed: dict[float, dict[str, str]] = {}
        self._inventory: dict[str, str] = {}

    def collect(self, reading: Reading, now: float) -> None:
        """Add what is due now to the reading."""
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            reading.attempt(METRICS, self._look)
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
        cards = list(_cards(self._tree, self._prefix))
        if [c.path for c in cards] != [c.path for c in self.cards]:
            self.cards = cards
            self._inventory = _inventory(self._tree, cards)

    def _rows(self, reading: Reading, card: AmdCard, every: float) -> None:
        for metric, names, factor, period in _ROWS:
            if period == every:
                paths = [f"{card.path}/{n.format(hwmon=card.hwmon)}" for n in names]
                reading.attempt(
                    (metric,),
                    lambda m=metric, p=paths, f=factor: reading.put(
                        m, self._first(p) * f, card.key
                    ),
                    card.key,
                )

    def _first(self, paths: list[str]) -> int:
        for path in paths[:-1]:
            if self._tree.exists(path):
                return whole(self._tree.read(path))
        return whole(self._tree.read(paths[-1]))

    def _heat(self, reading: Reading, card: AmdCard) -> None:
        core = card.sensors.get("edge") or card.sensors.get("junction")
        if core:
            self._degrees(reading, card, "gpu.temp", core, "input")
            self._degrees(reading, card, "gpu.margin", core, "crit")
        memory = card.sensors.get("mem")
        if memory:
            self._degrees(reading, card, "gpu.mem_temp", memory, "input")

    def _degrees(
        self, reading: Reading, card: AmdCard, metric: str, sensor: str, file: str
    ) -> None:
        def read() -> None:
            degrees = whole(self._tree.read(f"{sensor}_{file}")) / 1e3
            if metric == "gpu.margin":
                if not degrees:
                    # No limit is set, which is not one of 0 °C.
                    return
                degrees -= whole(self._tree.read(f"{sensor}_input")) / 1e3
            reading.put(metric, round(degrees, 3), card.key)

        reading.attempt((metric,), read, card.key)

    def _care(self, reading: Reading, card: AmdCard) -> None:
        for metric, name in _SPEEDS:
            reading.attempt((metric,), partial(self._speed, reading, card, metric, name), card.key)
        if card.blocks:
            metrics = ("gpu.ecc_corrected", "gpu.ecc_uncorrected")
            reading.attempt(metrics, lambda: self._errors(reading, card), card.key)

    def _speed(self, reading: Reading, card: AmdCard, metric: str, name: str) -> None:
        text = self._tree.text(f"{card.path}/{name}")
        # What the kernel says in virtual machines, where no link is to be seen.
        if not text.startswith("Unknown"):
            reading.put(metric, generation(text), card.key)

    def _errors(self, reading: Reading, card: AmdCard) -> None:
        total = {"ce": 0, "ue": 0}
        for block in card.blocks:
            text = self._tree.read(block)[:256].decode("ascii", "replace")
            found = _COUNT.findall(text)
            if not found:
                raise ValueError(f"{block.rpartition('/')[2]}: not a count of errors")
            for kind, count in found:
                total[kind] += int(count)
        reading.put("gpu.ecc_corrected", total["ce"], card.key)
        reading.put("gpu.ecc_uncorrected", total["ue"], card.key)


def generation(speed: str) -> int:
    """The PCIe generation in "16.0 GT/s PCIe"; raises ValueError."""
    found = _GENERATIONS.get(speed.partition(" ")[0])
    if found is None:
        raise ValueError(f"not a PCIe speed: {clean(speed, 40)!r}")
    return found


def _cards(tree: Tree, prefix: str) -> Iterable[AmdCard]:
    # By their place on the bus, as the vendor's own tools number them.
    ours = [c for c in card_names(tree) if tree.maybe(f"{BASE}/{c}/device/vendor") == _VENDOR]
    for number, card in enumerate(sorted(ours, key=lambda c: place(tree, c))[:_LIMIT]):
        path = f"{BASE}/{card}/device"
        hwmon = next(iter(tree.names(f"{path}/hwmon")), "")
        sensors = _sensors(tree, f"{path}/hwmon/{hwmon}") if hwmon else {}
        names = tree.names(f"{path}/ras")
        blocks = tuple(f"{path}/ras/{n}" for n in names if n.endswith("_err_count"))
        yield AmdCard(f"{prefix}{number}", path, f"hwmon/{hwmon}", sensors, blocks)


def card_names(tree: Tree) -> list[str]:
    """card0, card1 …: the graphics cards of every make."""
    return [n for n in tree.names(BASE) if re.fullmatch(r"card\d{1,4}", n)]


def place(tree: Tree, card: str) -> tuple[str, int]:
    """Its PCI address, "" if it has none, and its number."""
    uevent = tree.maybe(f"{BASE}/{card}/device/uevent") or ""
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
                found[f"gpu.{card.key}.{what}"] = clean(text)
        found.setdefault(f"gpu.{card.key}.model", "AMD GPU")
    return found
