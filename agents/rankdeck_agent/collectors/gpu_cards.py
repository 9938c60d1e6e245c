"""Graphics cards of all vendors in /sys: their names, order and sensors."""

import re
from collections.abc import Iterable
from typing import Optional

from rankdeck_agent.collectors.base import Reading, parse_signed
from rankdeck_agent.system_files import Tree

CARDS = "sys/class/drm"
LOOK_AGAIN = 60.0
MOST_CARDS = 64
_ABSURD = 200
"""Degrees from which on a limit is none."""
_LIMITS = ("crit", "emergency")
"""Ends of the files with a sensor's limits; the first that is set counts."""
PERIOD = 2.0


def read_degrees(tree: Tree, file: str) -> float:
    """The temperature in a file of hwmon, in degrees Celsius; raises OSError, ValueError."""
    return round(parse_signed(tree.read(file)) / 1e3, 3)


def put_heat_margin(
    reading: Reading, metric: str, tree: Tree, sensors: Iterable[Optional[str]], device: str
) -> None:
    """Store how many degrees the nearest of the sensors is below its own
    limit; nothing if none has a limit.
    """
    left: list[float] = []
    for sensor in filter(None, sensors):
        files = [f"{sensor}_{name}" for name in _LIMITS]
        limits = [read_degrees(tree, file) for file in files if tree.exists(file)]
        # 0 means that no limit is set.
        known = [limit for limit in limits if 0 < limit < _ABSURD]
        if known:
            left.append(known[0] - read_degrees(tree, f"{sensor}_input"))
    if left:
        reading.put(metric, round(min(left), 3), device)


def list_free_names(wanted: int, prefix: str) -> Iterable[str]:
    """The names that a new card may get: its number, then all others."""
    return (f"{prefix}{number}" for number in (wanted, *range(16 * MOST_CARDS)))


def list_card_names(tree: Tree) -> list[str]:
    """card0, card1, …: the graphics cards of all vendors."""
    return [n for n in tree.names(CARDS) if re.fullmatch(r"card\d{1,4}", n)]


def card_place(tree: Tree, card: str) -> tuple[str, int]:
    """(PCI address or "", number) of a card, to sort by."""
    uevent = tree.maybe(f"{CARDS}/{card}/device/uevent") or ""
    slot = re.search(r"PCI_SLOT_NAME=([0-9a-f:.]+)", uevent)
    return (slot.group(1) if slot else "", int(card[4:]))
