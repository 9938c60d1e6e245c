"""Derives numbers from a sample and the expectations; the table judges them like any other."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Union

from rankdeck_agent.rules.facts import Facts, Number
from rankdeck_agent.rules.units import duration, written

RECOVERY = {
    1: (2, "a reset"),
    2: (2, "a reboot of the node"),
    3: (1, "its peer traffic to be drained"),
    4: (2, "a drain and a reset"),
}
"""NVML's recovery action -> how bad, and in words."""
FABRIC_FAULTS = (
    (0, 3, {1}, 1, "it runs at reduced bandwidth"),
    (2, 3, {1}, 1, "routes are being recovered"),
    (4, 3, {1}, 2, "a route is unhealthy"),
    (6, 3, {1}, 1, "it recovers from an access timeout"),
    (8, 15, {2, 3, 4, 5, 6, 7, 8}, 2, "its configuration is incorrect"),
)
"""NVML's mask of the health of the fabric: shift, width, values that are faults, how bad, in words."""
_BRIDGED = re.compile(r"PCI|\bNVL\b|RTX|Quadro|TITAN|GeForce|\bA[1-4]0\b", re.IGNORECASE)
"""In the names of boards whose NVLinks end in connectors for bridges."""
_BRAKE, _HEAT_OR_POWER = 0x80, 0x48
_HELD = (
    (_BRAKE, "gpu.throttle_brake", "gpu.brake_now"),
    (_HEAT_OR_POWER, "gpu.throttle_thermal", "gpu.slowed_now"),
)
"""Bits of NVML's clock event reasons, the counter that tells more, the derived number."""
DISABLED, LINK_UP = 3, 5
"""Physical states of an RDMA port."""
PEERS, SHARE = 3, 0.75
"""Devices of one machine that must agree, and their share, before another counts as odd."""
GPUS = ("gpu.mem_total", "gpu.used")
SPEEDS = {
    "rdma_rate_gbps": ("rdma.rate", "rdma.up", "rdma.slow"),
    "net_speed_gbps": ("net.speed", "net.up", "net.slow"),
}
_COUNTED = (
    ("gpu_count", "gpu.missing", "GPU", GPUS),
    ("rdma_count", "rdma.missing", "RDMA port", ("rdma.up",)),
)
COUNTS = frozenset({"gpu_count", "rdma_count"})
"""Keys of `expect:` that say what `gpus:` and `rdma:` of a node say."""


@dataclass
class Derived:
    """Numbers by metric and device, and words for the sentences about them."""

    values: dict[str, dict[str, Number]] = field(default_factory=dict[str, dict[str, Number]])
    notes: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def put(self, metric: str, device: str, number: Number, note: str = "") -> None:
        self.values.setdefault(metric, {})[device] = number
        if note:
            self.notes[metric, device] = note


def derive(facts: Facts) -> Derived:
    """What follows from this sample."""
    found = Derived()
    _recovery(facts, found)
    _fabric(facts, found)
    _nvlinks(facts, found)
    _held_down(facts, found)
    _counts(facts, found)
    _links(facts, found)
    if links := facts.values.get("rdma.up"):
        _odd_ports(links, facts, found)
        _odd_rates(links, facts, found)
    _clock(facts, found)
    for key, value in facts.expected.other.items():
        _as_told(key, value, facts, found)
    return found


def wanted(facts: Facts, key: str) -> int:
    """How many GPUs ("gpu_count") or RDMA ports ("rdma_count") the node should have."""
    told = facts.expected.gpus if key == "gpu_count" else facts.expected.rdma
    other = facts.expected.other.get(key, 0)
    return told or (other if isinstance(other, int) else 0)


def _recovery(facts: Facts, found: Derived) -> None:
    for device, action in facts.values.get("gpu.recovery", {}).items():
        if action:
            bad, note = RECOVERY.get(int(action), (2, f"recovery action {action:g}"))
            found.put("gpu.action", device, bad, note)


def _fabric(facts: Facts, found: Derived) -> None:
    for device, mask in facts.values.get("gpu.fabric_health", {}).items():
        faults = [fault for fault in FABRIC_FAULTS if int(mask) >> fault[0] & fault[1] in fault[2]]
        if faults:
            note = ", ".join(fault[4] for fault in faults)
            found.put("gpu.fabric_fault", device, max(fault[3] for fault in faults), note)


def _nvlinks(facts: Facts, found: Derived) -> None:
    """NVLinks that do not work: a card in a PCIe slot has them only over bridges, which nobody need have."""
    every = facts.values.get("gpu.nvlinks", {})
    for device, active in facts.values.get("gpu.nvlinks_active", {}).items():
        bridged = _BRIDGED.search(facts.inventory.get(f"gpu.{device}.model", ""))
        if device in every and not bridged:
            note = f"{active:g} of {every[device]:g}"
            found.put("gpu.nvlinks_down", device, max(0, every[device] - active), note)


def _held_down(facts: Facts, found: Derived) -> None:
    """What holds clocks down now, where the driver does not count for how long."""
    for device, bits in facts.values.get("gpu.throttle_reasons", {}).items():
        for mask, counter, derived in _HELD:
            if int(bits) & mask and device not in facts.values.get(counter, {}):
                found.put(derived, device, 1)
                break


