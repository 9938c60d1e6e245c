"""A dialogue on stdin and stdout, without waiting longer than one wants."""

import os
import select

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
