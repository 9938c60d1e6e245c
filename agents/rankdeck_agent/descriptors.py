"""Waits for file descriptors and writes all of a text to one."""

import math
import os
import select
from collections.abc import Iterable


def wait_readable(handles: Iterable[int], seconds: float) -> list[int]:
    """Wait at most `seconds`; returns the descriptors that have data or
    have ended, empty if the time is over.

    Does not use `select.select`, which refuses descriptors from 1024 on.
    """
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    return [handle for handle, _ in poll.poll(math.ceil(seconds * 1000))]


def write_all(handle: int, data: bytes) -> None:
    """Write all of `data` to a descriptor, however little it takes at once; raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
