"""Opens regular files only."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

PIECE = 1 << 20


def open_regular_file(path: Path) -> BinaryIO:
    """The opened file; raises OSError for anything but a regular file, without reading it."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    file = os.fdopen(handle, "rb") if stat.S_ISREG(os.fstat(handle).st_mode) else None
    if file is None:
        os.close(handle)
        raise OSError(errno.EINVAL, f"{path} is no regular file; folders are not copied")
    return file
