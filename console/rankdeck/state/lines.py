"""The output of one rank: how far it was read, and its newest lines;
bytes that arrive twice are taken once.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import overload

from rankdeck.model.rank_output import Chunk, Followed, Tail
from rankdeck.model.safe_text import strip_codes, strip_controls
from rankdeck.model.stall import LONG_PAUSE
from rankdeck.state.kept_lines import LONGEST_RAW, SHOWN, Block, Entry, KeptLines
from rankdeck.state.live_rows import LiveRows, Row, draws_rows
from rankdeck.values import Value, replace

KEEP_LINES = 10_000
KEEP_BYTES = 4 << 20
KEEP_ALL = 56 << 20
"""Most bytes of memory for lines: KEEP_BYTES for one rank,
KEEP_ALL for all ranks of a job together.
"""
_FEW = 16
"""Lines that arrive together are split at once up to this number; more when somebody reads them."""


class Line(Value):
    """One line: all control codes are removed except SGR colours;
    invisible characters are still in it.
    """

    at: float
    rank: int
    stream: str
    offset: int
    """Offset of its first byte in the rank's file on the node."""
    text: str
    cut: bool = False
    """Whether the line is longer than `text`, which then ends with `…`."""


class Gap(Value):
    """Bytes that were not fetched; the node has them."""

    stream: str
    start: int
    end: int
    before: int
    """Number of the line after the gap, counted like `RankLog.total`."""


def visible_line(raw: bytes) -> bytes:
    """What a terminal shows of a line that was rewritten with
    carriage returns: its newest version.
    """
    return raw.rstrip(b"\r").rpartition(b"\r")[2]


def line_of(rank: int, entry: Entry) -> Line:
    """The line of a stored entry, decoded."""
    at, stream, offset, raw = entry
    text = strip_codes(raw.decode("utf-8", "replace"))
    cut = len(text) > SHOWN or len(raw) >= LONGEST_RAW
    return Line(at, rank, stream, offset, text[:SHOWN] + "…" if cut else text, cut)


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
            entries, rank = self._entries, self._rank
            return tuple(line_of(rank, entries[i]) for i in range(*index.indices(len(entries))))
        return self._line(self._entries[index])

    def __iter__(self) -> Iterator[Line]:
        return map(self._line, self._entries)

    def _line(self, entry: Entry) -> Line:
        return line_of(self._rank, entry)


@dataclass(slots=True)
class _Position:
    start: int = 0
    """Everything from here to `at` has arrived without a gap."""
    at: int = 0
    """Offset of the next byte to read."""
    end: int = 0
    """Size of the log on the node, as far as known."""
    back: int = 0
    """If above 0: reading begins this many bytes before the end,
    whose offset only the node knows.
    """
    rewinding: bool = False
    """Bytes that were requested again have not arrived yet; later bytes
    that arrive before them are dropped.
    """


