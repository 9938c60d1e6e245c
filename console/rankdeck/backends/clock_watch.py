"""Notices by the time stamps of a node that its clock was set. No I/O."""

from rankdeck.values import Value, replace

LATE = 2.5
"""A stamp may arrive this many seconds late before the node's clock is doubted. More than the 2
seconds between stamps; otherwise a link that delays all stamps equally would look like a clock that
was set back.
"""
SURE = 0.25
"""Late stamps that agree within this many seconds show that the clock was
set back, not that the link is slow.
"""
OWN_STEP = 0.1
"""The console's clock was set if it moves this many seconds against
the steady one between two stamps.
"""
_AGREEING = 3
_APART = 1.5


class ClockWatch(Value):
    """Detects by the stamps of `now` frames that a node's clock was set; immutable, see `after`."""

    offset: float
    """Seconds by which the node's clock is ahead of the console's, ± `uncertainty`."""
    uncertainty: float
    doubts: tuple[tuple[float, float], ...] = ()
    """(arrival, lag) in seconds of consecutive stamps that arrived too late."""
    began: float | None = None
    """When the console's steady clock began, in epoch seconds of its other
    one; None before that was looked at.
    """

    def beside(self, began: float) -> "ClockWatch":
        """The state once the console's steady clock is seen to have begun then:
        if that moved, its other clock was set.

        The node's clock did not move with it.
        """
        step = 0.0 if self.began is None else began - self.began
        if abs(step) <= OWN_STEP:
            return replace(self, began=began)
        return replace(self, offset=self.offset - step, doubts=(), began=began)

    def after(self, at: float, arrived: float) -> "ClockWatch":
        """The state after the node's stamp `at` arrived at `arrived`; both in epoch seconds.

        A stamp ahead of the console's clock proves that the node's clock was set forward. A late
        one may be due to a slow link; a clock that was set back shows the same lag repeatedly.
        """
        ahead = at - self.offset - arrived
        if ahead > self.uncertainty + SURE:
            return self._set(at - arrived)
        if ahead > -(self.uncertainty + LATE):
            return replace(self, doubts=())
        lags = [lag for _, lag in self.doubts] + [ahead]
        fits = max(lags) - min(lags) < SURE
        fits = fits and all(arrived - when >= _APART for when, _ in self.doubts[-1:])
        doubts = (*self.doubts, (arrived, ahead)) if fits else ((arrived, ahead),)
        if len(doubts) >= _AGREEING:
            return self._set(at - arrived)
        return replace(self, doubts=doubts)

    def _set(self, offset: float) -> "ClockWatch":
        # The delay of the stamp is not known, so it adds to the uncertainty.
        return replace(self, offset=offset, uncertainty=self.uncertainty + SURE, doubts=())
