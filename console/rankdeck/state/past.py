"""The last hours of all nodes: a picture every few seconds, in a bounded number of bytes."""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isnan, nan

from rankdeck.model.health import Level
from rankdeck.state.node import NodeState

SPAN = 3 * 3600.0
"""Seconds that can be gone back."""
SHORTEST = 10.0
LIMIT = 24 << 20
"""Bytes of all pictures together."""
LEAST_FRAMES = 60


def _both(node: NodeState, first: str, second: str) -> float | None:
    known = [n for n in (node.total(first), node.total(second)) if n is not None]
    return sum(known) if known else None


def _share(node: NodeState) -> float | None:
    used, there = node.total("gpu.mem_used"), node.total("gpu.mem_total")
    return used / there * 100 if used is not None and there else None


def _hottest(node: NodeState) -> float | None:
    gpu = node.worst("gpu.temp")
    return node.worst("cpu.temp") if gpu is None else gpu


SUMMARY: Mapping[str, Callable[[NodeState], float | None]] = {
    "cpu.used": lambda node: node.worst("cpu.used"),
    "mem.used": lambda node: node.worst("mem.used"),
    "gpu.used": lambda node: node.mean("gpu.used"),
    "gpu.mem_used": _share,
    "gpu.temp": _hottest,
    "rdma.rx": lambda node: node.total("rdma.rx"),
    "rdma.tx": lambda node: node.total("rdma.tx"),
    "net.rx": lambda node: _both(node, "net.rx", "net.tx"),
    "cpu.load1": lambda node: node.worst("cpu.load1"),
}
"""One number for a node and metric: what lists show, and what is remembered."""
_PLACES = {metric: place for place, metric in enumerate(SUMMARY)}


@dataclass(frozen=True, slots=True)
class Frame:
    """All nodes at one instant of the console's wall clock."""

    at: float
    levels: bytes
    numbers: "array[float]"

    def level(self, place: int) -> Level:
        """The level of the node at this place of the cluster file."""
        return Level(self.levels[place])

    def number(self, place: int, metric: str) -> float | None:
        found = self.numbers[place * len(SUMMARY) + _PLACES[metric]]
        return None if isnan(found) else found


class Picture:
    """A frame that is still being taken: node after node, in the order of the cluster file."""

    def __init__(self, at: float) -> None:
        self._at = at
        self._levels = bytearray()
        self._numbers = array("f")

    def add(self, node: NodeState) -> None:
        self._levels.append(node.health.level)
        for number in SUMMARY.values():
            value = number(node)
            self._numbers.append(nan if value is None else value)

    def frame(self) -> Frame:
        return Frame(self._at, bytes(self._levels), self._numbers)


class Past:
    """Frames, oldest first; written by Fleet."""

    def __init__(self, nodes: int) -> None:
        size = max(nodes, 1) * (4 * len(SUMMARY) + 1)
        frames = max(min(int(SPAN / SHORTEST), LIMIT // size), LEAST_FRAMES)
        self.period = SPAN / frames
        self._frames: deque[Frame] = deque(maxlen=frames)

    def due(self, at: float) -> bool:
        """Whether it is time for another picture."""
        return not self._frames or not 0 <= at - self._frames[-1].at < self.period

    def keep(self, picture: "Picture") -> None:
        """Remember a picture that has all nodes."""
        self._frames.append(picture.frame())

    def span(self) -> tuple[float, float] | None:
        """The first and the last instant that is remembered."""
        return (self._frames[0].at, self._frames[-1].at) if self._frames else None

    def frame(self, at: float) -> Frame | None:
        """The newest picture that is not younger than `at`; the oldest where all are."""
        if not self._frames:
            return None
        place = bisect_right(self._frames, at, key=lambda frame: frame.at)
        return self._frames[max(place - 1, 0)]

    def series(self, place: int, metric: str, until: float) -> list[float | None]:
        """The numbers of one node up to an instant, oldest first."""
        return [f.number(place, metric) for f in self._frames if f.at <= until]
