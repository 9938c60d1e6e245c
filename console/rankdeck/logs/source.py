"""The protocol of a log that views read: numbered lines that grow at the end."""

from collections.abc import Sequence
from typing import Protocol

from rankdeck.state.lines import Gap, Line


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


class Words:
    """A text to look for: capitals in it make it exact."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.exact = text != text.lower()

    def spans(self, shown: str) -> list[tuple[int, int]]:
        """Where the text is in this line."""
        where = shown if self.exact else shown.lower()
        found: list[tuple[int, int]] = []
        at = where.find(self.text)
        while at >= 0 and self.text:
            found.append((at, at + len(self.text)))
            at = where.find(self.text, at + len(self.text))
        return found

    def within(self, shown: str) -> bool:
        """Whether the text is anywhere in this line."""
        return self.text in (shown if self.exact else shown.lower())
