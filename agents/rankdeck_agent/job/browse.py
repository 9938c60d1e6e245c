"""`job browse`: a dialogue about the output of a job here, for whoever looks at it.

A log of gigabytes stays on its node: only what is looked at travels. stdin takes lines
{"id": n, "read": [rank, stream, offset, bytes]} and {"id": n, "find": [rank, stream, offset, back, text]}; a new
`find` ends the one before, a `read` is answered in between. stdout has `data` frames as `job follow` sends them, and
  end    id, o (size of the stream)                          after the data of a `read`
  found  id, at, before, lines, counted, end, looking        `search.Report`, again and again until counted = end
  no     id, text                                            a sentence
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional, cast

from rankdeck_agent.job.folder import STREAMS, FolderError, RunFolder
from rankdeck_agent.job.logs import LogReader, Piece, line_start
from rankdeck_agent.job.pipes import Input, send
from rankdeck_agent.job.search import Report, Search
from rankdeck_agent.job.text import table

IDLE = 600.0
"""Seconds without a question after which it ends; the console starts another one."""
MOST = 4 << 20
"""Bytes of one answer."""
_TURN = 0.02
"""Seconds of searching between two looks at stdin."""


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
    reader = LogReader(path, begin)
    pieces: list[Piece] = []
    while reader.offset < until:
        got = list(reader.read(1))
        if not got:
            break
        pieces += got
    return _cut(pieces, until), end


def _cut(pieces: list[Piece], until: int) -> list[Piece]:
    return [
        Piece(one.offset, one.data[: until - one.offset], one.at)
        for one in pieces
        if one.offset < until
    ]


class Browser:
    """The answers to one console."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._search: Optional[Search] = None
        self._about: Optional[tuple[Path, str]] = None
        self._steps: Iterator[Optional[Report]] = iter(())
        self._id: Any = None
        self.busy = False

    def take(self, line: bytes) -> list[bytes]:
        """What to send at once."""
        asked = table(line.decode("utf-8", "replace")) or {}
        try:
            return self._take(asked)
        except (FolderError, OSError) as error:
            return [_line({"kind": "no", "id": asked.get("id"), "text": str(error)})]
        except (TypeError, ValueError, AttributeError):
            what = "that is no question"
            return [_line({"kind": "no", "id": asked.get("id"), "text": what})]

    def _take(self, asked: dict[str, Any]) -> list[bytes]:
        if "read" in asked:
            rank, stream, offset, size = cast("list[Any]", asked["read"])
            path = log_path(self._folder, int(rank), str(stream))
            pieces, end = read(path, int(offset), int(size))
            frames = [part for one in pieces for part in _data(asked["id"], one)]
            return [*frames, _line({"kind": "end", "id": asked["id"], "o": end})]
        if "find" in asked:
            rank, stream, offset, back, text = cast("list[Any]", asked["find"])
            path = log_path(self._folder, int(rank), str(stream))
            self._find(path, str(text), max(int(offset), 0), back is True)
            self._id = asked["id"]
        return []

    def _find(self, path: Path, text: str, offset: int, back: bool) -> None:
        if not text:
            raise FolderError("nothing to look for")
        if self._search is None or self._about != (path, text):
            self._about, self._search = (path, text), Search(path, text)
        self._steps = self._search.steps(offset, back)
        self.busy = True

    def turn(self) -> list[bytes]:
        """Search for a moment; what to say about it."""
        until = time.monotonic() + _TURN
        try:
            for report in self._steps:
                if report is not None:
                    head = {"kind": "found", "id": self._id}
                    return [_line({**head, **report._asdict()})]
                if time.monotonic() > until:
                    return []
        except OSError as error:
            self.busy = False
            return [_line({"kind": "no", "id": self._id, "text": str(error)})]
        self.busy = False
        return []


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def _data(asked: object, piece: Piece) -> tuple[bytes, bytes]:
    head = {"kind": "data", "id": asked, "o": piece.offset, "n": len(piece.data)}
    return _line({**head, "at": time.time() if piece.at is None else piece.at}), piece.data


def browse(folder: RunFolder) -> int:
    """Answer until stdin ends, or nobody has asked for long."""
    browser, source = Browser(folder), Input(0)
    heard = time.monotonic()
    while not source.ended and time.monotonic() - heard < IDLE:
        lines = source.lines(0 if browser.busy else IDLE)
        heard = time.monotonic() if lines or browser.busy else heard
        frames = [frame for line in lines for frame in browser.take(line)]
        frames += browser.turn() if browser.busy else []
        if frames and not send(b"".join(frames)):
            break
    return 0
