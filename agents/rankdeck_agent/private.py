"""Files and folders that only their owner can read: a run folder holds commands, variables and output."""

import os
from pathlib import Path

WIDER = 0o077
"""What the group and others may do with a file."""


def keep_private() -> None:
    """From now on every file and folder that this process makes is its owner's alone."""
    os.umask(WIDER)


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
