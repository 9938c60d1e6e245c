"""What a node could not read: what leaves its health unknown, and what is only said beside it."""

from collections.abc import Mapping
from dataclasses import dataclass

from rankdeck_agent.names import LOG_CLOSED, SATURATED
from rankdeck_agent.rdma_counters import COUNTED
from rankdeck_agent.rules.facts import Table
from rankdeck_agent.rules.table import BY_METRIC, CHECKS, RULES

AT_MOST_SHOWN = 3
_LOG = "kernel.events"
_COUNTERS = ("rdma.counters.", "rdma.counters_ext.", "rdma.hw_counters.")
_BLIND = SATURATED.partition("{}")[0]
_SAME_CHECK: Mapping[str, frozenset[str]] = {
    metric: frozenset(
        other.metric for other in RULES for _, rule in rows if other.part_of == rule.part_of
    )
    for metric, rows in BY_METRIC.items()
}
_FABRIC = next(check.number for check in CHECKS if check.name == "fabric")
"""Says nothing against the node, and so nothing of it leaves the node unknown."""
_OF_THE_NODE = frozenset(rule.metric for rule in RULES if rule.part_of != _FABRIC)


@dataclass(frozen=True)
class Unread:
    """Metric or metric/device -> why, in two heaps."""

    trouble: Mapping[str, str]
    """Something is not judged that a rule reads."""
    beside: Mapping[str, str]
    """A missing permission; a counter that sticks, whose check is judged by others; one that no rule reads."""


_NOTHING = Unread({}, {})


def split(failed: Mapping[str, str], values: Table) -> Unread:
    """What a node could not read, by what follows from it. Only our own sentences excuse anything."""
    if not failed:
        return _NOTHING
    beside = {key: why for key, why in failed.items() if is_beside(key, why, values)}
    return Unread({key: why for key, why in failed.items() if key not in beside}, beside)


def is_beside(key: str, why: str, values: Table) -> bool:
    """Whether a thing that could not be read leaves the health known."""
    if key == _LOG:
        return why in LOG_CLOSED.values()
    metric, _, device = key.partition("/")
    name = kernel_name(metric)
    if name:
        return why.startswith(_BLIND) or not any(m in BY_METRIC for m in COUNTED.get(name, ()))
    if not metric.startswith("rdma.") or _BLIND not in why:
        return False
    others = _SAME_CHECK.get(metric, ())
    return metric not in _OF_THE_NODE or any(device in values.get(o, ()) for o in others)


def kernel_name(metric: str) -> str:
    """The kernel's name of an RDMA counter; "" for any other metric."""
    return next((metric[len(p) :] for p in _COUNTERS if metric.startswith(p)), "")


def limits(beside: Mapping[str, str]) -> str:
    """What is not seen here, and what to do; "" where that is nothing."""
    if not beside:
        return ""
    said = [beside[_LOG]] if _LOG in beside else []
    alike: dict[tuple[str, str], list[str]] = {}
    for key, why in beside.items():
        metric, _, device = key.partition("/")
        if name := kernel_name(metric):
            alike.setdefault((name, why), []).append(device)
    said += [
        f"{name} of {_first(devices)}: {why}"
        for (name, why), devices in list(alike.items())[:AT_MOST_SHOWN]
    ]
    more = len(alike) - AT_MOST_SHOWN
    return "; ".join((*said, f"{more} other counters") if more > 0 else said)


def blind(failed: Mapping[str, str], number: int) -> str:
    """`blind: symbol_error of mlx5_0/1 and 8 more`: what a check goes without; "" for nothing."""
    names: dict[str, list[str]] = {}
    for key, why in failed.items():
        metric, _, device = key.partition("/")
        name = kernel_name(metric)
        rows = (row for m in COUNTED.get(name, ()) for row in BY_METRIC.get(m, ()))
        if why.startswith(_BLIND) and any(rule.part_of == number for _, rule in rows):
            names.setdefault(name, []).append(device)
    said = ", ".join(f"{name} of {_first(devices)}" for name, devices in names.items())
    return f"blind: {said}" if said else ""


def _first(devices: list[str]) -> str:
    return devices[0] + (f" and {len(devices) - 1} more" if devices[1:] else "")
