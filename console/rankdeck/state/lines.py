"""The newest lines of one rank, made from the bytes that arrive; each byte is taken once."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import overload

from rankdeck.model.job import Chunk, Tail
from rankdeck.model.text import strip_controls

KEEP_LINES = 10_000
KEEP_BYTES = 4 << 20
KEEP_ALL = 56 << 20
"""Bytes of memory for the newest lines: of one rank, and of all ranks of a job together."""
_ENTRY = 168
"""Bytes that Python needs for a line in addition to its text."""
SHOWN = 10_000
"""Most characters of a line that are shown; the node keeps all of them."""
_RAW = 4 * SHOWN
_END = re.compile(rb"\r\n|\r|\n")
Entry = tuple[float, str, int, bytes]


@dataclass(frozen=True, slots=True)
class Line:
    """One line as it may be shown: only SGR colour codes are left of its control codes."""

    at: float
    rank: int
    stream: str
    offset: int
    """Offset of its first byte in the rank's file on the node."""
    text: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that were not fetched; the node has them."""

    stream: str
    start: int
    end: int
    before: int
    """Number of the line, counted like `RankLog.total`, that follows the gap."""


def _shown(raw: bytes) -> str:
    text = strip_controls(raw.decode("utf-8", "replace"), colour=True)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def line_of(rank: int, entry: Entry) -> Line:
    """What was kept of a line, as text."""
    at, stream, offset, raw = entry
    return Line(at, rank, stream, offset, _shown(raw))


class Lines(Sequence[Line]):
    """The kept lines, decoded only when read."""

    def __init__(self, rank: int, entries: "deque[Entry]") -> None:
        self._rank, self._entries = rank, entries

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Line: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Line, ...]: ...
    def __getitem__(self, index: int | slice) -> Line | tuple[Line, ...]:
        if isinstance(index, slice):
            return tuple(self._line(self._entries[i]) for i in range(*index.indices(len(self))))
        return self._line(self._entries[index])

    def __iter__(self) -> Iterator[Line]:
        return map(self._line, self._entries)

    def _line(self, entry: Entry) -> Line:
        return line_of(self._rank, entry)


@dataclass(slots=True)
class _Stream:
    name: str
    start: int = 0
    """Everything from here to `position` has arrived without a gap."""
    position: int = 0
    rewinding: bool = False
    """Bytes asked for again have not come yet: what is still under way is dropped."""
    open: bytes = b""
    open_at: float = 0.0
    open_offset: int = 0
    after_cr: bool = False
    lines: int = 0
    end: int = 0
    """The farthest byte known to exist on the node."""
    told: int = 0
    """Lines that exist on the node, by its own count."""


def _resume(stream: _Stream, wanted: int, backlog: int | None) -> int:
    missed = wanted > stream.position or not stream.end
    return stream.position if backlog is None or not missed else -backlog


def share(ranks: int) -> int:
    """Bytes of memory for each rank of a job with so many."""
    return min(KEEP_BYTES, KEEP_ALL // max(ranks, 1))


class RankLog:
    """Output of one rank: the newest lines, and how far each stream was read."""

    def __init__(self, rank: int, keep: int = KEEP_LINES, keep_bytes: int = KEEP_BYTES) -> None:
        self.rank = rank
        self._keep, self._keep_bytes = keep, keep_bytes
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._streams = {name: _Stream(name) for name in ("out", "err")}
        self._gaps: deque[Gap] = deque(maxlen=100)
        self.total = 0
        """Lines taken in since the beginning (or the last rewind)."""
        self.rewinds = 0
        """How often it was begun anew, from an earlier byte."""
        self.heard: float | None = None
        self._last_told = ""

    @property
    def lines(self) -> Lines:
        return Lines(self.rank, self._entries)

    @property
    def first(self) -> int:
        """The number of `lines[0]`; older ones were let go."""
        return self.total - len(self._entries)

    def entries(self, number: int, most: int) -> list[Entry]:
        """At most `most` lines from this number on, as they came: for those who read many."""
        begin = max(number - self.first, 0)
        end = min(begin + most, len(self._entries))
        if begin < len(self._entries) // 2:
            return list(islice(self._entries, begin, end))
        return [self._entries[at] for at in range(begin, end)]

    @property
    def partial(self) -> Line | None:
        """The newest line that has no end yet."""
        begun = [stream for stream in self._streams.values() if stream.open]
        if not begun:
            return None
        stream = max(begun, key=lambda one: one.open_at)
        return Line(
            stream.open_at,
            self.rank,
            stream.name,
            stream.open_offset,
            _shown(stream.open),
        )

    @property
    def last(self) -> str:
        """The newest text, whether fetched or only reported in a tail."""
        partial = self.partial
        if self._last_told:
            return self._last_told
        if partial is not None:
            return strip_controls(partial.text)
        return strip_controls(self.lines[-1].text) if self._entries else ""

    @property
    def counts(self) -> dict[str, int]:
        """Lines of each stream that exist on the node, as far as known."""
        return {s.name: max(s.lines, s.told) for s in self._streams.values()}

    @property
    def gaps(self) -> tuple[Gap, ...]:
        return tuple(self._gaps)

    def positions(self) -> dict[str, int]:
        """Per stream, the offset of the next byte wanted."""
        return {s.name: s.position for s in self._streams.values()}

    def ends(self) -> dict[str, int]:
        """Per stream, how much is known to exist on the node."""
        return {s.name: s.end for s in self._streams.values()}

    def add(self, chunk: Chunk) -> None:
        """Add bytes; those seen before are dropped, missing ones become a gap."""
        stream = self._streams.get(chunk.stream)
        if stream is None or not chunk.data or chunk.offset < 0:
            return
        data, offset = chunk.data, chunk.offset
        if offset > stream.position:
            if stream.rewinding:
                return
            self._skip(stream, offset)
        elif offset < stream.position:
            data = data[stream.position - offset :]
            if not data:
                return
        stream.rewinding = False
        stream.position += len(data)
        stream.end = max(stream.end, stream.position)
        self.heard = max(self.heard or chunk.at, chunk.at)
        if all(one.position >= one.end for one in self._streams.values()):
            self._last_told = ""
        kept, total = len(self._entries), self.total
        self._split(stream, data, chunk.at)
        # Who prints every line has seen all but a quarter, and has to see all of this chunk.
        self._trim(self.total - total + kept // 4)

    def tell(self, tail: Tail) -> None:
        """Remember what a node reports about output that is not fetched."""
        stream = self._streams.get(tail.stream)
        if stream is None:
            return
        if tail.end > stream.end:
            self.heard = max(self.heard or tail.at, tail.at)
        stream.end = max(stream.end, tail.end)
        stream.told = max(stream.told, tail.lines)
        if tail.last and stream.end > stream.position:
            self._last_told = strip_controls(tail.last)[:SHOWN]

    def expect_end(self, name: str, end: int) -> None:
        """Remember from an earlier session how much exists on the node."""
        if stream := self._streams.get(name):
            stream.end = max(stream.end, end)

    def resume(self, backlog: int | None) -> dict[str, int]:
        """Where to read each stream from, for at least `backlog` bytes of what came before.

        None wants everything. Below 0 is from the end: only the node knows where that is now.
        Reads again from the start where what is here has a hole.
        """
        wanted = {
            s.name: 0 if backlog is None else max(0, s.end - backlog)
            for s in self._streams.values()
        }
        if any(s.start > wanted[s.name] for s in self._streams.values()):
            self._restart(wanted)
        return {s.name: _resume(s, wanted[s.name], backlog) for s in self._streams.values()}

    def _restart(self, wanted: dict[str, int]) -> None:
        self.rewinds += 1
        self._entries.clear()
        self._gaps.clear()
        self._bytes = self.total = 0
        for name, old in self._streams.items():
            at = wanted[name]
            fresh = _Stream(
                name, start=at, position=at, rewinding=old.position > at, open_offset=at
            )
            fresh.end, fresh.told = old.end, old.told
            self._streams[name] = fresh

    def _skip(self, stream: _Stream, offset: int) -> None:
        if stream.open:
            self._append(stream, stream.open_at, stream.open)
        if stream.position > 0 or not stream.lines:
            self._gaps.append(Gap(stream.name, stream.position, offset, self.total))
        stream.start = stream.position = stream.open_offset = offset
        stream.open, stream.after_cr = b"", False

    def _split(self, stream: _Stream, data: bytes, at: float) -> None:
        if stream.after_cr and data.startswith(b"\n"):
            data = data[1:]
            stream.open_offset += 1
        stream.after_cr = data.endswith(b"\r")
        if b"\r" in data:
            self._split_any(stream, data, at)
            return
        pieces = data.split(b"\n")
        last = pieces.pop()
        if pieces:
            length = stream.position - len(data) - stream.open_offset + len(pieces[0])
            self._append(stream, at, stream.open + pieces[0])
            stream.open = b""
            stream.open_offset += length + 1
            for piece in pieces[1:]:
                self._append(stream, at, piece)
                stream.open_offset += len(piece) + 1
        self._begin(stream, last, at)

    def _split_any(self, stream: _Stream, data: bytes, at: float) -> None:
        base = stream.position - len(data)
        begin = 0
        for match in _END.finditer(data):
            self._append(stream, at, stream.open + data[begin : match.start()])
            stream.open = b""
            begin = match.end()
            stream.open_offset = base + begin
        self._begin(stream, data[begin:], at)

    def _begin(self, stream: _Stream, data: bytes, at: float) -> None:
        if data:
            stream.open = (stream.open + data)[:_RAW] if len(stream.open) < _RAW else stream.open
            stream.open_at = at

    def _append(self, stream: _Stream, at: float, raw: bytes) -> None:
        raw = raw[:_RAW]
        self._entries.append((at, stream.name, stream.open_offset, raw))
        self._bytes += len(raw) + _ENTRY
        self.total += 1
        stream.lines += 1

    def _trim(self, least: int) -> None:
        entries = self._entries
        least = max(least, 1)
        while len(entries) > least and (
            len(entries) > self._keep or self._bytes > self._keep_bytes
        ):
            self._bytes -= len(entries.popleft()[3]) + _ENTRY
