"""Reads files of /proc and /sys below a root folder that tests can choose."""

import errno
import os
from typing import Optional

from rankdeck_agent.text import clean_text

CHUNK = 65536
FILE_LIMIT = 1 << 20
"""Most bytes that are read from one file."""
OPEN_LIMIT = 600
"""Most files kept open: below the usual limit of 1024, with room for sockets."""
LIST_LIMIT = 4096
MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.ENODEV})
"""Errors of the kernel for something that this machine does not have."""
ASLEEP = frozenset({errno.EAGAIN, errno.ENODATA, errno.ENETDOWN, errno.ENXIO})
"""Errors of sensors that have no number now: their part of the chip is switched off."""


class Tree:
    """Reads files below a root; keeps them open and reads them again from the start.

    Use a tree from one thread only. Opening a file again would take
    two thirds of the time of a reading.
    """

    def __init__(self, root: str = "/") -> None:
        self.root = root.rstrip("/") or "/"
        self._open: dict[str, int] = {}

    def path(self, name: str) -> str:
        """The real path of `name` (relative, as in "proc/stat")."""
        return f"{'' if self.root == '/' else self.root}/{name.lstrip('/')}"

    def read(self, name: str) -> bytes:
        """The present content of the file, at most FILE_LIMIT bytes; raises OSError."""
        handle = self._open.get(name)
        if handle is not None:
            try:
                return _take(handle, name)
            except OSError:
                # The device may have gone and come back: open it again by name.
                os.close(self._open.pop(name))
        return self._read_fresh(name)

    def _read_fresh(self, name: str, *, keep: bool = True) -> bytes:
        # Non-blocking: a FIFO or a terminal instead of a file must not block us.
        handle = os.open(self.path(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = _take(handle, name)
        except OSError:
            os.close(handle)
            raise
        if keep and len(self._open) < OPEN_LIMIT:
            self._open[name] = handle
        else:
            os.close(handle)
        return data

    def once(self, name: str) -> bytes:
        """The content of a file that is not worth keeping open; raises OSError."""
        return self._read_fresh(name, keep=False)

    def text(self, name: str) -> str:
        """The file's text, stripped, printable and at most 256 characters; raises OSError."""
        return clean_text(self.read(name).decode("utf-8", "replace").strip(), 256)

    def maybe(self, name: str) -> Optional[str]:
        """The text of the file, or None if it cannot be read."""
        try:
            return self.text(name)
        except OSError:
            return None

    def names(self, folder: str, limit: int = LIST_LIMIT) -> list[str]:
        """At most `limit` sorted names in a folder; empty if there is no such folder.

        Raises OSError.
        """
        try:
            found = os.listdir(self.path(folder))  # noqa: PTH208  no Path for each name
        except OSError as error:
            if error.errno in MISSING:
                return []
            raise
        return sorted(found)[:limit]

    def link(self, name: str) -> str:
        """The last part of a symlink's target; "" if there is no such link."""
        try:
            return os.path.basename(os.readlink(self.path(name)))  # noqa: PTH119
        except OSError:
            return ""

    def exists(self, name: str) -> bool:
        return os.access(self.path(name), os.F_OK)

    def close(self) -> None:
        for handle in self._open.values():
            os.close(handle)
        self._open.clear()

    def __del__(self) -> None:
        self.close()


def _take(handle: int, name: str) -> bytes:
    data = os.pread(handle, CHUNK, 0)
    if name.startswith("sys/"):
        # A file of /sys gives all its content in one read.
        return data
    parts = [data]
    size = len(data)
    # Reads of /proc end at record boundaries, often after a page: only an empty read is the end.
    while parts[-1] and size < FILE_LIMIT:
        parts.append(os.pread(handle, CHUNK, size))
        size += len(parts[-1])
    return b"".join(parts)
