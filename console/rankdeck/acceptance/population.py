"""Equal measurements of many nodes or pairs: what is usual, and who stands out."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import NormalDist, median

from rankdeck.acceptance.values import Answer, Measurement, Path
from rankdeck.values import Value


class Population(Value):
    """Distribution of values of the same kind in the same run, and the
    limits for a good and a slow one.
    """

    count: int
    median: float
    spread: float
    """Standard deviation, estimated from the median absolute
    deviation; at least 1 % of the median.
    """
    good: float
    """A value is good from here on, and fair between `limit` and `good`."""
    limit: float
    """A value below this is slow."""
    mixed: bool
    """The values are not one population, or were disturbed: the limit comes
    from the upper quartile, not the median.
    """

    def answer(self, value: float) -> Answer:
        """GOOD, FAIR or SLOW, by the limits."""
        if value < self.limit:
            return Answer.SLOW
        return Answer.GOOD if value >= self.good else Answer.FAIR


FEWEST = 4
"""Fewest values (or nodes) for a population."""
_MIXED = 0.05
_STANDS_OUT = 1.2
_CHANCE = 0.01
"""Expected number of healthy values below the limit."""


def measure_population(
    values: Sequence[float], tolerance: float, fast: float = 0.0
) -> Population | None:
    """Median and limits of these values; None without values. A mixed
    population is judged by its upper quartile.

    `tolerance` is the share below the median that is still good. `fast`, if above 0, is what a
    minority of nodes reach with each other: where the others are slower, the limits come from it.
    """
    if not values:
        return None
    ordered = sorted(values)
    middle = median(ordered)
    spread = max(1.4826 * median(abs(one - middle) for one in ordered), 0.01 * middle)
    # If most values are equally slow, the median is slow too, and the fast values stand out.
    most = ordered[len(ordered) * 19 // 20]
    mixed = (
        spread > _MIXED * middle or most > _STANDS_OUT * middle or fast * (1 - tolerance) > middle
    )
    if mixed:
        middle = max(fast, ordered[len(ordered) * 3 // 4])
        spread = 0.01 * middle
    sigmas = NormalDist().inv_cdf(1 - _CHANCE / max(len(ordered), 2))
    good = middle * (1 - tolerance)
    return Population(
        len(ordered), middle, spread, good, min(good, middle - sigmas * spread), mixed
    )


def by_gap(speeds: Mapping[Path, float], ratio: float = _STANDS_OUT) -> Iterator[frozenset[Path]]:
    """For each gap in the sorted speeds (a factor of `ratio`), the paths
    above it; the smallest set first.
    """
    ordered = sorted(speeds, key=lambda path: speeds[path], reverse=True)
    for place in range(1, len(ordered)):
        if speeds[ordered[place - 1]] > ratio * speeds[ordered[place]]:
            yield frozenset(ordered[:place])


DROPS = 0.7
"""A repeat below this share of the best one is a drop."""


def count_drops(runs: Sequence[Measurement]) -> int:
    """Number of repeats of one path that dropped."""
    best = best_of(runs) or 0.0
    return sum(1 for one in runs if (speed := one.speed) is not None and speed < DROPS * best)


def by_path(measurements: Iterable[Measurement]) -> Mapping[Path, Sequence[Measurement]]:
    """Path -> its measurements; those of single nodes and groups are left out."""
    found: defaultdict[Path, list[Measurement]] = defaultdict(list)
    for one in measurements:
        if one.receiver:
            found[one.path].append(one)
    return found


def best_of(runs: Iterable[Measurement]) -> float | None:
    """The highest speed, because interference only lowers speeds; None if nothing was learned."""
    return max((speed for one in runs if (speed := one.speed) is not None), default=None)
