"""Where a text stands in a log, and how many lines have it: in steps of a block, none read twice."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, Optional

from rankdeck_agent.job.helper import Helper, Tally
from rankdeck_agent.job.logs import line_start, start_of_line

BLOCK = 1 << 20
"""Bytes of one step: a millisecond or two."""
ALONE = 64
"""Blocks up to which one process counts quickly enough."""
_TELL = 0.2
"""Seconds between two reports."""

_REST = bytes(set(range(256)) - {0, 10})
"""What is left out to count: all but a hit, written as 0, and the end of a line."""


class Report(NamedTuple):
    """How far a search is."""

    at: Optional[int]
    """Where the line begins; None: not found, or not yet."""
    before: Optional[int]
    """Lines with the text before it, once they are counted."""
    lines: int
    """Lines with the text, as far as counted."""
    counted: int
    """Bytes in which they were counted."""
    end: int
    looking: bool
    """Whether the line may still be found."""


class Search:
    """One text in one log; capitals make it exact. Counts of whole blocks are kept while the log grows."""

    def __init__(self, path: Path, text: str) -> None:
        self._needle = text.encode("utf-8", "surrogateescape")
        self._lower = text == text.lower() and text != text.upper()
        self._path = path
        self._overlap = len(self._needle) - 1
        self._tallies: dict[int, Tally] = {}
        self._end = 0

    def steps(self, offset: int, back: bool) -> Iterator[Optional[Report]]:
        """Look for the next line from there on (or the last before), then count; the last report is whole."""
        with self._path.open("rb", buffering=0) as file:
            self._grow(file.fileno())
            begin = min(offset, self._end) if back else line_start(file, offset)
            helper = self._help(file.fileno(), begin, back)
            try:
                yield from self._looked(file, begin, back, helper)
            finally:
                if helper is not None:
                    helper.end()

    def _looked(
        self, file: IO[bytes], begin: int, back: bool, helper: Optional[Helper]
    ) -> Iterator[Optional[Report]]:
        told, at, fd = time.monotonic(), None, file.fileno()
        for hit in self._before(fd, begin) if back else self._after(fd, begin):
            if hit is not None:
                at = start_of_line(file, hit)
                break
            self._take(helper)
            told, report = self._report(told, at, looking=True)
            yield report
        yield self._told(at, looking=False)
        for block in range(self._blocks):
            if block not in self._tallies:
                self._look(fd, block)
                self._take(helper)
                told, report = self._report(told, at, looking=False)
                yield report
        yield self._told(at, looking=False)

    def _help(self, fd: int, begin: int, back: bool) -> Optional[Helper]:
        """Somebody who begins where we come last."""
        here = begin // BLOCK
        near, far = range(here, self._blocks), range(here)
        order = [*near, *far] if back else [*reversed(near), *reversed(far)]
        blocks = [block for block in order if block not in self._tallies]
        if len(blocks) <= ALONE or len(os.sched_getaffinity(0)) < 2:
            return None
        return Helper(lambda block: self._counted(fd, block), blocks)

    def _counted(self, fd: int, block: int) -> Tally:
        self._look(fd, block)
        return self._tallies[block]

    def _take(self, helper: Optional[Helper]) -> None:
        for block, counted in helper.take() if helper is not None else ():
            self._tallies.setdefault(block, counted)

    def _grow(self, fd: int) -> None:
        """Forget the counts of blocks that were not whole."""
        end = os.fstat(fd).st_size
        if end != self._end:
            whole = (min(self._end, end) - self._overlap) // BLOCK
            self._tallies = {k: v for k, v in self._tallies.items() if k < whole}
        self._end = end

    @property
    def _blocks(self) -> int:
        return -(-self._end // BLOCK)

    # ---- looking

    def _after(self, fd: int, offset: int) -> Iterator[Optional[int]]:
        for block in range(offset // BLOCK, self._blocks):
            yield self._found(fd, block, max(offset - block * BLOCK, 0), None)

    def _before(self, fd: int, until: int) -> Iterator[Optional[int]]:
        for block in range((until - 1) // BLOCK, -1, -1):
            yield self._found(fd, block, 0, until - block * BLOCK)

    def _found(self, fd: int, block: int, begin: int, until: Optional[int]) -> Optional[int]:
        """The first hit of the block from `begin` on, or the last that ends by `until`."""
        known = self._tallies.get(block)
        if known is not None and not known.lines:
            return None
        data = self._look(fd, block)
        if not self._tallies[block].lines:
            return None
        find = (
            data.find(self._needle, begin) if until is None else data.rfind(self._needle, 0, until)
        )
        return None if find < 0 else block * BLOCK + find

    def _look(self, fd: int, block: int) -> bytes:
        """Read a block, with what of a hit may stand behind it, and count in it."""
        begin = block * BLOCK
        size = min(BLOCK, self._end - begin)
        data = os.pread(fd, min(size + self._overlap, self._end - begin), begin)
        data = data.lower() if self._lower else data
        if block not in self._tallies:
            self._tallies[block] = tally(data, size, self._needle)
        return data

    # ---- telling

    def _report(
        self, told: float, at: Optional[int], looking: bool
    ) -> tuple[float, Optional[Report]]:
        now = time.monotonic()
        if now - told < _TELL:
            return told, None
        return now, self._told(at, looking)

    def _told(self, at: Optional[int], looking: bool) -> Report:
        counted = min(len(self._tallies) * BLOCK, self._end)
        count, _ = _sum(self._tallies[block] for block in sorted(self._tallies))
        return Report(at, self._lines_before(at), count, counted, self._end, looking)

    def _lines_before(self, at: Optional[int]) -> Optional[int]:
        if at is None:
            return None
        block, rest = divmod(at, BLOCK)
        if not all(one in self._tallies for one in range(block)):
            return None
        count, open_ = _sum(self._tallies[one] for one in range(block))
        if not rest:
            return count
        with self._path.open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), rest, block * BLOCK)
        part = tally(data.lower() if self._lower else data, rest, self._needle)
        return count + part.lines - (open_ and part.head)


def tally(data: bytes, size: int, needle: bytes) -> Tally:
    """Count in a block of `size` bytes; what stands behind them only completes a hit."""
    if data.find(needle) < 0:
        return Tally(0, False, False, data.find(b"\n", 0, size) >= 0)
    marks = data.replace(b"\0", b" ").replace(needle, b"\0").translate(None, _REST)
    lines = marks.count(b"\0\n") + marks.endswith(b"\0")
    final = data.rfind(b"\n", 0, size)
    return Tally(lines, marks[:1] == b"\0", final < data.rfind(needle), final >= 0)


def _sum(tallies: Iterator[Tally]) -> tuple[int, bool]:
    """Lines of blocks that follow each other, each once; whether the last one goes on."""
    count, going_on = 0, False
    for one in tallies:
        count += one.lines - (going_on and one.head)
        going_on = one.tail or (going_on and not one.breaks)
    return count, going_on
