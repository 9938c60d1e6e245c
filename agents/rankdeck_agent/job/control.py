"""The control FIFO of a run folder: short lines, written whole by anybody of the job."""

import errno
import os
from pathlib import Path

_LONGEST = 1 << 16


class Control:
    """The supervisor's end."""

    def __init__(self, path: Path) -> None:
        # Read and write: no end of file when the last writer leaves.
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""

    def read(self) -> list[tuple[str, list[str]]]:
        """The messages that have come: verb and words."""
        try:
            data = os.read(self.fd, _LONGEST)
        except BlockingIOError:
            return []
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:_LONGEST]
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
