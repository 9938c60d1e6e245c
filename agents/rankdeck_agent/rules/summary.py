"""The few numbers that stand for a node in lists, and which change of one is worth a message."""

from collections.abc import Mapping
from typing import Callable, Optional

from rankdeck_agent.wire import Number

Current = Callable[[str], Mapping[str, Number]]
"""Metric -> per device the value of a gauge, or the growth per second of a counter."""
Summed = Callable[[Current], Optional[float]]


def highest(metric: str) -> Summed:
    """The largest over its devices."""
    return lambda current: max(current(metric).values(), default=None)


def mean(metric: str) -> Summed:
    """The mean of its devices."""

    def of(current: Current) -> Optional[float]:
        found = current(metric)
        return sum(found.values()) / len(found) if found else None

    return of


def total(*metrics: str) -> Summed:
    """The sum over the devices of all these."""

    def of(current: Current) -> Optional[float]:
        known = [sum(found.values()) for metric in metrics if (found := current(metric))]
        return sum(known) if known else None

    return of


def _gpu_memory(current: Current) -> Optional[float]:
    """Percent of the memory of all GPUs in use."""
    used, there = current("gpu.mem_used"), current("gpu.mem_total")
    whole = sum(there.values())
    return sum(used.values()) / whole * 100 if used and whole else None


def _hottest(current: Current) -> Optional[float]:
    """The hottest GPU, else the CPU."""
    found = current("gpu.temp") or current("cpu.temp")
    return max(found.values(), default=None)


SUMMARY: Mapping[str, Summed] = {
    "cpu.used": highest("cpu.used"),
    "mem.used": highest("mem.used"),
    "gpu.used": mean("gpu.used"),
    "gpu.mem_used": _gpu_memory,
    "gpu.temp": _hottest,
    "gpu.power": total("gpu.power"),
    "rdma.rx": total("rdma.rx"),
    "rdma.tx": total("rdma.tx"),
    "net.rx": total("net.rx", "net.tx"),
    "cpu.load1": highest("cpu.load1"),
    "disk.used": highest("disk.used"),
    "cpu.cores": highest("cpu.cores"),
}
"""A metric that stands for the number -> how it is worked out; `net.rx` is both ways."""

_MEGABYTE = 1e6
BANDS: Mapping[str, tuple[float, float]] = {
    "cpu.used": (5.0, 0.0),
    "mem.used": (1.0, 0.0),
    "gpu.used": (5.0, 0.0),
    "gpu.mem_used": (1.0, 0.0),
    "gpu.temp": (2.0, 0.0),
    "gpu.power": (50.0, 0.1),
    "rdma.rx": (_MEGABYTE, 0.2),
    "rdma.tx": (_MEGABYTE, 0.2),
    "net.rx": (_MEGABYTE, 0.2),
    "cpu.load1": (0.5, 0.1),
    "disk.used": (0.5, 0.0),
    "cpu.cores": (0.0, 0.0),
}
"""Metric -> (in its unit, as a share of what was said last): a smaller change is not worth a message.

Levels do not depend on it: they are judged from every reading.
"""


def rates(
    before: Mapping[str, Number], now: Mapping[str, Number], seconds: float
) -> dict[str, float]:
    """Counters per second, per device; none for a device that is new or began again."""
    found: dict[str, float] = {}
    if seconds <= 0:
        return found
    for device, value in now.items():
        old = before.get(device)
        if old is not None and value >= old:
            found[device] = (value - old) / seconds
    return found


def summarize(current: Current) -> dict[str, float]:
    """The numbers that can be had, to four digits."""
    found: dict[str, float] = {}
    for metric, of in SUMMARY.items():
        number = of(current)
        if number is not None:
            found[metric] = float(f"{number:.4g}")
    return found


def differs(metric: str, before: Optional[float], now: Optional[float]) -> bool:
    """Whether a number has left the band around what was said last."""
    if before is None or now is None:
        return before is not now
    wide, share = BANDS.get(metric, (0.0, 0.0))
    return abs(now - before) > max(wide, share * abs(before))
