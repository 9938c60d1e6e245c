"""The names in a shared folder to which other machines write."""

import os
from pathlib import Path


class FolderNames:
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
