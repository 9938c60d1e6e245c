"""What is sent with the end of a rank or launcher, so that any console can judge later why it ended."""

import os
import re
import signal
import time
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Optional

from rankdeck_agent.files import clean
from rankdeck_agent.job import cgroup
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.journal import End
from rankdeck_agent.job.last_words import LAUNCHER_BOUND, RANK, TOLD, last_words
from rankdeck_agent.job.processes import Process
from rankdeck_agent.kernel_log import open_ring, records, strip
from rankdeck_agent.names import LAUNCHER

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


_COUNT = re.compile(rb"^oom_kill (\d{1,18})$", re.MULTILINE)
_NODE = Path("/proc/vmstat")
_SAYS = "out-of-memory kills on this node since the rank began: {} (control group {})"
_SAYS_LESS = "out-of-memory kills somewhere on this node since the rank began: {} (of which job is not known)"


class KillCounter(NamedTuple):
    """A file that has the count, and the sentence for what it counts."""

    path: Path
    says: str


class Kills:
    """The first of these counters that can be read."""

    def __init__(self, counters: Iterable[KillCounter]) -> None:
        there = (c for c in counters if _value(c.path) is not None)
        self._counter: Optional[KillCounter] = next(there, None)

    def count(self) -> int:
        """Kills so far; 0 where nobody counts."""
        return (_value(self._counter.path) or 0) if self._counter else 0

    def sentence(self, kills: int) -> str:
        """In words, that there were so many since a rank began."""
        return self._counter.says.format(kills) if self._counter else ""


def counters(group: Optional[Path]) -> Iterator[KillCounter]:
    """Those that count a job's kills, the nearest first; last the node's own."""
    for path in cgroup.memory_files(group):
        whose = "of the job" if path.parent == group else "that the job runs in"
        yield KillCounter(path, _SAYS.format("{}", whose))
    yield KillCounter(_NODE, _SAYS_LESS)


def _value(path: Path) -> Optional[int]:
    try:
        found = _COUNT.search(path.read_bytes()[: 1 << 16])
    except OSError:
        return None
    return int(found[1]) if found else None


Evidence = dict[str, list[str]]
_MOST_PIDS = 200
"""Of one rank: some start a process a second all their life."""
_ASKED = (signal.SIGTERM, signal.SIGKILL)


@dataclass
class _Began:
    """How things stood when a rank began."""

    mark: int
    """In the kernel's log."""
    kills: int
    pids: dict[int, None] = field(default_factory=dict[int, None])
    """Its processes as far as seen, the newest last."""


class Witness:
    """Remembers of each rank what its end is judged by."""

    def __init__(self, folder: RunFolder, kernel: KernelLog, kills: Kills) -> None:
        self._folder, self._kernel, self._kills = folder, kernel, kills
        self._first = self._kills.count()
        self._told = 0
        """Kills that an end was explained by."""
        self._ranks: dict[int, _Began] = {}

    def began(self, rank: int, pid: int) -> None:
        """A rank has begun; `pid` is 0 where it counts in another namespace than ours."""
        began = _Began(self._kernel.mark(), self._kills.count())
        if pid:
            began.pids[pid] = None
        self._ranks[rank] = began

    def saw(self, rows: Mapping[int, Process], roots: Mapping[int, int]) -> None:
        """Remember which processes are whose; `roots` are pid -> rank."""
        for pid, rank in _owners(rows, roots).items():
            if rank in self._ranks:
                pids = self._ranks[rank].pids
                pids[pid] = None
                if len(pids) > _MOST_PIDS:
                    del pids[next(iter(pids))]

    def of_rank(self, rank: int, end: End, *, asked: bool) -> Evidence:
        """The evidence for a rank that failed; less where its end was `asked` for."""
        told = asked and end["signal"] in _ASKED
        said = last_words(self._folder.place(rank), TOLD if told else RANK)
        kernel = [] if told else self._of_kernel(rank, end)
        return _without_empty({"said": said, "kernel": kernel})

    def of_launcher(self) -> Evidence:
        """The evidence for a launcher or daemon that failed."""
        place = self._folder.place(LAUNCHER)
        return _without_empty({"said": last_words(place, LAUNCHER_BOUND)})

    def _of_kernel(self, rank: int, end: End) -> list[str]:
        began = self._ranks.get(rank)
        if began is None:
            return []
        lines = self._kernel.about(began.pids, began.mark)
        self._told += len(self._kernel.killed(began.mark) & set(began.pids))
        if lines or end["signal"] != signal.SIGKILL:
            return lines
        return self._counted(began)

    def _counted(self, began: _Began) -> list[str]:
        """What the counters say, where there are kills that no other end was explained by."""
        count = self._kills.count()
        if count <= began.kills or count - self._first <= self._told:
            return []
        self._told += 1
        return [self._kills.sentence(count - began.kills)]


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


def _without_empty(evidence: Evidence) -> Evidence:
    return {name: lines for name, lines in evidence.items() if lines}
