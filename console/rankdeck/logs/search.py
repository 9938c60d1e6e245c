"""Searches a growing log, and filters it to the lines wanted."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta

from rankdeck.logs.collapse import mask
from rankdeck.logs.merge import Source, TextMatch
from rankdeck.model.health import seconds_of
from rankdeck.model.schedulers import LogRun
from rankdeck.model.text import printable
from rankdeck.state.lines import Gap, Line

TROUBLE = re.compile(
    r"error|exception|traceback|fatal|critical|\bfail|abort|segfault|segmentation fault|panic"
    r"|out of memory|killed|not ok|\bxid\b",
    re.IGNORECASE,
)


GOALS = "a line (1200), a time (14:30:05), so long ago (-5m), a place (50%)"
"""What `goal_of` understands."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Where somebody wants to go in a log: to a time (epoch seconds), to a line, or a share of it."""

    at: float | None = None
    line: int | None = None
    share: float | None = None

    def row(self, count: int) -> int:
        """Which of so many lines it is, from 0 on; of a goal that is no time."""
        wanted = self.line - 1 if self.line is not None else round((self.share or 0.0) * count)
        return min(max(wanted, 0), max(count - 1, 0))


def goal_of(text: str, now: float) -> Goal:
    """Where that is; a time of day is the last one before `now`. Raises ValueError."""
    text = text.strip()
    try:
        if text.startswith("-"):
            return Goal(at=now - seconds_of(text[1:]))
        if text.endswith("%"):
            return Goal(share=min(max(float(text[:-1]) / 100, 0.0), 1.0))
        if text.isdigit():
            return Goal(line=int(text))
        if ":" in text:
            return Goal(at=_moment(text, now))
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"not understood: {printable(text)}; write {GOALS}")


def _moment(text: str, now: float) -> float:
    """A time of day, or a day and a time, here."""
    if "-" in text:
        return datetime.fromisoformat(text).timestamp()
    of_day = time.fromisoformat(text if text[1:2] != ":" else f"0{text}")
    moment = datetime.combine(datetime.fromtimestamp(now), of_day)
    return (moment if moment.timestamp() <= now else moment - timedelta(days=1)).timestamp()


SLICE = 1_000
"""Lines looked at in one go: some milliseconds."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Lines with every text of `within`, without any of `without`, and `around` lines about each."""

    within: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    around: int = 0
    run: tuple[int, LogRun] | None = None
    """Only what was written in this run of a job that Slurm queued again: its number from 0, and where its output lies."""

    def __bool__(self) -> bool:
        return bool(self.within or self.without or self.run)

    def __str__(self) -> str:
        words = [
            *([f"attempt {self.run[0]}"] if self.run else []),
            *(f"&{text}" for text in self.within),
            *(f"!{text}" for text in self.without),
        ]
        return " ".join([*words, *([f"±{self.around}"] if self.around else [])])


class Filtered:
    """What is left of another log, with numbers of its own."""

    gaps: tuple[Gap, ...] = ()

    def __init__(self, source: Source, wanted: Wanted) -> None:
        self.source, self.wanted = source, wanted
        self._within = [TextMatch(text) for text in wanted.within]
        self._without = [TextMatch(text) for text in wanted.without]
        self._restart()

    def _restart(self) -> None:
        self._scanned = self.source.first
        self._after = 0
        """Lines still to be kept after the last match."""
        self._last = self._scanned - 1
        """The number, in the source, of the last line kept."""
        self._numbers: list[int] = []
        self.lines: list[Line] = []
        self.total = 0

    @property
    def first(self) -> int:
        return self.total - len(self.lines)

    @property
    def partial(self) -> Line | None:
        partial = self.source.partial
        return partial if partial is not None and self.fits(partial) else None

    def fits(self, line: Line) -> bool:
        """Whether the line is wanted for itself."""
        run = self.wanted.run
        if run and not run[1].has(line.rank, line.stream, line.offset):
            return False
        shown = printable(line.text)
        if any(words.within(shown) for words in self._without):
            return False
        return all(words.within(shown) for words in self._within)

    def number(self, at: int) -> int:
        """The number, in the source, of this line."""
        return self._numbers[at - self.first]

    def place(self, number: int) -> int:
        """The number, here, of the first line from that one of the source on."""
        return self.first + bisect_left(self._numbers, number)

    @property
    def behind(self) -> bool:
        """Whether there are lines that were not looked at yet."""
        return self._scanned != self.source.total

    def update(self, most: int = SLICE) -> None:
        """Look at so many of the lines that are new."""
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


Fits = Callable[[Line], bool]


class Picked:
    """The lines that fit; `begin` gives what judges them, again for a log that begins again."""

    def __init__(self, begin: Callable[[], Fits]) -> None:
        self._begin = begin
        self._restart()

    def _restart(self) -> None:
        self._fits = self._begin()
        self._matches: list[int] = []
        self._scanned = 0

    @property
    def matches(self) -> tuple[int, ...]:
        """The numbers of the lines, as far as looked at."""
        return tuple(self._matches)

    def behind(self, log: Source) -> bool:
        """Whether there are lines that were not looked at yet."""
        return self._scanned != log.total

    def update(self, log: Source, most: int = SLICE) -> bool:
        """Look at so many of the lines that are new; True if a match came or went."""
        if log.total < self._scanned:
            self._restart()
        before = len(self._matches)
        gone = bisect_left(self._matches, log.first)
        del self._matches[:gone]
        start = max(self._scanned, log.first)
        begin = start - log.first
        for number, line in enumerate(log.lines[begin : begin + most], start):
            if self._fits(line):
                self._matches.append(number)
        self._scanned = min(start + most, log.total)
        return gone > 0 or len(self._matches) != before

    def after(self, number: int) -> int | None:
        """The next matching line, from the beginning again at the end."""
        if not self._matches:
            return None
        at = bisect_right(self._matches, number)
        return self._matches[at % len(self._matches)]

    def before(self, number: int) -> int | None:
        """The matching line before this one, from the end again at the beginning."""
        return self._matches[bisect_left(self._matches, number) - 1] if self._matches else None

    def count(self, current: int | None) -> str:
        """`3/15`, or `15` where no match is chosen."""
        total = f"{len(self._matches):,}"
        if (
            current is None
            or current not in self._matches[bisect_left(self._matches, current) :][:1]
        ):
            return total
        return f"{bisect_left(self._matches, current) + 1:,}/{total}"


class Search(TextMatch, Picked):
    """Lines with a text or pattern; capitals in it make it exact."""

    def __init__(self, text: str) -> None:
        TextMatch.__init__(self, text)
        Picked.__init__(self, lambda: self._has)

    def _has(self, line: Line) -> bool:
        return self.within(printable(line.text))


def troubles(pattern: re.Pattern[str] = TROUBLE) -> Picked:
    """Lines that speak of trouble; one that only repeats an earlier one is left out."""

    def begin() -> Fits:
        seen: set[bytes] = set()

        def fits(line: Line) -> bool:
            shown = printable(line.text)
            if pattern.search(shown) is None:
                return False
            known = len(seen)
            seen.add(mask(shown.encode("utf-8", "replace"))[0])
            return len(seen) > known

        return fits

    return Picked(begin)
