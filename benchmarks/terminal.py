"""Runs a program in its own terminal, whose output is read and counted only when the caller asks:
to measure keys, and a terminal that takes nothing.

Where the output is read all the time, use `tests.support.terminal`.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

SIZE = (50, 200)
"""Lines and columns."""


class Terminal:
    """The user's side of the terminal."""

    def __init__(self, master: int, pid: int) -> None:
        self.master, self.pid = master, pid
        self.total = 0
        """Bytes received."""

    def read(self, limit: float) -> bytes:
        """The output within that time; b"" if there is none or the program has ended."""
        if not select.select((self.master,), (), (), limit)[0]:
            return b""
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:
            return b""
        self.total += len(data)
        return data

    def write(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def read_for(self, seconds: float) -> int:
        """Read for that many seconds; returns the number of bytes."""
        before, until = self.total, time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.read(left)
        return self.total - before

    def wait_for(self, text: bytes, limit: float = 30.0) -> bool:
        """Read until this text has come; False if it has not in time."""
        seen, until = b"", time.monotonic() + limit
        while (left := until - time.monotonic()) > 0:
            seen = (seen + self.read(left))[-(1 << 16) :]
            if text in seen:
                return True
        return False


@contextmanager
def terminal(argv: Sequence[str], env: Mapping[str, str]) -> Generator[Terminal]:
    """Run a program in a terminal of 200 x 50; ended with the block."""
    pid, master = pty.fork()
    if pid == 0:
        os.execvpe(argv[0], list(argv), {**env, "TERM": "xterm-256color"})
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
    try:
        yield Terminal(master, pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(master)
        os.waitpid(pid, 0)
