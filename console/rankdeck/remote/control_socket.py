"""Sockets of master connections of ssh (ControlPath): whether a master listens there."""

import socket
import stat
from pathlib import Path


def master_answers(path: str) -> bool:
    """Whether a master listens at this socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            return True  # so many clients that one more must wait
        except (OSError, ValueError):  # ValueError: the path is no name of a file
            return False
    return True


def has_sockets(folder: Path) -> bool:
    """Whether any socket lies in a folder."""
    try:
        return any(stat.S_ISSOCK(one.lstat().st_mode) for one in folder.iterdir())
    except OSError:
        return False
