"""A deadline for each key; the time to find the due keys depends on how
many are due, not on how many there are.
"""

from collections.abc import Hashable, Mapping
from heapq import heappop, heappush
from math import floor
from operator import itemgetter
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
SLOT = 0.5
"""Width of a slot in seconds.

Deadlines in a slot are sorted only when due: sorting each at once costs more.
"""
FAR = 1e15
"""Times are limited to ± this many seconds."""


class Deadlines(Generic[Key]):
    """At most one time for each key, in seconds of any one clock."""

    def __init__(self, first: Mapping[Key, float] | None = None) -> None:
        """`first`: when each of these is due."""
        self._at: dict[Key, float] = {}
        self._slots: dict[int, list[tuple[float, Key]]] = {}
        """Slot number -> entries; an entry is valid only if its time
        is still the key's time in `_at`.
        """
        self._numbers: list[int] = []
        """Heap of the slot numbers."""
        for key, at in (first or {}).items():
            self.set(key, at)

    def __len__(self) -> int:
        return len(self._at)

    def at(self, key: Key) -> float | None:
        """When this key is due; None: never."""
        return self._at.get(key)

    def set(self, key: Key, at: float) -> None:
        """Set the deadline of a key; replaces the one before."""
        if self._at.get(key) == at:
            return
        self._at[key] = at
        self._put(at, key)

    def forget(self, key: Key) -> None:
        """Remove the deadline of a key, if it has one."""
        self._at.pop(key, None)

    def due(self, now: float) -> list[Key]:
        """Remove and return the keys whose deadline was before `now`, the earliest first."""
        come: list[tuple[float, Key]] = []
        while self._numbers and self._numbers[0] * SLOT < now:
            come += self._slots.pop(heappop(self._numbers))
        come.sort(key=itemgetter(0))
        found: list[Key] = []
        for at, key in come:
            if self._at.get(key) != at:
                continue
            if at < now:
                del self._at[key]
                found.append(key)
            else:
                self._put(at, key)
        return found

    def _put(self, at: float, key: Key) -> None:
        number = floor(min(max(at, -FAR), FAR) / SLOT)
        if number not in self._slots:
            self._slots[number] = []
            heappush(self._numbers, number)
        self._slots[number].append((at, key))
