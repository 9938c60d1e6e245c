"""Files that others may have put there, read without ever waiting: regular ones, up to a size."""

import os
import stat
from pathlib import Path

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
