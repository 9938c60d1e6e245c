"""Numbers of nodes over hours and days, at even times; a time without a reading stays a gap."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

POINTS = 120
"""Times of a chart: more than a terminal has room for."""


@dataclass(frozen=True, slots=True)
class Times:
    """Even times, epoch seconds: `start`, `start + step`, …; `count` of them."""

    start: float
    step: float
    count: int

    @property
    def end(self) -> float:
        """The last of them."""
        return self.start + self.step * (self.count - 1)

    def __iter__(self) -> Iterator[float]:
        return (self.start + self.step * place for place in range(self.count))


def times(start: float, end: float, most: int = POINTS) -> Times:
    """At most about `most` times between these two, whole multiples of their step, which is 1 s or more."""
    step = max(-(-(end - start) // most), 1.0)
    first = -(-start // step) * step
    return Times(first, step, max(int((end - first) // step) + 1, 1))


@dataclass(frozen=True, slots=True)
class PastSeries:
    """One number of one node."""

    values: tuple[float | None, ...]
    """One for each time; None where nothing was read."""
    source: str
    """Whose names: `rankdeck`, `dcgm-exporter`, `node_exporter`, with the scrape job."""
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class PastNumbers:
    """What was read of some nodes."""

    times: Times
    series: Mapping[tuple[str, str], PastSeries] = field(
        default_factory=dict[tuple[str, str], PastSeries]
    )
    """(node, metric of the fleet screen) -> its numbers, in the metric's own unit."""
    warning: str = ""
    """What the server said of its answer, such as that a part of it did not answer."""


@dataclass(frozen=True, slots=True)
class PastView:
    """What can be shown of one node now."""

    hours: float
    """How far back it goes."""
    server: str
    """Who is asked, as HOST:PORT."""
    numbers: PastNumbers | None = None
    """None while nothing has come."""
    trouble: str = ""
    """Why there is nothing new, one sentence; "" if all is well."""
