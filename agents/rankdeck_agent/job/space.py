"""Output that a full disk refuses: who waits, when they may go on, and what is said of it."""

import selectors
from pathlib import Path

from rankdeck_agent.job.journal import Journal
from rankdeck_agent.job.streams import Stream


class Space:
    """Streams that are not read while there is no space, so that their ranks wait."""

    def __init__(self, folder: Path, journal: Journal, selector: selectors.BaseSelector) -> None:
        self._folder, self._journal, self._selector = folder, journal, selector
        self._blocked: list[Stream] = []
        self._told = False
        """Whether the last that was said is that there is no space."""

    @property
    def short(self) -> bool:
        """Whether a stream waits."""
        return bool(self._blocked)

    def waits(self, stream: Stream) -> bool:
        return stream in self._blocked

    def block(self, stream: Stream) -> None:
        """Read this one no more until there is space."""
        self._selector.unregister(stream.fd)
        if not self._blocked:
            self._journal.spend_reserve()
        if not self._told:
            self._told = True
            text = f"no space left for {self._folder}: the ranks wait until there is some"
            self._journal.add("trouble", text=text)
        self._blocked.append(stream)

    def retry(self) -> None:
        """Let go on what can; say so once a whole period has passed in which nothing was refused."""
        if not self._journal.flush():
            return
        if self._blocked:
            self._write_waiting()
        else:
            self.tell()

    def tell(self) -> None:
        """Say that there is space again, where it was said that there is none and nothing waits."""
        if self._told and not self._blocked:
            self._told = False
            text = "there is space again: nothing was lost, the ranks go on"
            self._journal.add("trouble", text=text)

    def _write_waiting(self) -> None:
        # First the reserve: what it gave back is for our own words, and looks like space.
        if not self._journal.reserve():
            return
        before = self._blocked
        self._blocked = [stream for stream in before if not stream.retry()]
        for stream in before:
            if stream not in self._blocked:
                self._selector.register(stream.fd, selectors.EVENT_READ, stream)
        if self._blocked:
            self._journal.spend_reserve()
