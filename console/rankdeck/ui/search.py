"""Search in a log that grows: which lines match, kept up to date."""

from bisect import bisect_left, bisect_right

from rankdeck.ui.clean import clean
from rankdeck.ui.merged import Source


class Search:
    """Lines that contain `text`; capitals in it make it exact."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._exact = text != text.lower()
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
            if self.spans(clean(line.text)):
                self._matches.append(number)
        self._scanned = log.total
        return gone > 0 or len(self._matches) != before

    def spans(self, shown: str) -> list[tuple[int, int]]:
        """Where the text is in this line."""
        where = shown if self._exact else shown.lower()
        found: list[tuple[int, int]] = []
        at = where.find(self.text)
        while at >= 0 and self.text:
            found.append((at, at + len(self.text)))
            at = where.find(self.text, at + len(self.text))
        return found

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
