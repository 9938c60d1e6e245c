"""The last rows of a program that moves the cursor up to draw several progress bars anew.

Rich does so with several tasks, tqdm with `position`. What can no longer be reached is a line.
"""

import re
from dataclasses import dataclass

MOST_ROWS = 64
"""Rows that are kept at most; above them all is final."""
SLACK = 1
"""Rows more than it moved up until now: it may begin another bar below."""
GUESS = 8
"""Rows that a program may want to draw anew which has hidden the cursor and not moved it yet."""
_BEGIN = re.compile(rb"\x1b\[\d{0,4}[AF]|\x1b\[\?25l")
_CUT = re.compile(rb"\x1b(?:\[[\d;?]{0,8})?\Z")
_PIECES = re.compile(rb"(\r|\n|\x1b\[\d{0,4}[ABEFJK]|\x1b\[\?25[hl])")


def draws_rows(data: bytes) -> bool:
    """Whether these bytes move the cursor up, or hide it, as programs with several bars do;
    or may begin to do so at their end.
    """
    return b"\x1b" in data and bool(_BEGIN.search(data) or _CUT.search(data))


@dataclass(slots=True)
class Row:
    """A row: when and where in the file it began, and what it shows now."""

    at: float
    offset: int
    text: bytes = b""


class LiveRows:
    """The rows that the program may still draw anew, and the cursor on one of them."""

    def __init__(self, first: Row, most: int) -> None:
        """`first` is the line that has begun; of a row at most `most` bytes are kept."""
        self.rows = [first]
        self.over = False
        """Whether the program has gone on writing below its rows: all but the last are final."""
        self._most = most
        self._place = 0
        self._reach = 0
        """How many rows it moved up at most."""
        self._below = 0
        """Line ends since it last moved up."""
        self._fresh = False
        """Whether the cursor is in the first column: the next text replaces the row."""
        self._cut = b""
        """The begin of an escape sequence whose rest has not come yet."""

    @property
    def newest(self) -> Row:
        """The last row that shows anything."""
        shown = [row for row in self.rows if row.text.strip()]
        return shown[-1] if shown else self.rows[-1]

    def take(self, data: bytes, offset: int, at: float) -> list[Row]:
        """Draw these bytes, the first of which is at `offset`; returns the rows that are final."""
        data, offset, self._cut = self._cut + data, offset - len(self._cut), b""
        if cut := _CUT.search(data):
            data, self._cut = data[: cut.start()], cut[0]
        final: list[Row] = []
        for piece in _PIECES.split(data):
            if piece:
                final += self._draw(piece, offset, at)
                offset += len(piece)
        return final

    def _draw(self, piece: bytes, offset: int, at: float) -> list[Row]:
        row = self.rows[self._place]
        if piece == b"\r":
            self._fresh = True
        elif piece == b"\n":
            return self._go_down(offset + 1, at)
        elif piece.startswith(b"\x1b[") and _PIECES.fullmatch(piece):
            return self._steer(piece)
        else:
            row.text = (piece if self._fresh else row.text + piece)[: self._most]
            row.at, self._fresh = at, False
        return []

    def _go_down(self, offset: int, at: float) -> list[Row]:
        self._place, self._fresh, self._below = self._place + 1, True, self._below + 1
        if self._place == len(self.rows):
            self.rows.append(Row(at, offset))
        if self._below > self._reach + 1 + SLACK:
            return self._end()
        return self._release()

    def _release(self) -> list[Row]:
        """Take out the rows that the program has never reached from where it is."""
        return self._above(0 if self.over else self._reach + SLACK)

    def _above(self, kept: int = 0) -> list[Row]:
        """Take out the rows above the cursor but for so many."""
        final: list[Row] = []
        while self._place > kept:
            final.append(self.rows.pop(0))
            self._place -= 1
        return [row for row in final if row.text.strip()]

    def _end(self) -> list[Row]:
        self.over, self._reach, self._below = True, 0, 0
        return self._release()

    def _steer(self, code: bytes) -> list[Row]:
        kind, count = code[-1:], int(code[2:-1] or 1) if code[2:-1].isdigit() else 1
        if kind in b"AF":
            self._reach = min(max(self._reach, count), MOST_ROWS)
            self._place, self._below, self.over = max(self._place - count, 0), 0, False
        elif kind in b"BE":
            self._place = min(self._place + count, len(self.rows) - 1)
        elif kind == b"K":
            self.rows[self._place].text = b""
        elif kind == b"J":
            del self.rows[self._place + 1 :]
        elif kind == b"l":
            final, self._reach = self._above(), max(self._reach, GUESS)
            return final
        else:
            self._fresh = self._fresh or not self.rows[self._place].text
            return self._end()
        if kind in b"FE":
            self._fresh = True
        return []
