"""A second process that counts in a long log from its other end, where the machine has a core for it."""

import os
import signal
import struct
from collections.abc import Iterable
from typing import Callable, NamedTuple

_RECORD = struct.Struct("<QI???x")
_NICE = 5
"""The ranks come first."""


class Tally(NamedTuple):
    """What one block of a log has of lines with a text."""

    lines: int
    head: bool
    """The first of them began before the block."""
    tail: bool
    """The last of them goes on after it."""
    breaks: bool
    """A line ends in it."""


class Helper:
    """Counts in these blocks one after the other, until it is ended."""

    def __init__(self, count: Callable[[int], Tally], blocks: Iterable[int]) -> None:
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._rest = b""
        self._pid = os.fork()
        if self._pid == 0:
            _count(count, blocks, writing)
        os.close(writing)

    def take(self) -> "list[tuple[int, Tally]]":
        """What it has counted since the last call."""
        try:
            data = self._rest + os.read(self._reading, 1 << 16)
        except BlockingIOError:
            return []
        whole = len(data) // _RECORD.size * _RECORD.size
        self._rest = data[whole:]
        rows = _RECORD.iter_unpack(data[:whole])
        return [(block, Tally(*counted)) for block, *counted in rows]

    def end(self) -> None:
        """Stop it; what it has not told is lost."""
        os.close(self._reading)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _count(count: Callable[[int], Tally], blocks: Iterable[int], writing: int) -> None:
    try:
        os.nice(_NICE)
        for block in blocks:
            os.write(writing, _RECORD.pack(block, *count(block)))
    finally:
        # Also where nobody reads any more: this is a copy of a process that lives on.
        os._exit(0)
