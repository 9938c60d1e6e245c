"""RDMA ports, their counters, and the common metrics that the counters add up to."""

from collections.abc import Mapping, Sequence
from typing import Optional

from rankdeck_agent.collectors.base import BlindError, Reading
from rankdeck_agent.rdma_counters import BYTES, SUMS, TWINS
from rankdeck_agent.values import Record, field

BASE = "sys/class/infiniband"
SATURATED = "saturated at {}: counts no more, perfquery -R clears it"
"""Why an RDMA counter is not used: it reached its maximum.

The metrics that include it go on without it.
"""
_WRAP = 1 << 32
_TOP_64 = (1 << 64) - 1


class RdmaCounter(Record):
    """One counter and its state."""

    path: str
    """Its file; "" if it has none and is read by netlink."""
    metric: str
    kernel_name: str
    top: int = 0
    """The value at which it saturates; 0: it does not."""
    wraps: bool = False
    """Whether it has 32 bits and wraps around."""
    value: Optional[int] = None
    """The last number, with the wrap-arounds added; None if it could not be read."""
    held: int = 0
    """The last number that could be read; if saturated, the maximum."""
    raw: int = 0
    """The last number as read, for counters that wrap."""
    laps: int = 0
    """How often it has wrapped around."""
    failures: int = 0
    """Failed readings in a row."""
    asked: float = 0.0
    """When it was last read (monotonic seconds)."""
    error: Optional[ValueError] = None
    """Why it could not be read; a BlindError if it is saturated."""
    ever: bool = False
    """Whether it could ever be read."""
    summed: bool = False
    """Whether it is part of sums."""
    base: int = 0
    """Its value when it joined sums that had been reported without
    it: only growth after that counts.
    """


Sum = tuple[str, list[tuple[RdmaCounter, int]]]
"""A common metric and the counters, each with its factor, that add up to it."""


class Port(Record):
    """One port; or a whole device (`number` ""), if its driver counts per device."""

    device: str
    number: str
    counters: list[RdmaCounter] = field(default_factory=list[RdmaCounter])
    bytes: list[Sum] = field(default_factory=list[Sum])
    sums: list[Sum] = field(default_factory=list[Sum])

    @property
    def key(self) -> str:
        """The device in metrics: `mlx5_0/1`, or `mlx5_0` for a whole device."""
        return f"{self.device}/{self.number}" if self.number else self.device

    @property
    def path(self) -> str:
        """The folder in /sys, relative to the root."""
        base = f"{BASE}/{self.device}"
        return f"{base}/ports/{self.number}" if self.number else base


def store_rdma_number(counter: RdmaCounter, number: int) -> None:
    """Keep the number that was read, unless it says that the counter is saturated or unknown."""
    if number == _TOP_64 and not counter.top:
        # ionic says this if the firmware gives no number
        # (ionic_hw_stats.c), others after a failed request.
        counter.value, counter.error = None, ValueError("the driver has no number for it")
        return
    if counter.top and number in (counter.top, _TOP_64):
        counter.value = None
        counter.error = BlindError(SATURATED.format(number))
        counter.held = number
        return
    counter.error = None
    if counter.wraps:
        # From the upper half to the lower half: it wrapped around. Any other decrease: a reset.
        if number < counter.raw:
            round_again = counter.raw - number > _WRAP // 2
            counter.laps = counter.laps + 1 if round_again else 0
        counter.raw = number
        number += counter.laps * _WRAP
    counter.value = counter.held = number


def arrange_rdma_sums(port: Port) -> None:
    """Decide which counters make up each common metric; a counter that
    could never be read is in no sum.
    """
    for counter in port.counters:
        if counter.ever and not counter.summed:
            counter.summed, counter.base = True, counter.held if port.sums else 0
    by_name = {c.kernel_name: c for c in reversed(port.counters) if c.ever}
    by_name = {n: c for n, c in by_name.items() if TWINS.get(n) not in by_name}
    both = ((metric, _first_row(by_name, rows)) for metric, rows in BYTES)
    port.bytes = [(metric, parts) for metric, parts in both if parts]
    sums = ((metric, [(by_name[n], 1) for n in names if n in by_name]) for metric, names in SUMS)
    port.sums = [(metric, parts) for metric, parts in sums if parts]


def _first_row(
    by_name: Mapping[str, RdmaCounter], rows: Sequence[Mapping[str, int]]
) -> list[tuple[RdmaCounter, int]]:
    for row in rows:
        parts = [(by_name[name], factor) for name, factor in row.items() if name in by_name]
        if parts:
            return parts
    return []


def put_rdma_sum(
    reading: Reading, key: str, metric: str, parts: Sequence[tuple[RdmaCounter, int]]
) -> None:
    """Put a sum; a counter that can no longer be read stays in it with its last value.

    Fails only if all fail.
    """
    if any(counter.value is not None for counter, _ in parts):
        # A counter below its base was reset.
        grown = ((c.held - (c.base if c.held >= c.base else 0)) * factor for c, factor in parts)
        reading.put(metric, sum(grown), key)
        return
    counter, _ = parts[0]
    why = f"{counter.kernel_name}: {counter.error or 'no number'}"
    blind = isinstance(counter.error, BlindError)
    reading.fail((metric,), BlindError(why) if blind else ValueError(why), key)