class ReadPositions:
    """How far both streams of one rank were read.

    Followers fetch by these positions; no other code counts bytes.
    """

    def __init__(self) -> None:
        self._streams = {name: _Position() for name in ("out", "err")}
        self.rewinds = 0
        """How often reading began again from an earlier byte."""

    def at(self) -> dict[str, int]:
        """Stream -> offset of the next byte to read."""
        return {name: one.at for name, one in self._streams.items()}

    def ends(self) -> dict[str, int]:
        """Stream -> size of the log on the node, as far as known."""
        return {name: one.end for name, one in self._streams.items()}

    def wanted(self) -> dict[str, int]:
        """Stream -> offset where reading goes on; below 0 it counts
        back from the end of the log.
        """
        return {name: -one.back if one.back else one.at for name, one in self._streams.items()}

    def has(self, ends: Mapping[str, int]) -> bool:
        """Whether all bytes up to these ends (stream -> offset) have arrived."""
        return all(self._streams[name].at >= end for name, end in ends.items())

    @property
    def behind(self) -> bool:
        """Whether bytes are known to exist on the node that have not arrived."""
        return any(one.at < one.end for one in self._streams.values())

    def resume(self, backlog: int | None) -> bool:
        """Set the positions so that at least the last `backlog` bytes are read; None: everything.

        If some of these bytes are missing here, reading begins again from the first of them.
        Returns whether the positions changed, so that the node must be asked again.
        """
        streams, before = self._streams.values(), self.wanted()
        starts = [0 if backlog is None else max(0, one.end - backlog) for one in streams]
        anew = any(one.start > start for one, start in zip(streams, starts, strict=True))
        self.rewinds += anew
        for one, start in zip(streams, starts, strict=True):
            if anew:
                one.rewinding = one.at > start
                one.start = one.at = start
            missed = start > one.at or not one.end
            one.back = (backlog or 0) if missed else 0
        return anew or self.wanted() != before

    def take(self, chunk: Chunk) -> Chunk | None:
        """Note the bytes of a chunk as read; returns the part that is
        new (it may follow a gap), or None.
        """
        one = self._streams.get(chunk.stream)
        if one is None or not chunk.data or chunk.offset < 0:
            return None
        if chunk.offset > one.at:
            if one.rewinding:
                return None
            one.start = one.at = chunk.offset
        known = one.at - chunk.offset
        if known >= len(chunk.data):
            return None
        one.at = chunk.offset + len(chunk.data)
        one.end = max(one.end, one.at)
        one.back, one.rewinding = 0, False
        return (
            replace(chunk, offset=chunk.offset + known, data=chunk.data[known:]) if known else chunk
        )

    def saw(self, stream: str, end: int) -> None:
        """Note that the stream on the node has at least `end` bytes."""
        if one := self._streams.get(stream):
            one.end = max(one.end, end)


ReadPositionsOf = Callable[[str, int], ReadPositions]
"""(node, rank) -> positions of that rank; with rank LAUNCHER, of the launcher on that node."""


class JobPositions:
    """How far each log of a job was read, for callers that do not keep the lines."""

    def __init__(self) -> None:
        self._logs = defaultdict[tuple[str, int], ReadPositions](ReadPositions)

    def of(self, node: str, rank: int) -> ReadPositions:
        return self._logs[node, rank]

    def take(self, item: Followed) -> Chunk | None:
        """The new part of a chunk of output; None for anything else."""
        if isinstance(item, Tail):
            self.of(item.node, item.rank).saw(item.stream, item.end)
        return self.of(item.node, item.rank).take(item) if isinstance(item, Chunk) else None

    def ends(self) -> dict[tuple[str, int], dict[str, int]]:
        """(node, rank) -> stream -> size of the log on the node, as far as known."""
        return {key: log.ends() for key, log in self._logs.items()}


@dataclass(slots=True)
class _Stream:
    name: str
    open: bytes = b""
    open_at: float = 0.0
    open_offset: int = 0
    rewritten: bool = False
    """Whether the open line has carriage returns: a progress bar."""
    lines: int = 0
    counted: int = 0
    """Number of lines on the node, as the node counted them."""
    live: LiveRows | None = None
    """The rows of a program that draws several of them anew."""


