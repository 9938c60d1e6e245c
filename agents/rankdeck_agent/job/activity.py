"""What the ranks of this node do: looked at every few seconds, the newest looks in one small file."""

import json
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.journal import table
from rankdeck_agent.job.processes import Process

PERIOD = 5.0
"""Seconds between two looks."""
KEPT = 12
"""Looks in the file: a console that was just opened knows the last minute at once."""
PLACE = "activity"
_MOST_RANKS = 1024
_AFRESH = 12
"""Looks until processes of others are read again: their pids may have been given anew."""
_LITTLE = 0.02
"""Cores below which it says nothing how much of them the system took."""
_PROC = Path("/proc")
_TICK = os.sysconf("SC_CLK_TCK")
_CLIENTS = frozenset({"podman", "docker"})
"""Programs whose containers run elsewhere: what they do themselves says nothing of the rank."""

Row = list[Any]
"""rank, state, wchan, cores, share of system time or None: as on the wire."""


class ActivityWatch:
    """Looks at running ranks and writes down what they do; one writer, the supervisor."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._place = folder / PLACE
        self._due = 0.0
        self._roots: dict[int, bool] = {}
        """First process of each rank -> whether it is certain that it belongs to the job."""
        self._others: set[int] = set()
        self._looks = 0
        self._spent: dict[int, tuple[float, int, int]] = {}
        """First process -> when it was looked at, ticks of user and of system time."""
        self._last: dict[int, Row] = {}
        self._lines: deque[bytes] = deque(maxlen=KEPT)

    def look(self, running: Mapping[int, int], now: float) -> None:
        """Look at these ranks (rank -> first process) where it is time to, by the monotonic clock."""
        if now < self._due or not running:
            return
        self._due = now + PERIOD
        some = dict(sorted(running.items())[:_MOST_RANKS])
        rows = self._rows(some.values())
        trees = processes.trees(rows, self._mine())
        found = [
            self._row(rank, [rows[pid] for pid in trees[root]])
            for rank, root in some.items()
            if root in trees
        ]
        told = [row for row in found if row is not None]
        if told:
            self._last.update({row[0]: row for row in told})
            self._write({"kind": "activity", "at": round(time.time(), 3), "rows": told})

    def of_failed(self, rank: int) -> dict[str, Any]:
        """What a rank that has failed did when last looked at, as a field of its `exited` event."""
        row = self._last.pop(rank, None)
        return {"activity": row[1:4]} if row else {}

    def end(self) -> None:
        """Take the file away: nothing runs any more."""
        self._place.unlink(missing_ok=True)

    # ---- which processes

    def _rows(self, roots: Iterable[int]) -> dict[int, Process]:
        """The processes of the ranks, and those not seen before."""
        roots = set(roots)
        if roots != self._roots.keys() or self._looks % _AFRESH == 0:
            self._others.clear()
            self._know(roots)
        self._looks += 1
        # Names alone: a Path for each of thousands of processes would cost as much as the look.
        names = os.listdir(_PROC)  # noqa: PTH208
        pids = {int(name) for name in names if name.isdigit()}
        read = map(processes.process, (pids - self._others) | roots)
        rows = {row.pid: row for row in read if row is not None}
        self._others |= rows.keys() - processes.below(rows, roots) - roots
        return rows

    def _know(self, roots: set[int]) -> None:
        """Ask of new ones whether they are the job's: a pid may be of another pid namespace."""
        job, node = self._folder.job, self._folder.node
        self._roots = {
            pid: self._roots.get(pid) or processes.is_marked(pid, job, node) for pid in roots
        }
        self._spent = {pid: at for pid, at in self._spent.items() if pid in roots}

    def _mine(self) -> list[int]:
        return [pid for pid, sure in self._roots.items() if sure]

    # ---- what they do

    def _row(self, rank: int, rows: list[Process]) -> Optional[Row]:
        """The row of one rank; None at the first look, and where its work is done elsewhere."""
        if any(row.name in _CLIENTS for row in rows):
            return None
        now = time.monotonic()
        # With the children that were waited for: what has ended is not lost.
        user = sum(row.times[0] + row.times[2] for row in rows)
        system = sum(row.times[1] + row.times[3] for row in rows)
        before = self._spent.get(rows[0].pid)
        self._spent[rows[0].pid] = (now, user, system)
        if before is None or now <= before[0]:
            return None
        cores, share = _used(now - before[0], user - before[1], system - before[2])
        main = processes.worker(rows)
        wchan = processes.word(_PROC / str(main.pid) / "wchan")
        return [rank, main.state, "" if wchan == "0" else wchan, cores, share]

    def _write(self, look: dict[str, Any]) -> None:
        self._lines.append(json.dumps(look, separators=(",", ":")).encode() + b"\n")
        fresh = self._place.with_name(PLACE + ".new")
        try:
            fresh.write_bytes(b"".join(self._lines))
            fresh.replace(self._place)
        except OSError:
            # A full disk: the console goes without, the job must not notice.
            return


def _used(seconds: float, user: int, system: int) -> tuple[float, Optional[float]]:
    """Cores, and the share of them that the system took."""
    user, system = max(user, 0), max(system, 0)
    cores = (user + system) / _TICK / seconds
    share = system / (user + system) if cores >= _LITTLE else None
    return round(cores, 3), None if share is None else round(share, 3)


class LookReader:
    """Looks from the file of a supervisor, each once."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._stamp = 0
        self._told = 0.0

    def read(self) -> list[dict[str, Any]]:
        """The looks since the last call, oldest first; at the first call all that are kept."""
        try:
            stamp = self._place.stat().st_mtime_ns
            if stamp == self._stamp:
                return []
            text = self._place.read_text("utf-8", "replace")
        except OSError:
            return []
        self._stamp = stamp
        found = [look for look in map(table, text.splitlines()[-KEPT:]) if _is_look(look)]
        fresh = [look for look in found if look is not None and look["at"] > self._told]
        self._told = max([self._told, *(look["at"] for look in fresh)])
        return fresh


def _is_look(look: Optional[Mapping[str, Any]]) -> bool:
    return (
        look is not None
        and look.get("kind") == "activity"
        and isinstance(look.get("at"), (int, float))
    )
