"""The newest numbers of a metric per device, how fast they grow, and their recent past."""

from array import array
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isnan, nan

from rankdeck_agent.rules.levels import growth_rates

Number = int | float
Points = list[tuple[float, float]]
SIZE = 64
"""Points of a chart: more than any screen draws."""
WIDEST = 16
"""Most devices of a chart."""
GAP = 15.0
"""Seconds between two readings beyond which no rate is given; or 3 intervals, if that is longer."""
FIRST = 100.0
"""The same for a metric with one reading so far: some are read only every half minute."""
LONGEST = 600.0


class Chart:
    """The newest readings of a metric, in a ring of SIZE rows: a time and one number per device."""

    __slots__ = ("_at", "_names", "_next", "_rows")

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._next = 0
        self._at = array("d", (nan,)) * SIZE
        self._rows = array("d")

    def add(self, at: float, names: tuple[str, ...], row: Sequence[Number]) -> None:
        """Replace the oldest row by the numbers in `row`, read at
        `at`; `names` are their devices.
        """
        if names is not self._names and names[:WIDEST] != self._names:
            self._arrange(names[:WIDEST])
        place, wide = self._next, len(self._names)
        self._at[place] = at
        self._rows[place * wide : place * wide + wide] = array("d", row[:wide])
        self._next = (place + 1) % SIZE

    def points(self, device: str) -> Points:
        """`(at, reading)` of a device, oldest first; `at` is on the node's clock."""
        if device not in self._names:
            return []
        column = self._rows[self._names.index(device) :: len(self._names)]
        points = [*zip(self._at, column, strict=True)]
        ordered = points[self._next :] + points[: self._next]
        return [(at, value) for at, value in ordered if not isnan(at + value)]

    def _arrange(self, names: tuple[str, ...]) -> None:
        """Make columns for these devices; devices that had a column keep its numbers."""
        rows = array("d", (nan,)) * (SIZE * len(names))
        for column, name in enumerate(names):
            if name in self._names:
                old = self._rows[self._names.index(name) :: len(self._names)]
                rows[column :: len(names)] = old
        self._names, self._rows = names, rows


class MetricValues:
    """The newest numbers of one metric, per device."""

    __slots__ = ("_before", "_chart", "_counts", "_seconds", "at", "names", "numbers", "patience")

    def __init__(
        self, numbers: Mapping[str, Number], at: float, chart: Chart | None, *, counts: bool
    ) -> None:  # fmt: skip
        self.names = tuple(numbers)
        self.numbers = numbers
        self.at = at
        self.patience = FIRST
        """The numbers are old after this many seconds without new ones."""
        self._chart = chart
        self._counts = counts
        self._before = numbers
        self._seconds = 0.0
        if chart:
            chart.add(at, self.names, [*numbers.values()])

    def take(self, numbers: Mapping[str, Number], at: float) -> None:
        """Take newer numbers of the same devices in the same order; `at` is on the node's clock."""
        if numbers is not self.numbers and numbers == self.numbers:
            # Keep the same object, so that readers see that nothing changed.
            numbers = self.numbers
        seconds = at - self.at
        self._seconds = seconds if 0 < seconds <= self.patience else 0.0
        if self._counts:
            self._before = self.numbers
        self.numbers, self.at = numbers, at
        if seconds > 0:
            self.patience = GAP if seconds <= GAP / 3 else 3 * min(seconds, LONGEST)
        if self._chart:
            self._chart.add(at, self.names, [*numbers.values()])

    def take_others(self, numbers: Mapping[str, Number], at: float) -> None:
        """Take newer numbers of other devices, or in another order."""
        if numbers != self.numbers:
            self.names = tuple(numbers)
        self.take(numbers, at)

    def rates(self) -> dict[str, float]:
        """Device -> growth of the counter per second."""
        return growth_rates(self._before, self.numbers, self._seconds)

    def rate(self, device: str) -> float | None:
        """Growth of the counter of one device per second; None after a
        reset, a gap, or with one reading only.
        """
        now, old = self.numbers.get(device), self._before.get(device)
        if now is None or old is None or now < old or self._seconds <= 0:
            return None
        return (now - old) / self._seconds


def counter_growth(points: Points, longest: float) -> Points:
    """Readings of a counter as growth per second; no value across a reset, a
    step back, or over `longest` seconds.
    """
    return [
        (at, (value - old) / (at - then))
        for (then, old), (at, value) in pairwise(points)
        if 0 < at - then <= longest and value >= old
    ]
