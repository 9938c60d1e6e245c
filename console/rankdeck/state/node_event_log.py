"""The node events and acknowledgements of a cluster on disk, shared by all consoles of a user."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from rankdeck.errors import HistoryError
from rankdeck.model.health import Ack, Occurrence
from rankdeck.state.database import Store
from rankdeck_agent.rules.levels import Level

KEEP = 20_000
"""Most events kept per cluster."""
KEEP_ACKS = 2000
"""Most acknowledgements kept; those that ended first go.

No clock decides what is deleted: it may be wrong.
"""
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
    """The node events and acknowledgements of one cluster; several
    consoles may write them at once.
    """

    def __init__(self, store: Store, cluster: str) -> None:
        self._store, self._cluster = store, cluster
        self._version: object = None
        self._due: deque[Occurrence] = deque(maxlen=RECALLED)
        """Events that could not be written yet."""

    def forget_old_acks(self) -> None:
        """Delete the acknowledgements beyond KEEP_ACKS."""
        self._store.put(_FORGET_ACKS, [(KEEP_ACKS,)])

    def exchange(self, occurrences: Iterable[Occurrence], now: float) -> tuple[Ack, ...] | None:
        """Save these events; the acknowledgements valid at `now` (epoch
        seconds), None if no console changed any.
        """
        self.add(occurrences)
        return self.acks(now) if self.changed() else None

    def add(self, occurrences: Iterable[Occurrence]) -> None:
        """Save these events; those that cannot be written are tried again at the next call."""
        self._due.extend(occurrences)
        if not self._due:
            return
        rows = [
            (self._cluster, o.at, o.node, o.kind, int(o.level), o.check, o.device, o.text)
            for o in self._due
        ]
        if not self._store.put(
            "INSERT OR IGNORE INTO occurrence VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows
        ):
            return
        self._due.clear()
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

    def acknowledge(self, ack: Ack) -> None:
        """Save an acknowledgement, or remove those that it ends (`Ack.ends`).

        Raises HistoryError.
        """
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
        if not ack.until:
            row = (self._cluster, ack.node, ack.check, ack.device)
            put = "DELETE FROM ack WHERE cluster = ? AND node = ? AND \"check\" = ? AND ? IN ('', device)"
        if not self._store.put(put, [row]):
            raise HistoryError(f"nothing was acknowledged: {self._store.trouble}")
        self._version = None

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
        """Whether another console wrote to the file, or this one an
        acknowledgement, since the last call.
        """
        rows = self._store.rows("PRAGMA data_version")
        before, self._version = self._version, rows
        return before != rows


def _occurrence(row: Sequence[Any]) -> Occurrence:
    at, node, kind, level, check, device, text = row
    return Occurrence(at, node, kind, Level(level), check, device, text)
