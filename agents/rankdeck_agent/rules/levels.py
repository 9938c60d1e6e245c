"""Health of a node: levels, the reasons for them, what the cluster file expects,
and the summary numbers shown in lists.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Callable, NamedTuple, Optional, Union

from rankdeck_agent.values import Value, field, replace
from rankdeck_agent.wire import Number


class Level(IntEnum):
    """How bad a reason or a node is. The worst of several is their `max`."""

    OK = 0
    UNKNOWN = 1
    WARN = 2
    BAD = 3

    @property
    def word(self) -> str:
        """The name in lower case, as shown and sent: ok, unknown, warn, bad."""
        return self.name.lower()


EVENT_LEVELS = {"ok": Level.OK, "info": Level.OK, "warn": Level.WARN, "bad": Level.BAD}
"""Level in an event of a node -> how it counts."""
NAGIOS: Mapping[Level, tuple[int, str]] = {
    Level.OK: (0, "OK"),
    Level.WARN: (1, "WARNING"),
    Level.BAD: (2, "CRITICAL"),
    Level.UNKNOWN: (3, "UNKNOWN"),
}
"""Level -> exit code and word, as monitoring plug-ins give them."""


NODE_MORE = "node.more"
"""The check that stands for reasons that did not fit into a message."""


class Sentence(NamedTuple):
    """The text of a reason or an event, in three parts; "" for a part that is left out."""

    seen: str
    means: str = ""
    action: str = ""

    @classmethod
    def of(cls, text: str) -> "Sentence":
        """Read `seen · means · action`; what follows a third dot belongs to the action."""
        return cls(*(part.strip() for part in text.split(_BETWEEN, 2)))

    def __str__(self) -> str:
        return _BETWEEN.join(filter(None, self))


_BETWEEN = " · "


class Expected(Value):
    """What the cluster file says a node has."""

    gpus: int = 0
    rdma: int = 0
    interface: str = ""
    other: Mapping[str, Union[str, int, float]] = field(
        default_factory=dict[str, Union[str, int, float]]
    )


class Reason(Value):
    """One check that fired."""

    check: str
    level: Level
    text: str
    """A whole `Sentence`, as it is sent, kept and printed."""
    device: str = ""
    since: Optional[float] = None
    """When it began, on the clock of `Facts.now`; None if not known."""
    acknowledged_until: Optional[float] = None
    """Epoch seconds; until then it is listed but does not count."""
    acknowledged_by: str = ""
    """Who and why, one sentence."""

    @property
    def sentence(self) -> Sentence:
        """The text in its parts."""
        return Sentence.of(self.text)


class Health(Value):
    """The health of a node now; `reasons` has the worst first."""

    level: Level
    reasons: tuple[Reason, ...] = ()
    evaluated: int = 0
    """How many of the `checks` could be judged."""
    checks: int = 0
    """How many checks apply to this node; the others in the table
    are for hardware that it lacks.
    """
    more: int = 0
    """How many further reasons there are; none of them is worse than the last of `reasons`."""
    limits: str = ""
    """What cannot be seen on this node and what to do (a log without
    permission, saturated counters); "" for nothing.
    """


def worst_level(reasons: tuple[Reason, ...]) -> Level:
    """The level of a node with these reasons; acknowledged ones do not count.

    A node with a reason of NEVER_OK, such as silence, is at least unknown,
    even if that reason is acknowledged.
    """
    counted = (
        reason.level
        if reason.acknowledged_until is None
        else min(reason.level, Level.UNKNOWN)
        if reason.check in NEVER_OK
        else Level.OK
        for reason in reasons
    )
    return max(counted, default=Level.OK)


NEVER_OK = frozenset({"node.silent", "node.coverage"})
"""Checks whose reasons keep a node at unknown even while acknowledged."""


_HEAT = ("gpu.temp", "gpu.margin", "gpu.mem_temp", "gpu.mem_margin")
CAUSES: Mapping[str, tuple[str, ...]] = {
    "gpu.margin": ("gpu.temp",),
    "gpu.mem_temp": ("gpu.temp", "gpu.margin"),
    "gpu.mem_margin": ("gpu.temp", "gpu.margin"),
    "gpu.slowdown": _HEAT,
    "gpu.slowdown_soft": _HEAT,
    "cpu.margin": ("cpu.temp",),
    "cpu.throttled": ("cpu.temp", "cpu.margin"),
    "pi.throttled": ("pi.supply", "cpu.temp"),
    "gpu.recovery": ("gpu.lost", "gpu.ecc"),
    "gpu.reset": ("gpu.lost", "gpu.ecc"),
    "gpu.remap_pending": ("gpu.ecc",),
    "gpu.count": ("gpu.lost",),
    "gpu.nvlink": ("gpu.lost",),
    "agent.reads": ("gpu.lost", "gpu.driver"),
    "rdma.retx": ("rdma.link", "link.flap", "rdma.phys_errors"),
    "rdma.timeouts": ("rdma.link", "link.flap", "rdma.phys_errors"),
    "rdma.retries": ("rdma.link", "link.flap", "rdma.phys_errors"),
}
"""Check -> checks that may cause it.

