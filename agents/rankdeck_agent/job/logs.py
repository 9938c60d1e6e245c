"""The logs of ranks: copies them from terminal, FIFO or pipe to a file
with a time index, and reads them.
"""

import contextlib
import errno
import fcntl
import json
import os
import pty
import selectors
import struct
import termios
import time
import tty
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, Optional

from rankdeck_agent.descriptors import wait_readable, write_all
from rankdeck_agent.job.folder import FULL, Journal
from rankdeck_agent.text import plain_line
from rankdeck_agent.wire.job_events import DiskSpace

CHUNK = 1 << 16
_INDEX_PERIOD = 0.02
_ROWS, _COLUMNS = 80, 200
_TERMINAL_FULL = 4095
"""The most that Linux gives in one read of a terminal, however much waits."""
_BUFFER = memoryview(bytearray(CHUNK))
"""What was read and is not written yet: one for all streams, which are copied one by one."""
_ENOUGH = CHUNK - _TERMINAL_FULL
"""Bytes in the buffer after which they are written before more is read."""


class DiskFullError(Exception):
    """The disk is full.

    The bytes are kept in the stream: do not read more until `retry` returns True.
    """


def _appending(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _where_it_was(path: Path, fd: int) -> int:
    """Make `fd` refer to the file at `path`: if that is another file by
    now, or none, it is opened (created).
    """
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(path.stat(), os.fstat(fd)):
            return fd
    fresh = _appending(path)
    os.dup2(fresh, fd, inheritable=False)
    os.close(fresh)
    return fd


class Stream:
    """Copies one descriptor to one log file, byte for byte."""

    def __init__(self, fd: int, log: Path, held: int, terminal: str = "") -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._held = held
        """The writing end, kept open so that the stream does not end when a rank ends."""
        self._terminal = terminal
        self.name = f"{log.parent.name}/{log.name}"
        self._paths = log, log.with_name(log.name + ".idx")
        self._log, self._index = map(_appending, self._paths)
        self._end = os.fstat(self._log).st_size
        self.gone = 0
        """Bytes that somebody removed from the log, not reported yet."""
        self._stamped = 0.0
        self._torn = False
        self._waiting = b""
        self.refusal = ""
        """Why nothing could be written: the system's error message."""

    def pump(self) -> int:
        """Copy what can be read at once; returns the number of bytes. Raises DiskFullError."""
        if self._waiting:
            raise DiskFullError
        size = self._fill()
        if size:
            self._stamp()
            self._write(_BUFFER[:size])
        return size

    def _fill(self) -> int:
        """Read into the buffer what is there, in as many reads as that takes; returns its size."""
        size = 0
        try:
            while size < _ENOUGH:
                read = os.readv(self.fd, [_BUFFER[size:]])
                size += read
                if read < _TERMINAL_FULL or not self._terminal:
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            if not size:  # else it comes again with the next read
                self._open_again(error)
        return size

    def _open_again(self, error: OSError) -> None:
        """Open the terminal for the next rank if a session leader that had it has ended; else
        raise the error.
        """
        if error.errno != errno.EIO:
            raise error
        os.close(self._held)
        self._held = os.open(self._terminal, os.O_RDWR | os.O_NOCTTY)

    def drain(self, limit: float) -> None:
        """Copy until nothing is left to read, for at most `limit` seconds."""
        deadline = time.monotonic() + limit
        while self.pump() and time.monotonic() < deadline:
            pass

    def retry(self) -> bool:
        """Write what did not fit on the full disk; False if it is still full."""
        data, self._waiting = self._waiting, b""
        try:
            self._write(memoryview(data))
        except DiskFullError:
            return False
        return True

    def _write(self, view: memoryview) -> None:
        try:
            self._keep_length()
            while view:
                written = os.write(self._log, view)
                self._end += written
                view = view[written:]
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._waiting = bytes(view)
            self.refusal = error.strerror or ""
            raise DiskFullError from error

    def look(self) -> None:
        """Continue in a new file if the log was moved or removed, so that its space is freed."""
        try:
            self._log, self._index = map(_where_it_was, self._paths, (self._log, self._index))
            self._keep_length()
        except OSError:
            return  # the folder is gone, or the disk is full: the next write reports it

    def _keep_length(self) -> None:
        """If bytes were removed, extend the file by a hole, which takes no
        space: offsets of readers must stay valid.
        """
        size = os.fstat(self._log).st_size
        if size < self._end:
            os.ftruncate(self._log, self._end)
            self.gone += self._end - size
        self._end = max(size, self._end)

    def _stamp(self) -> None:
        now = time.time()
        if 0 <= now - self._stamped < _INDEX_PERIOD:
            return
        self._stamped = now
        # The real size, not our count: a shim without a tty appends to the same file.
        line = b"%s%d %.3f\n" % (b"\n" if self._torn else b"", os.fstat(self._log).st_size, now)
        try:
            self._torn = os.write(self._index, line) < len(line)
        except OSError as error:
            if error.errno not in FULL:
                raise


def terminal_stream(link: Path, log: Path) -> Stream:
    """A stream from a new raw terminal, to which the symlink `link` points. Raises OSError."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    name = os.ttyname(slave)
    link.symlink_to(name)
    return Stream(master, log, slave, name)


def fifo_stream(path: Path, log: Path) -> Stream:
    """A stream from a new FIFO at `path`."""
    os.mkfifo(path, 0o600)
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    return Stream(fd, log, fd)


def pipe_stream(log: Path) -> tuple[Stream, int]:
    """A stream from a new pipe, and the descriptor that a launcher writes to."""
    reading, writing = os.pipe()
    return Stream(reading, log, writing), writing


def rank_streams(place: Path, with_terminal: bool) -> tuple[Stream, Stream]:
    """The streams of stdout and stderr of one rank, in its folder `place`."""
    out: Optional[Stream] = None
    if with_terminal:
        # No terminal may be available (no devpts, kernel.pty.max): with a
        # FIFO only line buffering is lost.
        with contextlib.suppress(OSError):
            out = terminal_stream(place / "tty", place / "out")
    out = out or fifo_stream(place / "tty", place / "out")
    return out, fifo_stream(place / "fifo", place / "err")


class Space:
    """Stops reading streams while the disk is full, so that their
    ranks wait and nothing is lost.
    """

    def __init__(self, folder: Path, journal: Journal, selector: selectors.BaseSelector) -> None:
        self._folder, self._journal, self._selector = folder, journal, selector
        self._blocked: list[Stream] = []
        self._reported = False
        """Whether the last report was that there is no space."""

    @property
    def short(self) -> bool:
        """Whether a stream waits."""
        return bool(self._blocked)

    def waits(self, stream: Stream) -> bool:
        """Whether this stream is not read, because the disk was full."""
        return stream in self._blocked

    def block(self, stream: Stream) -> None:
        """Stop reading this stream until there is space; reports the first one."""
        self._selector.unregister(stream.fd)
        if not self._blocked:
            self._journal.spend_reserve()
        if not self._reported:
            self._reported = True
            text = f"no space left for {self._folder} ({stream.refusal}): the ranks wait until there is some"
            self._journal.add(DiskSpace(True, text))
        self._blocked.append(stream)

    def retry(self) -> None:
        """Resume streams that can write again; reports that there is space at
        the next call without a full disk.
        """
        if not self._journal.flush():
            return
        if not self._blocked:
            self.report_space()
            return
        # The reserve first: the space that it gave back is for our own events.
        if not self._journal.reserve():
            return

        before = self._blocked
        self._blocked = [stream for stream in before if not stream.retry()]
        for stream in before:
            if stream not in self._blocked:
                self._selector.register(stream.fd, selectors.EVENT_READ, stream)
        if self._blocked:
            self._journal.spend_reserve()

    def report_space(self) -> None:
        """Report that there is space again, if a full disk was reported and no stream waits."""
        if self._reported and not self._blocked:
            self._reported = False
            text = "there is space again: nothing was lost, the ranks go on"
            self._journal.add(DiskSpace(False, text))


_TAIL = 4096
_LONGEST = 1 << 16
"""Most bytes that are searched for the end of a line."""


class TimeIndex:
    """Reads the `.idx` file of one stream, forward from an offset."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        self._position = self._seek(offset)
        self._now: Optional[tuple[int, float]] = None
        self._next: Optional[tuple[int, float]] = None

    def at(self, offset: int) -> tuple[Optional[float], Optional[int]]:
        """When the byte at `offset` was read from the rank (epoch seconds or None),
        and the offset of the next time, or None.
        """
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
        """A position in the index at or before the line that covers `offset`, by binary search."""
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
    """Bytes of a log from `offset` that were written at one time `at`
    (epoch seconds; None: not known).
    """

    __slots__ = ("at", "data", "offset")

    def __init__(self, offset: int, data: bytes, at: Optional[float]) -> None:
        self.offset, self.data, self.at = offset, data, at


class LogReader:
    """Reads the log of one stream from an offset on, as it grows."""

    def __init__(self, log: Path, offset: int) -> None:
        self._log = log
        self.offset = offset
        self._index = TimeIndex(log.with_name(log.name + ".idx"), offset)

    @property
    def waiting(self) -> int:
        """Bytes on disk that have not been read."""
        return max(0, log_size(self._log) - self.offset)

    def read(self, limit: int) -> Iterator[Piece]:
        """Pieces of at most `limit` bytes in all, from where the last call stopped."""
        if limit <= 0 or not self.waiting:
            return
        with self._log.open("rb") as file:
            self.offset = behind_hole(file.fileno(), self.offset)
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


def behind_hole(fd: int, offset: int) -> int:
    """The next offset with data: `offset`, or the end of a hole left by removed bytes."""
    try:
        begin = os.lseek(fd, offset, os.SEEK_DATA)
    except OSError:
        return offset
    # A hole ends at a block of the disk; the removed bytes in that block read as zeros.
    block = os.pread(fd, CHUNK, begin) if begin > offset else b""
    return begin + len(block) - len(block.lstrip(b"\0"))


class TailReader:
    """The state of a stream that is not being sent: its size
    (`end`), number of lines and last line.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._counted = 0
        self.lines = 0
        self.end = 0
        self.last = ""
        self.at = 0.0
        """When it was last written to, epoch seconds."""

    def look(self, budget: int) -> bool:
        """Update the state, counting lines in at most `budget` more bytes;
        returns whether it may have changed.
        """
        size = log_size(self._log)
        if size == self.end and self._counted >= size:
            return False
        with self._log.open("rb") as file:
            until = min(size, self._counted + budget)
            file.seek(self._counted)
            while self._counted < until:
                data = file.read(min(1 << 20, until - self._counted))
                if not data:
                    break
                self._counted += len(data)
                self.lines += data.count(b"\n")

            file.seek(max(0, size - _TAIL))
            self.last = _last_line(file.read(size - file.tell()))
            self.at = os.fstat(file.fileno()).st_mtime
        self.end = size
        return True


def _last_line(data: bytes) -> str:
    lines = data.replace(b"\r", b"\n").split(b"\n")
    for line in reversed(lines):
        text = plain_line(line.decode("utf-8", "replace"), 200)
        if text:
            return text
    return ""


def log_size(path: Path) -> int:
    """Bytes in a file, 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def line_start(file: IO[bytes], offset: int) -> int:
    """The start of the first line that begins at or after `offset`;
    `offset` if none ends in the next 64 KiB.
    """
    if offset <= 0:
        return 0
    file.seek(offset - 1)
    found = file.read(_LONGEST).find(b"\n")
    return offset if found < 0 else offset + found


def start_of_line(file: IO[bytes], offset: int) -> int:
    """The start of the line that has the byte at `offset`; `offset` if that
    line has no start in the 64 KiB before.
    """
    begin = max(offset - _LONGEST, 0)
    file.seek(begin)
    newline = file.read(offset - begin).rfind(b"\n")
    return begin + newline + 1 if newline >= 0 or begin == 0 else offset


# ---- to and from the console


_LONGEST_QUESTION = 1 << 20


class Input:
    """Reads lines from stdin; `ended` is set at its end."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.ended = False
        self._rest = b""

    def lines(self, limit: float) -> list[bytes]:
        """The whole lines of the first data that comes within `limit` seconds; may be empty."""
        if not wait_readable([self.fd], limit):
            return []
        data = os.read(self.fd, 1 << 16)
        self.ended = not data
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) < _LONGEST_QUESTION else b""
        return lines


def write_to_stdout(data: bytes) -> bool:
    """Write all of it to stdout; False if nobody reads any more."""
    try:
        write_all(1, data)
    except BrokenPipeError:
        return False
    return True


def encode_frame(row: Mapping[str, Any]) -> bytes:
    """A frame without bytes after it: one line of JSON."""
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def data_frame(head: Mapping[str, Any], piece: Piece) -> list[bytes]:
    """A `data` frame: its head (a line of JSON), and the bytes.

    A piece without a time gets the time now.
    """
    at = time.time() if piece.at is None else piece.at
    return [
        encode_frame({"kind": "data", **head, "o": piece.offset, "n": len(piece.data), "at": at}),
        piece.data,
    ]
