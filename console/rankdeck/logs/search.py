"""Which lines of a log that grows one looks for: found in slices, kept up to date."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from rankdeck.logs.filter import TROUBLE
from rankdeck.logs.masks import mask
from rankdeck.logs.source import Source, Words
from rankdeck.model.text import printable
from rankdeck.state.lines import Line

SLICE = 1_000
"""Lines looked at in one go: some milliseconds."""
Fits = Callable[[Line], bool]


class Picked:
    """The lines that fit; `begin` gives what judges them, anew for a log that begins anew."""

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
        """Look at so many of the lines that are new; True where a match came or went."""
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


class Search(Words, Picked):
    """Lines that contain `text`; capitals in it make it exact."""

    def __init__(self, text: str) -> None:
        Words.__init__(self, text)
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
