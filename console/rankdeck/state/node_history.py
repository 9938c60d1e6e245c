"""What happened on nodes: the SQLite rows all consoles share, the events since the start, and pictures of the last hours."""

import logging
import sqlite3
import time
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import TYPE_CHECKING, Any

from rankdeck.errors import HistoryError
from rankdeck.model.health import Ack, Level, Occurrence, Reason
from rankdeck.state.node import NodeState
from rankdeck.state.store import Store
from rankdeck_agent.wire import Event

if TYPE_CHECKING:
    from rankdeck.state.fleet import Fleet


log = logging.getLogger(__name__)
KEEP = 20_000
"""Occurrences kept per cluster, and none that is older than the newest by AGE."""
AGE = 90 * 86400.0
"""Seconds; what was acknowledged is forgotten so long after it ended."""
RECALLED = 5000
"""Of these, so many are shown in a new console."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS occurrence (
    cluster TEXT NOT NULL, at REAL NOT NULL, node TEXT NOT NULL, kind TEXT NOT NULL, level INTEGER NOT NULL,
    "check" TEXT NOT NULL, device TEXT NOT NULL, text TEXT NOT NULL,
    UNIQUE (cluster, node, kind, "check", device, at)
);
CREATE INDEX IF NOT EXISTS occurrence_by_time ON occurrence (cluster, at);
CREATE TABLE IF NOT EXISTS ack (
    cluster TEXT NOT NULL, node TEXT NOT NULL, "check" TEXT NOT NULL, device TEXT NOT NULL,
    until REAL NOT NULL, who TEXT NOT NULL, why TEXT NOT NULL, level INTEGER NOT NULL,
    PRIMARY KEY (cluster, node, "check", device)
) WITHOUT ROWID;
"""
_COLUMNS = 'at, node, kind, level, "check", device, text'
_SELECT = f"SELECT {_COLUMNS} FROM occurrence"


