"""Several ranks' lines as one log, by the time they were read; equal ones folded."""

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter

from rankdeck.model.notice import Occurrence
from rankdeck.state.lines import Gap, Line, RankLog

KEEP = 20_000
BEGIN = 500
"""Lines of each rank that the merged log begins with."""
MOST = 4_000
"""Lines taken in at once; more than that nobody can read, and the nodes have them."""
FOLD_WITHIN = 2.0
"""Seconds between equal lines that are shown as one."""
EVENT = -2
"""The rank number of what a node said itself."""
GAP = "gap"
NODE = "node"
"""Streams that no rank has: something is missing here, a node says something."""

Events = Callable[[], Iterable[Occurrence]]
"""In any order; called at every update."""


class MergedLog:
    """Lines in order of time; a line that comes late goes after those already there."""

    partial: Line | None = None
    gaps: tuple[Gap, ...] = ()

    def __init__(
        self,
        logs: Mapping[int, RankLog],
        events: Events = tuple,
        *,
        fold: bool = True,
        keep: int = KEEP,
    ) -> None:
        self._logs, self._events, self._fold, self._keep = (
            dict(logs),
            events,
            fold,
            keep,
        )
        begin = min(BEGIN, self._share)
        self._seen = {
            rank: max(log.first, log.total - begin) for rank, log in logs.items()
        }
        self._told: frozenset[Occurrence] = frozenset()
        self.lines: list[Line] = []
        self.total = 0
        self.changes = 0
        """Grows whenever something looks different."""
        self._counts: dict[int, dict[int, int]] = {}
        """Line number -> rank -> how often, where more than one line is folded."""
        self._newest: dict[str, int] = {}
        """Text -> number of the newest line with it."""
        self._last_of: dict[int, int] = {}
        """Rank -> number of its newest line."""

    @property
    def _share(self) -> int:
        return max(MOST // max(len(self._logs), 1), 20)

    @property
    def first(self) -> int:
        return self.total - len(self.lines)

    def counts(self, number: int) -> Mapping[int, int]:
        """Which ranks wrote this line, and how often; empty where it is one line of one rank."""
        return self._counts.get(number, {})

    def update(self) -> None:
        """Take in what came since."""
        fresh = self._fresh_events()
        waiting = sum(log.total - self._seen[r] for r, log in self._logs.items())
        most = self._share if waiting > MOST else MOST
        for rank, log in self._logs.items():
            if log.total != self._seen[rank]:
                fresh += self._fresh(rank, log, most)
        fresh.sort(key=itemgetter(0))
        self.add(line for _, line in fresh)

    def add(self, lines: Iterable[Line]) -> None:
        """Take in lines that stand in the order of time."""
        for line in lines:
            self._add(line)
        self._trim()

    def _fresh(self, rank: int, log: RankLog, most: int) -> list[tuple[float, Line]]:
        seen = self._seen[rank] if self._seen[rank] <= log.total else log.first
        start = max(seen, log.first, log.total - most)
        lines = log.lines[start - log.first :]
        self._seen[rank] = log.total
        found: list[tuple[float, Line]] = []
        if lines and start > seen:
            text = f"{start - seen:,} lines came too fast to be shown; they are whole on the node"
            found.append((lines[0].at, Line(lines[0].at, rank, GAP, 0, text)))
        # A node whose clock goes back must not turn round what its rank wrote.
        latest = 0.0
        for line in lines:
            latest = max(latest, line.at)
            found.append((latest, line))
        return found

    def _fresh_events(self) -> list[tuple[float, Line]]:
        found: list[tuple[float, Line]] = []
        now = frozenset(self._events())
        for one in now - self._told:
            text = f"{one.node}: {one.device + ': ' if one.device else ''}{one.text}"
            found.append((one.at, Line(one.at, EVENT, NODE, 0, text)))
        self._told = now
        return found

    def _add(self, line: Line) -> None:
        self.changes += 1
        if self._fold and line.rank >= 0 and self._fold_in(line):
            return
        self._newest[line.text] = self._last_of[line.rank] = self.total
        self.lines.append(line)
        self.total += 1

    def _fold_in(self, line: Line) -> bool:
        """Count the line to an equal one, where that keeps the order of its rank."""
        number = self._newest.get(line.text, -1)
        if number < max(self.first, self._last_of.get(line.rank, -1)):
            return False
        there = self.lines[number - self.first]
        if there.stream != line.stream or line.at - there.at > FOLD_WITHIN:
            return False
        counts = self._counts.setdefault(number, {there.rank: 1})
        counts[line.rank] = counts.get(line.rank, 0) + 1
        self._last_of[line.rank] = number
        return True

    def _trim(self) -> None:
        gone = len(self.lines) - self._keep
        if gone <= 0:
            return
        for number, line in enumerate(self.lines[:gone], self.first):
            self._counts.pop(number, None)
            if self._newest.get(line.text) == number:
                del self._newest[line.text]
        del self.lines[:gone]
