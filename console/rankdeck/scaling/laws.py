"""Laws of scaling fitted to measured points: Amdahl's for equal work, Gustafson's for work that
grows with the ranks, and the serial share of a single point (Karp and Flatt).
"""

import math
from collections.abc import Sequence

from rankdeck.values import Value

_QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
"""Student's t for 95 %, two-sided, with 1, 2, … degrees of freedom."""
_MANY = 1.96
NO_LAW = 0.25
"""Misfit from which a law says nothing."""
_FEWEST = 2
"""Different numbers of ranks that a law needs."""


class Fit(Value):
    """A law fitted to points."""

    share: float
    """The serial share of the work, from 0 to 1."""
    error: float | None
    """95 % of repeated studies give a share within ± this; None: too few runs to tell."""
    misfit: float
    """How far points lie from the law, as a share of their values (root of the mean square)."""

    @property
    def most(self) -> float:
        """The speed-up that no number of ranks exceeds, by Amdahl's law."""
        return 1.0 / self.share if self.share > 0 else math.inf


def _quantile(freedom: int) -> float:
    return _QUANTILES[freedom - 1] if freedom <= len(_QUANTILES) else _MANY


def fit_amdahl(points: Sequence[tuple[int, float]]) -> Fit | None:
    """Amdahl's law, T(p) = A + B / p, through (ranks, time for the same work); None if there are
    fewer than two numbers of ranks.

    Least squares of relative deviations: noise is a share of the time. The serial share is
    A / (A + B), whether or not one rank was measured.
    """
    rows = [(1.0 / time, 1.0 / (ranks * time)) for ranks, time in points if ranks > 0 and time > 0]
    if len({ranks for ranks, time in points if ranks > 0 and time > 0}) < _FEWEST:
        return None
    aa, bb = sum(a * a for a, _ in rows), sum(b * b for _, b in rows)
    ab, sa, sb = sum(a * b for a, b in rows), sum(a for a, _ in rows), sum(b for _, b in rows)
    ground = aa * bb - ab * ab
    if ground <= 1e-12 * aa * bb:
        return None
    serial, parallel = (bb * sa - ab * sb) / ground, (aa * sb - ab * sa) / ground
    if serial < 0:
        serial, parallel = 0.0, sb / bb
    elif parallel < 0:
        serial, parallel = sa / aa, 0.0
    rest = sum((serial * a + parallel * b - 1.0) ** 2 for a, b in rows)
    whole, freedom = serial + parallel, len(rows) - 2
    error = None
    if freedom > 0:
        by_serial, by_parallel = parallel / whole**2, -serial / whole**2
        spread = (
            by_serial**2 * bb - 2 * by_serial * by_parallel * ab + by_parallel**2 * aa
        ) / ground
        error = _quantile(freedom) * math.sqrt(max(rest / freedom * spread, 0.0))
    return Fit(serial / whole, error, math.sqrt(rest / len(rows)))


def fit_gustafson(points: Sequence[tuple[float, float]]) -> Fit | None:
    """Gustafson's law, S(x) = x - s (x - 1), through (times the fewest ranks, scaled speed-up);
    None without a point beyond the first.

    The serial share `s` is that of the time on the larger machine. The speed-up must be 1 where x
    is 1.
    """
    rows = [((x - 1.0) / x, (x - speedup) / x) for x, speedup in points if x > 1]
    if not rows:
        return None
    ground = sum(a * a for a, _ in rows)
    share = min(max(sum(a * y for a, y in rows) / ground, 0.0), 1.0)
    rest = sum((share * a - y) ** 2 for a, y in rows)
    freedom = len(rows) - 1
    error = _quantile(freedom) * math.sqrt(rest / freedom / ground) if freedom > 0 else None
    return Fit(share, error, math.sqrt(rest / len(rows)))


def serial_share(times: float, speedup: float) -> float | None:
    """The serial share that explains one point (Karp and Flatt): `times` as many ranks gave this
    speed-up. None for the first point.

    Equal at all points: a serial part. It grows with the ranks: an overhead that grows.
    """
    if times <= 1 or speedup <= 0:
        return None
    return (1.0 / speedup - 1.0 / times) / (1.0 - 1.0 / times)


def amdahl_speedup(share: float, ranks: float) -> float:
    """The speed-up of so many ranks over one, by Amdahl's law."""
    return 1.0 / (share + (1.0 - share) / ranks)
