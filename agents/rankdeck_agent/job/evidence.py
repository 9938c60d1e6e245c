"""Evidence of why a rank or launcher failed: its last lines, lines of
the kernel log, out-of-memory counters.
"""

import heapq
import os
import re
import signal
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional

from rankdeck_agent import LAUNCHER
from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import STREAMS, End, RunFolder
from rankdeck_agent.job.processes import Process
from rankdeck_agent.older_python import without_prefix
from rankdeck_agent.text import clean_text, shown_line
from rankdeck_agent.wire.job_events import ProgramEnd

if TYPE_CHECKING:
    from rankdeck_agent.kernel_records import KernelLine

_LONGEST_LINE = 500
"""Most characters of one line."""
_LINES_LOOKED_AT = 3000
"""Most lines that are read to find useful ones."""
_TRACEBACK = b"Traceback (most recent call last):"
_CHAINED = re.compile(
    b"During handling of the above exception|direct cause of the following exception"
)
_LONGEST_LINK = 200
"""Bytes before a traceback in which a line may say that it follows from the one above."""
_FRAMES = re.compile(
    r"(?:^|[\s:\]])frame #\d+: "  # c10, of PyTorch
    r"|\[ ?\d+\] \S.*\[0x[0-9a-f]+\]$"  # Open MPI
    r"|^\s*@ +0x[0-9a-f]+ "  # glog
    r"|^\s*\d+ +\S+\(.*\) ?\[0x[0-9a-f]+\]$"  # UCX
    r"|^\S+?(?:\(.*\+0x[0-9a-f]+\))? ?\[0x[0-9a-f]+\]$"  # glibc
    r"|^[0-9a-f]{8,16}-[0-9a-f]{8,16} [r-][w-][x-][ps] |^={5,} (?:Backtrace|Memory map): ={5,}$"  # its map of the memory
    r"|^\s*#\d+ +0x[0-9a-f]+ in "  # gdb, gfortran, AddressSanitizer
    r"|^\S+ +[0-9A-F]{16} +\S+ +\S+ +\S+ *$"  # Intel Fortran
    r"|^\s+\S+\.go:\d+ \+0x"  # Go
    r'|^  File "[^"]+", line \d+ in '  # Python's faulthandler
)
"""Lines of stack traces: they would crowd out the message above them."""


class Bound(NamedTuple):
    """How much output is kept as evidence."""

    lines: int
    """Most lines."""
    size: int
    """Most bytes of UTF-8."""
    exceptions: int
    """Most last lines of Python tracebacks; they are kept no matter how much came after them."""
    tail: int = 1 << 16
    """Bytes that are read from the end of each stream."""


RANK = Bound(40, 6000, 4)
STOPPED = Bound(3, 900, 1, 1 << 12)
"""For a rank that was told to end: then hundreds may end at once."""
LAUNCHER_BOUND = Bound(60, 8000, 4)


class _Line(NamedTuple):
    at: float
    stream: int
    offset: int
    text: str


def read_last_words(place: Path, bound: Bound) -> list[str]:
    """The last useful lines of `out` and `err` in a rank's folder, oldest first, within `bound`.

    Messages of Python exceptions take precedence over newer lines.
    """
    return [line.text for line in _last_lines(_tails(place, bound), bound)]


def _tails(place: Path, bound: Bound) -> "list[_Tail]":
    return [_Tail(place / name, i, bound.tail) for i, name in enumerate(STREAMS)]


def _last_lines(tails: "list[_Tail]", bound: Bound) -> list[_Line]:
    exceptions = (line for tail in tails for line in tail.exceptions(bound.exceptions))
    kept = sorted(exceptions, reverse=True)[: 2 * bound.exceptions]
    newest = heapq.merge(*(tail.backwards() for tail in tails), reverse=True)
    rest = (line for line in islice(newest, _LINES_LOOKED_AT) if line not in kept)
    useful = (line for line in rest if line.text and not _FRAMES.search(line.text))

    found, left = list[_Line](), bound.size
    for line in chain(kept, islice(useful, bound.lines - len(kept))):
        left -= len(line.text.encode())
        if left < 0:
            break
        found.append(line)
    return sorted(found)


