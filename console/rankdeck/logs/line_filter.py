"""A log without the lines that a filter leaves out."""

from bisect import bisect_left
from collections.abc import Sequence

from rankdeck.logs.search import TextMatch
from rankdeck.logs.source import SLICE, Source
from rankdeck.model.queue import LogRun
from rankdeck.model.safe_text import printable_line
from rankdeck.state.lines import Gap, Line
from rankdeck.values import Value


class LineFilter(Value):
    """A filter: lines with every text of `within` and none of
    `without`, with `around` lines of context.
    """

    within: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    around: int = 0
    stream: str = ""
    """Only lines of `out` or of `err`; "": of both."""
    run: tuple[int, LogRun] | None = None
    """Only output of one run of a job that Slurm requeued: (number of the
    run from 0, its part of the output).
    """

    def __bool__(self) -> bool:
        return bool(self.within or self.without or self.stream or self.run)

    def __str__(self) -> str:
        words = [
            *([f"attempt {self.run[0]}"] if self.run else []),
            *([f"std{self.stream}"] if self.stream else []),
            *(f"&{text}" for text in self.within),
            *(f"!{text}" for text in self.without),
        ]
        return " ".join([*words, *([f"±{self.around}"] if self.around else [])])


class Filtered:
    """Another log filtered by `wanted`; its lines have their own numbers."""

    gaps: tuple[Gap, ...] = ()

    def __init__(self, source: Source, wanted: LineFilter) -> None:
        self.source, self.wanted = source, wanted
        self._within = [TextMatch(text) for text in wanted.within]
        self._without = [TextMatch(text) for text in wanted.without]
        self._restart()

    def _restart(self) -> None:
        self._scanned = self.source.first
        self._after = 0
        """Lines of context still to be kept after the last match."""
        self._last = self._scanned - 1
        """Number in the source of the last line that was kept."""
        self._numbers: list[int] = []
        self.lines: list[Line] = []
        self.total = 0

    @property
    def first(self) -> int:
        return self.total - len(self.lines)

    @property
    def begun(self) -> list[Line]:
        return [line for line in self.source.begun if self.fits(line)]

    def fits(self, line: Line) -> bool:
        """Whether the line itself matches, not only as context."""
        run = self.wanted.run
        if run and not run[1].has(line.rank, line.stream, line.offset):
            return False
        if self.wanted.stream and line.stream != self.wanted.stream:
            return False
        shown = printable_line(line.text)
        if any(words.within(shown) for words in self._without):
            return False
        return all(words.within(shown) for words in self._within)

    def number(self, at: int) -> int:
        """The number in the source of line `at` of this log."""
        return self._numbers[at - self.first]

    def place(self, number: int) -> int:
        """The number in this log of the first line at or after line `number` of the source."""
        return self.first + bisect_left(self._numbers, number)

    @property
    def behind(self) -> bool:
        """Whether there are lines that were not examined yet."""
        return self._scanned != self.source.total

    def update(self, most: int = SLICE) -> None:
        """Examine at most `most` new lines."""
        source = self.source
        if source.total < self._scanned:
            self._restart()
        start = max(self._scanned, source.first)
        lines = source.lines
        begin = start - source.first
        for number, line in enumerate(lines[begin : begin + most], start):
            if self.fits(line):
                self._keep_before(number, lines)
                self._keep(number, line)
                self._after = self.wanted.around
            elif self._after:
                self._after -= 1
                self._keep(number, line)
        self._scanned = min(start + most, source.total)
        self._drop(source.first)

    def _keep_before(self, number: int, lines: Sequence[Line]) -> None:
        first = self.source.first
        begin = max(number - self.wanted.around, self._last + 1, first)
        for before in range(begin, number):
            self._keep(before, lines[before - first])

    def _keep(self, number: int, line: Line) -> None:
        self._numbers.append(number)
        self.lines.append(line)
        self._last = number
        self.total += 1

    def _drop(self, first: int) -> None:
        gone = bisect_left(self._numbers, first)
        del self._numbers[:gone], self.lines[:gone]
