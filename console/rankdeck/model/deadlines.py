"""Who is to be looked at next, and when: looking costs as much as is due, not as much as there is."""

from collections.abc import Hashable, Mapping
from heapq import heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """At most one time for each key, in seconds of any one clock."""

    def __init__(self, first: Mapping[Key, float] | None = None) -> None:
        """`first`: when each of these is due."""
        self._at: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        """Of a key only the entry with its own time counts."""
        self._order = 0
        for key, at in (first or {}).items():
            self.set(key, at)

    def __len__(self) -> int:
        return len(self._at)

    def at(self, key: Key) -> float | None:
        """When this one is due; None: never."""
        return self._at.get(key)

    def set(self, key: Key, at: float) -> None:
        """Have it due then, and at no other time."""
        if self._at.get(key) == at:
            return
        self._at[key] = at
        self._order += 1
        heappush(self._heap, (at, self._order, key))

    def forget(self, key: Key) -> None:
        """Have it due no more."""
        self._at.pop(key, None)

    def due(self, now: float) -> list[Key]:
        """Those whose time was before `now`, the earliest first; they are due no more."""
        found: list[Key] = []
        while self._heap and self._heap[0][0] < now:
            at, _, key = heappop(self._heap)
            if self._at.get(key) == at:
                del self._at[key]
                found.append(key)
        return found
