"""Searches a log: texts and patterns, and the lines that look like errors."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from rankdeck.logs.line_templates import mask_numbers
from rankdeck.logs.source import SLICE, Source
from rankdeck.model.patterns import compile_pattern, search_pattern
from rankdeck.model.safe_text import printable_line
from rankdeck.state.lines import Line

TROUBLE = re.compile(
    r"error|exception|traceback|fatal|critical|\bfail|abort|segfault|segmentation fault|panic"
    r"|out of memory|killed|not ok|\bxid\b",
    re.IGNORECASE,
)
Fits = Callable[[Line], bool]


class TextMatch:
    """A text or regular expression to search for; with upper case in
    it, the search is case-sensitive.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.exact = text != text.lower()
        pattern = search_pattern(text)
        self._pattern = compile_pattern(pattern) if pattern else None

    def spans(self, shown: str) -> list[tuple[int, int]]:
        """(start, end) of each match in this line, in characters, end exclusive."""
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
        """Whether it matches anywhere in this line."""
        if self._pattern is not None:
            return self._pattern.within(shown)
        return self.text in (shown if self.exact else shown.lower())


class Picked:
    """The numbers of lines that fit.

    `begin` returns the test; it is called again if the log restarts.
    """

    def __init__(self, begin: Callable[[], Fits]) -> None:
        self._begin = begin
        self._restart()

    def _restart(self) -> None:
        self._fits = self._begin()
        self._matches: list[int] = []
        self._scanned = 0

    @property
    def matches(self) -> tuple[int, ...]:
        """The numbers of the lines that fit, as far as examined."""
        return tuple(self._matches)

    def behind(self, log: Source) -> bool:
        """Whether there are lines that were not examined yet."""
        return self._scanned != log.total

    def update(self, log: Source, most: int = SLICE) -> bool:
        """Examine at most `most` new lines; returns whether a match was added or removed."""
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
        """The next matching line after `number`; after the last, the first.

        None if there is no match.
        """
        if not self._matches:
            return None
        at = bisect_right(self._matches, number)
        return self._matches[at % len(self._matches)]

    def before(self, number: int) -> int | None:
        """The matching line before `number`; before the first, the last.

        None if there is no match.
        """
        return self._matches[bisect_left(self._matches, number) - 1] if self._matches else None

    def count(self, current: int | None) -> str:
        """`3/15`, or `15` if `current` is not a match."""
        total = f"{len(self._matches):,}"
        if (
            current is None
            or current not in self._matches[bisect_left(self._matches, current) :][:1]
        ):
            return total
        return f"{bisect_left(self._matches, current) + 1:,}/{total}"


class Search(TextMatch, Picked):
    """The lines with a text or pattern; with upper case in it, the search is case-sensitive."""

    def __init__(self, text: str) -> None:
        TextMatch.__init__(self, text)
        Picked.__init__(self, lambda: self._has)

    def _has(self, line: Line) -> bool:
        return self.within(printable_line(line.text))


def pick_troubles() -> Picked:
    """The lines that look like errors; lines that differ from an earlier
    one only in numbers are left out.
    """

    def begin() -> Fits:
        seen: set[bytes] = set()

        def fits(line: Line) -> bool:
            shown = printable_line(line.text)
            if TROUBLE.search(shown) is None:
                return False
            known = len(seen)
            seen.add(mask_numbers(shown.encode("utf-8", "replace")))
            return len(seen) > known

        return fits

    return Picked(begin)
