"""`job browse`: reads and searches the output of a job on this node;
requests on stdin, answers on stdout.

A log of gigabytes stays on its node: only what is shown is sent. stdin takes lines {"id": n,
"read": [rank, stream, offset, bytes]} and {"id": n, "find": [rank, stream, offset, back, text]};
with "pattern": true the text is a regular expression, matched line by line. A new `find` ends the
one before; a `read` is answered during a `find`. stdout has `data` frames as `job follow` sends
them, and
  end    id, o (size of the stream)                          after the data of a `read`
  found  id, at, before, lines, counted, end, looking   progress (SearchReport), until counted = end
  no     id, text                                            the request failed: a sentence
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Optional, Union, cast

from rankdeck_agent.job.folder import STREAMS, FolderError, RunFolder
from rankdeck_agent.job.logs import (
    Input,
    LogReader,
    Piece,
    data_frame,
    encode_frame,
    line_start,
    start_of_line,
    write_to_stdout,
)
from rankdeck_agent.text import parse_json_table


class Count(NamedTuple):
    """How many lines of one block of a log have a hit."""

    lines: int
    head: bool
    """Whether the first of these lines began before the block."""
    tail: bool
    """Whether the last of these lines goes on after the block."""
    breaks: bool
    """Whether any line ends in the block."""


BLOCK = 96 << 10
"""Bytes that are searched in one step. Larger ones, of which two are there at a time, are
given back to the system and asked for again with every step: that took as long as the search.
"""
_NEAR = 1 << 12
"""Bytes after a block in which the end of its last line is looked for first."""
_TELL = 0.2
"""Seconds between two reports."""

_REST = bytes(set(range(256)) - {0, 10})
"""Bytes removed before counting: all but hits (written as byte 0) and newlines."""


class SearchReport(NamedTuple):
    """The state of a search."""

    at: Optional[int]
    """Offset of the line that was found; None: not found, or not yet."""
    before: Optional[int]
    """Matching lines before that one; None until they are counted."""
    lines: int
    """Matching lines counted so far."""
    counted: int
    """Bytes in which they were counted."""
    end: int
    """Size of the log."""
    looking: bool
    """Whether the line may still be found."""


class TextQuery:
    """A literal text to search for; case is ignored unless the text has capital letters."""

    def __init__(self, text: str) -> None:
        self._needle = text.encode("utf-8", "surrogateescape")
        self._lower = text == text.lower() and text != text.upper()
        self.overlap = len(self._needle) - 1
        """Bytes after a block that may complete a hit that begins in it."""

    def count(self, data: bytes, size: int, *, top: bool) -> Count:
        """Count the lines with a hit that begins in the first `size` bytes; `top`:
        `data` is the first block of the log.
        """
        del top
        return count_in_block(self._cased(data), size, self._needle)

    def first(self, data: bytes, begin: int, *, top: bool) -> int:
        """Where the first hit at or after `begin` is; -1 if there is none."""
        del top
        return self._cased(data).find(self._needle, begin)

    def last(self, data: bytes, until: int, *, top: bool) -> int:
        """Where the last hit that ends at or before `until` is; -1 if there is none."""
        del top
        return self._cased(data).rfind(self._needle, 0, until)

    def _cased(self, data: bytes) -> bytes:
        return data.lower() if self._lower else data


class RegexQuery:
    """A regular expression. A hit is a line that matches; its position is the start of the line.

    A line belongs to the block in which the line before it ends. Raises
    ValueError if `text` cannot be compiled.
    """

    overlap = 1 << 16
    """Most bytes that are read of a line that continues after its block."""

    def __init__(self, text: str) -> None:
        try:
            self._search = re.compile(text.encode("utf-8", "surrogateescape"), re.MULTILINE).search
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"cannot be searched for in the whole log: {error}") from error

    def count(self, data: bytes, size: int, *, top: bool) -> Count:
        lines = sum(1 for at in self._lines(data, 0, top) if at <= size)
        return Count(lines, head=False, tail=False, breaks=True)

    def first(self, data: bytes, begin: int, *, top: bool) -> int:
        return next(self._lines(data, begin, top), -1)

    def last(self, data: bytes, until: int, *, top: bool) -> int:
        return max((at for at in self._lines(data, 0, top) if at < until), default=-1)

    def _lines(self, data: bytes, begin: int, top: bool) -> Iterator[int]:
        start = begin
        if not top:
            start = max(begin, data.find(b"\n") + 1 or len(data))
        while start < len(data):
            hit = self._search(data, start)
            if not hit:
                return
            at = data.rfind(b"\n", start, hit.start()) + 1 or start
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            # The match may extend past the end of the line: then the line must match alone.
            if at < len(data) and (hit.end() <= end or self._search(data[at:end])):
                yield at
            start = end + 1


class LogSearch:
    """Searches one log for one text or pattern.

    Counts of whole blocks are kept while the log grows.
    """

    def __init__(self, path: Path, needle: Union[TextQuery, RegexQuery]) -> None:
        self._path, self._needle = path, needle
        self._overlap = needle.overlap
        self._tallies: dict[int, Count] = {}
        self._end = 0
        self._whole = 0, 0
        """The part of the log, from one offset to another, that is known to have no hole."""

    def steps(self, offset: int, back: bool) -> Iterator[Optional[SearchReport]]:
        """Find the first matching line from `offset` on (with `back`: the last
        before it), then count all matching lines.

        Yields after each block: a report if one is due, else None. The last report is complete.
        """
        with self._path.open("rb", buffering=0) as file:
            self._grow(file.fileno())
            begin = min(offset, self._end) if back else line_start(file, offset)
            yield from self._looked(file, begin, back)

    def _looked(self, file: IO[bytes], begin: int, back: bool) -> Iterator[Optional[SearchReport]]:
        reported, at, fd = time.monotonic(), None, file.fileno()
        for hit in self._before(fd, begin) if back else self._after(fd, begin):
            if hit is not None:
                at = start_of_line(file, hit)
                break
            reported, report = self._report(reported, at, looking=True)
            yield report
        yield self._search_report(at, looking=False)

        for block in range(self._blocks):
            if block not in self._tallies:
                self._look(fd, block)
                reported, report = self._report(reported, at, looking=False)
                yield report
        yield self._search_report(at, looking=False)

    def _grow(self, fd: int) -> None:
        """Note the size of the log; if it changed, drop the counts
        of blocks that were incomplete.
        """
        end = os.fstat(fd).st_size
        if end != self._end:
            whole = (min(self._end, end) - self._overlap) // BLOCK
            self._tallies = {k: v for k, v in self._tallies.items() if k < whole}
        self._end, self._whole = end, (0, 0)

    @property
    def _blocks(self) -> int:
        return -(-self._end // BLOCK)

    # ---- looking

    def _after(self, fd: int, offset: int) -> Iterator[Optional[int]]:
        for block in range(max(offset - 1, 0) // BLOCK, self._blocks):
            yield self._found(fd, block, max(offset - block * BLOCK, 0), None)

    def _before(self, fd: int, until: int) -> Iterator[Optional[int]]:
        for block in range((until - 1) // BLOCK, -1, -1):
            yield self._found(fd, block, 0, until - block * BLOCK)

    def _found(self, fd: int, block: int, begin: int, until: Optional[int]) -> Optional[int]:
        """Offset in the log of the block's first hit from `begin` on, or with
        `until` of the last that ends by then.
        """
        known = self._tallies.get(block)
        if known is not None and not known.lines:
            return None
        data = self._look(fd, block)
        if not self._tallies[block].lines:
            return None
        top = block == 0
        find = (
            self._needle.first(data, begin, top=top)
            if until is None
            else self._needle.last(data, until, top=top)
        )
        return None if find < 0 else block * BLOCK + find

    def _look(self, fd: int, block: int) -> bytes:
        """Read a block and the bytes after it that may complete a hit;
        count its hits if not done yet.
        """
        begin = block * BLOCK
        size = min(BLOCK, self._end - begin)
        left = self._end - begin
        near = min(self._overlap, _NEAR)
        data = self._text(fd, begin, min(size + near, left))
        ends = data.find(b"\n", size) + 1 if near < self._overlap and len(data) < left else 0
        if near < self._overlap and len(data) < left and not ends:
            data = self._text(fd, begin, min(size + self._overlap, left))
        if block not in self._tallies:
            self._tallies[block] = self._needle.count(data, size, top=block == 0)
        # What follows the last line is a part of another one, which is read with the next block.
        return data[:ends] if ends and self._tallies[block].lines else data

    def _text(self, fd: int, begin: int, size: int) -> bytes:
        """The bytes there; a hole, left where bytes were removed, becomes a line of its own."""
        data = os.pread(fd, size, begin)
        if not data.strip(b"\0"):
            return data
        # Some file systems look at all that follows to find the next hole: not for every block.
        end = begin + len(data)
        if not self._whole[0] <= begin <= end <= self._whole[1]:
            self._whole = begin, os.lseek(fd, begin, os.SEEK_HOLE)
        if end <= self._whole[1]:
            return data
        return re.sub(rb"\0(?!\0)", b"\n", data)

    # ---- telling

    def _report(
        self, reported: float, at: Optional[int], looking: bool
    ) -> tuple[float, Optional[SearchReport]]:
        now = time.monotonic()
        if now - reported < _TELL:
            return reported, None
        return now, self._search_report(at, looking)

    def _search_report(self, at: Optional[int], looking: bool) -> SearchReport:
        counted = min(len(self._tallies) * BLOCK, self._end)
        count, _ = _sum(self._tallies[block] for block in sorted(self._tallies))
        return SearchReport(at, self._lines_before(at), count, counted, self._end, looking)

    def _lines_before(self, at: Optional[int]) -> Optional[int]:
        if at is None:
            return None
        block = max(at - 1, 0) // BLOCK
        if not all(one in self._tallies for one in range(block)):
            return None
        count, open_ = _sum(self._tallies[one] for one in range(block))
        rest = at - block * BLOCK
        with self._path.open("rb", buffering=0) as file:
            data = self._text(file.fileno(), block * BLOCK, rest)
        part = self._needle.count(data, rest, top=block == 0)
        return count + part.lines - (open_ and part.head)


def count_in_block(data: bytes, size: int, needle: bytes) -> Count:
    """Count in a block of `size` bytes; the bytes after them in `data` only complete a hit."""
    if data.find(needle) < 0:
        return Count(0, False, False, data.find(b"\n", 0, size) >= 0)
    marks = data.replace(b"\0", b" ").replace(needle, b"\0").translate(None, _REST)
    lines = marks.count(b"\0\n") + marks.endswith(b"\0")
    final = data.rfind(b"\n", 0, size)
    return Count(lines, marks[:1] == b"\0", final < data.rfind(needle), final >= 0)


def _sum(tallies: Iterator[Count]) -> tuple[int, bool]:
    """Matching lines of consecutive blocks, each line counted once; and
    whether the last one goes on after them.
    """
    count, going_on = 0, False
    for one in tallies:
        count += one.lines - (going_on and one.head)
        going_on = one.tail or (going_on and not one.breaks)
    return count, going_on


IDLE = 600.0
"""Seconds without a request after which the program ends; the
console starts another one when needed.
"""
MOST = 4 << 20
"""Most bytes of one answer."""
_TURN = 0.02
"""Seconds of searching between two reads of stdin."""
SLOWEST = 5.0
"""Most seconds for one turn, after which a slow pattern is
stopped; a block takes some milliseconds.
"""


def log_path(folder: RunFolder, rank: int, stream: str) -> Path:
    """The log file of one stream; raises FolderError if there is none."""
    path = folder.place(rank) / stream
    if stream not in STREAMS or not path.is_file():
        raise FolderError(f"rank {rank} has no {stream[:20]!r} on node {folder.node}")
    return path


def read_log_lines(path: Path, offset: int, size: int) -> tuple[list[Piece], int]:
    """About `size` bytes of whole lines from `offset` on (negative: counted
    from the end), and the size of the file.
    """
    end = path.stat().st_size
    begin = max(end + offset, 0) if offset < 0 else min(offset, end)
    with path.open("rb") as file:
        begin = line_start(file, begin)
        until = min(begin + min(max(size, 1), MOST), end)
        until = end if until == end else max(line_start(file, until), until)
    return list(LogReader(path, begin).read(until - begin)), end


class Browser:
    """Answers the requests of one console; `busy` while a search runs."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._search: Optional[LogSearch] = None
        self._about: Optional[tuple[Path, str, bool]] = None
        self._steps: Iterator[Optional[SearchReport]] = iter(())
        self._id: Any = None
        self.busy = False

    def take(self, text: bytes) -> list[bytes]:
        """Handle a line of stdin; returns the frames to send at once.

        A search goes on in `turn`.
        """
        asked = parse_json_table(text.decode("utf-8", "replace")) or {}
        try:
            return self._take(asked)
        except (FolderError, OSError) as error:
            return [encode_frame({"kind": "no", "id": asked.get("id"), "text": str(error)})]
        except (TypeError, ValueError, AttributeError):
            what = "that is no question"
            return [encode_frame({"kind": "no", "id": asked.get("id"), "text": what})]

    def _take(self, asked: dict[str, Any]) -> list[bytes]:
        if "read" in asked:
            rank, stream, offset, size = cast("list[Any]", asked["read"])
            path = log_path(self._folder, int(rank), str(stream))
            pieces, end = read_log_lines(path, int(offset), int(size))
            frames = [part for one in pieces for part in data_frame({"id": asked["id"]}, one)]
            return [*frames, encode_frame({"kind": "end", "id": asked["id"], "o": end})]
        if "find" in asked:
            rank, stream, offset, back, text = cast("list[Any]", asked["find"])
            path = log_path(self._folder, int(rank), str(stream))
            about = (path, str(text), asked.get("pattern") is True)
            self._find(about, max(int(offset), 0), back is True)
            self._id = asked["id"]
        return []

    def _find(self, about: tuple[Path, str, bool], offset: int, back: bool) -> None:
        path, text, pattern = about
        if not text:
            raise FolderError("nothing to look for")
        if self._search is None or self._about != about:
            try:
                needle = RegexQuery(text) if pattern else TextQuery(text)
            except ValueError as error:
                raise FolderError(str(error)) from error
            self._about, self._search = about, LogSearch(path, needle)
        self._steps = self._search.steps(offset, back)
        self.busy = True

    def turn(self) -> list[bytes]:
        """Go on with the search for a moment; returns the frames to send."""
        until = time.monotonic() + _TURN
        try:
            signal.setitimer(signal.ITIMER_REAL, SLOWEST)
            for report in self._steps:
                if report is not None:
                    head = {"kind": "found", "id": self._id}
                    return [encode_frame({**head, **report._asdict()})]
                if time.monotonic() > until:
                    return []
        except OSError as error:
            self.busy = False
            return [encode_frame({"kind": "no", "id": self._id, "text": str(error)})]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.busy = False
        return []


def too_slow(_number: int, _frame: object) -> None:
    """Stop a match that takes too long: the handler of SIGALRM, which `re` calls while it matches.

    Raises TimeoutError.
    """
    raise TimeoutError("the pattern takes too long on a line of this log; write a simpler one")


def serve_log_requests(folder: RunFolder) -> int:
    """Answer requests until stdin ends or none has come for IDLE seconds; returns the exit code."""
    signal.signal(signal.SIGALRM, too_slow)
    browser, source = Browser(folder), Input(0)
    active = time.monotonic()
    while not source.ended and time.monotonic() - active < IDLE:
        asked = source.lines(0 if browser.busy else IDLE)
        active = time.monotonic() if asked or browser.busy else active
        frames = [frame for line in asked for frame in browser.take(line)]
        frames += browser.turn() if browser.busy else []
        if frames and not write_to_stdout(b"".join(frames)):
            break
    return 0
