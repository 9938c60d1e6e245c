"""What nodes should have, learnt from what most have; and nodes that differ from their peers."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rankdeck.model.health import Level, Reason
from rankdeck.model.nodeset import fold

SHARE = 0.6
"""Share of the nodes reporting a value that must agree on it."""

Value = str | int | float


@dataclass(frozen=True, slots=True)
class Seen:
    """What one node has now."""

    name: str
    inventory: Mapping[str, str]
    values: Mapping[str, Mapping[str, int | float]]
    simulated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LearntExpectations:
    """Entries for `expect:`, and what is to be known about them, key by key."""

    values: Mapping[str, Value]
    notes: Mapping[str, str]


def learn(nodes: Sequence[Seen]) -> LearntExpectations:
    """What most nodes have in common; nothing is expected where they differ too much."""
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
    return LearntExpectations(values, notes)


def _of(key: str, of: Callable[[Seen], Value], node: Seen) -> Value:
    """The value, or nothing if it is simulated or not known."""
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
"""Nodes that must report a value before one of them counts as odd."""
MOST = 8
COMPARED = re.compile(
    r"kernel|os|(gpu|rdma|net|nvme|cpu)\.(.+\.)?(model|driver|cuda|vbios|fw|firmware|governor|mtu|persistence|mig|link_layer|hca)|bios|ofed"
)
"""Entries of the inventory in which nodes of one cluster should be alike."""
_DEVICE = re.compile(r"\.(\d+|[^.]*\d[^.]*)\.")


Settings = tuple[tuple[str, str], ...]
"""Key -> value of what is compared, the devices of a kind taken together: `gpu.*.model`."""


class Peers:
    """What each node reports about itself. Nodes that are alike are kept, counted and compared as one."""

    def __init__(self) -> None:
        self._of: dict[str, Settings] = {}
        self._alike: dict[Settings, set[str]] = {}

    def take(self, name: str, inventory: Mapping[str, str]) -> bool:
        """This is what the node reports now; whether that is news. One that reports nothing is left out."""
        now, before = _settings(inventory) if inventory else None, self._of.pop(name, None)
        if before is not None:
            self._alike[before].discard(name)
            if not self._alike[before]:
                del self._alike[before]
        if now is not None:
            self._of[name] = now
            self._alike.setdefault(now, set()).add(name)
        return now != before

    def drift(self) -> dict[str, tuple[Reason, ...]]:
        """Node -> in what it differs from most; those that differ in nothing are left out."""
        usual = _usual(self._alike)
        odd = ((_odd(dict(settings), usual), names) for settings, names in self._alike.items())
        return {name: reasons for reasons, names in odd if reasons for name in names}

    @property
    def enough(self) -> bool:
        """Whether so many nodes have reported that they can be compared."""
        return len(self._of) >= PEERS

    def __contains__(self, name: object) -> bool:
        return name in self._of


def _settings(inventory: Mapping[str, str]) -> Settings:
    together: dict[str, set[str]] = {}
    for key, value in inventory.items():
        if place := _compared(key):
            together.setdefault(place, set()).add(value)
    return tuple(sorted((key, " and ".join(sorted(values))) for key, values in together.items()))


@lru_cache(maxsize=4096)
def _compared(key: str) -> str:
    """The key for all devices of a kind; "" where it is not compared."""
    return _DEVICE.sub(".*.", key) if COMPARED.fullmatch(key) else ""


def _usual(alike: Mapping[Settings, set[str]]) -> dict[str, tuple[str, int, int]]:
    """Key -> (what most nodes say, how many of them, how many say anything)."""
    votes: dict[str, Counter[str]] = {}
    for settings, names in alike.items():
        for key, value in settings:
            votes.setdefault(key, Counter())[value] += len(names)
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
