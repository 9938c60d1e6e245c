"""What nodes are expected to have, learnt from what most of them have now."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rankdeck.model.health import Level, Reason
from rankdeck.model.nodeset import fold

SHARE = 0.6
"""So many of the nodes that tell a thing must agree on it."""

Value = str | int | float


@dataclass(frozen=True, slots=True)
class Seen:
    """What one node has now."""

    name: str
    inventory: Mapping[str, str]
    values: Mapping[str, Mapping[str, int | float]]
    simulated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Learnt:
    """Entries for `expect:`, and what is to be known about them, key by key."""

    values: Mapping[str, Value]
    notes: Mapping[str, str]


def learn(nodes: Sequence[Seen]) -> Learnt:
    """What most nodes have in common; on what they differ too much nothing is expected."""
    values: dict[str, Value] = {}
    notes: dict[str, str] = {}
    for key, of in _LEARNT.items():
        told = {node.name: value for node in nodes if (value := _of(key, of, node))}
        if not told:
            continue
        (value, number), *_ = Counter(told.values()).most_common(1)
        if number < SHARE * len(told):
            notes[key] = f"nodes differ: {_spread(told)}"
            continue
        values[key] = value
        odd = [name for name, other in told.items() if other != value]
        if odd:
            notes[key] = f"not so on {fold(odd)}"
    return Learnt(values, notes)


def _of(key: str, of: Callable[[Seen], Value], node: Seen) -> Value:
    """The value, or nothing where it is made up or not known."""
    return 0 if key.partition("_")[0] in node.simulated else of(node)


def _spread(told: Mapping[str, Value]) -> str:
    by_value: dict[Value, list[str]] = {}
    for name, value in told.items():
        by_value.setdefault(value, []).append(name)
    return "; ".join(f"{value} on {fold(names)}" for value, names in by_value.items())


def _count(*metrics: str) -> Callable[[Seen], int]:
    return lambda node: max(len(node.values.get(metric, {})) for metric in metrics)


def _word(kind: str, tail: str) -> Callable[[Seen], str]:
    """An entry of the inventory that all devices of a kind share."""

    def find(node: Seen) -> str:
        found = {
            text
            for name, text in node.inventory.items()
            if name.startswith(f"{kind}.") and name.endswith(f".{tail}")
        }
        return found.pop() if len(found) == 1 else ""

    return find


def _rate(node: Seen) -> Value:
    """The rate of the slowest RDMA port that is up, in Gbit/s."""
    up = node.values.get("rdma.up", {})
    rates = [
        rate / 1e9
        for device, rate in node.values.get("rdma.rate", {}).items()
        if rate > 0 and up.get(device)
    ]
    return _plain(min(rates)) if rates else 0


def _plain(number: float) -> int | float:
    return int(number) if number == int(number) else round(number, 1)


def _mounts(node: Seen) -> str:
    mounted = node.values.get("disk.mounted", {})
    return ", ".join(sorted(path for path, there in mounted.items() if there))


_LEARNT: Mapping[str, Callable[[Seen], Value]] = {
    "gpu_count": _count("gpu.mem_total", "gpu.used"),
    "gpu_model": _word("gpu", "model"),
    "gpu_driver": _word("gpu", "driver"),
    "rdma_count": _count("rdma.up"),
    "rdma_rate_gbps": _rate,
    "rdma_fw": _word("rdma", "fw"),
    "mounts": _mounts,
}


PEERS = 3
"""So many nodes must tell a thing before one of them is odd."""
MOST = 8
COMPARED = re.compile(
    r"kernel|os|(gpu|rdma|net|nvme|cpu)\.(.+\.)?(model|driver|cuda|vbios|fw|firmware|governor|mtu|persistence|mig|link_layer|hca)|bios|ofed"
)
"""Entries of the inventory in which nodes of one cluster should be alike."""
_DEVICE = re.compile(r"\.(\d+|[^.]*\d[^.]*)\.")


class Peer(NamedTuple):
    """What one node tells of itself."""

    name: str
    inventory: Mapping[str, str]


def drift(peers: tuple[Peer, ...]) -> dict[str, tuple[Reason, ...]]:
    """Node -> in what it differs; a node that tells nothing is left out."""
    told = {peer.name: _settings(peer.inventory) for peer in peers if peer.inventory}
    if len(told) < PEERS:
        return {}
    usual = _usual(told)
    return {name: _odd(settings, usual) for name, settings in told.items()}


def _settings(inventory: Mapping[str, str]) -> dict[str, str]:
    """Key -> value, the devices of a kind taken together: `gpu.*.model`."""
    together: dict[str, set[str]] = {}
    for key, value in inventory.items():
        if COMPARED.fullmatch(key):
            together.setdefault(_DEVICE.sub(".*.", key), set()).add(value)
    return {key: " and ".join(sorted(values)) for key, values in together.items()}


def _usual(told: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[str, int, int]]:
    """Key -> (what most nodes say, how many of them, how many say anything)."""
    votes: dict[str, Counter[str]] = {}
    for settings in told.values():
        for key, value in settings.items():
            votes.setdefault(key, Counter())[value] += 1
    usual: dict[str, tuple[str, int, int]] = {}
    for key, counted in votes.items():
        (value, number), all_of_them = counted.most_common(1)[0], counted.total()
        if all_of_them >= PEERS and number >= SHARE * all_of_them and len(counted) > 1:
            usual[key] = value, number, all_of_them
    return usual


def _odd(
    settings: Mapping[str, str], usual: Mapping[str, tuple[str, int, int]]
) -> tuple[Reason, ...]:
    found = [
        Reason(
            "drift",
            Level.WARN,
            f"{key} is {settings[key]}, {number} of {peers} nodes have {value} · jobs across both may fail or differ · make them alike",
            key,
        )
        for key, (value, number, peers) in sorted(usual.items())
        if settings.get(key, value) != value
    ]
    return tuple(found[:MOST])
