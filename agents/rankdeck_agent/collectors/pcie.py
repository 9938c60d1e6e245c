"""The PCIe link of a device below /sys: the one in its slot, not
that of a switch on the card itself.
"""

import os
import re
from typing import Optional

from rankdeck_agent.collectors.base import Reading, parse_unsigned
from rankdeck_agent.kernel_lines import LinkLimit
from rankdeck_agent.older_python import without_suffix
from rankdeck_agent.system_files import Tree
from rankdeck_agent.text import clean_text
from rankdeck_agent.values import Value

METRICS = ("gpu.pcie_gen", "gpu.pcie_gen_max", "gpu.pcie_width", "gpu.pcie_width_max")
WIDTHS = frozenset({1, 2, 4, 8, 12, 16, 32})
"""Numbers of lanes that a link can have; virtual functions say 0,
devices that are gone 63 or 255.
"""
_GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}
"""Gigatransfers per second -> PCIe generation."""
PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_BRIDGE = "0x0604"
"""Start of the class of a PCI bridge: a root port, or a port of a switch."""
_DEEPEST = 8


class Slot(Value):
    """Folders of the two ends of the link to a card; `port` is "" if the kernel
    does not show it, as in a virtual machine.
    """

    card: str
    port: str


def slot_of(tree: Tree, device: str) -> Slot:
    """The slot of the card that a device belongs to; `device` is a
    folder below the root or a link to one.
    """
    root = os.path.realpath(tree.root).rstrip("/")
    here = os.path.realpath(tree.path(device))
    vendor = tree.maybe(f"{device}/vendor")
    for _ in range(_DEEPEST):
        above = _parent(here)
        # The ports of a switch on the card are bridges of the same vendor; a root
        # port, which may be too, has no device above.
        ours = above and tree.maybe(f"{above[len(root) :]}/vendor") == vendor
        bridge = (tree.maybe(f"{above[len(root) :]}/class") or "").startswith(_BRIDGE)
        if not (ours and bridge and _parent(above)):
            break
        here = above
    return Slot(here[len(root) :], _parent(here)[len(root) :])


def _parent(folder: str) -> str:
    """The folder of the PCI device above this one; "" if there is none."""
    above = os.path.dirname(folder)  # noqa: PTH120  plain text, as the paths of Tree
    return above if PCI_ADDRESS.fullmatch(os.path.basename(above)) else ""  # noqa: PTH119


def read_link(reading: Reading, tree: Tree, slot: Slot, device: str) -> None:
    """Add METRICS of `device`, without those of a link that the kernel does not know.

    Raises OSError, ValueError.
    """
    width = parse_unsigned(tree.read(f"{slot.card}/current_link_width"))
    if width not in WIDTHS:
        return
    widths = [_lanes(tree, end) for end in (slot.card, slot.port)]
    reading.put("gpu.pcie_width", width, device)
    reading.put("gpu.pcie_width_max", min(w for w in (*widths, max(WIDTHS)) if w), device)
    now = _speed(tree, slot.card, "current_link_speed")
    most = [_speed(tree, end, "max_link_speed") for end in (slot.card, slot.port)]
    if now is not None and most[0] is not None:
        reading.put("gpu.pcie_gen", now, device)
        reading.put("gpu.pcie_gen_max", min(m for m in most if m), device)


def _lanes(tree: Tree, end: str) -> int:
    """The most lanes of one end of a link; 0 if not known."""
    text = tree.maybe(f"{end}/max_link_width") if end else None
    lanes = parse_unsigned(text.encode()) if text else 0
    return lanes if lanes in WIDTHS else 0


def _speed(tree: Tree, end: str, file: str) -> Optional[int]:
    """The generation of one end of a link; None if the kernel does not
    know it, as in a virtual machine.
    """
    text = tree.maybe(f"{end}/{file}") if end else None
    return None if text is None or text.startswith("Unknown") else pcie_generation(text)


def pcie_generation(speed: str) -> int:
    """The PCIe generation in "16.0 GT/s PCIe"; raises ValueError."""
    found = _GENERATIONS.get(without_suffix(speed.partition(" ")[0], ".0"))
    if found is None:
        raise ValueError(f"not a PCIe speed: {clean_text(speed, 40)!r}")
    return found


def is_as_built(tree: Tree, limit: LinkLimit) -> bool:
    """Whether the link that limits a device is as wide and fast as both its ends can be:
    the board has no more, and nothing is loose. Raises OSError, ValueError.
    """
    root = os.path.realpath(tree.root).rstrip("/")
    here = os.path.realpath(tree.path(f"sys/bus/pci/devices/{limit.device}"))[len(root) :]
    parts = here.split("/")
    if limit.at not in parts:
        return False
    place = parts.index(limit.at)
    # The link of a root port is the one below it, of all others the one above.
    upper = place - 1 if PCI_ADDRESS.fullmatch(parts[place - 1]) else place
    ends = ["/".join(parts[: end + 1]) for end in (upper, upper + 1) if end < len(parts)]
    widths = [_lanes(tree, end) for end in ends]
    speeds = [speed for speed in (_speed(tree, end, "max_link_speed") for end in ends) if speed]
    if len(speeds) < 2 or not all(widths):
        return False
    return limit.width >= min(widths) and pcie_generation(limit.speed) >= min(speeds)
