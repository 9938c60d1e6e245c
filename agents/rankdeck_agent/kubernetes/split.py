"""The lines of a container's log: whose they are, and when they were written. No I/O."""

import calendar
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

OUT, ERR, START, EXIT = "out", "err", "start", "exit"
_STREAMS = {b"stdout": OUT, b"stderr": ERR, b"stddiag": ERR}
_FORMATS = {
    "rankdeck": re.compile(rb"\[rank (?P<rank>\d{1,7}) (?P<what>start|exit|(?:out|err)\+?)\] ?"),
    "openmpi": re.compile(rb"\[(?:\d+,)?(?P<rank>\d{1,7})\](?:\[[^][]*\])?<(?P<what>std\w+)>: ?"),
    "torchrun": re.compile(rb"^\[[^][]*?(?P<rank>\d{1,7})\]:(?P<what>)"),
}
"""Marks before the text of a rank: of our shim, of `mpirun --tag-output` (4 and 5), of `torchrun --tee 3`."""
FORMATS = tuple(_FORMATS)
Key = tuple[int, str]


@dataclass(frozen=True)
class Piece:
    """Bytes to append to what a rank wrote, or that it began or ended.

    `rank` is None for what no rank wrote; `what` is OUT, ERR, START (the text is the host) or EXIT (its status).
    """

    rank: Optional[int]
    what: str
    text: bytes


class Splitter:
    """Tells the ranks of one log apart.

    mpirun may put parts of the lines of several ranks on one line, and the rest of a long line on the
    next: a part without an end is open, and is gone on with by the next text that bears no mark.
    """

    def __init__(self, form: str = "rankdeck", first: int = 0, parts: Iterable[Key] = ()) -> None:
        """`first` is added to the ranks (local ranks in the log); `parts` are still open from before."""
        self._mark = _FORMATS[form]
        self._first = first
        self.parts = list(parts)

    def feed(self, line: bytes) -> list[Piece]:
        """The pieces of a line without its end."""
        marks = list(self._mark.finditer(line))
        pieces: list[Piece] = []
        before = line[: marks[0].start()] if marks else line
        if before or not marks:
            pieces += self._unmarked(before, whole=not marks)
        for mark, following in zip(marks, [*marks[1:], None]):
            text = line[mark.end() : following.start() if following else len(line)]
            pieces += self._marked(mark, text, whole=following is None)
        return pieces

    def _unmarked(self, text: bytes, *, whole: bool) -> list[Piece]:
        end = b"\n" if whole else b""
        if not self.parts:
            return [Piece(None, OUT, text + b"\n")]
        rank, what = self.parts[-1]
        if whole:
            self.parts.pop()
        return [Piece(rank, what, text + end)]

    def _marked(self, mark: "re.Match[bytes]", text: bytes, *, whole: bool) -> list[Piece]:
        rank, word = int(mark["rank"]) + self._first, mark["what"]
        if word.endswith(b"+"):
            # A part of a long line: what follows it bears its own mark.
            return [Piece(rank, word[:-1].decode(), text)]
        what = _STREAMS.get(word, word.decode() or OUT)
        if what in (START, EXIT):
            return [*self._ended(rank, (OUT, ERR)), Piece(rank, what, text.strip())]
        ended = self._ended(rank, (what,))
        if not whole:
            self.parts.append((rank, what))
        return [*ended, Piece(rank, what, text + (b"\n" if whole else b""))]

    def _ended(self, rank: int, streams: tuple[str, ...]) -> list[Piece]:
        """The ends of lines that were open and that are not gone on with."""
        over = [part for part in self.parts if part[0] == rank and part[1] in streams]
        self.parts = [part for part in self.parts if part not in over]
        return [Piece(*part, b"\n") for part in over]


_STAMP = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d)) ?", re.ASCII
)
_second: dict[bytes, int] = {}


def stamped(line: bytes) -> tuple[Optional[int], bytes]:
    """When a line was written (nanoseconds of the epoch; None where it has no stamp), and its text."""
    found = _STAMP.match(line)
    if found is None:
        return None, line
    text, fraction, sign, hours, minutes = found.groups()
    seconds = _seconds(text)
    if seconds is None:
        return None, line
    if sign:
        zone = int(hours) * 3600 + int(minutes) * 60
        seconds -= zone if sign == b"+" else -zone
    return seconds * 10**9 + int((fraction or b"0").ljust(9, b"0")), line[found.end() :]


def _seconds(text: bytes) -> Optional[int]:
    known = _second.get(text)
    if known is None:
        try:
            known = calendar.timegm(time.strptime(text.decode(), "%Y-%m-%dT%H:%M:%S"))
        except ValueError:
            return None
        # The lines of all ranks come in the same few seconds: to read each again costs a third of all.
        if len(_second) > 64:
            _second.clear()
        _second[text] = known
    return known


def epoch(text: object) -> Optional[float]:
    """A time as objects have it, in epoch seconds; None where it is none."""
    moment = stamped(text.encode())[0] if isinstance(text, str) else None
    return None if moment is None else moment / 1e9


class Place:
    """How far a log has been read: its newest second, and the lines seen of that second.

    The server takes whole seconds (`sinceTime`), and gives all lines of that second again.
    """

    def __init__(self, second: int = 0, seen: Iterable[tuple[int, int]] = ()) -> None:
        self.second = second
        self.seen = dict(seen)
        """Nanoseconds within it -> number of lines with this stamp."""
        self._again: dict[int, int] = {}

    @property
    def since(self) -> str:
        """What to ask the server for; "" from the beginning."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.second)) if self.second else ""

    def resume(self) -> None:
        """The server is asked again, for `since`: what was seen of it comes once more."""
        self._again = dict(self.seen)

    def fresh(self, moment: int) -> bool:
        """Whether a line with this stamp is new; notes that it was seen."""
        second, part = divmod(moment, 10**9)
        if second == self.second and self._again.get(part):
            self._again[part] -= 1
            return False
        if second > self.second:
            self.second, self.seen, self._again = second, {}, {}
        if second == self.second:
            self.seen[part] = self.seen.get(part, 0) + 1
        return True
