"""What the kernel's log says about processes of this job."""

import os
import re
import time
from collections import deque
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple, Optional

from rankdeck_agent.files import clean
from rankdeck_agent.kernel_records import open_ring, records, strip

_LIMIT = 0.2
"""Seconds of one look."""
_LOOKED_AT = 1 << 20
"""Bytes of one look: about what a ring holds."""
_KEPT = 500
_MOST = 5
_LONGEST = 300
_FIRST_NAMESPACE = 0xEFFFFFFC
"""The pid namespace of the machine itself, in which the kernel's log counts."""
_KILLED = re.compile(r"Kill(?:ed|ing)? process (?P<pid>\d{1,10})\b")
_PIDS = re.compile(
    rf"{_KILLED.pattern}"
    r"|\bpid[=:] ?'?(\d{1,10})\b"  # oom-kill:constraint=…, Xid, audit
    r"|traps: .{1,16}\[(\d{1,10})\]"
    r"|\[(\d{1,10})\]: (?:segfault|unhandled|bad frame)"
    r"|(?:task|Killing|SIG[A-Z]{3,5} to) .{1,16}:(\d{1,10}) (?:blocked for|due to)"
)
"""How lines name the process that they are about."""


class _Told(NamedTuple):
    number: int
    pids: frozenset[int]
    killed: int
    """The process that it says was killed for want of memory; 0: none."""
    text: str


def own_ring() -> Optional[int]:
    """A handle at the end of the kernel's log; None where it may not be read or does not count pids as we do."""
    try:
        if Path("/proc/self/ns/pid").stat().st_ino != _FIRST_NAMESPACE:
            return None
        handle = open_ring()
        os.lseek(handle, 0, os.SEEK_END)
    except OSError:
        return None
    return handle


class KernelLog:
    """Lines that name a process, kept as they are read; nobody waits for any."""

    def __init__(self, handle: Optional[int]) -> None:
        self._handle = handle
        self._number = 0
        self._told: deque[_Told] = deque(maxlen=_KEPT)

    def mark(self) -> int:
        """Where the log ends now: `about` gives what came after it."""
        if self._handle is not None:
            self._read(self._handle)
        return self._number

    def about(self, pids: Container[int], mark: int) -> list[str]:
        """The last lines since `mark` that name one of these, oldest first."""
        self.mark()
        lines = [told.text for told in self._since(mark) if _names(told, pids)]
        return list(dict.fromkeys(lines))[-_MOST:]

    def killed(self, mark: int) -> set[int]:
        """The processes that were killed for want of memory since `mark`, as far as read."""
        return {told.killed for told in self._since(mark)} - {0}

    def _since(self, mark: int) -> list[_Told]:
        return [told for told in self._told if told.number > mark]

    def _read(self, handle: int) -> None:
        deadline, left = time.monotonic() + _LIMIT, _LOOKED_AT
        try:
            for record in records(handle):
                self._number += 1
                self._take(record)
                left -= len(record)
                if left < 0 or time.monotonic() > deadline:
                    return
        except OSError:
            self._handle = None

    def _take(self, record: bytes) -> None:
        line = strip(record[:2000].decode("utf-8", "replace"))
        pids = _pids(line.message) if line else frozenset[int]()
        if line and pids:
            killed = _KILLED.search(line.message)
            text = clean(line.message.strip(), _LONGEST)
            self._told.append(_Told(self._number, pids, int(killed["pid"]) if killed else 0, text))


def _pids(message: str) -> frozenset[int]:
    found = (int(max(match.groups(""))) for match in _PIDS.finditer(message))
    return frozenset(found)


def _names(told: _Told, pids: Container[int]) -> bool:
    return any(pid in pids for pid in told.pids)
