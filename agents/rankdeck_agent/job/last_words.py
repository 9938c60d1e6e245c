"""The last words of a rank or a launcher: both its streams together, in the order of time, within bounds."""

import heapq
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Optional

from rankdeck_agent.job.folder import STREAMS
from rankdeck_agent.job.journal import shown

_LONGEST = 500
"""Characters of one line."""
_LOOKED_AT = 3000
"""Lines that are looked at to find some that say something."""
_TRACEBACK = b"Traceback (most recent call last):"
_FRAMES = re.compile(
    r"(?:^|[\s:\]])frame #\d+: "  # c10, of PyTorch
    r"|\[ ?\d+\] \S.*\[0x[0-9a-f]+\]$"  # Open MPI
    r"|^\s*@ +0x[0-9a-f]+ "  # glog
    r"|^\s*\d+ +\S+\(.*\) ?\[0x[0-9a-f]+\]$"  # UCX
    r"|^\S+\(.*\+0x[0-9a-f]+\) ?\[0x[0-9a-f]+\]$"  # glibc
)
"""Lines of stack traces of C++: they would push out the message that stands above them."""


class Bound(NamedTuple):
    """How much is told."""

    lines: int
    size: int
    """Bytes of UTF-8."""
    exceptions: int
    """Last lines of Python tracebacks that are kept, however much came after them."""
    tail: int = 1 << 16
    """Bytes of each stream that are read."""


RANK = Bound(40, 6000, 4)
TOLD = Bound(3, 900, 1, 1 << 12)
"""For a rank that was told to end: hundreds end at once then."""
LAUNCHER_BOUND = Bound(60, 8000, 4)


class _Line(NamedTuple):
    at: float
    stream: int
    offset: int
    text: str


def last_words(place: Path, bound: Bound) -> list[str]:
    """What was written last to `out` and `err` of this folder, oldest first."""
    tails = [_Tail(place / name, i, bound.tail) for i, name in enumerate(STREAMS)]
    told = (line for tail in tails for line in tail.exceptions(bound.exceptions))
    kept = sorted(told, reverse=True)[: bound.exceptions]
    newest = heapq.merge(*(tail.backwards() for tail in tails), reverse=True)
    rest = (line for line in islice(newest, _LOOKED_AT) if line not in kept)
    lines = _within([*kept, *_filled(kept, rest, bound)], bound)
    return [line.text for line in sorted(lines)]


def _filled(kept: list[_Line], rest: Iterable[_Line], bound: Bound) -> Iterator[_Line]:
    wanted = (line for line in rest if line.text and not _FRAMES.search(line.text))
    return islice(wanted, bound.lines - len(kept))


def _within(lines: Iterable[_Line], bound: Bound) -> Iterator[_Line]:
    left = bound.size
    for line in lines:
        left -= len(line.text.encode())
        if left < 0:
            return
        yield line


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
        """Its lines, the last one first."""
        end = len(self._data)
        while end > 0:
            end -= self._data.endswith(b"\n", 0, end)
            start = self._data.rfind(b"\n", 0, end) + 1
            yield self._line(start, end)
            end = start

    def exceptions(self, most: int) -> Iterator[_Line]:
        """The last lines of the last tracebacks."""
        end = len(self._data)
        for _ in range(most):
            end = self._data.rfind(_TRACEBACK, 0, end)
            if end < 0:
                return
            found = self._exception(end)
            if found is not None:
                yield found

    def _exception(self, header: int) -> Optional[_Line]:
        """The first line after this header that is not indented; launchers put marks before all of them."""
        start = self._data.rfind(b"\n", 0, header) + 1
        mark = self._data[start:header]
        start = self._after(header)
        while start < len(self._data):
            end = self._after(start)
            row = self._data[start:end]
            words = row.removeprefix(mark)
            if words.strip() and words[:1] not in b" \t":
                return self._line(start, end - row.endswith(b"\n"))
            start = end
        return None

    def _after(self, position: int) -> int:
        return self._data.find(b"\n", position) + 1 or len(self._data)

    def _line(self, start: int, end: int) -> _Line:
        # What a progress bar wrote over and over is the line that it wrote last.
        words = self._data[start:end].rstrip(b"\r").rpartition(b"\r")[2][:4096]
        text = shown(words.decode("utf-8", "replace"), _LONGEST)
        return _Line(self._at(end), self._stream, self._begin + start, text)

    def _at(self, end: int) -> float:
        """When the line was whole: its beginning may be much older."""
        row = bisect_right(self._offsets, self._begin + max(end - 1, 0)) - 1
        return self._times[row] if row >= 0 else 0.0


def _end_of(path: Path, size: int) -> tuple[int, bytes]:
    """The last bytes of a file and where they begin; none where it cannot be read."""
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
