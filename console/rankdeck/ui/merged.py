"""Several ranks' lines as one log, by the time they were read."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Protocol

from rankdeck.state.lines import Line, RankLog

KEEP = 20_000
BEGIN = 500
"""Lines of each rank that the merged log begins with."""


class Source(Protocol):
    """A log that can be looked at: one rank's, or many merged."""

    @property
    def lines(self) -> Sequence[Line]: ...
    @property
    def total(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def partial(self) -> Line | None: ...


class MergedLog:
    """Lines in order of time; a line that comes late goes after those already shown."""

    partial: Line | None = None

    def __init__(self, logs: Mapping[int, RankLog]) -> None:
        self._logs = dict(logs)
        self._seen = {
            rank: max(log.first, log.total - BEGIN) for rank, log in logs.items()
        }
        self.lines: list[Line] = []
        self.total = 0

    @property
    def first(self) -> int:
        return self.total - len(self.lines)

    def update(self) -> None:
        """Take in what the ranks wrote since."""
        fresh: list[Line] = []
        for rank, log in self._logs.items():
            seen = self._seen[rank] if self._seen[rank] <= log.total else log.first
            start = max(seen, log.first)
            fresh += log.lines[start - log.first :]
            self._seen[rank] = log.total
        fresh.sort(key=attrgetter("at"))
        self.lines += fresh
        self.total += len(fresh)
        del self.lines[: max(len(self.lines) - KEEP, 0)]
