"""What the processes of each rank do: looked at every few seconds,
written to a file that `job follow` reads.
"""

import contextlib
import json
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Optional

from rankdeck_agent.container_engines import ENGINES
from rankdeck_agent.job.cgroups import group_of, mount_point
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.processes import (
    Process,
    busiest_process,
    descendants_of,
    find_process,
    is_marked,
    kernel_function,
    process_trees,
    read_proc_word,
)
from rankdeck_agent.older_python import delete_file
from rankdeck_agent.private_files import replace_private
from rankdeck_agent.text import parse_json_table
from rankdeck_agent.wire.job_events import LastLook
from rankdeck_agent.wire.run_folder import ACTIVITY

_PROC = Path("/proc")
PERIOD = 5.0
"""Seconds between two looks at what the ranks do."""
KEPT = 12
"""Looks that are kept in the file, so that a console that was just
opened has the last minute at once.
"""
_MOST_RANKS = 1024
_AFRESH = 12
"""After this many looks all processes are read again, not only known and
new ones: pids may have been reused.
"""
_LITTLE = 0.02
"""If a rank used fewer cores than this, its share of system time means nothing."""
_TICK = os.sysconf("SC_CLK_TCK")

Row = list[Any]
"""[rank, state, wchan, cores, share of system time, throttled, moves, wants, held, delayed,
blocked], the last seven or None, as in wire/job_events.py.
"""


class CpuQuota(NamedTuple):
    """What a control group counts of the periods of its CPU quota."""

    group: Path
    periods: int
    throttled: int
    """Periods in which the processes had to wait, because the quota was used up."""
    held: int = 0
    """Nanoseconds in which they had to wait, of all cores together."""


_COUNTED = re.compile(
    rb"^(nr_periods|nr_throttled|throttled_time|throttled_usec) (\d{1,18})$", re.MULTILINE
)


class CpuQuotas:
    """Reads the CPU quotas of processes, of control groups v1 and v2."""

    def __init__(self) -> None:
        self._points: dict[str, Path] = {}
        with contextlib.suppress(OSError):
            points = {hierarchy: mount_point(hierarchy) for hierarchy in ("cpu", "")}
            self._points = {hierarchy: one for hierarchy, one in points.items() if one}

    def of(self, pid: int) -> Optional[CpuQuota]:
        """The quota of its nearest control group that has one; None if
        there is none, or it cannot be read.
        """
        for hierarchy, point in self._points.items():
            try:
                own = group_of(pid, hierarchy, point)
            except OSError:
                return None
            line = (own, *own.parents) if own else ()
            for group in (one for one in line if point in (one, *one.parents)):
                found = quota_in(group)
                if found and found.periods:
                    return found
        return None


def quota_in(group: Path) -> Optional[CpuQuota]:
    """What `cpu.stat` of this control group counts; None if it
    cannot be read, or counts no periods.
    """
    try:
        text = (group / "cpu.stat").read_bytes()[:4096]
    except OSError:
        return None
    counts = {name: int(value) for name, value in _COUNTED.findall(text)}
    if not {b"nr_periods", b"nr_throttled"} <= counts.keys():
        return None
    held = counts.get(b"throttled_time", 1000 * counts.get(b"throttled_usec", 0))
    return CpuQuota(group, counts[b"nr_periods"], counts[b"nr_throttled"], held)


def throttled_share(before: Optional[CpuQuota], now: Optional[CpuQuota]) -> Optional[float]:
    """In which share of the periods between two looks a quota held it back;
    None if it has none, or got another.
    """
    if before is None or now is None or before.group != now.group:
        return None
    periods = now.periods - before.periods
    return _share((now.throttled - before.throttled) / periods if periods > 0 else 0.0)


def held_share(
    before: Optional[CpuQuota], now: Optional[CpuQuota], seconds: float
) -> Optional[float]:
    """In which share of this time a quota held its processes; None if it has none."""
    if before is None or now is None or before.group != now.group:
        return None
    return _share((now.held - before.held) / 1e9 / seconds)


def _share(number: float) -> float:
    return round(min(max(number, 0.0), 1.0), 3)


class ThreadTime(NamedTuple):
    """How long the first thread of a process has run on a core, waited for one, and for a disk."""

    pid: int
    ran: int
    waited: int
    """Both in nanoseconds."""
    blocked: Optional[int] = None
    """Clock ticks in which it waited for a disk or a file system; None if nobody counts them."""


