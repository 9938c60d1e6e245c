"""SHA-256 of files, kept for those that have not changed since; digests of folders."""

import errno
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Optional, cast

from rankdeck_agent.private_files import make_private_folder, write_private_file
from rankdeck_agent.regular_file import PIECE, open_regular_file

SETTLED = 2.0
"""Seconds: a file that changed less than this before it was read may
change again with the same time stamp.
"""
FAR_SETTLED = 900.0
"""The same for a file on a file server, whose clock may be wrong by that much."""
_MOST_KEPT = 256
_MOST_ENTRIES = 500_000
Stamp = list[int]
"""[size, mtime, ctime, inode, device] of a file."""


class TooSlowError(Exception):
    """Reading the file took longer than the limit."""


def file_digest(path: Path, limit: Optional[float] = None, *, settled: float = SETTLED) -> str:
    """SHA-256 of a file in hex; from a cache if the file is certainly
    unchanged. Raises OSError, TooSlowError.

    `limit`: seconds, None for no limit. A file that changed less than `settled` seconds ago is read
    each time. If it changes while it is read, OSError (EBUSY) is raised.
    """
    # Open it first: only then does a client of a file server ask for fresh attributes.
    with open_regular_file(path) as file:
        stamp, begun = _stamp(os.fstat(file.fileno())), time.time()
        kept = _load().get(str(path))
        # A digest from the future does not count: a clock that was set back repeats stamps.
        if kept is not None and kept[:-2] == stamp and kept[-2] <= begun:
            return str(kept[-1])
        digest = read_digest(file, limit)
        if not stamp == _stamp(os.fstat(file.fileno())) == _stamp(path.stat()):
            raise OSError(errno.EBUSY, "it is being written or replaced just now")
    # Only if any later change will have another time stamp: none that is recent or in the future.
    if max(stamp[1], stamp[2]) / 1e9 + settled < begun:
        _keep(str(path), [*stamp, begun, digest])
    return digest


def read_digest(file: BinaryIO, limit: Optional[float] = None) -> str:
    """SHA-256 in hex of the rest of a file; raises TooSlowError after `limit` seconds, OSError."""
    deadline = None if limit is None else time.monotonic() + limit
    found = hashlib.sha256()
    for piece in iter(lambda: file.read(PIECE), b""):
        found.update(piece)
        if deadline is not None and time.monotonic() > deadline:
            raise TooSlowError
    return found.hexdigest()


def folder_digest(path: Path) -> tuple[str, int]:
    """(`tree:` and a SHA-256 over names, modes, sizes and link targets;
    the sum of the sizes). Raises OSError.

    Contents are not read: an image folder has tens of thousands of files.
    """
    found = hashlib.sha256()
    total = 0
    for name, info, target in _entries(str(path)):
        size = info.st_size if stat.S_ISREG(info.st_mode) else 0
        total += size
        found.update(f"{name}\0{info.st_mode:o}\0{size}\0{target}\n".encode())
    return f"tree:{found.hexdigest()}", total


def _entries(root: str) -> Iterator[tuple[str, os.stat_result, str]]:
    """(name in hex, stat, link target) of everything below, in an order that
    does not depend on the file system.
    """
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
            target = os.readlink(entry.path) if entry.is_symlink() else ""
            yield os.fsencode(name).hex(), entry.stat(follow_symlinks=False), target
            if entry.is_dir(follow_symlinks=False):
                waiting.append(name)


def _stamp(info: os.stat_result) -> Stamp:
    # Anybody can set mtime; only the kernel sets ctime.
    return [info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_dev]


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
    """Whether it has a stamp, the time of reading and a digest; rows of older agents do not."""
    if not isinstance(row, list) or len(cast("list[Any]", row)) != 7:
        return False
    *numbers, digest = cast("list[Any]", row)
    return isinstance(digest, str) and all(type(n) in (int, float) for n in numbers)


def _keep(name: str, row: list[Any]) -> None:
    """Cache a digest; it does not matter if the cache cannot be written."""
    rows = {**_load(), name: row}
    newest = dict(list(rows.items())[-_MOST_KEPT:])
    store = _store()
    part = store.with_name(f"{store.name}.{os.getpid()}")
    try:
        make_private_folder(store.parent)
        write_private_file(part, json.dumps(newest).encode())
        part.replace(store)
    except OSError:
        return
