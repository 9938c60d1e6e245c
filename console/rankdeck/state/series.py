"""The recent past of a number, in little memory."""

from array import array
from collections.abc import Iterator, Mapping, Sequence

Number = int | float


class Ring:
    """The newest `size` points; grows to its size only as points come."""

    __slots__ = ("_at", "_base", "_next", "_size", "_values")

    def __init__(self, size: int) -> None:
        self._size = size
        self._next = 0
        self._base = 0.0
        self._at = array("f")
        self._values = array("f")

    def add(self, at: float, value: float) -> None:
        if not self._at:
            self._base = at
        if len(self._at) < self._size:
            self._at.append(at - self._base)
            self._values.append(value)
            return
        self._at[self._next] = at - self._base
        self._values[self._next] = value
        self._next = (self._next + 1) % self._size

    def __len__(self) -> int:
        return len(self._at)

    def _order(self) -> Iterator[int]:
        yield from range(self._next, len(self._at))
        yield from range(self._next)

    def points(self) -> Sequence[tuple[float, float]]:
        """`(at, value)`, oldest first, on the node's clock."""
        return [(self._base + self._at[i], self._values[i]) for i in self._order()]


def rates(
    before: Mapping[str, Number], now: Mapping[str, Number], seconds: float
) -> dict[str, float]:
    """Counters per second, per device; none for a device that is new or began again."""
    found: dict[str, float] = {}
    if seconds <= 0:
        return found
    for device, value in now.items():
        old = before.get(device)
        if old is not None and value >= old:
            found[device] = (value - old) / seconds
    return found
