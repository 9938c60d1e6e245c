"""Whether a measurement that takes longer than expected still moves bytes: it is slow then, and
does not hang.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from rankdeck.state.fleet import Fleet

MOVED = ("net.rx", "net.tx", "rdma.rx", "rdma.tx")
"""The counters of bytes that a measurement between nodes moves."""
LEAST = 100_000.0
"""Bytes per second, of all ports of its nodes together: more than telemetry and output move."""
SPAN = 20.0
"""Seconds over which bytes are counted: longer than two samples of a large cluster are apart."""
WINDOWS = 4
"""A measurement whose bytes flow may take this many times as long as others."""


Counts = Mapping[tuple[str, str, str], float]
"""(node, metric, port) -> bytes so far."""


def port_counts(fleet: Fleet, nodes: Iterable[str]) -> Counts:
    """What the ports of these nodes have counted; a node without telemetry has none."""
    return {
        (node, metric, port): float(count)
        for node in nodes
        if fleet.knows(node)
        for metric in MOVED
        for port, count in fleet.node(node).values.get(metric, {}).items()
    }


class Flow:
    """Counts what one measurement moves: `count` gives its ports' counters, `printed`
    the bytes of its output.
    """

    def __init__(
        self, count: Callable[[], Counts], printed: Callable[[], int], now: Callable[[], float]
    ) -> None:
        self._count, self._printed, self._now = count, printed, now
        self._looks: deque[tuple[float, Counts, int]] = deque()

    def look(self) -> None:
        """Note what has been moved by now; to be called about once a second."""
        now = self._now()
        self._looks.append((now, self._count(), self._printed()))
        while len(self._looks) > 2 and now - self._looks[1][0] >= SPAN:
            self._looks.popleft()

    @property
    def flows(self) -> bool:
        """Whether bytes moved, or output came, in the last SPAN seconds."""
        if len(self._looks) < 2:
            return False
        (began, before, wrote), (ended, after, written) = self._looks[0], self._looks[-1]
        # A port that was not known before has counted for longer than this measurement takes.
        moved = sum(count - before[port] for port, count in after.items() if port in before)
        return written > wrote or moved > LEAST * (ended - began)
