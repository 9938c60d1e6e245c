"""Postpones full garbage collections while the user types.

A full collection visits every object, which takes a tenth of a second with 1,000 nodes. It runs when no key
was pressed for a while. Objects that it leaves are frozen, so that later collections visit only new ones.
"""

import gc
import time
from collections.abc import Callable, Iterable, Sequence

from textual.strip import Strip

PERIOD = 60.0
"""Seconds between two full collections, if the user is idle."""
SELDOM = 1000
"""The pause is at least so many times the duration of the last one: they take at most a thousandth of the time."""
LONGEST = 600.0
"""Seconds after which one runs in any case."""
QUIET = 3.0
"""The user is idle after so many seconds without a key."""
NEVER = 1 << 20
"""Collections of the middle generation before Python starts a full one itself."""


class IdleTime:
    """Knows when a key was pressed last, and when the last full collection was."""

    def __init__(
        self, collect: Callable[[], None] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._collect = collect or collect_and_set_aside
        self._period = PERIOD
        self._clock = clock
        self._typed = self._collected = clock()

    def typed(self) -> None:
        """Note that a key was pressed or the mouse moved."""
        self._typed = self._clock()

    def look(self) -> None:
        """Collect if it is due and the user is idle; call now and then."""
        now = self._clock()
        past = now - self._collected
        if past >= LONGEST or (past >= self._period and now - self._typed >= QUIET):
            self.collect()

    def collect(self) -> None:
        """Collect now, because something big was just opened or closed."""
        begin = self._clock()
        self._collect()
        self._collected = self._clock()
        self._period = max(PERIOD, SELDOM * (self._collected - begin))


def stop_full_collections() -> None:
    """Stop automatic full collections; only explicit ones run from now on."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)


def collect_and_set_aside() -> None:
    """Run a full collection, then freeze what is left: later collections skip it."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


_divide = Strip.divide


def _divide_or_whole(self: Strip, cuts: Iterable[int]) -> Sequence[Strip]:
    cuts = [*cuts]
    return [self] if cuts == [self.cell_length] else _divide(self, cuts)


def free_painted_lines() -> None:
    """Have lines freed once nobody shows them, without a full collection.

    Textual notes in each that it is the whole of itself: 64 lively ranks would cost 2 MB a second until then.
    """
    Strip.divide = _divide_or_whole