class ThreadShares(NamedTuple):
    """Shares of a time between two looks."""

    wants: Optional[float] = None
    """In which it had something to do itself; None if it is another process."""
    delayed: Optional[float] = None
    """Of that, in which it waited for a core; None if it had nothing to do."""
    blocked: Optional[float] = None
    """In which it waited for a disk or a file system; None if not known."""


def counts_disk_waits() -> bool:
    """Whether this kernel counts for how long processes wait for disks (delay accounting): since
    5.14 it does so only on request.
    """
    try:
        return (_PROC / "sys/kernel/task_delayacct").read_bytes().strip() != b"0"
    except OSError:
        return True


def thread_time_of(pid: int, *, disks: bool) -> Optional[ThreadTime]:
    """What the kernel counts of the process, with `disks` also its waits for them; None where it
    counts nothing.
    """
    place = _PROC / str(pid)
    try:
        ran, waited = (place / "schedstat").read_bytes()[:128].split()[:2]
        # proc(5): field 42 of `stat`; the second, the name, may have spaces.
        fields = (place / "stat").read_bytes().rpartition(b")")[2].split() if disks else []
        return ThreadTime(pid, int(ran), int(waited), int(fields[39]) if disks else None)
    except (OSError, ValueError, IndexError):
        return None


def thread_shares(
    before: Optional[ThreadTime], now: Optional[ThreadTime], seconds: float
) -> ThreadShares:
    """What it did between two looks."""
    if before is None or now is None or before.pid != now.pid:
        return ThreadShares()
    waited = now.waited - before.waited
    wanted = now.ran - before.ran + waited
    blocked = None
    if before.blocked is not None and now.blocked is not None:
        blocked = _share((now.blocked - before.blocked) / _TICK / seconds)
    delayed = _share(waited / wanted) if wanted > 0 else None
    return ThreadShares(_share(wanted / 1e9 / seconds), delayed, blocked)


def moves_of(rows: Iterable[Process]) -> Optional[int]:
    """Page faults, reads and writes of these processes so far; None if that may not be read.

    A process that only polls for others makes none; a program that
    computes, allocates or does I/O does.
    """
    moves = 0
    try:
        for row in rows:
            fields = (_PROC / str(row.pid) / "io").read_bytes()[:512].split()
            moves += row.faults + int(fields[5]) + int(fields[7])
    except (OSError, ValueError, IndexError):
        return None
    return moves


def moves_between(before: Optional[int], now: Optional[int]) -> Optional[int]:
    """How many moves lie between two looks; a process that ended takes its own
    along, so fewer is a difference too.
    """
    return None if before is None or now is None else abs(now - before)


class _Spent(NamedTuple):
    """What the processes of a rank had used at a look."""

    at: float
    """Seconds of the monotonic clock."""
    user: int
    system: int
    """CPU time in clock ticks, including that of children that have ended and were waited for."""
    moves: Optional[int]
    quota: Optional[CpuQuota]
    thread: Optional[ThreadTime]


