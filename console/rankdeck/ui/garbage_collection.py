"""Postpones full garbage collections while the user types.

A full collection visits every object, which takes a tenth of a second with 1,000 nodes. It runs
when no key was pressed for a while. Objects that survive are frozen, so that later collections
visit only new objects.
"""

import gc
import time
from collections.abc import Callable, Iterable, Sequence

from textual.strip import Strip

PERIOD = 60.0
"""Least seconds between two full collections."""
SELDOM = 1000
"""The pause is at least this many times as long as the last collection
took: 0.1 % of the time goes to them.
"""
LONGEST = 600.0
"""Seconds after which a collection runs even if the user types."""
QUIET = 3.0
"""The user counts as idle after this many seconds without a key."""
YOUNG = 50_000
"""New objects after which Python looks through them; that delays a key by some milliseconds."""
NEVER = 1 << 20
"""Collections of the middle generation before Python starts a full one itself."""


class IdleTime:
    """Decides when to run a full collection, by the times of the
    last key and of the last collection.
    """

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
        """Collect if it is due and the user is idle; call regularly."""
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
    """Stop automatic full collections: only explicit ones run from now on. What was loaded until
    now is looked through by none.
    """
    gc.freeze()
    _, middle, _ = gc.get_threshold()
    gc.set_threshold(YOUNG, middle, NEVER)


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
    """Have painted lines freed as soon as they are no longer shown, without a full collection.

    Textual caches in each line a reference to itself; 64 busy ranks would leak
    2 MB a second until a full collection.
    """
    Strip.divide = _divide_or_whole
