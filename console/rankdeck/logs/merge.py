"""The log that a view reads: of one rank, or of several merged by time, with equal lines folded."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Protocol

from rankdeck.model.health import Occurrence
from rankdeck.model.pattern import compiled, searched
from rankdeck.state.lines import Gap, Line, RankLog


class Source(Protocol):
    """A log that can be looked at: one rank's, or several made into one."""

    @property
    def lines(self) -> Sequence[Line]: ...
    @property
    def total(self) -> int:
        """The number after that of the newest line."""
        ...

    @property
    def first(self) -> int:
        """The number of `lines[0]`."""
        ...

    @property
    def partial(self) -> Line | None:
        """A newest line that has no end yet."""
        ...

    @property
    def gaps(self) -> Sequence[Gap]:
        """Where something is missing that the node still has."""
        ...


class TextMatch:
    """A text or regular expression to look for: capitals in it make it exact."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.exact = text != text.lower()
        pattern = searched(text)
        self._pattern = compiled(pattern) if pattern else None

    def spans(self, shown: str) -> list[tuple[int, int]]:
        """Where it is in this line, as characters from and until."""
        if self._pattern is not None:
            return self._pattern.spans(shown)
        where = shown if self.exact else shown.lower()
        found: list[tuple[int, int]] = []
        at = where.find(self.text)
        while at >= 0 and self.text:
            found.append((at, at + len(self.text)))
            at = where.find(self.text, at + len(self.text))
        return found

    def within(self, shown: str) -> bool:
        """Whether it is anywhere in this line."""
        if self._pattern is not None:
            return self._pattern.within(shown)
        return self.text in (shown if self.exact else shown.lower())


KEEP = 20_000
SLICE = 1_000
"""Lines processed in one step: some milliseconds."""
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
        self._logs, self._events, self._fold, self._keep = (dict(logs), events, fold, keep)
        share = self._share
        self._seen = {rank: max(log.first, log.total - share) for rank, log in logs.items()}
        self._latest = dict.fromkeys(self._logs, 0.0)
        """Rank -> the time of its newest line here: no line of it stands before that."""
        self.late = any(self._seen.values())
        """Whether there are earlier lines that it did not begin with."""
        self._told: frozenset[Occurrence] = frozenset()
        self._events_waiting: list[tuple[float, Line]] = []
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
        """Lines of each rank, and a mark, of which all together are as many as are kept."""
        return max(self._keep // max(len(self._logs), 1) - 1, 20)

    @property
    def waiting(self) -> int:
        """Lines that are here and were not taken in yet."""
        return sum(log.total - self._seen[r] for r, log in self._logs.items())

    @property
    def first(self) -> int:
        return self.total - len(self.lines)

    def counts(self, number: int) -> Mapping[int, int]:
        """Which ranks wrote this line, and how often; empty if it is one line of one rank."""
        return self._counts.get(number, {})

    def update(self, most: int = SLICE) -> bool:
        """Process at most so many of the lines that arrived since; True if more are waiting."""
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
        """Take in lines that stand in the order of time."""
        for line in lines:
            self._add(line)
        self._trim()

    def _leave_out(self) -> list[tuple[float, Line]]:
        """Marks in the place of lines that came faster than they could be taken in."""
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
        """What is waiting of a rank: made into lines only as far as it is taken."""
        log, latest = self._logs[rank], self._latest[rank]
        lines = log.lines
        for place in range(self._seen[rank] - log.first, len(lines)):
            line = lines[place]
            # A node whose clock goes back must not turn round what its rank wrote.
            latest = max(latest, line.at)
            yield latest, line

    def _told_now(self) -> None:
        now = frozenset(self._events())
        if now == self._told:
            return
        for one in now - self._told:
            text = f"{one.node}: {one.device + ': ' if one.device else ''}{one.text}"
            self._events_waiting.append((one.at, Line(one.at, EVENT, NODE, 0, text)))
        self._events_waiting.sort(key=itemgetter(0))
        self._told = now

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
