"""Files and folders that only their owner can read; a process that leaves no core dump."""

import os
import resource
from pathlib import Path
from typing import Any

from rankdeck_agent.text import parse_json_table

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


def read_json_table(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if the file cannot be read, is torn, or has none."""
    try:
        return parse_json_table(path.read_text("utf-8")) or {}
    except (OSError, UnicodeDecodeError):
        return {}
