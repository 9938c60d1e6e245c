"""Splits the stream of an agent into frames: a line of JSON, for output followed by bytes.

No I/O.
"""

from collections.abc import Mapping
from typing import Any

from rankdeck.model.field_checks import is_text
from rankdeck.model.json_tables import parse_table

Frame = tuple[Mapping[str, Any], bytes]
LONGEST_HEAD = 2 << 20
LONGEST_DATA = 16 << 20
_KIND = is_text(20)


class FrameError(ValueError):
    """The bytes cannot be a frame: the rest of the stream cannot be read."""


class FrameParser:
    """Splits a stream of bytes into frames (head, data); holds at most one incomplete frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: Mapping[str, Any] | None = None
        self._wanted = 0
        self.count = 0
        """Number of frames so far."""
        self.strange = False
        """Whether there was an invalid line after the first frame."""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now; raises FrameError."""
        self._buffer += data
        frames: list[Frame] = []
        begin = 0
        while (end := self._end(begin)) >= 0:
            with memoryview(self._buffer) as view:
                piece = bytes(view[begin:end])
            begin = end
            if self._head is None:
                self._begin(piece, frames)
            else:
                frames.append((self._head, piece))
                self._head = None
        del self._buffer[:begin]
        if self._head is None and len(self._buffer) > LONGEST_HEAD:
            raise FrameError("a line without an end")
        self.count += len(frames)
        return frames

    def _end(self, begin: int) -> int:
        """End of the line, or of the data of a frame, that begins at
        `begin`; -1 if it is incomplete.
        """
        if self._head is None:
            return self._buffer.find(b"\n", begin) + 1 or -1
        end = begin + self._wanted
        return end if end <= len(self._buffer) else -1

    def _begin(self, line: bytes, frames: list[Frame]) -> None:
        head = parse_table(line, LONGEST_HEAD)
        if head is None or not _KIND(head.get("kind")):
            # Start-up files of a login shell may print lines before the agent does.
            self.strange = self.strange or bool(self.count or frames)
            return
        if head.get("kind") != "data":
            frames.append((head, b""))
            return
        length = head.get("n")
        if type(length) is not int or not 0 <= length <= LONGEST_DATA:
            raise FrameError(f"a data frame of {str(length)[:20]} bytes")
        if length:
            self._head, self._wanted = head, length
