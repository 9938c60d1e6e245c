"""Reads /proc and /sys under a root folder that tests can choose; writes private files."""

import errno
import math
import os
import resource
import select
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Optional

CHUNK = 65536
FILE_LIMIT = 1 << 20
"""Most bytes that are read of one file."""
OPEN_LIMIT = 600
"""Files kept open; under the usual limit of 1024 even beside sockets."""
LIST_LIMIT = 4096
NAME_LIMIT = 64
MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.ENODEV})
"""Errors of the kernel for something that this machine does not have."""


def readable(handles: Iterable[int], seconds: float) -> list[int]:
    """Those that have bytes or have ended, after at most `seconds`; none: the time is over.

    Not `select.select`, which refuses every descriptor from 1024 on.
    """
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    return [handle for handle, _ in poll.poll(math.ceil(seconds * 1000))]


class Tree:
    """Files below a root, kept open and read again from the start.

    One tree belongs to one thread. Opening again is two thirds of the cost of a reading.
    """

    def __init__(self, root: str = "/") -> None:
        self.root = root.rstrip("/") or "/"
        self._open: dict[str, int] = {}

    def path(self, name: str) -> str:
        """The real path of `name` (relative, as in "proc/stat")."""
        return f"{'' if self.root == '/' else self.root}/{name.lstrip('/')}"

    def read(self, name: str) -> bytes:
        """What the file holds now; raises OSError."""
        handle = self._open.get(name)
        if handle is not None:
            try:
                return _take(handle, name)
            except OSError:
                # The device may have gone and come back: look once more by its name.
                os.close(self._open.pop(name))
        return self._read_fresh(name)

    def _read_fresh(self, name: str, *, keep: bool = True) -> bytes:
        # Not blocking: a FIFO or a terminal in the place of a file must not hold us.
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
        """What the file holds, for those that are not worth keeping open; raises OSError."""
        return self._read_fresh(name, keep=False)

    def text(self, name: str) -> str:
        """One short line of the file, without control characters; raises OSError."""
        return clean(self.read(name).decode("utf-8", "replace").strip(), 256)

    def maybe(self, name: str) -> Optional[str]:
        """The text of the file, or None if it cannot be read."""
        try:
            return self.text(name)
        except OSError:
            return None

    def names(self, folder: str, limit: int = LIST_LIMIT) -> list[str]:
        """At most `limit` sorted names in a folder; none if there is no such folder."""
        try:
            found = os.listdir(self.path(folder))  # noqa: PTH208  no Path for each name
        except OSError as error:
            if error.errno in MISSING:
                return []
            raise
        return sorted(found)[:limit]

    def link(self, name: str) -> str:
        """The last part of where a link points; "" if there is none."""
        try:
            return os.path.basename(os.readlink(self.path(name)))  # noqa: PTH115, PTH119
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
        # One answer is all that a file of /sys has.
        return data
    parts = [data]
    size = len(data)
    # The kernel cuts /proc at records, often after a page: only an empty answer is the end.
    while parts[-1] and size < FILE_LIMIT:
        parts.append(os.pread(handle, CHUNK, size))
        size += len(parts[-1])
    return b"".join(parts)


def clean(text: str, limit: int = NAME_LIMIT) -> str:
    """`text` made printable and short, to be sent."""
    if text.isprintable() and len(text) <= limit:
        return text
    return "".join(c if c.isprintable() else "?" for c in text[:limit])


def reason(error: BaseException) -> str:
    """Why something could not be read, in the system's words."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        code = errno.errorcode.get(error.errno or 0)
        # TLS errors carry a number that only looks like one of the system's.
        text = (
            error.strerror
            if code is None or hasattr(error, "library")
            else f"{error.strerror} ({code})"
        )
    return clean(text, 160) or type(error).__name__


_MAKE_ROOM = "make room there, then try again"
_WHAT_TO_DO = {
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: f"your quota is used up (`quota -s`): {_MAKE_ROOM}",
    errno.EROFS: "mount it for writing, or name another folder in RANKDECK_STATE in the node's login environment",
    errno.EACCES: "give it to the login user",
}


def unwritable(path: Path, error: OSError) -> str:
    """A sentence about a folder that cannot be written: which, why, and what to do."""
    do = _WHAT_TO_DO.get(error.errno or 0)
    why = error.strerror or str(error)
    return f"{path} cannot be written: {why}" + (f"; {do}" if do else "")


WIDER = 0o077
"""What the group and others may do with a file."""


def keep_private() -> None:
    """From now on every file and folder that this process makes is its owner's alone."""
    os.umask(WIDER)


def leave_no_core() -> None:
    """From now on this process and what it starts leave no core: their memory has passwords."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def private_folder(path: Path) -> None:
    """A folder of the owner alone, with those above it; one that others may read is narrowed. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = path.stat()
    if seen.st_uid == os.geteuid() and seen.st_mode & WIDER:
        path.chmod(0o700)


def write_private(path: Path, data: bytes, *, program: bool = False) -> None:
    """Write a file of the owner alone; raises OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, 0o700 if program else 0o600)
        file.write(data)


_DAY = 86400.0


def mark_agent_used() -> None:
    """Note, once a day, that the file we run from is in use: one that nobody used for long is removed.

    For what runs as long as a job does: its node may share the home folder with others.
    """
    path = Path(sys.argv[0])
    try:
        if path.suffix == ".pyz" and time.time() - path.stat().st_mtime > _DAY:
            os.utime(path)
    except OSError:
        return


class Names:
    """The names in a folder that other machines write to, listed only where it has changed.

    `now` is the caller's monotonic clock, in seconds. Costs three system calls where nothing is new.
    """

    _COARSE, _ANYWAY = 3.0, 60.0
    """Seconds after a change in which another may bear the same time; seconds after which it is listed all the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: list[str] = []
        self._stamp = -1
        self._changed_at = self._listed_at = float("-inf")
        self.changed = False
        """Whether the folder was another at the last look than at the one before."""

    def read(self, now: float) -> list[str]:
        """All names; raises OSError."""
        # Opened each time: NFS asks the server again only then, whatever it has cached.
        handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            stamp = os.fstat(handle).st_mtime_ns
            self.changed = stamp != self._stamp
            if self.changed:
                self._stamp, self._changed_at = stamp, now
            if now - self._changed_at < self._COARSE or now - self._listed_at >= self._ANYWAY:
                self._names, self._listed_at = os.listdir(handle), now  # noqa: PTH208
        finally:
            os.close(handle)
        return self._names
