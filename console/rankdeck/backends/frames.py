"""The stream of `job follow`, cut into frames however the bytes arrive."""

from collections.abc import Mapping
from typing import Any

from rankdeck.model.border import table, text

Frame = tuple[Mapping[str, Any], bytes]
LONGEST_HEAD = 2 << 20
LONGEST_DATA = 16 << 20


_KIND = text(20)


class FrameError(ValueError):
    """Bytes that cannot be a frame: the stream is of no more use."""


class FrameParser:
    """Incremental and bounded: never holds more than one frame that is not whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: Mapping[str, Any] | None = None
        self._wanted = 0

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are whole now; raises FrameError."""
        self._buffer += data
        frames: list[Frame] = []
        begin = 0
        while True:
            end = self._take(begin, frames)
            if end == begin:
                break
            begin = end
        del self._buffer[:begin]
        if self._head is None and len(self._buffer) > LONGEST_HEAD:
            raise FrameError("a line without an end")
        return frames

    def _take(self, begin: int, frames: list[Frame]) -> int:
        """Take one frame or one head from `begin` on; where the rest begins."""
        if self._head is not None:
            end = begin + self._wanted
            if len(self._buffer) < end:
                return begin
            frames.append((self._head, bytes(self._buffer[begin:end])))
            self._head, self._wanted = None, 0
            return end
        end = self._buffer.find(b"\n", begin)
        if end < 0:
            return begin
        self._begin(bytes(self._buffer[begin:end]), frames)
        return end + 1

    def _begin(self, line: bytes, frames: list[Frame]) -> None:
        head = table(line, LONGEST_HEAD)
        if head is None or not _KIND(head.get("kind")):
            return  # start-up files of the login may print before the agent does
        if head.get("kind") != "data":
            frames.append((head, b""))
            return
        length = head.get("n")
        if type(length) is not int or not 0 <= length <= LONGEST_DATA:
            raise FrameError(f"a data frame of {str(length)[:20]} bytes")
        if length:
            self._head, self._wanted = head, length