The first of them that has a reason on the same device is taken as the cause.
"""


def by_cause(reasons: Sequence[Reason]) -> tuple[tuple[Reason, tuple[Reason, ...]], ...]:
    """Group `reasons` as (cause, its consequences), in the order of `reasons`; a
    cause gets the worst level of its group.

    An acknowledged reason and one that is not acknowledged are never in the same group.
    """
    found: dict[tuple[str, str], list[Reason]] = {}
    causes: dict[tuple[str, str], Reason] = {}
    for reason in reasons:
        cause = next(_causes(reason, reasons), reason)
        key = (cause.check, cause.device)
        causes[key] = cause
        found.setdefault(key, []).append(reason)
    return tuple(
        (
            replace(causes[key], level=max(one.level for one in group)),
            tuple(one for one in group if one is not causes[key]),
        )
        for key, group in found.items()
    )


def _causes(reason: Reason, among: Sequence[Reason]) -> Iterator[Reason]:
    """The other reasons that may have caused this one, in the order of CAUSES."""
    known = reason.acknowledged_until is None
    for check in CAUSES.get(reason.check, ()):
        for other in among:
            alike = (other.acknowledged_until is None) is known
            if other.check == check and alike and same_device(other.device, reason.device):
                yield other


def same_device(one: str, other: str) -> bool:
    """Whether two reasons may concern one device; a reason without a device
    concerns all, like a count of GPUs.
    """
    return one == other or not (one and other)


Current = Callable[[str], Mapping[str, Number]]
"""A function: metric -> device -> the value of a gauge, or the growth per second of a counter."""
Summed = Callable[[Current], Optional[float]]
"""Computes one number for the whole node; None if not known."""


def highest_of(metric: str) -> Summed:
    """The largest value of its devices."""
    return lambda current: max(current(metric).values(), default=None)


def mean_of(metric: str) -> Summed:
    """The mean of its devices."""

    def of(current: Current) -> Optional[float]:
        found = current(metric)
        return sum(found.values()) / len(found) if found else None

    return of


def sum_of(*metrics: str) -> Summed:
    """The sum over all devices of these metrics."""

    def of(current: Current) -> Optional[float]:
        known = [sum(found.values()) for found in map(current, metrics) if found]
        return sum(known) if known else None

    return of


def _gpu_memory(current: Current) -> Optional[float]:
    """Percent of the memory of all GPUs that is in use."""
    used, there = current("gpu.mem_used"), current("gpu.mem_total")
    whole = sum(there.values())
    return sum(used.values()) / whole * 100 if used and whole else None


def _hottest(current: Current) -> Optional[float]:
    """Temperature of the hottest GPU, or of the CPU if there is no GPU."""
    found = current("gpu.temp") or current("cpu.temp")
    return max(found.values(), default=None)


class SummaryNumber(NamedTuple):
    """The one number of a node for a metric, and the band around the number
    sent last in which changes are not sent.

    The band is the larger of `wide`, in the metric's unit, and `share` of that number. Levels do
    not depend on it: they are judged from every reading.
    """

    of: Summed
    wide: float = 0.0
    share: float = 0.0


_MEGABYTE = 1e6
SUMMARY: Mapping[str, SummaryNumber] = {
    "cpu.used": SummaryNumber(highest_of("cpu.used"), 5.0),
    "mem.used": SummaryNumber(highest_of("mem.used"), 1.0),
    "gpu.used": SummaryNumber(mean_of("gpu.used"), 5.0),
    "gpu.mem_used": SummaryNumber(_gpu_memory, 1.0),
    "gpu.temp": SummaryNumber(_hottest, 2.0),
    "gpu.power": SummaryNumber(sum_of("gpu.power"), 50.0, 0.1),
    "rdma.rx": SummaryNumber(sum_of("rdma.rx"), _MEGABYTE, 0.2),
    "rdma.tx": SummaryNumber(sum_of("rdma.tx"), _MEGABYTE, 0.2),
    "net.rx": SummaryNumber(sum_of("net.rx", "net.tx"), _MEGABYTE, 0.2),
    "cpu.load1": SummaryNumber(highest_of("cpu.load1"), 0.5, 0.1),
    "disk.used": SummaryNumber(highest_of("disk.used"), 0.5),
    "cpu.cores": SummaryNumber(highest_of("cpu.cores")),
}
"""Metric -> its one number for the node; `net.rx` is received and sent together."""


def growth_rates(
    before: Mapping[str, Number], now: Mapping[str, Number], seconds: float
) -> dict[str, float]:
    """Device -> growth of a counter per second; without devices that
    are new or whose counter was reset.
    """
    found: dict[str, float] = {}
    if seconds <= 0:
        return found
    for device, value in now.items():
        old = before.get(device)
        if old is not None and value >= old:
            found[device] = (value - old) / seconds
    return found


def summarize_numbers(current: Current) -> dict[str, float]:
    """Metric -> its number for the node, to four digits; without those that are not known."""
    found: dict[str, float] = {}
    for metric, row in SUMMARY.items():
        number = row.of(current)
        if number is not None:
            found[metric] = float(f"{number:.4g}")
    return found


def differs_from_sent(metric: str, before: Optional[float], now: Optional[float]) -> bool:
    """Whether `now` is outside the band of this metric of SUMMARY
    around `before`, the number sent last.
    """
    if before is None or now is None:
        return before is not now
    row = SUMMARY[metric]
    return abs(now - before) > max(row.wide, row.share * abs(before))
