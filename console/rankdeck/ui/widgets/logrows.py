"""The rows of a screen of log: from its end upwards, or from a line downwards."""

from collections.abc import Iterable, Iterator, Set
from itertools import pairwise

from rankdeck.logs.search import Picked
from rankdeck.logs.source import Source
from rankdeck.state.lines import Gap, Line
from rankdeck.ui import words
from rankdeck.ui.widgets.canvas import Runs
from rankdeck.ui.widgets.layout import Layout

Key = tuple[int, str, int]
"""Rank, stream and offset: what a line is called in every view."""
Row = tuple[int, Runs]
"""The number of a line, and one of its rows."""


class LogRows:
    """One look at a log."""

    def __init__(self, source: Source, layout: Layout, chosen: int | None, marks: Set[Key]) -> None:
        self._source, self._layout = source, layout
        self._chosen, self._marks = chosen, marks
        self._gaps = {gap.before: gap for gap in source.gaps}

    def last(self, height: int) -> tuple[list[Row], int]:
        """The newest rows, and of how many lines they are."""
        rows: list[Row] = []
        count = 0
        for made in self._each(self._backwards(height)):
            rows[:0] = made
            count += 1
            if len(rows) >= height:
                break
        return rows[-height:], count

    def starting(self, top: int, height: int) -> list[Row]:
        """The rows from that line on."""
        rows: list[Row] = []
        for made in self._each(self._forwards(top, height)):
            rows += made
            if len(rows) >= height:
                break
        return rows[:height]

    def _each(self, numbered: Iterable[tuple[int, Line, Line | None]]) -> Iterator[list[Row]]:
        for number, line, before in numbered:
            rows = self._layout.rows(
                number,
                line,
                before,
                chosen=number == self._chosen,
                marked=bool(self._marks) and key_of(line) in self._marks,
            )
            if number in self._gaps:
                rows.insert(0, [(said(self._gaps[number]), "warn")])
            yield [(number, row) for row in rows]

    def _backwards(self, height: int) -> Iterator[tuple[int, Line, Line | None]]:
        source = self._source
        back = list(reversed(source.lines[-height - 1 :]))
        if partial := source.partial:
            yield source.total, partial, back[0] if back else None
        for number, (line, before) in enumerate(pairwise(back), 1):
            yield source.total - number, line, before
        if back and len(source.lines) == len(back):
            yield source.first, back[-1], None

    def _forwards(self, top: int, height: int) -> Iterator[tuple[int, Line, Line | None]]:
        source = self._source
        start = top - source.first
        before = source.lines[start - 1] if start > 0 else None
        for number, line in enumerate(source.lines[start : start + height], top):
            yield number, line, before
            before = line
        if (partial := source.partial) and start + height >= len(source.lines):
            yield source.total, partial, before


def key_of(line: Line) -> Key:
    """What a line is called in every view."""
    return line.rank, line.stream, line.offset


def marked(marks: Set[Key]) -> Picked:
    """The lines that are marked."""
    return Picked(lambda: lambda line: key_of(line) in marks)


def said(gap: Gap) -> str:
    """What stands where lines are missing."""
    much = words.size(gap.end - gap.start)
    return f"  {much} of {gap.stream} not fetched; the node has it"
