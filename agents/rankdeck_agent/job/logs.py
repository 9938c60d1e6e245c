"""Reads logs of ranks, in full with their times or only the last line, and sends what was read to the console."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, Optional

from rankdeck_agent.files import readable
from rankdeck_agent.job.journal import plain

CHUNK = 1 << 16
_TAIL = 4096
_LONGEST = 1 << 16
"""Bytes in which the end of a line is looked for."""


class TimeIndex:
    """The `.idx` of one stream, walked forward from an offset."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        self._position = self._seek(offset)
        self._now: Optional[tuple[int, float]] = None
        self._next: Optional[tuple[int, float]] = None

    def at(self, offset: int) -> tuple[Optional[float], Optional[int]]:
        """When the byte at `offset` was read, and the offset where another time begins."""
        if self._next is None or self._next[0] <= offset:
            self._advance(offset)
        stamp = None if self._now is None else self._now[1]
        return stamp, None if self._next is None else self._next[0]

    def _advance(self, offset: int) -> None:
        if self._next is not None:
            self._now, self._next = self._next, None
        for entry, end in self._entries(self._position):
            self._position = end
            if entry[0] > offset:
                self._next = entry
                return
            self._now = entry

    def _entries(self, position: int) -> Iterator[tuple[tuple[int, float], int]]:
        try:
            file = self._path.open("rb")
        except OSError:
            return
        with file:
            file.seek(position)
            for line in file:
                position += len(line)
                entry = _entry(line)
                if entry is not None:
                    yield entry, position

    def _seek(self, offset: int) -> int:
        """A position at or before the line that covers `offset`, by halving."""
        try:
            low, high = 0, self._path.stat().st_size
            with self._path.open("rb") as file:
                while high - low > CHUNK:
                    middle = (low + high) // 2
                    entry, start = _entry_after(file, middle)
                    if entry is not None and entry[0] <= offset:
                        low = start
                    else:
                        high = middle
        except OSError:
            return 0
        return low


def _entry(line: bytes) -> Optional[tuple[int, float]]:
    words = line.split()
    if not line.endswith(b"\n") or len(words) != 2:
        return None
    try:
        return int(words[0]), float(words[1])
    except ValueError:
        return None


def _entry_after(file: BinaryIO, position: int) -> tuple[Optional[tuple[int, float]], int]:
    file.seek(position)
    file.readline()
    start = file.tell()
    return _entry(file.readline()), start


class Piece:
    """Some bytes of a log that were read at one time."""

    __slots__ = ("at", "data", "offset")

    def __init__(self, offset: int, data: bytes, at: Optional[float]) -> None:
        self.offset, self.data, self.at = offset, data, at


class LogReader:
    """One watched stream."""

    def __init__(self, log: Path, offset: int) -> None:
        self._log = log
        self.offset = offset
        self._index = TimeIndex(log.with_name(log.name + ".idx"), offset)

    @property
    def waiting(self) -> int:
        """Bytes on disk that have not been read."""
        return max(0, size_of(self._log) - self.offset)

    def read(self, limit: int) -> Iterator[Piece]:
        """At most `limit` bytes from where the last call stopped."""
        if limit <= 0 or not self.waiting:
            return
        with self._log.open("rb") as file:
            file.seek(self.offset)
            while limit > 0:
                stamp, until = self._index.at(self.offset)
                most = (
                    min(CHUNK, limit) if until is None else min(CHUNK, limit, until - self.offset)
                )
                piece = Piece(self.offset, file.read(most), stamp)
                if not piece.data:
                    return
                self.offset += len(piece.data)
                limit -= len(piece.data)
                yield piece


class TailReader:
    """The end of one stream that is not being sent: how long it is, how many lines, and the last."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._counted = 0
        self.lines = 0
        self.end = 0
        self.last = ""
        self.at = 0.0
        """When it was last written to, epoch seconds."""

    def look(self, budget: int) -> bool:
        """Whether it grew, counting at most `budget` bytes more."""
        size = size_of(self._log)
        if size == self.end and self._counted >= size:
            return False
        with self._log.open("rb") as file:
            self._count(file, min(size, self._counted + budget))
            file.seek(max(0, size - _TAIL))
            self.last = _last_line(file.read(size - file.tell()))
            self.at = os.fstat(file.fileno()).st_mtime
        self.end = size
        return True

    def _count(self, file: BinaryIO, until: int) -> None:
        file.seek(self._counted)
        while self._counted < until:
            data = file.read(min(1 << 20, until - self._counted))
            if not data:
                return
            self._counted += len(data)
            self.lines += data.count(b"\n")


def _last_line(data: bytes) -> str:
    lines = data.replace(b"\r", b"\n").split(b"\n")
    for line in reversed(lines):
        text = plain(line.decode("utf-8", "replace"), 200)
        if text:
            return text
    return ""


def size_of(path: Path) -> int:
    """Bytes in a file, 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def line_start(file: IO[bytes], offset: int) -> int:
    """Where the first line begins that begins at `offset` or after it."""
    if offset <= 0:
        return 0
    file.seek(offset - 1)
    found = file.read(_LONGEST).find(b"\n")
    return offset if found < 0 else offset + found


def start_of_line(file: IO[bytes], offset: int) -> int:
    """Where the line begins that has the byte at `offset`; that byte in a line without end."""
    begin = max(offset - _LONGEST, 0)
    file.seek(begin)
    newline = file.read(offset - begin).rfind(b"\n")
    return begin + newline + 1 if newline >= 0 or begin == 0 else offset


# ---- to and from the console


_LONGEST_QUESTION = 1 << 20


class Input:
    """stdin, a line at a time."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.ended = False
        self._rest = b""

    def lines(self, limit: float) -> list[bytes]:
        """What comes within `limit` seconds."""
        if not readable([self.fd], limit):
            return []
        data = os.read(self.fd, 1 << 16)
        self.ended = not data
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) < _LONGEST_QUESTION else b""
        return lines


def send(data: bytes) -> bool:
    """Write all of it; False where nobody reads any more."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(1, view) :]
    except BrokenPipeError:
        return False
    return True


def line(row: Mapping[str, Any]) -> bytes:
    """A frame without bytes behind it."""
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def data_frame(head: Mapping[str, Any], piece: Piece) -> list[bytes]:
    """The frame of some bytes: its head, and the bytes. What has no time was read now."""
    at = time.time() if piece.at is None else piece.at
    return [
        line({"kind": "data", **head, "o": piece.offset, "n": len(piece.data), "at": at}),
        piece.data,
    ]
