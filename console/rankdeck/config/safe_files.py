"""Writes files that only their owner can read; reads files of others without ever blocking."""

import os
import resource
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

WIDER = 0o077
"""What the group and others may do with a file."""


def keep_private() -> None:
    """From now on every file and folder that this process makes is its owner's alone.

    It leaves no core either: its memory has keys and passwords.
    """
    os.umask(WIDER)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def private_folder(path: Path) -> None:
    """A folder of the owner alone; one that others may read is narrowed. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = path.stat()
    if seen.st_uid == os.geteuid() and seen.st_mode & WIDER:
        path.chmod(0o700)


def private_file(path: Path) -> None:
    """A file of the owner alone, empty if it was not there; raises OSError.

    One that exists is not opened: closing it would end the locks that this process has on it, and
    two writers of a SQLite file would destroy it.
    """
    try:
        path.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        keep_from_others(path)


def keep_from_others(path: Path) -> None:
    """Take from group and others what they may do with a file, if it is there; raises OSError."""
    with suppress(FileNotFoundError):
        seen = path.stat()
        if seen.st_uid == os.geteuid() and seen.st_mode & WIDER:
            path.chmod(seen.st_mode & 0o700)


def write_private(path: Path, text: str, *, program: bool = False) -> None:
    """Write a file of the owner alone; raises OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
        os.fchmod(handle, 0o700 if program else 0o600)
        file.write(text)


def write_new(path: Path, lines: Iterable[str], *, program: bool = False) -> None:
    """These lines into a file of the owner alone that is not there yet; raises OSError."""
    path.touch(mode=0o600, exist_ok=False)
    write_private(path, "".join(f"{line}\n" for line in lines), program=program)


LIMIT = 8 << 20
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read_regular(path: Path, limit: int = LIMIT) -> bytes:
    """The bytes of a regular file of at most `limit`; raises OSError that says what else it is."""
    # A pipe or device must not even be opened: that alone may block, or do something.
    _check(path.stat(), limit)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        _check(os.fstat(stream.fileno()), limit)
        raw = stream.read(limit + 1)
    if len(raw) > limit:
        raise OSError(0, _too_large(limit))
    return raw


def _check(found: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = next((word for test, word in _KINDS if test(found.st_mode)), "no file")
        raise OSError(0, f"is {kind}, not a regular file")
    if found.st_size > limit:
        raise OSError(0, _too_large(limit))


def _too_large(limit: int) -> str:
    return f"larger than {limit >> 10} KiB"
