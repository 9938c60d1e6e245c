"""What identifies a file or a folder; digests are kept, because images are large."""

import errno
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Optional, cast

from rankdeck_agent.private import private_folder, write_private

PIECE = 1 << 20
SETTLED = 2.0
"""Seconds: what changed within that time before it was read may change again with the same time stamp."""
FAR_SETTLED = 900.0
"""The same for a file of a server: its clock may be wrong by that much."""
_MOST_KEPT = 256
_MOST_ENTRIES = 500_000
Stamp = list[int]


class TooSlowError(Exception):
    """The time for reading was over before the end of the file."""


def file_digest(path: Path, limit: Optional[float] = None, *, settled: float = SETTLED) -> str:
    """SHA-256 in hex, read again unless the file is provably the same; raises OSError, TooSlowError.

    `limit` is in seconds; None: as long as it takes. A file last changed less than `settled` seconds before
    is read each time. What changes while it is read has no digest: OSError.
    """
    # Opened first: a client of a file server asks for fresh attributes at open only.
    with path.open("rb") as file:
        stamp, begun = _stamp(os.fstat(file.fileno())), time.time()
        kept = _load().get(str(path))
        if kept is not None and _vouches(kept, stamp, begun):
            return str(kept[-1])
        digest = read_digest(file, limit)
        if not stamp == _stamp(os.fstat(file.fileno())) == _stamp(path.stat()):
            raise OSError(errno.EBUSY, "it is being written or replaced just now")
    if _is_settled(stamp, begun, settled):
        _keep(str(path), [*stamp, begun, digest])
    return digest


def _vouches(row: list[Any], stamp: Stamp, now: float) -> bool:
    """Whether a kept digest is that of the file. After a clock was set back, a stamp may come twice."""
    return row[:-2] == stamp and row[-2] <= now


def _is_settled(stamp: Stamp, read: float, wait: float) -> bool:
    """Whether a later change must have another stamp; not so where the stamps lie in the future."""
    return max(stamp[1], stamp[2]) / 1e9 + wait < read


def read_digest(file: BinaryIO, limit: Optional[float] = None) -> str:
    """SHA-256 of what is left to read; raises TooSlowError."""
    deadline = None if limit is None else time.monotonic() + limit
    found = hashlib.sha256()
    while piece := file.read(PIECE):
        found.update(piece)
        if deadline is not None and time.monotonic() > deadline:
            raise TooSlowError
    return found.hexdigest()


def folder_digest(path: Path) -> tuple[str, int]:
    """`tree:` and a SHA-256 over names, modes, sizes and link targets; and the sum of the sizes.

    Contents are not read: an image folder holds ten thousands of files.
    """
    found = hashlib.sha256()
    total = 0
    for name, info, target in _entries(str(path)):
        size = info.st_size if stat.S_ISREG(info.st_mode) else 0
        total += size
        found.update(f"{name}\0{info.st_mode:o}\0{size}\0{target}\n".encode())
    return f"tree:{found.hexdigest()}", total


def _entries(root: str) -> Iterator[tuple[str, os.stat_result, str]]:
    """Everything below, in an order that does not depend on the file system."""
    waiting, seen = [""], 0
    while waiting and seen < _MOST_ENTRIES:
        folder = waiting.pop()
        try:
            found = sorted(os.scandir(f"{root}/{folder}"), key=lambda e: e.name)
        except PermissionError:
            continue
        for entry in found:
            seen += 1
            name = f"{folder}/{entry.name}" if folder else entry.name
            target = os.readlink(entry.path) if entry.is_symlink() else ""  # noqa: PTH115
            yield os.fsencode(name).hex(), entry.stat(follow_symlinks=False), target
            if entry.is_dir(follow_symlinks=False):
                waiting.append(name)


def _stamp(info: os.stat_result) -> Stamp:
    # Anybody can set mtime; ctime is the kernel's own.
    return [
        info.st_size,
        info.st_mtime_ns,
        info.st_ctime_ns,
        info.st_ino,
        info.st_dev,
    ]


def _store() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "rankdeck" / "digests.json"


def _load() -> dict[str, list[Any]]:
    try:
        found = json.loads(_store().read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    rows = cast("dict[str, Any]", found)
    return {name: row for name, row in rows.items() if _is_row(row)}


def _is_row(row: object) -> bool:
    """Whether it is a stamp, the time of reading and a digest; rows of older agents are not."""
    if not isinstance(row, list) or len(cast("list[Any]", row)) != 7:
        return False
    *numbers, digest = cast("list[Any]", row)
    return isinstance(digest, str) and all(type(n) in (int, float) for n in numbers)


def _keep(name: str, row: list[Any]) -> None:
    """Remember a digest; a cache that cannot be written is no trouble."""
    rows = {**_load(), name: row}
    newest = dict(list(rows.items())[-_MOST_KEPT:])
    store = _store()
    part = store.with_name(f"{store.name}.{os.getpid()}")
    try:
        private_folder(store.parent)
        write_private(part, json.dumps(newest).encode())
        part.replace(store)
    except OSError:
        return
