"""Evidence of why a rank or launcher failed: last lines, kernel log, out-of-memory kills."""

import re
import signal
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Optional

from rankdeck_agent import LAUNCHER
from rankdeck_agent.job.folder import End, RunFolder
from rankdeck_agent.job.kernel_evidence import KernelLog
from rankdeck_agent.job.kill_counters import Counts, Kills
from rankdeck_agent.job.last_words import (
    LAUNCHER_BOUND,
    RANK,
    STOPPED,
    choose_last_lines,
    open_tails,
    read_last_words,
)
from rankdeck_agent.job.processes import Process
from rankdeck_agent.wire.job_events import ProgramEnd

if TYPE_CHECKING:
    pass


_MOST_PIDS = 200
"""Most pids that are remembered for one rank: some ranks start a process every second."""
_ASKED = (signal.SIGTERM, signal.SIGKILL)


class _Began:
    """The kernel log and the kill counters when a rank began."""

    def __init__(self, mark: int, kills: Counts) -> None:
        self.mark, self.kills = mark, kills
        self.pids: dict[int, None] = {}
        """Pids of its processes seen so far, newest last."""


class RankEvidence(NamedTuple):
    """Why a rank failed."""

    said: tuple[str, ...]
    """Its last lines, oldest first."""
    written: tuple[float, ...]
    """When each of them was written, epoch seconds; () if that is not known of all."""
    kernel: tuple[str, ...]
    """Lines of the kernel log about its processes."""


class WellEnded(NamedTuple):
    """What the last words of a rank that ended with exit 0 tell."""

    inside: Optional[ProgramEnd]
    """The program of which its shell says that a signal ended it."""
    raised: bool
    """Whether a Python exception is among them: it may have left the others behind."""


_DIED = {
    "Aborted": signal.SIGABRT,
    "Bad system call": signal.SIGSYS,
    "Bus error": signal.SIGBUS,
    "CPU time limit exceeded": signal.SIGXCPU,
    "File size limit exceeded": signal.SIGXFSZ,
    "Floating point exception": signal.SIGFPE,
    "Illegal instruction": signal.SIGILL,
    "Killed": signal.SIGKILL,
    "Segmentation fault": signal.SIGSEGV,
    "Trace/breakpoint trap": signal.SIGTRAP,
}
"""What a shell says of a program that a signal has ended -> the signal; not
of those that scripts send themselves.
"""
_SHELL_SAYS = re.compile(
    rf"(?:\S+: line \d+: +\d+ (?P<bash>{'|'.join(_DIED)})(?: +\(core dumped\))?(?: +(?P<command>.*))?"
    rf"|(?P<dash>{'|'.join(_DIED)})(?: \(core dumped\))?)\Z"
)


_LAST_WORD = 3.0
"""Seconds before the end of a rank within which its shell tells that the program has ended."""


class EndEvidence:
    """Remembers for each rank what is needed to judge its end."""

    def __init__(self, folder: RunFolder, kernel: KernelLog, kills: Kills) -> None:
        self._folder, self._kernel, self._kills = folder, kernel, kills
        self._first = self._kills.count()
        self._explained = 0
        """Out-of-memory kills that already explain the end of a rank."""
        self._ranks: dict[int, _Began] = {}
        self._mark = self._kernel.mark()
        self._counts = self._first

    def look(self) -> None:
        """Read the kernel log and the kill counters, for all ranks that begin now."""
        self._mark, self._counts = self._kernel.mark(), self._kills.count()

    def began(self, rank: int, pid: int) -> None:
        """Note that a rank has begun since the last look; `pid` is 0 if the rank is in another pid
        namespace.
        """
        began = _Began(self._mark, self._counts)
        if pid:
            began.pids[pid] = None
        self._ranks[rank] = began

    def saw(self, rows: Mapping[int, Process], roots: Mapping[int, int]) -> None:
        """Remember which processes belong to which rank; `roots` maps pid -> rank."""
        for pid, rank in _owners(rows, roots).items():
            if rank in self._ranks:
                pids = self._ranks[rank].pids
                pids[pid] = None
                if len(pids) > _MOST_PIDS:
                    del pids[next(iter(pids))]

    def of_rank(self, rank: int, end: End, *, asked: bool) -> RankEvidence:
        """The evidence for a rank that failed; less if it was `asked` to
        end (the job is being cancelled).
        """
        ended_by_us = asked and end["signal"] in _ASKED
        bound = STOPPED if ended_by_us else RANK
        lines = choose_last_lines(open_tails(self._folder.place(rank), bound), bound)
        kernel = [] if ended_by_us else self._of_kernel(rank, end)
        written = tuple(line.at for line in lines)
        known = written if all(written) else ()
        return RankEvidence(tuple(line.text for line in lines), known, tuple(kernel))

    def of_well_ended(self, rank: int) -> WellEnded:
        """What the last words of a rank that ended with exit 0 tell all the same."""
        tails = open_tails(self._folder.place(rank), STOPPED)
        lines = choose_last_lines(tails, STOPPED)
        # An older word is of a program that was started again since.
        recent = time.time() - _LAST_WORD
        last = (_SHELL_SAYS.match(line.text) for line in reversed(lines) if line.at >= recent)
        said = next(filter(None, last), None)
        died = said and _DIED[said["bash"] or said["dash"]]
        return WellEnded(
            ProgramEnd(said["command"] or "", None, died) if said else None,
            any(any(tail.exceptions(1)) for tail in tails),
        )

    def of_launcher(self) -> tuple[str, ...]:
        """The last lines of the launchers here: the evidence for one that failed."""
        return tuple(read_last_words(self._folder.place(LAUNCHER), LAUNCHER_BOUND))

    def kernel_lines(self, rank: int) -> tuple[str, ...]:
        """What the kernel log says about the processes of a rank since it began."""
        began = self._ranks.get(rank)
        return tuple(self._kernel.about(began.pids, began.mark)) if began else ()

    def _of_kernel(self, rank: int, end: End) -> list[str]:
        began = self._ranks.get(rank)
        if began is None:
            return []
        lines = self._kernel.about(began.pids, began.mark)
        self._explained += len(self._kernel.killed(began.mark) & set(began.pids))
        if lines or end["signal"] != signal.SIGKILL:
            return lines
        # From the counters, if there are kills that do not explain another end already.
        sentence = self._kills.since(began.kills, self._first, self._explained)
        self._explained += bool(sentence)
        return [sentence] if sentence else []


def _owners(rows: Mapping[int, Process], roots: Mapping[int, int]) -> dict[int, int]:
    """pid -> rank of every process below these roots."""
    known: dict[int, Optional[int]] = {**roots}
    for pid in rows:
        line: list[int] = []
        while pid in rows and pid not in known:
            known[pid] = None
            line.append(pid)
            pid = rows[pid].ppid
        known.update(dict.fromkeys(line, known.get(pid)))
    return {pid: rank for pid, rank in known.items() if rank is not None}