class ActivityWatch:
    """Looks at running ranks every PERIOD seconds and writes what they do to a file.

    Only the supervisor uses it.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._place = folder / ACTIVITY
        self._due = 0.0
        self._roots: dict[int, bool] = {}
        """First process of each rank -> whether it certainly belongs to the job."""
        self._others: set[int] = set()
        """Pids of processes that belong to no rank, which are not read at each look."""
        self._looks = 0
        self._spent: dict[int, _Spent] = {}
        """First process -> what the whole rank had used at the last look."""
        self._quotas = CpuQuotas()
        self._disks = counts_disk_waits()
        self._last: dict[int, Row] = {}
        self._lines: deque[bytes] = deque(maxlen=KEPT)

    def look(self, running: Mapping[int, int], now: float) -> None:
        """Look at these ranks (rank -> pid of its first process) if due; `now`
        in seconds of the monotonic clock.
        """
        if now < self._due or not running:
            return
        self._due = now + PERIOD

        some = dict(sorted(running.items())[:_MOST_RANKS])
        rows = self._rows(some.values())
        of_root = process_trees(rows, [pid for pid, sure in self._roots.items() if sure])
        found = [
            self._row(rank, [rows[pid] for pid in of_root[root]])
            for rank, root in some.items()
            if root in of_root
        ]
        looks = [row for row in found if row is not None]
        if looks:
            self._last.update({row[0]: row for row in looks})
            self._write({"kind": "activity", "at": round(time.time(), 3), "rows": looks})

    def of_failed(self, rank: int) -> Optional[LastLook]:
        """What a failed rank did at the last look; None if it was not looked at."""
        row = self._last.pop(rank, None)
        return LastLook(*row[1:4]) if row else None

    def end(self) -> None:
        """Remove the file: nothing runs any more."""
        delete_file(self._place)

    # ---- which processes

    def _rows(self, roots: Iterable[int]) -> dict[int, Process]:
        """The processes of the ranks, and all processes that were not seen before."""
        roots = set(roots)
        if roots != self._roots.keys() or self._looks % _AFRESH == 0:
            self._others.clear()
            # Only what is marked certainly belongs to the job: a pid may be from another
            # pid namespace.
            job, node = self._folder.job, self._folder.node
            self._roots = {pid: self._roots.get(pid) or is_marked(pid, job, node) for pid in roots}
            self._spent = {pid: spent for pid, spent in self._spent.items() if pid in roots}
        self._looks += 1

        # Only names: a Path for each of thousands of processes would cost as much as the rest.
        names = os.listdir(_PROC)  # noqa: PTH208
        pids = {int(name) for name in names if name.isdigit()}
        read = map(find_process, (pids - self._others) | roots)
        rows = {row.pid: row for row in read if row is not None}
        self._others |= rows.keys() - descendants_of(rows, roots) - roots
        return rows

    # ---- what they do

    def _row(self, rank: int, rows: list[Process]) -> Optional[Row]:
        """The row of one rank; None at its first look, and if a
        container daemon runs its processes.
        """
        if any(row.name in ENGINES for row in rows):
            return None  # what such a program does says nothing about the rank in its container

        main = busiest_process(rows)
        now = _Spent(
            time.monotonic(),
            sum(row.times[0] + row.times[2] for row in rows),
            sum(row.times[1] + row.times[3] for row in rows),
            moves_of(rows),
            self._quotas.of(main.pid),
            thread_time_of(main.pid, disks=self._disks),
        )

        before = self._spent.get(rows[0].pid)
        self._spent[rows[0].pid] = now
        if before is None or now.at <= before.at:
            return None

        seconds = now.at - before.at
        cores, share = _used(seconds, now.user - before.user, now.system - before.system)
        shares = thread_shares(before.thread, now.thread, seconds)
        wchan = kernel_function(read_proc_word(_PROC / str(main.pid) / "wchan"))
        return [
            rank,
            main.state,
            "" if wchan == "0" else wchan,
            cores,
            share,
            throttled_share(before.quota, now.quota),
            moves_between(before.moves, now.moves),
            shares.wants,
            held_share(before.quota, now.quota, seconds),
            shares.delayed,
            shares.blocked,
        ]

    def _write(self, look: dict[str, Any]) -> None:
        self._lines.append(json.dumps(look, separators=(",", ":")).encode() + b"\n")
        # If the disk is full, the console gets no activity; the job is not disturbed.
        with contextlib.suppress(OSError):
            replace_private(self._place, b"".join(self._lines))


def _used(seconds: float, user: int, system: int) -> tuple[float, Optional[float]]:
    """(cores used, share of system time in that; None if too little was
    used), from clock ticks of CPU time.
    """
    user, system = max(user, 0), max(system, 0)
    cores = (user + system) / _TICK / seconds
    share = system / (user + system) if cores >= _LITTLE else None
    return round(cores, 3), None if share is None else round(share, 3)


class LookReader:
    """Reads looks from the file of a supervisor, each once."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._stamp = 0
        self._newest = 0.0

    def read(self) -> list[dict[str, Any]]:
        """The looks since the last call, oldest first; at the first call all in the file."""
        try:
            stamp = self._place.stat().st_mtime_ns
            if stamp == self._stamp:
                return []
            text = self._place.read_text("utf-8", "replace")
        except OSError:
            return []
        self._stamp = stamp
        found = map(parse_json_table, text.splitlines()[-KEPT:])
        fresh = [row for row in found if row and _is_look(row) and row["at"] > self._newest]
        self._newest = max([self._newest, *(look["at"] for look in fresh)])
        return fresh


def _is_look(row: Mapping[str, Any]) -> bool:
    return row.get("kind") == "activity" and isinstance(row.get("at"), (int, float))
