"""The node events and acknowledgements of a cluster on disk, shared by all consoles of a user."""

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rankdeck.errors import HistoryError
from rankdeck.model.health import Ack, Level, Occurrence
from rankdeck.state.database import Store

if TYPE_CHECKING:
    from rankdeck.state.fleet import Fleet

KEEP = 20_000
"""Most events kept per cluster."""
KEEP_ACKS = 2000
"""Most acknowledgements kept; those that ended first go. No clock decides what is deleted: it may be wrong."""
RECALLED = 5000
"""Most events that one query returns, and that a new console shows."""
NODE_SCHEMA = """
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
_FORGET_ACKS = (
    'DELETE FROM ack WHERE (cluster, node, "check", device) IN'
    ' (SELECT cluster, node, "check", device FROM ack ORDER BY until DESC LIMIT -1 OFFSET ?)'
)
_SELECT = f"SELECT {_COLUMNS} FROM occurrence"


class SharedEventLog:
    """The node events and acknowledgements of one cluster; several consoles may write them at once."""

    def __init__(self, store: Store, cluster: str) -> None:
        self._store, self._cluster = store, cluster
        self._version: object = None

    def recall(self, fleet: "Fleet", now: float, *, stands: bool = False) -> None:
        """Load earlier consoles' events, and the acknowledgements, into a new fleet. `now` is epoch seconds.

        With `stands`, problems from that time are shown until the nodes have been judged again.
        """
        self._store.put(_FORGET_ACKS, [(KEEP_ACKS,)])
        fleet.event_log.restore(self.recent(RECALLED))
        if stands:
            fleet.recall()
        self.exchange(fleet, now)

    def exchange(self, fleet: "Fleet", now: float) -> None:
        """Save new events, and load acknowledgements if any console changed them."""
        self.add(fleet.event_log.take())
        if self.changed():
            fleet.set_acks(self.acks(now))

    def add(self, occurrences: Iterable[Occurrence]) -> None:
        """Save these events; if writing fails, report it and go on."""
        rows = [
            (self._cluster, o.at, o.node, o.kind, int(o.level), o.check, o.device, o.text)
            for o in occurrences
        ]
        if not rows:
            return
        self._store.put("INSERT OR IGNORE INTO occurrence VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._store.put(
            "DELETE FROM occurrence WHERE cluster = ? AND rowid <= (SELECT rowid FROM occurrence"
            " WHERE cluster = ? ORDER BY rowid DESC LIMIT 1 OFFSET ?)",
            [(self._cluster, self._cluster, KEEP)],
        )

    def recent(self, most: int) -> tuple[Occurrence, ...]:
        """The `most` events that were saved last, in the order of saving."""
        rows = self._store.rows(
            f"{_SELECT} WHERE cluster = ? ORDER BY rowid DESC LIMIT ?", self._cluster, most
        )
        return tuple(map(_occurrence, reversed(rows)))

    def after(self, row: int) -> tuple[tuple[int, Occurrence], ...]:
        """(row number, event) of each event written after this row."""
        return self._numbered("rowid > ?", row)

    def since(self, at: float) -> tuple[tuple[int, Occurrence], ...]:
        """(row number, event) of each event since `at` (epoch seconds)."""
        return self._numbered("at >= ?", at)

    def _numbered(self, condition: str, value: float) -> tuple[tuple[int, Occurrence], ...]:
        rows = self._store.rows(
            f"SELECT rowid, {_COLUMNS} FROM occurrence"
            f" WHERE cluster = ? AND {condition} ORDER BY rowid DESC LIMIT ?",
            self._cluster,
            value,
            RECALLED,
        )
        return tuple((row, _occurrence(rest)) for row, *rest in reversed(rows))

    def acknowledge(self, ack: Ack, fleet: "Fleet | None" = None) -> None:
        """Save an acknowledgement and apply it to `fleet`; an `until` in the past withdraws it. Raises HistoryError."""
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
        if not self._store.put(put, [row]):
            raise HistoryError(f"nothing was acknowledged: {self._store.trouble}")
        self._version = None
        if fleet is not None:
            self.exchange(fleet, time.time())

    def acks(self, now: float) -> tuple[Ack, ...]:
        """The acknowledgements that are valid at `now` (epoch seconds)."""
        rows = self._store.rows(
            'SELECT node, "check", until, who, why, device, level FROM ack WHERE cluster = ? AND until > ?',
            self._cluster,
            now,
        )
        return tuple(
            Ack(node, check, until, who, why, device, Level(level))
            for node, check, until, who, why, device, level in rows
        )

    def changed(self) -> bool:
        """Whether another console wrote to the file, or this one an acknowledgement, since the last call."""
        rows = self._store.rows("PRAGMA data_version")
        before, self._version = self._version, rows
        return before != rows


def _occurrence(row: Sequence[Any]) -> Occurrence:
    at, node, kind, level, check, device, text = row
    return Occurrence(at, node, kind, Level(level), check, device, text)
