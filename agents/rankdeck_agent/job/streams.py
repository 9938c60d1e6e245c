"""Copies a rank's output from its terminal, FIFO or pipe to a log file with a time index."""

import errno
import fcntl
import os
import pty
import selectors
import struct
import termios
import time
import tty
from pathlib import Path
from typing import Optional

from rankdeck_agent.job.journal import FULL, Journal

_CHUNK = 1 << 16
_INDEX_PERIOD = 0.02
_ROWS, _COLUMNS = 80, 200


class DiskFullError(Exception):
    """The bytes are kept in the stream; read no more until `retry` says so."""


class Stream:
    """Copies one descriptor to one log file, byte for byte."""

    def __init__(self, fd: int, log: Path, held: int, terminal: str = "") -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._held = held
        """The writing end, kept open so that ranks may come and go."""
        self._terminal = terminal
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._index = os.open(
            log.with_name(log.name + ".idx"),
            os.O_WRONLY | os.O_APPEND | os.O_CREAT,
            0o600,
        )
        self._stamped = 0.0
        self._torn = False
        self._waiting = b""
        self.refusal = ""
        """Why nothing could be written, in the system's words."""

    def pump(self) -> int:
        """Copy what can be read at once; the number of bytes. Raises DiskFullError."""
        if self._waiting:
            raise DiskFullError
        try:
            data = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._reopen()
            return 0
        self._stamp()
        self._write(data)
        return len(data)

    def drain(self, limit: float) -> None:
        """Copy until nothing is left to read, for at most `limit` seconds."""
        deadline = time.monotonic() + limit
        while self.pump() and time.monotonic() < deadline:
            pass

    def retry(self) -> bool:
        """Write what the full disk refused; False where it still does."""
        data, self._waiting = self._waiting, b""
        try:
            self._write(data)
        except DiskFullError:
            return False
        return True

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._log, view) :]
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._waiting = bytes(view)
            self.refusal = error.strerror or ""
            raise DiskFullError from error

    def _stamp(self) -> None:
        now = time.time()
        if 0 <= now - self._stamped < _INDEX_PERIOD:
            return
        self._stamped = now
        # Not counted by us: a shim without its tty appends to the same file.
        line = b"%s%d %.3f\n" % (
            b"\n" if self._torn else b"",
            os.fstat(self._log).st_size,
            now,
        )
        try:
            self._torn = os.write(self._index, line) < len(line)
        except OSError as error:
            if error.errno not in FULL:
                raise

    def _reopen(self) -> None:
        """After a hang-up (a session leader with this tty ended) the next rank needs it again."""
        os.close(self._held)
        self._held = os.open(self._terminal, os.O_RDWR | os.O_NOCTTY)


def terminal_stream(link: Path, log: Path) -> Stream:
    """A raw terminal whose path is `link`."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    name = os.ttyname(slave)
    link.symlink_to(name)
    return Stream(master, log, slave, name)


def fifo_stream(path: Path, log: Path) -> Stream:
    """A FIFO at `path`."""
    os.mkfifo(path, 0o600)
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    return Stream(fd, log, fd)


def pipe_stream(log: Path) -> tuple[Stream, int]:
    """A pipe, and the end that a launcher writes to."""
    reading, writing = os.pipe()
    return Stream(reading, log, writing), writing


def rank_streams(place: Path, with_terminal: bool) -> tuple[Stream, Stream]:
    """stdout and stderr of one rank."""
    out: Optional[Stream] = None
    if with_terminal:
        try:
            out = terminal_stream(place / "tty", place / "out")
        except OSError:
            # No terminal to be had (no devpts, kernel.pty.max): a FIFO loses only line buffering.
            out = None
    out = out or fifo_stream(place / "tty", place / "out")
    return out, fifo_stream(place / "fifo", place / "err")


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
            text = f"no space left for {self._folder} ({stream.refusal}): the ranks wait until there is some"
            self._journal.add("trouble", text=text)
        self._blocked.append(stream)

    def retry(self) -> None:
        """Resume streams that can write again; report it after a whole period without a refusal."""
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
