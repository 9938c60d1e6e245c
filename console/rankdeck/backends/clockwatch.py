"""Whether a node's clock was set since its offset was measured. No I/O."""

from dataclasses import dataclass

LATE = 2.5
"""Seconds that a stamp may take to us before its clock is doubted: more than the two between stamps,
or a link that holds each of them up alike would look like a clock that was set back."""
SURE = 0.25
"""Seconds by which stamps of a clock that was set back lie alike; those of a slow link do not."""
_AGREEING = 3
_APART = 1.5


@dataclass(frozen=True, slots=True)
class Clockwatch:
    """What the stamps of `now` frames say; `after` gives what the next one adds."""

    offset: float
    """The node's clock is ours plus this, in seconds, give or take `uncertainty`."""
    uncertainty: float
    doubts: tuple[tuple[float, float], ...] = ()
    """Arrival and lag of stamps in a row that came too late."""

    def after(self, at: float, arrived: float) -> "Clockwatch":
        """The same after a stamp of the node that arrived now; both in epoch seconds.

        A stamp ahead of our clock proves a clock that was set on: no word arrives before it is sent. One
        that is late may be a slow link: a clock that was set back shows the same lag again and again.
        """
        ahead = at - self.offset - arrived
        if ahead > self.uncertainty + SURE:
            return self._set(at - arrived)
        if ahead > -(self.uncertainty + LATE):
            return Clockwatch(self.offset, self.uncertainty)
        lags = [lag for _, lag in self.doubts] + [ahead]
        fits = max(lags) - min(lags) < SURE
        fits = fits and all(arrived - when >= _APART for when, _ in self.doubts[-1:])
        doubts = (*self.doubts, (arrived, ahead)) if fits else ((arrived, ahead),)
        if len(doubts) >= _AGREEING:
            return self._set(at - arrived)
        return Clockwatch(self.offset, self.uncertainty, doubts)

    def _set(self, offset: float) -> "Clockwatch":
        # How long the stamp was under way is not known: it is added to what was.
        return Clockwatch(offset, self.uncertainty + SURE)
