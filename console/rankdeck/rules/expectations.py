"""What most nodes have in common: the expectations of a cluster file, learnt from its nodes."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from rankdeck.model.nodeset import fold_nodes
from rankdeck.rules.peers import SHARE
from rankdeck.values import Value

ExpectedValue = str | int | float


class NodeSight(Value):
    """The inventory and the newest numbers of one node."""

    name: str
    inventory: Mapping[str, str]
    values: Mapping[str, Mapping[str, int | float]]
    simulated: tuple[str, ...] = ()


class LearntExpectations(Value):
    """Entries for `expect:`, and notes on some of their keys."""

    values: Mapping[str, ExpectedValue]
    notes: Mapping[str, str]


def learn_expectations(nodes: Sequence[NodeSight]) -> LearntExpectations:
    """What most nodes have in common; a key on which they differ
    too much gets a note and no value.
    """
    values: dict[str, ExpectedValue] = {}
    notes: dict[str, str] = {}
    for key, of in _LEARNT.items():
        reported = {node.name: value for node in nodes if (value := _of(key, of, node))}
        if not reported:
            continue
        (value, number), *_ = Counter(reported.values()).most_common(1)
        if number < SHARE * len(reported):
            notes[key] = f"nodes differ: {_spread(reported)}"
            continue
        values[key] = value
        odd = [name for name, other in reported.items() if other != value]
        if odd:
            notes[key] = f"not so on {fold_nodes(odd)}"
    return LearntExpectations(values, notes)


def _of(key: str, of: Callable[[NodeSight], ExpectedValue], node: NodeSight) -> ExpectedValue:
    """The value; 0 or "" if it is simulated or not known."""
    return 0 if key.partition("_")[0] in node.simulated else of(node)


def _spread(values: Mapping[str, ExpectedValue]) -> str:
    by_value: dict[ExpectedValue, list[str]] = {}
    for name, value in values.items():
        by_value.setdefault(value, []).append(name)
    return "; ".join(f"{value} on {fold_nodes(names)}" for value, names in by_value.items())


def _count(*metrics: str) -> Callable[[NodeSight], int]:
    return lambda node: max(len(node.values.get(metric, {})) for metric in metrics)


def _word(kind: str, tail: str) -> Callable[[NodeSight], str]:
    """A function that gives the inventory entry shared by all
    devices of a kind; "" if they differ.
    """

    def find(node: NodeSight) -> str:
        found = {
            text
            for name, text in node.inventory.items()
            if name.startswith(f"{kind}.") and name.endswith(f".{tail}")
        }
        return found.pop() if len(found) == 1 else ""

    return find


def _rate(node: NodeSight) -> ExpectedValue:
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


def _mounts(node: NodeSight) -> str:
    mounted = node.values.get("disk.mounted", {})
    return ", ".join(sorted(path for path, there in mounted.items() if there))


_LEARNT: Mapping[str, Callable[[NodeSight], ExpectedValue]] = {
    "gpu_count": _count("gpu.mem_total", "gpu.used"),
    "gpu_model": _word("gpu", "model"),
    "gpu_driver": _word("gpu", "driver"),
    "rdma_count": _count("rdma.up"),
    "rdma_rate_gbps": _rate,
    "rdma_fw": _word("rdma", "fw"),
    "mounts": _mounts,
}
