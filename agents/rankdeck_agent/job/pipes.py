"""A dialogue on stdin and stdout, without waiting longer than one wants."""

import errno
import os
import select
from pathlib import Path

_LONGEST = 1 << 20


class Input:
    """stdin, a line at a time."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.ended = False
        self._rest = b""

    def lines(self, limit: float) -> list[bytes]:
        """What comes within `limit` seconds."""
        ready, _, _ = select.select([self.fd], [], [], limit)
        if not ready:
            return []
        data = os.read(self.fd, 1 << 16)
        self.ended = not data
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) < _LONGEST else b""
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


_LONGEST_ORDER = 1 << 16


class Control:
    """The supervisor's end."""

    def __init__(self, path: Path) -> None:
        # Read and write: no end of file when the last writer leaves.
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""

    def read(self) -> list[tuple[str, list[str]]]:
        """The messages that have come: verb and words."""
        try:
            data = os.read(self.fd, _LONGEST_ORDER)
        except BlockingIOError:
            return []
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:_LONGEST_ORDER]
        texts = (line.decode("utf-8", "replace").split() for line in lines)
        return [(words[0], words[1:]) for words in texts if words]


def tell(path: Path, message: str) -> bool:
    """Send one line to the supervisor; False where nobody listens."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return False
        raise
    try:
        os.write(fd, message.encode()[:2000] + b"\n")
    except (BrokenPipeError, BlockingIOError):
        return False
    finally:
        os.close(fd)
    return True
