"""What all consoles of a user share on disk: SQLite files (read-only if writing fails), node events, launch locks."""

import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rankdeck.config.files import keep_from_others, private_file, private_folder, state_folder
from rankdeck.errors import HistoryError
from rankdeck.model.health import Ack, Level, Occurrence
from rankdeck.model.safe_text import clean

if TYPE_CHECKING:
    from rankdeck.state.fleet import Fleet


log = logging.getLogger(__name__)
T = TypeVar("T")
Row = Sequence[Any] | Mapping[str, Any]
RETRY = 1.0
"""Seconds between two attempts to open the file for writing after a failure."""
_BUSY_LIMIT = 5.0
_MEMORY = Path(":memory:")
_BESIDE = ("-wal", "-shm")
"""Suffixes of the files that SQLite creates beside a database."""


class Store:
    """One database; several processes may have the file open at once.

    `least` is a query that must succeed for a read-only file to be usable.
    """

    def __init__(self, path: Path, schema: str, version: int, least: str) -> None:
        self._path, self._schema, self._version, self._least = path, schema, version, least
        self.trouble = ""
        """Why nothing can be written now (one sentence), or ""."""
        self._sealed = False
        """Whether it is open for reading only."""
        self._tried = time.monotonic()
        self.database = self._open()

    def write(self, work: Callable[[sqlite3.Connection], object]) -> bool:
        """Run `work` in one transaction; False if writing fails, and `trouble` says why."""
        if self._sealed and not self._opened_again():
            return False
        try:
            with self.database:
                work(self.database)
        except sqlite3.Error as error:
            self._refused(str(error))
            return False
        if self.trouble:
            self.trouble = ""
            log.info("%s can be written again", self._path)
        return True

    def put(self, statement: str, rows: Sequence[Row]) -> bool:
        """Run the statement for each of these rows; False if writing fails, as in `write`."""
        return self.write(lambda database: database.executemany(statement, rows))

    def read(self, work: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """The result of `work`; if the file cannot be read, log that and return `nothing`."""
        try:
            return work(self.database)
        except sqlite3.Error as error:
            log.warning("%s cannot be read: %s", self._path, error)
            return nothing

    def rows(self, query: str, *values: object) -> list[Any]:
        """The rows of a query; [] if the file cannot be read."""
        return self.read(lambda database: database.execute(query, values).fetchall(), [])

    def close(self) -> None:
        self.database.close()

    # ---- opening

    def _open(self) -> sqlite3.Connection:
        """Open the database; a broken file, or one of another version, is renamed, never deleted."""
        try:
            return self._writable()
        except (sqlite3.OperationalError, OSError) as error:
            return self._readable(str(error))
        except sqlite3.DatabaseError as error:
            return self._afresh(str(error))

    def _afresh(self, why: str) -> sqlite3.Connection:
        try:
            aside = _set_aside(self._path)
            log.warning("%s is not usable (%s); moved to %s", self._path, why, aside.name)
            return self._writable()
        except (sqlite3.Error, OSError) as error:
            return self._readable(str(error))

    def _writable(self) -> sqlite3.Connection:
        if self._path != _MEMORY:
            private_folder(self._path.parent)
            private_file(self._path)
            for suffix in _BESIDE:
                keep_from_others(self._path.with_name(self._path.name + suffix))
        return _connect(self._path, self._schema, self._version)

    def _readable(self, why: str) -> sqlite3.Connection:
        """The existing file, for reading; an empty database in memory if there is none."""
        self._sealed, self.trouble = True, self._sentence(why)
        # If SQLite cannot create its files beside the database, `immutable` reads the database alone.
        for options in ("mode=ro", "mode=ro&immutable=1"):
            uri = f"{self._path.absolute().as_uri()}?{options}"
            try:
                database = sqlite3.connect(uri, uri=True, timeout=_BUSY_LIMIT)
            except sqlite3.Error:
                continue
            try:
                database.execute(self._least)
            except sqlite3.Error:
                database.close()
            else:
                return database
        return _connect(_MEMORY, self._schema, self._version)

    def _opened_again(self) -> bool:
        now = time.monotonic()
        if now - self._tried < RETRY:
            return False
        self._tried = now
        try:
            fresh = self._writable()
        except (sqlite3.Error, OSError):
            return False
        self.database.close()
        self.database, self._sealed = fresh, False
        return True

    def _sentence(self, why: str) -> str:
        return f"{self._path} cannot be written ({clean(why, 200)}): what happens now is not remembered"

    def _refused(self, why: str) -> None:
        text = self._sentence(why)
        if text != self.trouble:
            self.trouble = text
            log.warning("%s", text)


def _connect(path: Path, schema: str, wanted: int) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_BUSY_LIMIT)
    try:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version not in (0, wanted):
            raise sqlite3.DatabaseError(f"version {version}, not {wanted}")
        # The last line of the schema writes, so a full disk is noticed here, not at the first job.
        database.executescript(schema)
    except sqlite3.Error:
        database.close()
        raise
    return database


def _set_aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.old{number}")).exists():
        number += 1
    path.rename(aside)
    for suffix in _BESIDE:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return aside


def _place(job: str) -> Path:
    return state_folder() / "launching" / job


@contextmanager
def launch_of(job: str) -> Generator[None]:
    """Hold the launch lock of this job until the block or the process ends; see `is_launched`."""
    path = _place(job)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        # Without the lock, other consoles may judge too early that the job was never started.
        log.warning("%s cannot be written: %s", path, error)
        yield
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(held)


def is_launched(job: str) -> bool:
    """Whether a running console is launching this job now."""
    try:
        seen = os.open(_place(job), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(seen, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        _place(job).unlink(missing_ok=True)
        return False
    finally:
        os.close(seen)


KEEP = 20_000
"""Most events kept per cluster."""
AGE = 90 * 86400.0
"""Seconds: events this much older than the newest are deleted, and acknowledgements this long after they ended."""
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
        self._store.put("DELETE FROM ack WHERE until < ?", [(now - AGE,)])
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
            "DELETE FROM occurrence WHERE cluster = ? AND at < (SELECT at FROM occurrence"
            " WHERE cluster = ? ORDER BY at DESC LIMIT 1 OFFSET ?)",
            [(self._cluster, self._cluster, KEEP)],
        )
        self._store.put(
            "DELETE FROM occurrence WHERE cluster = ? AND at <"
            " (SELECT max(at) FROM occurrence WHERE cluster = ?) - ?",
            [(self._cluster, self._cluster, AGE)],
        )

    def recent(self, most: int) -> tuple[Occurrence, ...]:
        """The `most` newest events, oldest first."""
        rows = self._store.rows(
            f"{_SELECT} WHERE cluster = ? ORDER BY at DESC, rowid DESC LIMIT ?", self._cluster, most
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
