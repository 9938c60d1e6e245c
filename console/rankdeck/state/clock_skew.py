"""How far the clock of a node is ahead of the console's, by the arrival of its samples."""

STAMPS = 5
"""Samples in a row that must agree on how far a clock is behind."""
ALIKE = 0.5
"""Most seconds by which they may differ; on a slow link they differ more."""


class ClockSkew:
    """How many seconds a node's clock is ahead of the console's,
    measured by the arrival of its samples.
    """

    __slots__ = ("_stamps", "ahead")

    def __init__(self) -> None:
        self.ahead: float | None = None
        self._stamps: tuple[float, ...] = ()

    def take(self, ahead: float | None) -> None:
        """Take the difference (stamp - arrival) of one more sample;
        None if its stamp is not a time.

        A sample cannot arrive before it was sent, but a slow link may delay it: a clock counts as
        behind only if several samples in a row agree.
        """
        if ahead is None:
            self.ahead = None
            return
        self._stamps = (*self._stamps[-STAMPS + 1 :], ahead)
        alike = len(self._stamps) == STAMPS and max(self._stamps) - min(self._stamps) < ALIKE
        if self.ahead is None or ahead > self.ahead or alike:
            self.ahead = max(self._stamps) if alike else ahead
