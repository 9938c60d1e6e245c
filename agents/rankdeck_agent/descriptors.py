"""Waits for file descriptors, reads some to their end, and writes all of a text to one."""

import math
import os
import select
import time
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


def read_to_end(handles: Iterable[int], deadline: float, most: int) -> "list[bytes]":
    """Read these descriptors to their end or the deadline (monotonic seconds); returns what
    came from each, without what exceeds `most` bytes of it.
    """
    output = {handle: bytearray() for handle in handles}
    waiting = set(output)
    while waiting and time.monotonic() < deadline:
        for handle in wait_readable(waiting, max(0.0, deadline - time.monotonic())):
            data = os.read(handle, 1 << 16)
            if not data:
                waiting.discard(handle)
            elif len(output[handle]) < most:
                output[handle] += data
    return [bytes(data) for data in output.values()]


def write_all(handle: int, data: bytes) -> None:
    """Write all of `data` to a descriptor, however little it takes at once; raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
