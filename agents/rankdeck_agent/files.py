"""Reads /proc and /sys below a root folder that tests can choose; writes private
files; watches shared folders; names users.
"""

import contextlib
import errno
import math
import os
import pwd
import resource
import select
import sys
import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.rules.visible import make_visible
from rankdeck_agent.text import parse_json_table

CHUNK = 65536
FILE_LIMIT = 1 << 20
"""Most bytes that are read from one file."""
OPEN_LIMIT = 600
"""Most files kept open: below the usual limit of 1024, with room for sockets."""
LIST_LIMIT = 4096
NAME_LIMIT = 64
MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.ENODEV})
"""Errors of the kernel for something that this machine does not have."""


def wait_readable(handles: Iterable[int], seconds: float) -> list[int]:
    """Wait at most `seconds`; returns the descriptors that have data or
    have ended, empty if the time is over.

    Does not use `select.select`, which refuses descriptors from 1024 on.
    """
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    return [handle for handle, _ in poll.poll(math.ceil(seconds * 1000))]


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


def user_name(number: int) -> str:
    """The name of the user with this id, or the id as text if there is no such user."""
    try:
        return _known_name(number)
    except KeyError:
        return str(number)


@lru_cache(256)
def _known_name(number: int) -> str:
    # A KeyError is not cached: a process that lives for weeks must not keep
    # the answer of a directory that was down.
    return pwd.getpwuid(number).pw_name


def clean_text(text: str, limit: int = NAME_LIMIT) -> str:
    """`text` cut to `limit` characters, with code points of invisible ones."""
    return make_visible(text, limit)


def failure_reason(error: BaseException) -> str:
    """A short text of why something could not be read: the system's
    message, with the name of the error.
    """
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        code = errno.errorcode.get(error.errno or 0)
        # TLS errors have a number that is not one of the system's.
        text = (
            error.strerror
            if code is None or hasattr(error, "library")
            else f"{error.strerror} ({code})"
        )
    return clean_text(text, 160) or type(error).__name__


def agent_state_folder() -> Path:
    """The folder for the run folders of this machine: RANKDECK_STATE, else
    `rankdeck` in XDG_STATE_HOME or ~/.local/state.
    """
    chosen = os.environ.get("RANKDECK_STATE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    return Path(base) / "rankdeck"


_MAKE_ROOM = "make room there, then try again"
_WHAT_TO_DO = {
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: f"your quota is used up (`quota -s`): {_MAKE_ROOM}",
    errno.EROFS: "mount it for writing, or name another folder in RANKDECK_STATE in the node's login environment",
    errno.EACCES: "give it to the login user",
}


def unwritable_folder(path: Path, error: OSError) -> str:
    """A sentence about a folder that cannot be written: which, why, and what to do."""
    do = _WHAT_TO_DO.get(error.errno or 0)
    why = error.strerror or str(error)
    return f"{path} cannot be written: {why}" + (f"; {do}" if do else "")


WIDER = 0o077
"""Permission bits of group and others."""


def set_private_umask() -> None:
    """From now on only the owner can access the files and folders
    that this process makes (umask).
    """
    os.umask(WIDER)


def leave_no_core() -> None:
    """From now on this process and its children write no core dumps: their memory has passwords."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def make_private_folder(path: Path) -> None:
    """Make a folder, and those above it, that only the owner can access (even
    if it exists already). Raises OSError.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = path.stat()
    if seen.st_uid == os.geteuid() and seen.st_mode & WIDER:
        path.chmod(0o700)


def write_private_file(path: Path, data: bytes, *, program: bool = False) -> None:
    """Write a file that only the owner can read (`program`: and run); raises OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, 0o700 if program else 0o600)
        file.write(data)


def replace_private(path: Path, data: bytes) -> None:
    """Write a private file under another name and rename it: readers see the old or the new file.

    Raises OSError.
    """
    fresh = path.with_name(f"{path.name}.new")
    write_private_file(fresh, data)
    fresh.replace(path)


def write_all(handle: int, data: bytes) -> None:
    """Write all of `data` to a descriptor, however little it takes at once; raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def read_json_table(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if the file cannot be read, is torn, or has none."""
    try:
        return parse_json_table(path.read_text("utf-8")) or {}
    except (OSError, UnicodeDecodeError):
        return {}


_DAY = 86400.0


def mark_agent_used() -> None:
    """Touch the agent file that we run from, once a day: agent files
    that are not used for long are removed.

    For processes that run as long as a job. The home folder may be shared with other nodes.
    """
    path = Path(sys.argv[0])
    with contextlib.suppress(OSError):
        if path.suffix == ".pyz" and time.time() - path.stat().st_mtime > _DAY:
            os.utime(path)


class Names:
    """The names in a folder that other machines write to; lists the folder only if it has changed.

    `now` is in seconds of the caller's monotonic clock. Takes three system calls if nothing is new.
    """

    _COARSE, _ANYWAY = 3.0, 60.0
    """Seconds after a change in which another change may have the same time stamp;
    seconds after which it is listed in any case.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: list[str] = []
        self._stamp = -1
        self._changed_at = self._listed_at = float("-inf")
        self.changed = False
        """Whether the folder had changed at the last `read`."""

    def read(self, now: float) -> list[str]:
        """All names; raises OSError."""
        # Opened each time: only then does NFS ask the server instead of its cache.
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
