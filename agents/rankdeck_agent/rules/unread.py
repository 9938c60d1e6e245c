"""Numbers that a node could not read: which of them matter, and how they are told."""

from collections.abc import Collection, Iterable, Mapping

from rankdeck_agent.rdma_counters import COUNTED
from rankdeck_agent.rules.device_names import name_first_device
from rankdeck_agent.rules.facts import Table
from rankdeck_agent.rules.table import BY_METRIC, CHECKS, RULES
from rankdeck_agent.values import Value

MOST_UNREAD = 3
_LOG = "kernel.events"
CUT = ("net.interfaces", "disk.disks", "disk.mounts", "nvme.drives")
"""Kinds of devices of which a node may have more than are read."""
_COUNTERS = ("rdma.counters.", "rdma.counters_ext.", "rdma.hw_counters.")
_SAME_CHECK: Mapping[str, frozenset[str]] = {
    metric: frozenset(
        other.metric for other in RULES for _, rule in rows if other.part_of == rule.part_of
    )
    for metric, rows in BY_METRIC.items()
}
_WITHOUT_RULE = frozenset({"hwmon.temp"})
"""A sensor of any chip, asleep or broken: what heat says of the node has metrics of its own."""
_FABRIC = next(check.number for check in CHECKS if check.name == "fabric")
"""A check that never finds a problem: if it cannot be judged, the node does not become unknown."""
_OF_THE_NODE = frozenset(rule.metric for rule in RULES if rule.part_of != _FABRIC)


class Unread(Value):
    """What could not be read: metric or metric/device -> why, in two groups."""

    trouble: Mapping[str, str]
    """Numbers that a rule needs: the rule cannot be judged without them."""
    beside: Mapping[str, str]
    """What is not needed: missing permissions, saturated counters whose check
    others still judge, numbers without a rule.
    """


_NOTHING = Unread({}, {})


def split_unread(failed: Mapping[str, str], blind: Collection[str], values: Table) -> Unread:
    """Sort what a node could not read by whether a check needs it; `blind` as in wire.Sample."""
    if not failed:
        return _NOTHING
    beside = {key: why for key, why in failed.items() if is_beside(key, blind, values)}
    return Unread({key: why for key, why in failed.items() if key not in beside}, beside)


def is_beside(key: str, blind: Collection[str], values: Table) -> bool:
    """Whether health can be judged although this could not be read."""
    if key == _LOG:
        return key in blind
    if key in CUT:
        return True
    metric, _, device = key.partition("/")
    if metric in _WITHOUT_RULE:
        return True
    name = kernel_name(metric)
    if name:
        return key in blind or not any(m in BY_METRIC for m in COUNTED.get(name, ()))
    if not metric.startswith("rdma.") or key not in blind:
        return False
    others = _SAME_CHECK.get(metric, ())
    return metric not in _OF_THE_NODE or any(device in values.get(o, ()) for o in others)


def kernel_name(metric: str) -> str:
    """The kernel's name of an RDMA counter; "" for any other metric."""
    return next((metric[len(p) :] for p in _COUNTERS if metric.startswith(p)), "")


def describe_limits(beside: Mapping[str, str]) -> str:
    """A sentence about what cannot be seen, and what to do; "" for nothing."""
    if not beside:
        return ""
    parts = [beside[key] for key in (_LOG, *CUT) if key in beside]
    alike: dict[tuple[str, str], list[str]] = {}
    for key, why in beside.items():
        metric, _, device = key.partition("/")
        name = kernel_name(metric)
        if name:
            alike.setdefault((name, why), []).append(device)
    parts += [
        f"{name} of {name_first_device(devices)}: {why}"
        for (name, why), devices in list(alike.items())[:MOST_UNREAD]
    ]
    more = len(alike) - MOST_UNREAD
    return "; ".join((*parts, f"{more} other counters") if more > 0 else parts)


def blind_words(blind: Iterable[str], number: int) -> str:
    """The saturated counters of the check of this number: `blind: symbol_error
    of mlx5_0/1 and 8 more`; "" for none.
    """
    names: dict[str, list[str]] = {}
    for key in sorted(blind):
        metric, _, device = key.partition("/")
        name = kernel_name(metric)
        rows = (row for m in COUNTED.get(name, ()) for row in BY_METRIC.get(m, ()))
        if any(rule.part_of == number for _, rule in rows):
            names.setdefault(name, []).append(device)
    unread = ", ".join(f"{name} of {name_first_device(devices)}" for name, devices in names.items())
    return f"blind: {unread}" if unread else ""
