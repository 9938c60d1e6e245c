"""One SQLite file that several consoles of a user have open at once; read-only where writing fails."""

import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rankdeck.config.files import keep_from_others, private_file, private_folder
from rankdeck.model.safe_text import clean

if TYPE_CHECKING:
    pass


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
