"""`job read` and `job find`: a part of a rank's output, and where in it a text stands.

A log of gigabytes stays on its node: only what is looked at travels.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Optional

from rankdeck_agent.job.folder import STREAMS, FolderError, RunFolder
from rankdeck_agent.job.logs import LogReader, Piece

MOST = 4 << 20
_BLOCK = 4 << 20
_LONGEST = 1 << 16
"""Bytes in which the end of a line is looked for."""
COUNT_LIMIT = 0.8
"""Seconds that counting may take."""


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
        begin = _line_start(file, begin)
        until = min(begin + min(max(size, 1), MOST), end)
        until = end if until == end else max(_line_start(file, until), until)
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


def _line_start(file: BinaryIO, offset: int) -> int:
    """Where the first line begins that begins at `offset` or after it."""
    if offset <= 0:
        return 0
    file.seek(offset - 1)
    found = file.read(_LONGEST).find(b"\n")
    return offset if found < 0 else offset + found


def find(path: Path, text: str, offset: int, back: bool) -> dict[str, Any]:
    """Where the next line with `text` begins, searched from `offset`; capitals make it exact.

    `back` searches what ends before `offset`. `before` and `count` are of lines with the text.
    """
    needle = text.encode("utf-8", "surrogateescape")
    if not needle:
        raise FolderError("nothing to look for")
    lower = text == text.lower()
    end = path.stat().st_size
    with path.open("rb") as file:
        hit = (
            _last(file, needle, lower, min(offset, end))
            if back
            else _first(file, needle, lower, _line_start(file, offset), end)
        )
        at = None if hit is None else _start_of_line(file, hit)
        before, count, whole = _count(file, needle, lower, at)
    return {"at": at, "end": end, "before": before, "count": count, "whole": whole}


def _blocks(
    file: BinaryIO, begin: int, end: int, overlap: int, lower: bool
) -> Iterator[tuple[int, bytes]]:
    """Blocks of the file that overlap, so that nothing is cut in two."""
    while begin < end:
        file.seek(begin)
        data = file.read(min(_BLOCK + overlap, end - begin))
        if not data:
            return
        yield begin, data.lower() if lower else data
        begin += _BLOCK


def _first(
    file: BinaryIO, needle: bytes, lower: bool, begin: int, end: int
) -> Optional[int]:
    for at, data in _blocks(file, begin, end, len(needle) - 1, lower):
        found = data.find(needle)
        if found >= 0:
            return at + found
    return None


def _last(file: BinaryIO, needle: bytes, lower: bool, end: int) -> Optional[int]:
    while end > 0:
        begin = max(end - _BLOCK, 0)
        file.seek(begin)
        data = file.read(end - begin)
        found = (data.lower() if lower else data).rfind(needle)
        if found >= 0:
            return begin + found
        if begin == 0:
            return None
        end = begin + len(needle) - 1
    return None


def _start_of_line(file: BinaryIO, hit: int) -> int:
    begin = max(hit - _LONGEST, 0)
    file.seek(begin)
    newline = file.read(hit - begin).rfind(b"\n")
    return begin + newline + 1 if newline >= 0 or begin == 0 else hit


def _count(
    file: BinaryIO, needle: bytes, lower: bool, until: Optional[int]
) -> tuple[int, int, bool]:
    """Lines with the text before `until`, and in all; False where time ran out."""
    deadline = time.monotonic() + COUNT_LIMIT
    size = file.seek(0, 2)
    before = count = line_end = 0
    for at, data in _blocks(file, 0, size, len(needle) - 1, lower):
        found = data.find(needle, max(line_end - at, 0))
        while found >= 0 and found < _BLOCK:
            count += 1
            before += until is not None and at + found < until
            newline = data.find(b"\n", found)
            if newline < 0:
                # The line goes on in the next block: it is counted already.
                line_end = _line_start(file, at + len(data))
                break
            line_end = at + newline + 1
            found = data.find(needle, newline)
        if time.monotonic() > deadline:
            return before, count, at + len(data) >= size
    return before, count, True