class SharedEventLog:
    """The rows of one cluster; several consoles may write them at once."""

    def __init__(self, store: Store, cluster: str) -> None:
        self._store, self._cluster = store, cluster
        self._version: object = None

    def recall(self, fleet: "Fleet", now: float) -> None:
        """What earlier consoles saw and what is acknowledged, into a new fleet."""
        self._write("DELETE FROM ack WHERE until < ?", [(now - AGE,)])
        fleet.journal.restore(self.recent(RECALLED))
        self.exchange(fleet, now)

    def exchange(self, fleet: "Fleet", now: float) -> None:
        """Write down what happened, take over what was acknowledged meanwhile."""
        self.add(fleet.journal.take())
        if self.changed():
            fleet.set_acks(self.acks(now))

    def add(self, occurrences: Iterable[Occurrence]) -> None:
        """Keep these; where the disk refuses, say so and go on."""
        rows = [
            (
                self._cluster,
                o.at,
                o.node,
                o.kind,
                int(o.level),
                o.check,
                o.device,
                o.text,
            )
            for o in occurrences
        ]
        if not rows:
            return
        self._write("INSERT OR IGNORE INTO occurrence VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._write(
            "DELETE FROM occurrence WHERE cluster = ? AND at < (SELECT at FROM occurrence"
            " WHERE cluster = ? ORDER BY at DESC LIMIT 1 OFFSET ?)",
            [(self._cluster, self._cluster, KEEP)],
        )
        self._write(
            "DELETE FROM occurrence WHERE cluster = ? AND at <"
            " (SELECT max(at) FROM occurrence WHERE cluster = ?) - ?",
            [(self._cluster, self._cluster, AGE)],
        )

    def recent(self, most: int) -> tuple[Occurrence, ...]:
        """The newest occurrences, oldest of them first."""
        rows = self._read(
            f"{_SELECT} WHERE cluster = ? ORDER BY at DESC, rowid DESC LIMIT ?",
            (self._cluster, most),
        )
        return tuple(map(_occurrence, reversed(rows)))

    def after(self, row: int) -> tuple[tuple[int, Occurrence], ...]:
        """Each occurrence that was written after this row, with the number of its own."""
        return self._numbered("rowid > ?", row)

    def since(self, at: float) -> tuple[tuple[int, Occurrence], ...]:
        """What happened from this moment on, the newest of it, with the numbers of the rows."""
        return self._numbered("at >= ?", at)

    def _numbered(self, condition: str, value: float) -> tuple[tuple[int, Occurrence], ...]:
        rows = self._read(
            f"SELECT rowid, {_COLUMNS} FROM occurrence"
            f" WHERE cluster = ? AND {condition} ORDER BY rowid DESC LIMIT ?",
            (self._cluster, value, RECALLED),
        )
        return tuple((row, _occurrence(rest)) for row, *rest in reversed(rows))

    def acknowledge(self, ack: Ack, fleet: "Fleet | None" = None) -> None:
        """Keep what somebody said; an `until` in the past takes it back. Raises HistoryError."""
        row = (
            self._cluster,
            ack.node,
            ack.check,
            ack.device,
            ack.until,
            ack.who,
            ack.why,
            int(ack.level),
        )
        put = "INSERT OR REPLACE INTO ack VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        if not self._write(put, [row]):
            raise HistoryError(f"nothing was acknowledged: {self._store.trouble}")
        self._version = None
        if fleet is not None:
            self.exchange(fleet, time.time())

    def acks(self, now: float) -> tuple[Ack, ...]:
        """What is acknowledged now."""
        rows = self._read(
            'SELECT node, "check", until, who, why, device, level FROM ack WHERE cluster = ? AND until > ?',
            (self._cluster, now),
        )
        return tuple(
            Ack(node, check, until, who, why, device, Level(level))
            for node, check, until, who, why, device, level in rows
        )

    def changed(self) -> bool:
        """Whether somebody, here or in another console, wrote since the last call."""
        rows = self._read("PRAGMA data_version", ())
        before, self._version = self._version, rows
        return before != rows

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> bool:
        return self._store.write(lambda database: database.executemany(statement, rows))

    def _read(self, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        try:
            return self._store.database.execute(query, values).fetchall()
        except sqlite3.Error as error:
            log.warning("the history of nodes cannot be read: %s", error)
            return []


def _occurrence(row: Sequence[Any]) -> Occurrence:
    at, node, kind, level, check, device, text = row
    return Occurrence(at, node, kind, Level(level), check, device, text)


MOST = 5000
BURST = 500
"""Occurrences that wait for the disk; of more, the oldest are only in memory."""
LEVELS = {"ok": Level.OK, "info": Level.OK, "warn": Level.WARN, "bad": Level.BAD}
UNTOLD = frozenset({"node.coverage"})
Key = tuple[str, str, str]


class EventLog:
    """Written by Fleet; front ends read `newest`, the session takes what is to be kept."""

    def __init__(self) -> None:
        self.newest: deque[Occurrence] = deque(maxlen=MOST)
        self.total = 0
        """Changes exactly when there is something new."""
        self._waiting: deque[Occurrence] = deque(maxlen=BURST)
        self._open: dict[Key, Level] = {}
        self._told: dict[tuple[str, str, str, int], None] = {}

    def restore(self, occurrences: Iterable[Occurrence]) -> None:
        """What an earlier console saw: it is not told twice."""
        for one in occurrences:
            self.newest.append(one)
            self.total += 1
            key = (one.node, one.check, one.device)
            if one.kind == "event":
                self._told[*key, round(one.at)] = None
            elif one.kind == "began":
                self._open[key] = one.level
            else:
                self._open.pop(key, None)

    def event(self, node: str, event: Event, at: float) -> None:
        """A node told something; the past told again is left out."""
        key = (node, event.check, event.device, round(at))
        if key in self._told:
            return
        self._told[key] = None
        while len(self._told) > MOST:
            del self._told[next(iter(self._told))]
        level = LEVELS.get(event.level, Level.WARN)
        self._add(Occurrence(at, node, "event", level, event.check, event.device, event.text))

    def judged(
        self, node: str, before: Sequence[Reason], after: Sequence[Reason], at: float
    ) -> None:
        """Reasons that came, went, or changed their level."""
        gone = {(r.check, r.device): r for r in before}
        for reason in after:
            gone.pop((reason.check, reason.device), None)
            key = (node, reason.check, reason.device)
            if reason.check in UNTOLD or self._open.get(key) == reason.level:
                continue
            self._open[key] = reason.level
            self._add(_line(at, node, "began", reason.level, reason))
        for reason in gone.values():
            if self._open.pop((node, reason.check, reason.device), None) is not None:
                self._add(_line(at, node, "ended", Level.OK, reason))

    def between(self, nodes: Collection[str], since: float, until: float) -> tuple[Occurrence, ...]:
        """What these nodes told in that time, and which warnings began there."""
        return tuple(
            one
            for one in self.newest
            if since <= one.at <= until
            and one.node in nodes
            and (one.kind == "event" or (one.kind == "began" and one.level > Level.OK))
        )

    def take(self) -> tuple[Occurrence, ...]:
        """What is to be written down since the last call."""
        taken = tuple(self._waiting)
        self._waiting.clear()
        return taken

    def _add(self, one: Occurrence) -> None:
        self.newest.append(one)
        self._waiting.append(one)
        self.total += 1


def _line(at: float, node: str, kind: str, level: Level, reason: Reason) -> Occurrence:
    return Occurrence(at, node, kind, level, reason.check, reason.device, reason.text)


SPAN = 3 * 3600.0
"""Seconds that can be gone back."""
SHORTEST = 10.0
LIMIT = 24 << 20
"""Bytes of all pictures together."""
LEAST_FRAMES = 60


def _both(node: NodeState, first: str, second: str) -> float | None:
    known = [n for n in (node.total(first), node.total(second)) if n is not None]
    return sum(known) if known else None


def _share(node: NodeState) -> float | None:
    used, there = node.total("gpu.mem_used"), node.total("gpu.mem_total")
    return used / there * 100 if used is not None and there else None


def _hottest(node: NodeState) -> float | None:
    gpu = node.worst("gpu.temp")
    return node.worst("cpu.temp") if gpu is None else gpu


SUMMARY: Mapping[str, Callable[[NodeState], float | None]] = {
    "cpu.used": lambda node: node.worst("cpu.used"),
    "mem.used": lambda node: node.worst("mem.used"),
    "gpu.used": lambda node: node.mean("gpu.used"),
    "gpu.mem_used": _share,
    "gpu.temp": _hottest,
    "rdma.rx": lambda node: node.total("rdma.rx"),
    "rdma.tx": lambda node: node.total("rdma.tx"),
    "net.rx": lambda node: _both(node, "net.rx", "net.tx"),
    "cpu.load1": lambda node: node.worst("cpu.load1"),
}
"""One number for a node and metric: what lists show, and what is remembered."""
_PLACES = {metric: place for place, metric in enumerate(SUMMARY)}


@dataclass(frozen=True, slots=True)
class FleetPicture:
    """All nodes at one instant of the console's wall clock."""

    at: float
    levels: bytes
    numbers: "array[float]"

    def level(self, place: int) -> Level:
        """The level of the node at this place of the cluster file."""
        return Level(self.levels[place])

    def number(self, place: int, metric: str) -> float | None:
        found = self.numbers[place * len(SUMMARY) + _PLACES[metric]]
        return None if isnan(found) else found


class Picture:
    """A frame that is still being taken: node after node, in the order of the cluster file."""

    def __init__(self, at: float) -> None:
        self._at = at
        self._levels = bytearray()
        self._numbers = array("f")

    def add(self, node: NodeState) -> None:
        self._levels.append(node.health.level)
        for number in SUMMARY.values():
            value = number(node)
            self._numbers.append(nan if value is None else value)

    def frame(self) -> FleetPicture:
        return FleetPicture(self._at, bytes(self._levels), self._numbers)


class Past:
    """Frames, oldest first; written by Fleet."""

    def __init__(self, nodes: int) -> None:
        size = max(nodes, 1) * (4 * len(SUMMARY) + 1)
        frames = max(min(int(SPAN / SHORTEST), LIMIT // size), LEAST_FRAMES)
        self.period = SPAN / frames
        self._frames: deque[FleetPicture] = deque(maxlen=frames)

    def due(self, at: float) -> bool:
        """Whether it is time for another picture."""
        return not self._frames or not 0 <= at - self._frames[-1].at < self.period

    def keep(self, picture: "Picture") -> None:
        """Remember a picture that has all nodes."""
        self._frames.append(picture.frame())

    def span(self) -> tuple[float, float] | None:
        """The first and the last instant that is remembered."""
        return (self._frames[0].at, self._frames[-1].at) if self._frames else None

    def frame(self, at: float) -> FleetPicture | None:
        """The newest picture that is not younger than `at`; the oldest where all are."""
        if not self._frames:
            return None
        place = bisect_right(self._frames, at, key=lambda frame: frame.at)
        return self._frames[max(place - 1, 0)]

    def series(self, place: int, metric: str, until: float) -> list[float | None]:
        """The numbers of one node up to an instant, oldest first."""
        return [f.number(place, metric) for f in self._frames if f.at <= until]
