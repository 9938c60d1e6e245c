"""The newest lines of the kernel log that name a process, for the ends of ranks."""

import os
import re
import time
from collections import deque
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional

from rankdeck_agent.text import clean_text

if TYPE_CHECKING:
    from rankdeck_agent.kernel_records import KernelLine


_LIMIT = 0.2
"""Most seconds of one read of the kernel log."""
_LOOKED_AT = 1 << 20
"""Most bytes of one read: about the size of the kernel's ring buffer."""
_KEPT = 500
_MOST = 5
_LONGEST = 300
_FIRST_NAMESPACE = 0xEFFFFFFC
"""Inode of the machine's own pid namespace: the kernel log uses the pids of that namespace."""
_KILLED = re.compile(r"Kill(?:ed|ing)? process (?P<pid>\d{1,10})\b")
_PIDS = re.compile(
    rf"{_KILLED.pattern}"
    r"|\bpid[=:] ?'?(\d{1,10})\b"  # oom-kill:constraint=…, Xid, audit
    r"|traps: .{1,16}\[(\d{1,10})\]"
    r"|\[(\d{1,10})\]: (?:segfault|unhandled|bad frame)"
    r"|(?:task|Killing|SIG[A-Z]{3,5} to) .{1,16}:(\d{1,10}) (?:blocked for|due to)"
)
"""How kernel lines name the process that they are about."""


class _KernelLine(NamedTuple):
    number: int
    pids: frozenset[int]
    killed: int
    """The process that was killed for lack of memory according to this line; 0: none."""
    text: str


def own_ring() -> Optional[int]:
    """A descriptor at the end of the kernel log; None if it cannot be read
    or we are in another pid namespace.
    """
    from rankdeck_agent.kernel_records import open_ring

    try:
        if Path("/proc/self/ns/pid").stat().st_ino != _FIRST_NAMESPACE:
            return None
        handle = open_ring()
        os.lseek(handle, 0, os.SEEK_END)
    except OSError:
        return None
    return handle


class KernelLog:
    """Keeps the newest lines of the kernel log that name a process. Never blocks."""

    def __init__(self, handle: Optional[int]) -> None:
        self._handle = handle
        self._number = 0
        self._lines: deque[_KernelLine] = deque(maxlen=_KEPT)

    def mark(self) -> int:
        """Read new lines; returns the number of the last one, for `about` and `killed`."""
        if self._handle is not None:
            self._read(self._handle)
        return self._number

    def about(self, pids: Container[int], mark: int) -> list[str]:
        """The last lines after `mark` that name one of these processes, oldest first."""
        self.mark()
        since = self._since(mark)
        lines = [line.text for line in since if any(pid in pids for pid in line.pids)]
        return list(dict.fromkeys(lines))[-_MOST:]

    def killed(self, mark: int) -> set[int]:
        """The pids killed for lack of memory after `mark`, in the lines read so far."""
        return {line.killed for line in self._since(mark)} - {0}

    def _since(self, mark: int) -> list[_KernelLine]:
        return [line for line in self._lines if line.number > mark]

    def _read(self, handle: int) -> None:
        from rankdeck_agent.kernel_records import (  # here: Slurm's keeper does not need it
            read_kernel_records,
            strip_log_prefix,
        )

        deadline, left = time.monotonic() + _LIMIT, _LOOKED_AT
        try:
            for record in read_kernel_records(handle):
                self._number += 1
                self._take(strip_log_prefix(record[:2000].decode("utf-8", "replace")))
                left -= len(record)
                if left < 0 or time.monotonic() > deadline:
                    return
        except OSError:
            self._handle = None

    def _take(self, line: "Optional[KernelLine]") -> None:
        if line is None:
            return
        pids = frozenset(int(max(found.groups(""))) for found in _PIDS.finditer(line.message))
        if pids:
            match = _KILLED.search(line.message)
            killed = int(match["pid"]) if match else 0
            text = clean_text(line.message.strip(), _LONGEST)
            self._lines.append(_KernelLine(self._number, pids, killed, text))
