"""AMD GPUs, from /sys (amdgpu)."""

import re
from collections.abc import Iterable
from functools import partial
from typing import Optional

from rankdeck_agent.collectors import pcie
from rankdeck_agent.collectors.base import BootMemory, KeptNames, Reading, parse_unsigned
from rankdeck_agent.collectors.gpu_cards import (
    CARDS,
    LOOK_AGAIN,
    MOST_CARDS,
    card_place,
    list_card_names,
    list_free_names,
    put_heat_margin,
    read_degrees,
)
from rankdeck_agent.system_files import Tree
from rankdeck_agent.text import clean_text
from rankdeck_agent.values import Record

_AMD = "0x1002"
_LOAD, _CARE = 2.0, 30.0
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


class AmdCard(Record):
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
        self._looked = -LOOK_AGAIN
        self._names = KeptNames("amd", memory)
        self.cards: list[AmdCard] = []
        self._due: dict[float, float] = {}
        self._failed: dict[float, dict[str, str]] = {}
        self._inventory: dict[str, str] = {}

    def collect(self, reading: Reading, now: float) -> None:
        """Add what is due to the reading; `now` in monotonic seconds."""
        if now - self._looked >= LOOK_AGAIN:
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
            if self.tree.maybe(f"{card.path}/power/runtime_status") == "suspended":
                # Reading would wake it up, or is refused; what sleeps does nothing.
                part.put("gpu.used", 0, card.key)
                continue
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
            reading.measure("gpu.temp", lambda: read_degrees(self.tree, f"{core}_input"), card.key)
        if memory:
            reading.measure(
                "gpu.mem_temp", lambda: read_degrees(self.tree, f"{memory}_input"), card.key
            )
        # Each sensor has limits of its own: the one that is nearest to its limit counts.
        chip = [card.sensors[name] for name in ("edge", "junction") if name in card.sensors]
        for metric, sensors in (("gpu.margin", chip), ("gpu.mem_margin", [memory])):
            reading.attempt(
                (metric,),
                lambda m=metric, s=sensors: put_heat_margin(reading, m, self.tree, s, card.key),
                card.key,
            )

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


def _cards(tree: Tree, prefix: str, names: KeptNames) -> Iterable[AmdCard]:
    # In the order of PCI addresses, as the vendor's own tools number them.
    ours = [c for c in list_card_names(tree) if tree.maybe(f"{CARDS}/{c}/device/vendor") == _AMD]
    for number, card in enumerate(sorted(ours, key=lambda c: card_place(tree, c))[:MOST_CARDS]):
        path = f"{CARDS}/{card}/device"
        pci = card_place(tree, card)[0]
        # What tells a card from all others: its UUID or serial number with its PCI
        # address, or its path.
        made = tree.maybe(f"{path}/unique_id") or tree.maybe(f"{path}/serial_number") or ""
        key = names.name(f"{made} {pci or path}", list_free_names(number, prefix))
        hwmon = next(iter(tree.names(f"{path}/hwmon")), "")
        sensors = _sensors(tree, f"{path}/hwmon/{hwmon}") if hwmon else {}
        counts = tree.names(f"{path}/ras")
        blocks = tuple(f"{path}/ras/{n}" for n in counts if n.endswith("_err_count"))
        yield AmdCard(
            key, path, f"hwmon/{hwmon}", sensors, blocks, number, pci, pcie.slot_of(tree, path)
        )


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
