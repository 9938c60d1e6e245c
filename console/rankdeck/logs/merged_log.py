"""The lines of several ranks and events of their nodes in order of time, equal ones folded."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from operator import itemgetter

from msgspec import field

from rankdeck.logs.bars import BarGroup, group_bars
from rankdeck.logs.source import SLICE
from rankdeck.model.health import Occurrence, with_device
from rankdeck.state.lines import Gap, Line, RankLog

KEEP = 20_000
FOLD_WITHIN = 2.0
"""Seconds between equal lines that are shown as one."""
EVENT = -2
"""Rank number of lines that are events of a node."""
MOST_BARS = 4
"""Most progress bars below the merged lines."""
GAP = "gap"
NODE = "node"
"""Extra streams: lines that mark missing output, and events of nodes."""
Events = Callable[[], Iterable[Occurrence]]
"""Returns all events to show, in any order; called at every update."""


class MergedLine(Line):
    """A line of a merged log, which carries the ranks that wrote it, also
    where the log is filtered or saved.
    """

    counts: dict[int, int] = field(default_factory=dict[int, int])
    """Rank -> how often it wrote this line, as it grows; {} while
    it is a single line of one rank.
    """


class MergedLog:
    """The lines of several ranks in order of time; a line that arrives late is added at the end.

    `events` gives node events to include; with `fold`, equal lines of ranks are
    shown as one; `keep` is the most lines.
    """

    gaps: tuple[Gap, ...] = ()

    def __init__(
        self,
        logs: Mapping[int, RankLog],
        events: Events = tuple,
        *,
        fold: bool = True,
        keep: int = KEEP,
    ) -> None:
        self._logs, self._events, self._fold, self._keep = (dict(logs), events, fold, keep)
        share = self._share
        self._seen = {rank: max(log.first, log.total - share) for rank, log in logs.items()}
        self._latest = dict.fromkeys(self._logs, 0.0)
        """Rank -> time of its newest line here; its later lines get at least this time."""
        self.late = any(self._seen.values())
        """Whether there are earlier lines that were left out at the start."""
        self._events_shown: frozenset[Occurrence] = frozenset()
        self._events_waiting: list[tuple[float, Line]] = []
        self.lines: list[MergedLine] = []
        self.total = 0
        self.changes = 0
        """Grows with every visible change."""
        self._newest: dict[str, int] = {}
        """Text -> number of the newest line with it."""
        self._last_of: dict[int, int] = {}
        """Rank -> number of its newest line."""

    @property
    def _share(self) -> int:
        """Lines per rank, so that these, plus one mark per rank, are
        together as many as are kept.
        """
        return max(self._keep // max(len(self._logs), 1) - 1, 20)

    @property
    def waiting(self) -> int:
        """Number of lines that have arrived and were not added yet."""
        return sum(log.total - self._seen[r] for r, log in self._logs.items())

    @property
    def first(self) -> int:
        return self.total - len(self.lines)

    @property
    def begun(self) -> list[Line]:
        """The progress bars that most ranks draw: for each the line of the
        slowest, with how far all of them are.
        """
        groups = group_bars(bar for log in self._logs.values() for bar in log.bars)
        return [_line_of_bars(group) for group in groups[:MOST_BARS]]

    def update(self, most: int = SLICE) -> bool:
        """Add at most `most` of the lines that have arrived; returns whether more are waiting."""
        self._told_now()
        marks = self._leave_out()
        ranks = [rank for rank, log in self._logs.items() if log.total != self._seen[rank]]
        sources = [marks, self._events_waiting, *map(self._fresh, ranks)]
        taken = list(islice(heapq.merge(*sources, key=itemgetter(0)), most))
        for at, line in taken:
            if line.stream == NODE and line.rank == EVENT:
                self._events_waiting.remove((at, line))
            elif line.stream != GAP:
                self._seen[line.rank] += 1
                self._latest[line.rank] = at
        self.add(line for _, line in taken)
        return self.waiting > 0 or bool(self._events_waiting)

    def add(self, lines: Iterable[Line]) -> None:
        """Add lines that are in order of time."""
        for line in lines:
            self._add(line)
        self._trim()

    def _leave_out(self) -> list[tuple[float, Line]]:
        """Skip lines that arrived faster than they could be added; returns marks in their place."""
        share, many = self._share, self.waiting > self._keep
        marks: list[tuple[float, Line]] = []
        for rank, log in self._logs.items():
            if log.total < self._seen[rank]:
                self._seen[rank], self._latest[rank] = log.first, 0.0
            start = max(log.first, log.total - share if many else 0)
            gone = start - self._seen[rank]
            if gone > 0:
                self._seen[rank] = start
                at = max(self._latest[rank], log.lines[start - log.first].at if log.lines else 0.0)
                text = f"{gone:,} lines arrived faster than this screen can show them; the log on the node is complete"
                marks.append((at, Line(at, rank, GAP, 0, text)))
        return sorted(marks, key=itemgetter(0))

    def _fresh(self, rank: int) -> Iterator[tuple[float, Line]]:
        """(time, line) of the waiting lines of a rank, decoded only when taken."""
        log, latest = self._logs[rank], self._latest[rank]
        lines = log.lines
        for place in range(self._seen[rank] - log.first, len(lines)):
            line = lines[place]
            # If a node's clock goes back, the lines of its rank must keep their order.
            latest = max(latest, line.at)
            yield latest, line

    def _told_now(self) -> None:
        now = frozenset(self._events())
        if now == self._events_shown:
            return
        for one in now - self._events_shown:
            text = f"{one.node}: {with_device(one.device, one.text, one.check)}"
            self._events_waiting.append((one.at, Line(one.at, EVENT, NODE, 0, text)))
        self._events_waiting.sort(key=itemgetter(0))
        self._events_shown = now

    def _add(self, line: Line) -> None:
        self.changes += 1
        if self._fold and line.rank >= 0 and self._fold_in(line):
            return
        self._newest[line.text] = self._last_of[line.rank] = self.total
        self.lines.append(
            MergedLine(line.at, line.rank, line.stream, line.offset, line.text, line.cut)
        )
        self.total += 1

    def _fold_in(self, line: Line) -> bool:
        """Fold the line into an equal recent one, if that keeps the order of
        its rank; returns whether it did.
        """
        number = self._newest.get(line.text, -1)
        if number < max(self.first, self._last_of.get(line.rank, -1)):
            return False
        there = self.lines[number - self.first]
        if there.stream != line.stream or line.at - there.at > FOLD_WITHIN:
            return False
        counts = there.counts
        counts.setdefault(there.rank, 1)
        counts[line.rank] = counts.get(line.rank, 0) + 1
        self._last_of[line.rank] = number
        return True

    def _trim(self) -> None:
        gone = len(self.lines) - self._keep
        if gone <= 0:
            return
        for number, line in enumerate(self.lines[:gone], self.first):
            if self._newest.get(line.text) == number:
                del self._newest[line.text]
        del self.lines[:gone]


def _line_of_bars(group: BarGroup) -> MergedLine:
    """The line of the slowest of these bars, with how far all of them are."""
    line = group.bars[0].line
    words = f"  ({len(group.bars)} ranks: {group.range_words})" if len(group.bars) > 1 else ""
    text = f"{line.text}{words}"
    return MergedLine(line.at, line.rank, line.stream, line.offset, text, line.cut)
