"""The newest lines of one rank: output that nobody looks at is kept as it came, and split
into lines when somebody reads it.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

SHOWN = 10_000
"""Most characters of a line that are shown; the node keeps the whole line."""
LONGEST_RAW = 4 * SHOWN
"""Most bytes of a line that are kept."""
_ENTRY = 168
"""Bytes that Python needs for a line in addition to its text."""
Entry = tuple[float, str, int, bytes]
"""A line: its time, stream, the offset of its first byte, its bytes without the line end."""


class Block(NamedTuple):
    """Whole lines of one stream that arrived together, without carriage returns."""

    at: float
    stream: str
    offset: int
    """Of the first byte."""
    data: bytes
    """The lines, each with its line end."""
    lines: int
    """Number of lines."""

    @property
    def size(self) -> int:
        """Bytes of memory that the lines take once they are split."""
        return len(self.data) + (_ENTRY - 1) * self.lines

    def raws(self) -> list[bytes]:
        """The lines without their line ends, each cut as an entry is."""
        raws = self.data[:-1].split(b"\n")
        return raws if len(self.data) <= LONGEST_RAW else [raw[:LONGEST_RAW] for raw in raws]

    def part(self, begin: int, end: int) -> "Block":
        """The lines from `begin` up to `end`, which are within the block."""
        if (begin, end) == (0, self.lines):
            return self
        raws = self.data.split(b"\n", end)[:end]
        skipped = sum(map(len, raws[:begin])) + begin
        data = b"\n".join(raws[begin:]) + b"\n"
        return Block(self.at, self.stream, self.offset + skipped, data, end - begin)

    def entries(self) -> Iterator[Entry]:
        """The lines, oldest first."""
        offset = self.offset
        for raw in self.data[:-1].split(b"\n"):
            yield self.at, self.stream, offset, raw[:LONGEST_RAW]
            offset += len(raw) + 1

    def newest(self, count: int) -> list[Entry]:
        """The last `count` lines, which the block must have, oldest first."""
        found: list[Entry] = []
        offset = self.offset + len(self.data)
        for raw in reversed(self.data[:-1].rsplit(b"\n", count)[-count:]):
            offset -= len(raw) + 1
            found.append((self.at, self.stream, offset, raw[:LONGEST_RAW]))
        return found[::-1]


class KeptLines:
    """Keeps the newest `most` lines, or fewer if they take more than `most_bytes` of memory.

    Blocks are dropped whole, so that some more may be kept until they are split.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._entries: deque[Entry] = deque()
        self._blocks: deque[Block] = deque()
        """Newer than all entries."""
        self._unsplit = 0
        """Number of lines in the blocks."""
        self._bytes = 0
        self._least = 1

    def __len__(self) -> int:
        return len(self._entries) + self._unsplit

    def clear(self) -> None:
        """Drop all lines."""
        self._entries.clear()
        self._blocks.clear()
        self._unsplit = self._bytes = 0

    def append(self, at: float, stream: str, offset: int, raw: bytes) -> None:
        """Add a line, without its line end."""
        raw = raw[:LONGEST_RAW]
        if self._blocks:
            self.append_block(Block(at, stream, offset, raw + b"\n", 1))
        else:
            self._entries.append((at, stream, offset, raw))
            self._bytes += len(raw) + _ENTRY

    def append_block(self, block: Block) -> None:
        """Add lines that are split when somebody reads them."""
        self._blocks.append(block)
        self._unsplit += block.lines
        self._bytes += block.size

    def trim(self, least: int) -> None:
        """Drop the oldest lines above the limits; at least the newest `least` stay."""
        self._least = max(least, 1)
        self._trim_entries()
        while not self._entries and self._blocks and self._spares(self._blocks[0]):
            self._drop(self._blocks.popleft())

    def _trim_entries(self) -> None:
        entries = self._entries
        while entries and len(self) > self._least and self._over(len(self), self._bytes):
            self._bytes -= len(entries.popleft()[3]) + _ENTRY

    def _over(self, count: int, size: int) -> bool:
        return count > self._most or size > self._most_bytes

    def _spares(self, block: Block) -> bool:
        """Whether the limits are reached without this block, too."""
        left, size = len(self) - block.lines, self._bytes - block.size
        return left >= self._least and (left >= self._most or size >= self._most_bytes)

    def _drop(self, block: Block) -> None:
        self._unsplit -= block.lines
        self._bytes -= block.size

    def split(self) -> deque[Entry]:
        """All lines; those of blocks are split now."""
        while self._blocks:
            block = self._blocks.popleft()
            self._drop(block)
            for entry in block.entries():
                self._entries.append(entry)
                self._bytes += len(entry[3]) + _ENTRY
            self._trim_entries()
        return self._entries

    def newest(self, count: int) -> list[Entry]:
        """The newest `count` lines, or all, oldest first; nothing is split for good for it."""
        parts: list[list[Entry]] = []
        left = count
        for block in reversed(self._blocks):
            if left <= 0:
                break
            parts.append(block.newest(min(left, block.lines)))
            left -= block.lines
        end = len(self._entries)
        parts.append([self._entries[at] for at in range(max(end - max(left, 0), 0), end)])
        return [entry for part in reversed(parts) for entry in part]

    def between(self, begin: int, end: int) -> list[Entry | Block]:
        """The lines from `begin` up to `end`, counted from the oldest, as they are kept."""
        found: list[Entry | Block] = [*islice(self._entries, begin, end)]
        at = len(self._entries)
        for block in self._blocks:
            first, last = max(begin - at, 0), min(end - at, block.lines)
            if first < last:
                found.append(block.part(first, last))
            at += block.lines
        return found