class _Tail:
    """The end of one stream."""

    def __init__(self, log: Path, stream: int, size: int) -> None:
        self._stream = stream
        self._begin, self._data = _end_of(log, size)
        self._offsets: list[int] = []
        self._times: list[float] = []
        if self._data:
            self._index(_end_of(log.with_name(log.name + ".idx"), size)[1])

    def _index(self, data: bytes) -> None:
        for row in data.splitlines():
            offset, _, at = row.partition(b" ")
            try:
                entry = int(offset), float(at)
            except ValueError:
                continue  # cut where we began to read, or by a full disk
            self._offsets.append(entry[0])
            self._times.append(entry[1])

    def backwards(self) -> Iterator[_Line]:
        """The lines, last one first."""
        end = len(self._data)
        while end > 0:
            end -= self._data.endswith(b"\n", 0, end)
            start = self._data.rfind(b"\n", 0, end) + 1
            yield self._line(start, end)
            end = start

    def exceptions(self, most: int) -> Iterator[_Line]:
        """The last lines of the last `most` tracebacks, and the lines that
        say that one follows from another.
        """
        end = len(self._data)
        for _ in range(most):
            end = self._data.rfind(_TRACEBACK, 0, end)
            if end < 0:
                return
            found = self._exception(end)
            if found is not None:
                yield found
            linked = _CHAINED.search(self._data, max(end - _LONGEST_LINK, 0), end)
            if linked is not None:
                start = self._data.rfind(b"\n", 0, linked.start()) + 1
                yield self._line(start, self._after(start) - 1)

    def _exception(self, header: int) -> Optional[_Line]:
        """The first line after this traceback header that is not indented; skips the
        prefix that a launcher adds to each line.
        """
        start = self._data.rfind(b"\n", 0, header) + 1
        mark = self._data[start:header]
        start = self._after(header)
        while start < len(self._data):
            end = self._after(start)
            row = self._data[start:end]
            words = without_prefix(row, mark)
            if words.strip() and words[:1] not in b" \t":
                return self._line(start, end - row.endswith(b"\n"))
            start = end
        return None

    def _after(self, position: int) -> int:
        return self._data.find(b"\n", position) + 1 or len(self._data)

    def _line(self, start: int, end: int) -> _Line:
        # Of a progress bar that rewrites its line, only the last version counts.
        words = self._data[start:end].rstrip(b"\r").rpartition(b"\r")[2][:4096]
        text = shown_line(words.decode("utf-8", "replace"), _LONGEST_LINE)
        # When it was completed; its beginning may be much older.
        row = bisect_right(self._offsets, self._begin + max(end - 1, 0)) - 1
        at = self._times[row] if row >= 0 else 0.0
        return _Line(at, self._stream, self._begin + start, text)


def _end_of(path: Path, size: int) -> tuple[int, bytes]:
    """(where they begin, the last `size` bytes of a file); no bytes if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0, b""
    try:
        begin = max(0, os.fstat(fd).st_size - size)
        return begin, os.pread(fd, size, begin)
    except OSError:
        return 0, b""
    finally:
        os.close(fd)


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


_COUNT = re.compile(rb"^oom_kill (\d{1,18})$", re.MULTILINE)
_NODE = Path("/proc/vmstat")
_SAYS = "out-of-memory kills on this node since the rank began: {} (control group {})"
_SAYS_LESS = "out-of-memory kills somewhere on this node since the rank began: {} (of which job is not known)"


class KillCounter(NamedTuple):
    """A file with an `oom_kill` count, and the sentence that reports it."""

    path: Path
    sentence: str


Counts = tuple[int, ...]
"""The values of all counters of a `Kills`."""


class Kills:
    """Out-of-memory kill counters, nearest first; those that cannot be read are dropped."""

    def __init__(self, counters: Iterable[KillCounter]) -> None:
        self._counters = [c for c in counters if _value(c.path) is not None]

    def count(self) -> Counts:
        """Kills so far according to each counter."""
        return tuple(_value(counter.path) or 0 for counter in self._counters)

    def since(self, began: Counts, first: Counts, explained: int) -> str:
        """A sentence with the kills since `began`, from the nearest
        counter that saw any; "" for none.

        A counter is skipped if its kills since `first` are no more than `explained`, those that
        explain other ends already. A container has a cgroup of its own, often not below the job's:
        then only the node's counter sees it.
        """
        for counter, then, before, now in zip(self._counters, began, first, self.count()):
            if now > then and now - before > explained:
                return counter.sentence.format(now - then)
        return ""


def find_kill_counters(group: Optional[Path]) -> Iterator[KillCounter]:
    """The counters that may count the job's kills: its cgroup (`group`), the
    cgroups above it, last the whole node.
    """
    for path in processes.memory_files(group):
        whose = "of the job" if path.parent == group else "that the job runs in"
        yield KillCounter(path, _SAYS.format("{}", whose))
    yield KillCounter(_NODE, _SAYS_LESS)


def _value(path: Path) -> Optional[int]:
    try:
        found = _COUNT.search(path.read_bytes()[: 1 << 16])
    except OSError:
        return None
    return int(found[1]) if found else None


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

    def began(self, rank: int, pid: int) -> None:
        """Note that a rank has begun; `pid` is 0 if the rank is in another pid namespace."""
        began = _Began(self._kernel.mark(), self._kills.count())
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
        lines = _last_lines(_tails(self._folder.place(rank), bound), bound)
        kernel = [] if ended_by_us else self._of_kernel(rank, end)
        written = tuple(line.at for line in lines)
        known = written if all(written) else ()
        return RankEvidence(tuple(line.text for line in lines), known, tuple(kernel))

    def of_well_ended(self, rank: int) -> WellEnded:
        """What the last words of a rank that ended with exit 0 tell all the same."""
        tails = _tails(self._folder.place(rank), STOPPED)
        lines = _last_lines(tails, STOPPED)
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
