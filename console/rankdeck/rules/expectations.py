"""What nodes are expected to have, learnt from what most of them have now."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
