"""How the programs inside shells end: a rank that is `sh -c "prog; exit
0"` ends well, however its program ended.

The kernel tells how a process ended that is not our child, where it knows PIDFD_INFO_EXIT (Linux
6.15) and we held a descriptor of it while it ran. Elsewhere only the shell's own message tells it
(job/evidence.py).
"""

import ctypes
import fcntl
import os
import signal
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from errno import ENOSYS
from typing import Optional

from rankdeck_agent.job.folder import exact_outcome
from rankdeck_agent.job.processes import Process, command_line
from rankdeck_agent.values import Record, field
from rankdeck_agent.wire.job_events import ProgramEnd

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh", "busybox", "tcsh", "csh"})
_MOST_WATCHED = 4
"""Most programs that are watched for one rank: a pipe of a few; others of a script are helpers."""
_MOST_DESCRIPTORS = 256
_LAST = 3.0
"""A program counts as the last one of its rank if it ended at most this many
seconds before, by looks a second apart.
"""
_ASKED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE})
"""Signals by which scripts end their own helpers, and pipes their writers."""
_PIDFD_OPEN = 434
"""The number of the system call, the same on all machines."""
_GET_INFO = 0xC040FF0B
_SIZE, _EXIT = 64, 1 << 3
"""Bytes of `struct pidfd_info`, and the bit in its mask that asks for,
and grants, the exit code at its end.
"""


class _Watched(Record):
    """A program that a shell of a rank has started."""

    handle: int
    command: str
    computed: int = 0
    """CPU time in clock ticks at the last look."""
    status: Optional[int] = None
    """How it ended, as from `waitpid`; None while that is not known."""
    ended: float = 0.0
    """When that was seen, seconds of the monotonic clock."""


class _Shell(Record):
    """The shell that is the first process of a rank."""

    pid: int
    programs: dict[int, _Watched] = field(default_factory=dict[int, _Watched])
    """pid -> program."""


class WrappedPrograms:
    """Watches the programs that the shells of ranks start. Only the supervisor uses it."""

    def __init__(self) -> None:
        self._shells: dict[int, _Shell] = {}
        self._known = True
        """Whether this kernel has descriptors of processes."""

    def saw(self, rows: Mapping[int, Process], running: Mapping[int, int]) -> None:
        """Look at all processes (`rows`); `running` maps rank -> pid of its first process."""
        if not self._known:
            return
        there = ((pid, rank) for rank, pid in running.items() if pid in rows)
        shells = {pid: rank for pid, rank in there if rows[pid].name in _SHELLS}
        for rank in self._shells.keys() - set(shells.values()):
            self._forget(rank)
        for row in rows.values():
            if row.ppid in shells:
                self._note(shells[row.ppid], row)
        for shell in self._shells.values():
            _read_ends(shell)

    def failed_program(self, rank: int) -> Optional[ProgramEnd]:
        """How the program of a rank that has ended failed; None if it
        did not, or that is not known.
        """
        shell = self._shells.get(rank)
        if shell is None:
            return None
        _read_ends(shell)

        recent = time.monotonic() - _LAST
        last = {
            pid: one
            for pid, one in shell.programs.items()
            if one.status is None or one.ended > recent
        }
        self._forget(rank)

        # Of a pipe, or of a program beside its helpers, the one that worked most is
        # what the rank was for; else the first.
        by_work = sorted(last, key=lambda pid: (-last[pid].computed, pid))
        main = last[by_work[0]] if by_work else None
        if main is None or not main.status:
            return None

        end = exact_outcome(main.status)
        if end["signal"] in _ASKED:
            return None
        return ProgramEnd(main.command, end["code"], end["signal"])

    def _note(self, rank: int, row: Process) -> None:
        shell = self._shells.get(rank)
        if shell is None or shell.pid != row.ppid:
            self._forget(rank)
            shell = self._shells[rank] = _Shell(row.ppid)
        there = shell.programs.get(row.pid)
        if there is not None:
            there.computed = row.computed
            there.command = command_line(row.pid) or there.command
            return
        total = sum(len(one.programs) for one in self._shells.values())
        if len(shell.programs) < _MOST_WATCHED and total < _MOST_DESCRIPTORS:
            handle = self._open(row.pid)
            if handle is not None:
                shell.programs[row.pid] = _Watched(handle, command_line(row.pid), row.computed)

    def _open(self, pid: int) -> Optional[int]:
        """A descriptor of the process; None if it is gone, or the kernel has none."""
        handle = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_OPEN, pid, 0)
        self._known = handle >= 0 or ctypes.get_errno() != ENOSYS
        return handle if handle >= 0 else None

    def _forget(self, rank: int) -> None:
        shell = self._shells.pop(rank, None)
        for one in shell.programs.values() if shell else ():
            os.close(one.handle)


def _read_ends(shell: _Shell) -> None:
    """Note which programs have ended, and forget those that ended long before the others."""
    now = time.monotonic()
    for pid, one in list(shell.programs.items()):
        if one.status is None:
            one.status, one.ended = _status(one.handle), now
        elif now - one.ended > _LAST:
            os.close(shell.programs.pop(pid).handle)


def _status(handle: int) -> Optional[int]:
    """How the process ended, as from `waitpid`; None while it runs, or is not
    waited for, or if the kernel does not tell.
    """
    answer = bytearray(_SIZE)
    struct.pack_into("=Q", answer, 0, _EXIT)
    with suppress(OSError):
        fcntl.ioctl(handle, _GET_INFO, answer)
        (mask,), (status,) = struct.unpack_from("=Q", answer), struct.unpack_from("=i", answer, 60)
        return int(status) if mask & _EXIT else None
    return None