def _counts(facts: Facts, found: Derived) -> None:
    """Fewer devices than there should be; unread is not missing."""
    for key, metric, what, seen_by in _COUNTED:
        number = wanted(facts, key)
        if not number or any(n.partition("/")[0] in seen_by for n in facts.failed):
            continue
        if any(name in facts.values or name in facts.absent for name in seen_by):
            seen = max(len(facts.values.get(name, {})) for name in seen_by)
            if seen < number:
                note = f"{seen} of {number} {what}s"
                found.put(metric, "", number - seen, note)
    there = facts.values.get("gpu.on_bus", {}).get("", 0)
    listed = len(facts.values.get("gpu.lost", {}))
    if listed and not wanted(facts, "gpu_count") and there > listed:
        found.put("gpu.unlisted", "", there - listed, f"{listed} of {there:g} GPUs")


def _links(facts: Facts, found: Derived) -> None:
    """Links that are down and were wanted: expected, named, or up before."""
    for metric, derived in (("rdma.up", "rdma.down"), ("net.up", "net.down")):
        links = facts.values.get(metric)
        if not links or 0 not in links.values():
            continue
        every = metric == "rdma.up" and wanted(facts, "rdma_count") > sum(map(bool, links.values()))
        for device, up in links.items():
            named = metric == "net.up" and device == facts.expected.interface
            if not up and (every or named or (metric, device) in facts.seen_up):
                waits = metric == "rdma.up" and _physical(facts, device) == LINK_UP
                found.put(derived, device, 1, f"not ACTIVE{_NO_MANAGER}" if waits else "down")


_NO_MANAGER = "; its link is up, but no subnet manager has set it up"


def _odd_ports(links: Mapping[str, Number], facts: Facts, found: Derived) -> None:
    """Ports that are not ACTIVE while their link is up or most others are, where nobody has told how many should be."""
    up = sum(map(bool, links.values()))
    if wanted(facts, "rdma_count"):
        return
    kinds = [_kind(facts, device) for device in links]
    usual = max(set(kinds), key=kinds.count)
    for device, active in links.items():
        state = _physical(facts, device)
        # Nobody plugs a cable in for nothing; the port of another card, switched off, is a spare one.
        spare = state == DISABLED and _kind(facts, device) != usual
        if not active and (state == LINK_UP or (_most(up, len(links)) and not spare)):
            why = _NO_MANAGER if state == LINK_UP else ""
            found.put("rdma.odd", device, 1, f"{up} of {len(links)} are ACTIVE{why}")


def _physical(facts: Facts, device: str) -> Number:
    return facts.values.get("rdma.phys_state", {}).get(device, 0)


def _kind(facts: Facts, device: str) -> tuple[str, str]:
    """What the card is, and whether it speaks InfiniBand or Ethernet."""
    inventory = facts.inventory
    return inventory.get(f"rdma.{device}.type", ""), inventory.get(f"rdma.{device}.link", "")


def _odd_rates(links: Mapping[str, Number], facts: Facts, found: Derived) -> None:
    """Ports that are slower than most of their kind, where nobody has told how fast they should be."""
    if "rdma_rate_gbps" in facts.expected.other:
        return
    kinds: dict[tuple[str, str], dict[str, Number]] = {}
    for device, rate in facts.values.get("rdma.rate", {}).items():
        if links.get(device) and rate > 0:
            kinds.setdefault(_kind(facts, device), {})[device] = rate
    for rates in kinds.values():
        usual = max(set(rates.values()), key=list(rates.values()).count)
        alike = sum(rate == usual for rate in rates.values())
        for device, rate in rates.items() if _most(alike, len(rates)) else ():
            if rate < usual:
                note = f"{written(rate, 'bit/s')}, {alike} of {len(rates)} of its kind at {written(usual, 'bit/s')}"
                found.put("rdma.slow", device, 1, note)


def _most(alike: int, everything: int) -> bool:
    """Whether so many are the rule, and the few others exceptions."""
    return PEERS <= alike < everything and alike >= SHARE * everything


def _clock(facts: Facts, found: Derived) -> None:
    if facts.skew is not None:
        side = "ahead" if facts.skew > 0 else "behind"
        note = f"{duration(abs(facts.skew))} {side}" if abs(facts.skew) >= 0.5 else ""
        found.put("node.skew", "", abs(facts.skew), note)


def _as_told(key: str, value: Union[str, float], facts: Facts, found: Derived) -> None:
    """Compare one entry of `expect:` with what the node says."""
    if key in COUNTS:
        return
    if key in SPEEDS:
        if isinstance(value, (int, float)):
            _slow(key, value * 1e9, facts, found)
    elif key == "mounts":
        _mounts(str(value), facts, found)
    else:
        _told_words(key, str(value), facts.inventory, found)


def _slow(key: str, rate: float, facts: Facts, found: Derived) -> None:
    metric, up, derived = SPEEDS[key]
    links = facts.values.get(up, {})
    only = facts.expected.interface if metric == "net.speed" else ""
    for device, speed in facts.values.get(metric, {}).items():
        if 0 < speed < rate and links.get(device, 1) and device == (only or device):
            note = f"{written(speed, 'bit/s')}, expected {written(rate, 'bit/s')}"
            found.put(derived, device, 1, note)


def _mounts(paths: str, facts: Facts, found: Derived) -> None:
    mounted = {
        device
        for metric in ("disk.mounted", "disk.used", "disk.readonly", "disk.stuck")
        for device in facts.values.get(metric, {})
    }
    if not mounted:
        return
    for path in filter(None, (part.strip() for part in paths.split(","))):
        if path not in mounted:
            found.put("disk.unmounted", path, 1)


def _told_words(key: str, value: str, inventory: Mapping[str, str], found: Derived) -> None:
    kind, _, tail = key.partition("_")
    for name, text in inventory.items():
        same = name == key or (tail and name.startswith(f"{kind}.") and name.endswith(f".{tail}"))
        if same and value.lower() not in text.lower():
            note = f"{name} is {text}, expected {value}"
            found.put("node.unlike", key, 1, note)
            return
