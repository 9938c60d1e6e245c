"""The last useful lines that a rank or launcher wrote; messages of exceptions come first."""

import heapq
import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional

from rankdeck_agent.job.folder import STREAMS
from rankdeck_agent.older_python import without_prefix
from rankdeck_agent.text import shown_line
from rankdeck_agent.wire.run_folder import order_time

if TYPE_CHECKING:
    pass


_LONGEST_LINE = 500
"""Most characters of one line."""
_LINES_LOOKED_AT = 3000
"""Most lines that are read to find useful ones."""
_TRACEBACK = b"Traceback (most recent call last):"
_CHAINED = re.compile(
    b"During handling of the above exception|direct cause of the following exception"
)
_LONGEST_LINK = 200
"""Bytes before a traceback in which a line may say that it follows from the one above."""
_FRAMES = re.compile(
    r"(?:^|[\s:\]])frame #\d+: "  # c10, of PyTorch
    r"|\[ ?\d+\] \S.*\[0x[0-9a-f]+\]$"  # Open MPI
    r"|^\s*@ +0x[0-9a-f]+ "  # glog
    r"|^\s*\d+ +\S+\(.*\) ?\[0x[0-9a-f]+\]$"  # UCX
    r"|^\S+?(?:\(.*\+0x[0-9a-f]+\))? ?\[0x[0-9a-f]+\]$"  # glibc
    r"|^[0-9a-f]{8,16}-[0-9a-f]{8,16} [r-][w-][x-][ps] |^={5,} (?:Backtrace|Memory map): ={5,}$"  # its map of the memory
    r"|^\s*#\d+ +0x[0-9a-f]+ in "  # gdb, gfortran, AddressSanitizer
    r"|^\S+ +[0-9A-F]{16} +\S+ +\S+ +\S+ *$"  # Intel Fortran
    r"|^\s+\S+\.go:\d+ \+0x"  # Go
    r'|^  File "[^"]+", line \d+ in '  # Python's faulthandler
)
"""Lines of stack traces: they would crowd out the message above them."""


class Bound(NamedTuple):
    """How much output is kept as evidence."""

    lines: int
    """Most lines."""
    size: int
    """Most bytes of UTF-8."""
    exceptions: int
    """Most last lines of Python tracebacks; they are kept no matter how much came after them."""
    tail: int = 1 << 16
    """Bytes that are read from the end of each stream."""


RANK = Bound(40, 6000, 4)
STOPPED = Bound(3, 900, 1, 1 << 12)
"""For a rank that was told to end: then hundreds may end at once."""
LAUNCHER_BOUND = Bound(60, 8000, 4)


class _Line(NamedTuple):
    at: float
    stream: int
    offset: int
    text: str


def read_last_words(place: Path, bound: Bound) -> list[str]:
    """The last useful lines of `out` and `err` in a rank's folder, oldest first, within `bound`.

    Messages of Python exceptions take precedence over newer lines.
    """
    return [line.text for line in choose_last_lines(open_tails(place, bound), bound)]


def open_tails(place: Path, bound: Bound) -> "list[_Tail]":
    """The ends of `out` and `err` in a rank's folder."""
    return [_Tail(place / name, i, bound.tail) for i, name in enumerate(STREAMS)]


def choose_last_lines(tails: "list[_Tail]", bound: Bound) -> list[_Line]:
    """Lines of exceptions, then the newest useful ones, oldest first, within `bound`."""
    exceptions = (line for tail in tails for line in tail.exceptions(bound.exceptions))
    kept = sorted(exceptions, reverse=True)[: 2 * bound.exceptions]
    newest = heapq.merge(*(tail.backwards() for tail in tails), reverse=True)
    rest = (line for line in islice(newest, _LINES_LOOKED_AT) if line not in kept)
    useful = (line for line in rest if line.text and not _FRAMES.search(line.text))

    found, left = list[_Line](), bound.size
    for line in chain(kept, islice(useful, bound.lines - len(kept))):
        left -= len(line.text.encode())
        if left < 0:
            break
        found.append(line)
    return sorted(found, key=_written_at)


def _written_at(line: _Line) -> "tuple[float, int, int]":
    """Its place among the lines of both streams."""
    return order_time(line.at, terminal=line.stream == 0), line.stream, line.offset


class _Tail:
    """The end of one stream."""

    def __init__(self, log: Path, stream: int, size: int) -> None:
        self._stream = stream
        self._begin, self._data = _end_of(log, size)
        self._offsets: list[int] = []
        self._times: list[float] = []
        if self._data:
            self._index(_end_of(log.with_name(log.name + ".idx"), size)[1])

    def _index(self, data: bytes) -> None:
        for row in data.splitlines():
            offset, _, at = row.partition(b" ")
            try:
                entry = int(offset), float(at)
            except ValueError:
                continue  # cut where we began to read, or by a full disk
            self._offsets.append(entry[0])
            self._times.append(entry[1])

    def backwards(self) -> Iterator[_Line]:
        """The lines, last one first."""
        end = len(self._data)
        while end > 0:
            end -= self._data.endswith(b"\n", 0, end)
            start = self._data.rfind(b"\n", 0, end) + 1
            yield self._line(start, end)
            end = start

    def exceptions(self, most: int) -> Iterator[_Line]:
        """The last lines of the last `most` tracebacks, and the lines that
        say that one follows from another.
        """
        end = len(self._data)
        for _ in range(most):
            end = self._data.rfind(_TRACEBACK, 0, end)
            if end < 0:
                return
            found = self._exception(end)
            if found is not None:
                yield found
            linked = _CHAINED.search(self._data, max(end - _LONGEST_LINK, 0), end)
            if linked is not None:
                start = self._data.rfind(b"\n", 0, linked.start()) + 1
                yield self._line(start, self._after(start) - 1)

    def _exception(self, header: int) -> Optional[_Line]:
        """The first line after this traceback header that is not indented; skips the
        prefix that a launcher adds to each line.
        """
        start = self._data.rfind(b"\n", 0, header) + 1
        mark = self._data[start:header]
        start = self._after(header)
        while start < len(self._data):
            end = self._after(start)
            row = self._data[start:end]
            words = without_prefix(row, mark)
            if words.strip() and words[:1] not in b" \t":
                return self._line(start, end - row.endswith(b"\n"))
            start = end
        return None

    def _after(self, position: int) -> int:
        return self._data.find(b"\n", position) + 1 or len(self._data)

    def _line(self, start: int, end: int) -> _Line:
        # Of a progress bar that rewrites its line, only the last version counts.
        words = self._data[start:end].rstrip(b"\r").rpartition(b"\r")[2][:4096]
        text = shown_line(words.decode("utf-8", "replace"), _LONGEST_LINE)
        # When it was completed; its beginning may be much older.
        row = bisect_right(self._offsets, self._begin + max(end - 1, 0)) - 1
        at = self._times[row] if row >= 0 else 0.0
        return _Line(at, self._stream, self._begin + start, text)


def _end_of(path: Path, size: int) -> tuple[int, bytes]:
    """(where they begin, the last `size` bytes of a file); no bytes if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0, b""
    try:
        begin = max(0, os.fstat(fd).st_size - size)
        return begin, os.pread(fd, size, begin)
    except OSError:
        return 0, b""
    finally:
        os.close(fd)
