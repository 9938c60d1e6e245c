"""Search in a log that grows: which lines match, kept up to date."""

import re
from bisect import bisect_left, bisect_right

from rankdeck.logs.filter import TROUBLE
from rankdeck.logs.masks import mask
from rankdeck.logs.source import Source, Words
from rankdeck.model.text import printable


class Search(Words):
    """Lines that contain `text`; capitals in it make it exact."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._matches: list[int] = []
        self._scanned = 0

    def update(self, log: Source) -> bool:
        """Look at the lines that are new; True where a match came or went."""
        if log.total < self._scanned:
            self._matches, self._scanned = [], 0
        before = len(self._matches)
        gone = bisect_left(self._matches, log.first)
        del self._matches[:gone]
        start = max(self._scanned, log.first)
        for number, line in enumerate(log.lines[start - log.first :], start):
            if self.within(printable(line.text)):
                self._matches.append(number)
        self._scanned = log.total
        return gone > 0 or len(self._matches) != before

    def after(self, number: int) -> int | None:
        """The next matching line, from the beginning again at the end."""
        if not self._matches:
            return None
        at = bisect_right(self._matches, number)
        return self._matches[at % len(self._matches)]

    def before(self, number: int) -> int | None:
        """The matching line before this one, from the end again at the beginning."""
        return (
            self._matches[bisect_left(self._matches, number) - 1]
            if self._matches
            else None
        )

    def count(self, current: int | None) -> str:
        """`3/15`, or `15` where no match is chosen."""
        total = f"{len(self._matches):,}"
        if (
            current is None
            or current not in self._matches[bisect_left(self._matches, current) :][:1]
        ):
            return total
        return f"{bisect_left(self._matches, current) + 1:,}/{total}"


def troubles(log: Source, pattern: re.Pattern[str] = TROUBLE) -> list[int]:
    """Numbers of the lines that speak of trouble; one that only repeats an earlier one is left out."""
    seen: set[bytes] = set()
    found: list[int] = []
    for number, line in enumerate(log.lines, log.first):
        shown = printable(line.text)
        if pattern.search(shown) is None:
            continue
        kind = mask(shown.encode("utf-8", "replace"))[0]
        if kind not in seen:
            seen.add(kind)
            found.append(number)
    return found
