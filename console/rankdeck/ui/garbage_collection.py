"""Postpones full garbage collections while the user types.

A full collection looks at every object there is: a tenth of a second with 1,000 nodes. It comes when no
key came for a while, and what is there then is set aside: the collections in between look only at what is new.
"""

import gc
import time
from collections.abc import Callable

PERIOD = 60.0
"""Seconds between two full collections, if there is a quiet moment."""
SELDOM = 1000
"""The same in times of what the last one took, where that is longer: they must not cost more than a thousandth."""
LONGEST = 600.0
"""Seconds after which one comes, quiet or not."""
QUIET = 3.0
"""Seconds without a key that make a moment quiet."""
NEVER = 1 << 20
"""So many collections of the middle generation bring a full one on their own."""


class IdleTime:
    """Knows when somebody typed, and when all was looked at last."""

    def __init__(
        self, collect: Callable[[], None] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._collect = collect or collect_and_set_aside
        self._period = PERIOD
        self._clock = clock
        self._typed = self._collected = clock()

    def typed(self) -> None:
        """A key came, or the mouse moved."""
        self._typed = self._clock()

    def look(self) -> None:
        """Collect, if it is time and nobody is held up; call now and then."""
        now = self._clock()
        past = now - self._collected
        if past >= LONGEST or (past >= self._period and now - self._typed >= QUIET):
            self.collect()

    def collect(self) -> None:
        """Collect now: something big has just come or gone."""
        begin = self._clock()
        self._collect()
        self._collected = self._clock()
        self._period = max(PERIOD, SELDOM * (self._collected - begin))


def stop_full_collections() -> None:
    """No full collection from here on, but those that are asked for."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)


def collect_and_set_aside() -> None:
    """Look at everything; then leave what is still there out of the next collections."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