def line_memory_share(ranks: int) -> int:
    """Bytes of memory for the lines of each rank, in a job with this many ranks."""
    return min(KEEP_BYTES, KEEP_ALL // max(ranks, 1))


class RankLog:
    """Output of one rank: the newest lines, and in `read` how far each stream was read."""

    def __init__(self, rank: int, keep: int = KEEP_LINES, keep_bytes: int = KEEP_BYTES) -> None:
        self.rank = rank
        self.read = ReadPositions()
        self._kept = KeptLines(keep, keep_bytes)
        self._streams = {name: _Stream(name) for name in ("out", "err")}
        self._gaps: deque[Gap] = deque(maxlen=100)
        self.total = 0
        """Number of lines taken since the beginning (or the last rewind)."""
        self.rewinds = 0
        """How often reading began again from an earlier byte."""
        self.heard: float | None = None
        self.resumed: float | None = None
        """When it wrote again after its last long pause, epoch seconds."""
        self._last_told = ""

    @property
    def lines(self) -> Lines:
        return Lines(self.rank, self._kept.split())

    def newest(self, most: int) -> tuple[Line, ...]:
        """The newest whole lines, oldest first; faster than a part of `lines`."""
        return tuple(line_of(self.rank, entry) for entry in self._kept.newest(most))

    @property
    def held(self) -> int:
        """Number of lines that are kept; in a flood of output a few more than `lines`."""
        return len(self._kept)

    def unread(self, number: int, most: int | None = None) -> tuple[int, list[Entry | Block]]:
        """What came from line `number` on, as it is kept: lines, then blocks of lines that nobody
        has read yet; with `most`, the oldest so many lines. Before it the number of lines that
        were dropped.
        """
        first = self.total - len(self._kept)
        begin = max(number - first, 0)
        end = len(self._kept) if most is None else begin + most
        return max(first - number, 0), self._kept.between(begin, end)

    @property
    def first(self) -> int:
        """The number of `lines[0]`, from 0; older lines were dropped."""
        return self.total - len(self._kept.split())

    def entries(self, number: int, most: int) -> list[Entry]:
        """At most `most` undecoded lines from line `number` on;
        faster for readers of many lines.
        """
        begin, entries = max(number - self.first, 0), self._kept.split()
        end = min(begin + most, len(entries))
        if begin < len(entries) // 2:
            return list(islice(entries, begin, end))
        return [entries[at] for at in range(begin, end)]

    @property
    def partial(self) -> Line | None:
        """The newest line that has no line end yet, or None."""
        return self._newest_open([*self._streams.values()])

    @property
    def bar(self) -> Line | None:
        """The newest line that has no line end yet and that its program rewrites, or None."""
        return self._newest_open([one for one in self._streams.values() if one.rewritten])

    @property
    def live(self) -> list[Line]:
        """The rows of progress bars that its program draws anew, from the top; usually none."""
        rows = [(one, row) for one in self._streams.values() if one.live for row in one.live.rows]
        return [
            line_of(self.rank, (row.at, stream.name, row.offset, row.text))
            for stream, row in rows
            if row.text.strip()
        ]

    @property
    def begun(self) -> list[Line]:
        """What stands below the lines: rows of progress bars, else the newest unfinished line."""
        partial = self.partial
        return self.live or ([partial] if partial else [])

    @property
    def bars(self) -> list[Line]:
        """The lines that their program rewrites: one progress bar, or several."""
        bar = self.bar
        return self.live or ([bar] if bar else [])

    def _newest_open(self, streams: list[_Stream]) -> Line | None:
        begun = [(one, raw) for one in streams if (raw := one.open.rstrip(b"\r"))]
        if not begun:
            return None
        stream, raw = max(begun, key=lambda pair: pair[0].open_at)
        return line_of(self.rank, (stream.open_at, stream.name, stream.open_offset, raw))

    @property
    def last(self) -> str:
        """The newest line, whether its bytes were fetched or it was only reported in a tail."""
        partial = self.partial
        if self._last_told:
            return self._last_told
        if partial is not None:
            return strip_controls(partial.text)
        return "".join(strip_controls(line.text) for line in self.newest(1))

    @property
    def late_by(self) -> float:
        """Seconds by which the newest line here is older than the newest on the node;
        0 if no output is missing.
        """
        newest = self._kept.newest(1)
        if not self.read.behind or self.heard is None or not newest:
            return 0.0
        return max(self.heard - newest[0][0], 0.0)

    @property
    def counts(self) -> dict[str, int]:
        """Stream -> number of lines on the node, as far as known."""
        return {s.name: max(s.lines, s.counted) for s in self._streams.values()}

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The last 100 gaps, oldest first."""
        return tuple(self._gaps)

    def add(self, chunk: Chunk) -> Chunk | None:
        """Add bytes; returns the new part, or None.

        Bytes seen before are dropped; missing bytes become a gap.
        """
        before = self.read.at()
        new = self.read.take(chunk)
        if new is None:
            return None
        if self.rewinds != self.read.rewinds:
            self._clear()
        stream = self._streams[new.stream]
        if new.offset > before[new.stream]:
            self._skip(stream, before[new.stream], new.offset)
        self._hear(new.at)
        if not self.read.behind:
            self._last_told = ""
        kept, total = len(self._kept), self.total
        self._split(stream, new)
        # A reader that prints every line may be a quarter behind, and must
        # also get all lines of this chunk.
        self._kept.trim(self.total - total + kept // 4)
        return new

    def tell(self, tail: Tail) -> None:
        """Take a node's report about output that is not fetched."""
        stream = self._streams.get(tail.stream)
        if stream is None:
            return
        if tail.end > self.read.ends()[tail.stream]:
            self._hear(tail.at)
        self.read.saw(tail.stream, tail.end)
        stream.counted = max(stream.counted, tail.lines)
        if tail.last and self.read.ends()[tail.stream] > self.read.at()[tail.stream]:
            self._last_told = strip_controls(tail.last)[:SHOWN]

    def _hear(self, at: float) -> None:
        if self.heard is None or at - self.heard > LONG_PAUSE:
            self.resumed = at
        self.heard = max(self.heard or at, at)

    def _clear(self) -> None:
        self.rewinds = self.read.rewinds
        self._kept.clear()
        self._gaps.clear()
        self.total = 0
        self._streams = {
            name: _Stream(name, counted=old.counted) for name, old in self._streams.items()
        }

    def _skip(self, stream: _Stream, before: int, offset: int) -> None:
        if stream.open:
            self._append(stream, stream.open_at, visible_line(stream.open))
        if before > 0 or not stream.lines:
            self._gaps.append(Gap(stream.name, before, offset, self.total))
        stream.open, stream.rewritten, stream.live = b"", False, None

    def _split(self, stream: _Stream, new: Chunk) -> None:
        """Take the lines of new bytes.

        A line that its program rewrites with carriage returns is one line, which stays open.
        """
        if not stream.open:
            stream.open_offset = new.offset
        if stream.live is None and draws_rows(new.data):
            shown = visible_line(stream.open)
            stream.live = LiveRows(
                Row(stream.open_at or new.at, stream.open_offset, shown), LONGEST_RAW
            )
        if stream.live is not None:
            self._draw(stream, stream.live, new)
            return
        returns = b"\r" in new.data or stream.rewritten
        count = new.data.count(b"\n")
        if not returns and count > _FEW and len(stream.open) < LONGEST_RAW:
            self._keep_block(stream, new, count)
            return
        *ended, last = new.data.split(b"\n")
        begin = new.offset
        for piece in ended:
            whole = stream.open + piece if stream.open else piece
            self._append(stream, new.at, visible_line(whole) if returns else whole)
            begin += len(piece) + 1
            stream.open, stream.open_offset, stream.rewritten = b"", begin, False
        if last:
            self._begin(stream, last, new.at)

    def _keep_block(self, stream: _Stream, new: Chunk, count: int) -> None:
        """Keep the `count` lines that end in these bytes as they came."""
        end = new.data.rindex(b"\n") + 1
        data = stream.open + new.data[:end]
        self._kept.append_block(Block(new.at, stream.name, stream.open_offset, data, count))
        self.total += count
        stream.lines += count
        stream.open, stream.open_offset = b"", new.offset + end
        if end < len(new.data):
            self._begin(stream, new.data[end:], new.at)

    def _draw(self, stream: _Stream, live: LiveRows, new: Chunk) -> None:
        """Take new bytes of a program that draws several rows anew."""
        for row in live.take(new.data, new.offset, new.at):
            stream.open_offset = row.offset
            self._append(stream, row.at, row.text)
        newest = live.newest
        stream.open, stream.open_at, stream.open_offset = newest.text, newest.at, newest.offset
        stream.rewritten = not live.over
        if live.over:
            stream.live = None

    def _begin(self, stream: _Stream, data: bytes, at: float) -> None:
        stream.open_at = at
        if stream.rewritten or b"\r" in data:
            stream.rewritten = True
            shown = visible_line(stream.open + data)[:LONGEST_RAW]
            # Whether the next bytes end this line or write over it is not known yet.
            stream.open = shown + b"\r" if data.endswith(b"\r") else shown
        elif len(stream.open) < LONGEST_RAW:
            stream.open = (stream.open + data)[:LONGEST_RAW]

    def _append(self, stream: _Stream, at: float, raw: bytes) -> None:
        self._kept.append(at, stream.name, stream.open_offset, raw)
        self.total += 1
        stream.lines += 1
