"""`job browse`: reads and searches the output of a job on this node, as a dialogue on stdin and stdout.

A log of gigabytes stays on its node: only what is looked at is sent. stdin takes lines
{"id": n, "read": [rank, stream, offset, bytes]} and {"id": n, "find": [rank, stream, offset, back, text]}, with
"pattern": true where the text is a regular expression, matched line by line. A new `find` ends the one before, a `read`
is answered in between. stdout has `data` frames as `job follow` sends them, and
  end    id, o (size of the stream)                          after the data of a `read`
  found  id, at, before, lines, counted, end, looking        how far the search is, again and again until counted = end
  no     id, text                                            a sentence
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
    line,
    line_start,
    send,
    start_of_line,
)
from rankdeck_agent.text import table


class Count(NamedTuple):
    """The lines with a text in one block of a log."""

    lines: int
    head: bool
    """The first of them began before the block."""
    tail: bool
    """The last of them goes on after it."""
    breaks: bool
    """A line ends in it."""


BLOCK = 1 << 20
"""Bytes of one step: a millisecond or two."""
_TELL = 0.2
"""Seconds between two reports."""

_REST = bytes(set(range(256)) - {0, 10})
"""What is removed before counting: everything but hits, written as 0, and ends of lines."""


class SearchReport(NamedTuple):
    """The state of a search."""

    at: Optional[int]
    """Where the line begins; None: not found, or not yet."""
    before: Optional[int]
    """Lines with the text before it, once they are counted."""
    lines: int
    """Lines with the text, as far as counted."""
    counted: int
    """Bytes in which they were counted."""
    end: int
    looking: bool
    """Whether the line may still be found."""


class TextQuery:
    """A text to look for, as it stands; capitals make it exact."""

    def __init__(self, text: str) -> None:
        self._needle = text.encode("utf-8", "surrogateescape")
        self._lower = text == text.lower() and text != text.upper()
        self.overlap = len(self._needle) - 1
        """Bytes behind a block that may complete a hit of it."""

    def count(self, data: bytes, size: int, *, top: bool) -> Count:
        """The lines with a hit that begins in the first `size` bytes; `top`: of the first block."""
        del top
        return tally(self._cased(data), size, self._needle)

    def first(self, data: bytes, begin: int, *, top: bool) -> int:
        """Where the first hit from `begin` on is; -1: nowhere."""
        del top
        return self._cased(data).find(self._needle, begin)

    def last(self, data: bytes, until: int, *, top: bool) -> int:
        """Where the last hit that ends by `until` is."""
        del top
        return self._cased(data).rfind(self._needle, 0, until)

    def _cased(self, data: bytes) -> bytes:
        return data.lower() if self._lower else data


class RegexQuery:
    """A regular expression; its hits are the lines that match, each where it begins.

    A line belongs to the block in which the one before it ends. Raises ValueError for none.
    """

    overlap = 1 << 16
    """Most bytes that are read of a line that continues behind its block."""

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
        while start < len(data) and (hit := self._search(data, start)):
            at = data.rfind(b"\n", start, hit.start()) + 1 or start
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            # What matched may go over the end of the line: then this line alone has to match.
            if at < len(data) and (hit.end() <= end or self._search(data[at:end])):
                yield at
            start = end + 1


class LogSearch:
    """One text or pattern in one log. Counts of whole blocks are kept while the log grows."""

    def __init__(self, path: Path, needle: Union[TextQuery, RegexQuery]) -> None:
        self._path, self._needle = path, needle
        self._overlap = needle.overlap
        self._tallies: dict[int, Count] = {}
        self._end = 0

    def steps(self, offset: int, back: bool) -> Iterator[Optional[SearchReport]]:
        """Look for the next line from there on (or the last before), then count; the last report is whole."""
        with self._path.open("rb", buffering=0) as file:
            self._grow(file.fileno())
            begin = min(offset, self._end) if back else line_start(file, offset)
            yield from self._looked(file, begin, back)

    def _looked(self, file: IO[bytes], begin: int, back: bool) -> Iterator[Optional[SearchReport]]:
        told, at, fd = time.monotonic(), None, file.fileno()
        for hit in self._before(fd, begin) if back else self._after(fd, begin):
            if hit is not None:
                at = start_of_line(file, hit)
                break
            told, report = self._report(told, at, looking=True)
            yield report
        yield self._told(at, looking=False)
        for block in range(self._blocks):
            if block not in self._tallies:
                self._look(fd, block)
                told, report = self._report(told, at, looking=False)
                yield report
        yield self._told(at, looking=False)

    def _grow(self, fd: int) -> None:
        """Forget the counts of blocks that were not whole."""
        end = os.fstat(fd).st_size
        if end != self._end:
            whole = (min(self._end, end) - self._overlap) // BLOCK
            self._tallies = {k: v for k, v in self._tallies.items() if k < whole}
        self._end = end

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
        """The first hit of the block from `begin` on, or the last that ends by `until`."""
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
        """Read a block, with what of a hit may stand behind it, and count in it."""
        begin = block * BLOCK
        size = min(BLOCK, self._end - begin)
        data = _text(fd, begin, min(size + self._overlap, self._end - begin))
        if block not in self._tallies:
            self._tallies[block] = self._needle.count(data, size, top=block == 0)
        return data

    # ---- telling

    def _report(
        self, told: float, at: Optional[int], looking: bool
    ) -> tuple[float, Optional[SearchReport]]:
        now = time.monotonic()
        if now - told < _TELL:
            return told, None
        return now, self._told(at, looking)

    def _told(self, at: Optional[int], looking: bool) -> SearchReport:
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
            data = _text(file.fileno(), block * BLOCK, rest)
        part = self._needle.count(data, rest, top=block == 0)
        return count + part.lines - (open_ and part.head)


def _text(fd: int, begin: int, size: int) -> bytes:
    """The text there; a hole, left by bytes removed from a log, becomes a line of its own."""
    data = os.pread(fd, size, begin)
    if not data.strip(b"\0") or os.lseek(fd, begin, os.SEEK_HOLE) >= begin + len(data):
        return data
    return re.sub(rb"\0(?!\0)", b"\n", data)


def tally(data: bytes, size: int, needle: bytes) -> Count:
    """Count in a block of `size` bytes; what stands behind them only completes a hit."""
    if data.find(needle) < 0:
        return Count(0, False, False, data.find(b"\n", 0, size) >= 0)
    marks = data.replace(b"\0", b" ").replace(needle, b"\0").translate(None, _REST)
    lines = marks.count(b"\0\n") + marks.endswith(b"\0")
    final = data.rfind(b"\n", 0, size)
    return Count(lines, marks[:1] == b"\0", final < data.rfind(needle), final >= 0)


def _sum(tallies: Iterator[Count]) -> tuple[int, bool]:
    """Lines of blocks that follow each other, each once; returns whether the last one goes on."""
    count, going_on = 0, False
    for one in tallies:
        count += one.lines - (going_on and one.head)
        going_on = one.tail or (going_on and not one.breaks)
    return count, going_on


IDLE = 600.0
"""Seconds without a question after which it ends; the console starts another one."""
MOST = 4 << 20
"""Bytes of one answer."""
_TURN = 0.02
"""Seconds of searching between two looks at stdin."""
SLOWEST = 5.0
"""Seconds for one of these turns; a block takes some milliseconds."""


def log_path(folder: RunFolder, rank: int, stream: str) -> Path:
    """The file of one stream; raises FolderError where there is none."""
    path = folder.place(rank) / stream
    if stream not in STREAMS or not path.is_file():
        raise FolderError(f"rank {rank} has no {stream[:20]!r} on node {folder.node}")
    return path


def read(path: Path, offset: int, size: int) -> tuple[list[Piece], int]:
    """Whole lines from about `offset` on (before the end where negative), and the size of the file."""
    end = path.stat().st_size
    begin = max(end + offset, 0) if offset < 0 else min(offset, end)
    with path.open("rb") as file:
        begin = line_start(file, begin)
        until = min(begin + min(max(size, 1), MOST), end)
        until = end if until == end else max(line_start(file, until), until)
    return list(LogReader(path, begin).read(until - begin)), end


class Browser:
    """The answers to one console."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._search: Optional[LogSearch] = None
        self._about: Optional[tuple[Path, str, bool]] = None
        self._steps: Iterator[Optional[SearchReport]] = iter(())
        self._id: Any = None
        self.busy = False

    def take(self, said: bytes) -> list[bytes]:
        """Take a line of stdin; returns what to send at once."""
        asked = table(said.decode("utf-8", "replace")) or {}
        try:
            return self._take(asked)
        except (FolderError, OSError) as error:
            return [line({"kind": "no", "id": asked.get("id"), "text": str(error)})]
        except (TypeError, ValueError, AttributeError):
            what = "that is no question"
            return [line({"kind": "no", "id": asked.get("id"), "text": what})]

    def _take(self, asked: dict[str, Any]) -> list[bytes]:
        if "read" in asked:
            rank, stream, offset, size = cast("list[Any]", asked["read"])
            path = log_path(self._folder, int(rank), str(stream))
            pieces, end = read(path, int(offset), int(size))
            frames = [part for one in pieces for part in data_frame({"id": asked["id"]}, one)]
            return [*frames, line({"kind": "end", "id": asked["id"], "o": end})]
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
        """Search for a limited time; returns the reports to send."""
        until = time.monotonic() + _TURN
        try:
            signal.setitimer(signal.ITIMER_REAL, SLOWEST)
            for report in self._steps:
                if report is not None:
                    head = {"kind": "found", "id": self._id}
                    return [line({**head, **report._asdict()})]
                if time.monotonic() > until:
                    return []
        except OSError as error:
            self.busy = False
            return [line({"kind": "no", "id": self._id, "text": str(error)})]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.busy = False
        return []


def too_slow(_number: int, _frame: object) -> None:
    """Stop a match whose time grows without limit: the signal handler of an alarm, since `re` checks for signals."""
    raise TimeoutError("the pattern takes too long on a line of this log; write a simpler one")


def browse(folder: RunFolder) -> int:
    """Answer until stdin ends, or no question came for IDLE seconds."""
    signal.signal(signal.SIGALRM, too_slow)
    browser, source = Browser(folder), Input(0)
    heard = time.monotonic()
    while not source.ended and time.monotonic() - heard < IDLE:
        asked = source.lines(0 if browser.busy else IDLE)
        heard = time.monotonic() if asked or browser.busy else heard
        frames = [frame for said in asked for frame in browser.take(said)]
        frames += browser.turn() if browser.busy else []
        if frames and not send(b"".join(frames)):
            break
    return 0
