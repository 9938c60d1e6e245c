"""What older Pythons lack: here are functions for what newer versions have as methods.

Other things are done in the older way where they are needed. Annotations and `dict[str, int]` may
be written as newer versions have them: `older_source` takes them out.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import AnyStr


def _is_ascii(text: str) -> bool:
    return all(sign < "\x80" for sign in text)


# No function of ours around it where it exists: it is asked of every text.
is_ascii: Callable[[str], bool] = getattr(str, "isascii", _is_ascii)
"""Whether all characters are ASCII."""


def without_prefix(text: AnyStr, prefix: AnyStr) -> AnyStr:
    """`text` without `prefix` at its beginning, if it is there."""
    return text[len(prefix) :] if text.startswith(prefix) else text


def without_suffix(text: AnyStr, suffix: AnyStr) -> AnyStr:
    """`text` without `suffix` at its end, if it is there."""
    return text[: len(text) - len(suffix)] if text.endswith(suffix) else text


def find_paths(folder: Path, pattern: str) -> "list[Path]":
    """The paths below a folder that match, sorted. A folder that cannot be listed counts as empty,
    as for `Path.glob` since Python 3.13: others may have just removed it.
    """
    first, _, rest = pattern.partition("/")
    try:
        found = sorted(folder.glob(first))
    except OSError:
        return []
    rest = rest.lstrip("/")
    return [path for one in found for path in find_paths(one, rest)] if rest else found


def delete_file(path: Path) -> None:
    """Remove a file, if it is there; raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def wait_status_code(status: int) -> int:
    """The exit code in a status of `os.waitpid`; below 0: minus
    the signal that ended the process.
    """
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
