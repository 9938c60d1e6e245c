"""One SQLite file that several consoles of a user have open at once: opened,
repaired, and read where writing fails.
"""

import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rankdeck.config.files import create_private_folder, keep_from_others, private_file
from rankdeck.errors import HistoryError
from rankdeck.model.safe_text import clean_line

log = logging.getLogger(__name__)
T = TypeVar("T")
Row = Sequence[Any] | Mapping[str, Any]
RETRY = 1.0
"""Seconds between two attempts to write after a failure."""
_OPEN_LIMIT = 2.0
"""Seconds for which opening waits for a file that another process has locked."""
_BUSY_LIMIT = 0.25
"""The same for a statement on an open file: meanwhile the console does nothing else."""
_MEMORY = Path(":memory:")
_BESIDE = ("-wal", "-shm")
"""Suffixes of the files that SQLite creates beside a database."""
_ALONE = "mode=ro&immutable=1"
"""Options of a database that is read without the files beside it."""
Migrations = Mapping[int, str]
"""Version -> the statements that make the next version of it."""


class NewerError(sqlite3.Error):
    """A newer Rankdeck has written the file."""


class Store:
    """One database; several processes may have the file open at once.

    A damaged file is moved aside whole, never deleted, and what can be read of it is copied into a
    new one. A file that is removed or replaced while it is open is written again, with everything
    that was in it.
    """

    def __init__(
        self,
        path: Path,
        schema: str,
        version: int,
        least: str,
        migrations: Migrations | None = None,
    ) -> None:
        """`least`: a query that must succeed for a read-only file to be usable."""
        self._path, self._schema, self._version, self._least = path, schema, version, least
        self._migrations = migrations or {}
        self.trouble = ""
        """Why nothing can be written now (one sentence), or ""."""
        self.unread = ""
        """Why something that is there could not be read (one sentence), or ""."""
        self.mended = ""
        """What was repaired, and what of it is lost (one sentence), or ""."""
        self.renewed = 0
        """How many times another file took the place of the one that was open:
        what was written may be missing in it.
        """
        self._sealed = False
        """Whether it is open for reading only."""
        self._tried = time.monotonic()
        """When writing was last tried after a failure."""
        self._use(self._open())

    def write(self, work: Callable[[sqlite3.Connection], object]) -> bool:
        """Run `work` in one transaction; False if writing fails, and `trouble` says why."""
        if not self._may_write():
            return False
        try:
            self._run(lambda database: _transact(database, work))
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

    def must_put(self, statement: str, rows: Sequence[Row]) -> None:
        """The same for what must not be lost: raises HistoryError if writing fails."""
        if not self.put(statement, rows):
            raise HistoryError(f"nothing was kept: {self.trouble}")

    def read(self, work: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """The result of `work`; if the file cannot be read, `unread` says
        why, and the result is `nothing`.
        """
        try:
            return self._run(work)
        except sqlite3.Error as error:
            self.unread = f"{self._path} cannot be read ({clean_line(str(error), 200)})"
            log.warning("%s", self.unread)
            return nothing

    def rows(self, query: str, *values: object) -> list[Any]:
        """The rows of a query; [] if the file cannot be read."""
        return self.read(lambda database: database.execute(query, values).fetchall(), [])

    def sizes(self) -> tuple[int, int]:
        """(bytes of the file, bytes of it that are not used); (0, 0) if it cannot be read."""
        names = ("page_size", "page_count", "freelist_count")
        found = [rows[0][0] for name in names if (rows := self.rows(f"PRAGMA {name}"))]
        if len(found) < len(names):
            return 0, 0
        page, pages, free = found
        return page * pages, page * free

    def shrink(self, loose: int) -> None:
        """Write the file anew if at least `loose` bytes and a quarter of it are not used.

        May take seconds.
        """
        whole, free = self.sizes()
        if free >= loose and free * 4 >= whole and self._may_write():
            try:
                self.database.execute("VACUUM")
            except sqlite3.Error as error:
                log.info("%s is not made smaller: %s", self._path, error)

    def close(self) -> None:
        self.database.close()

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `work` on the file that lies at the path now;
        repairs a damaged one and tries again.
        """
        if self._identity() != self._seen:
            self._take_other_file()
        try:
            return work(self.database)
        except (sqlite3.OperationalError, sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise
        except sqlite3.DatabaseError as error:
            if self._sealed:
                raise
            self._repair(str(error))
            return work(self.database)

    def _may_write(self) -> bool:
        """Whether writing may be tried now: after a failure only once in RETRY seconds."""
        if not self.trouble:
            return True
        now = time.monotonic()
        if now - self._tried < RETRY:
            return False
        self._tried = now
        return not self._sealed or self._opened_again()

    # ---- opening

    def _open(self) -> sqlite3.Connection:
        try:
            return self._writable()
        except (sqlite3.Error, OSError) as error:
            return self._readable(str(error))

    def _writable(self) -> sqlite3.Connection:
        """The file, open for writing, of the present version and without damage.

        Raises sqlite3.Error, OSError.
        """
        if self._path == _MEMORY:
            return self._created(_connect(_MEMORY))
        create_private_folder(self._path.parent)
        private_file(self._path)
        for suffix in _BESIDE:
            keep_from_others(_beside(self._path, suffix))
        with _alone(self._path):
            database = _connect(self._path)
            try:
                why = self._damage(database)
            except sqlite3.Error:
                database.close()
                raise
            if not why:
                return self._created(database)
            database.close()
            return self._replaced(why)

    def _damage(self, database: sqlite3.Connection) -> str:
        """What is wrong with the file; "" for a whole one, brought up to our version.

        Raises NewerError, OperationalError.
        """
        try:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version > self._version:
                raise NewerError(f"a newer Rankdeck has written it, version {version}")
            ((found,),) = database.execute("PRAGMA quick_check(1)").fetchall()
            if found != "ok":
                return str(found)
            for number in range(version or self._version, self._version):
                if number not in self._migrations:
                    return f"version {version}, not {self._version}"
                database.executescript(
                    f"BEGIN IMMEDIATE; {self._migrations[number]};"
                    f" PRAGMA user_version = {number + 1}; COMMIT;"
                )
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            return str(error)
        return ""

    def _created(self, database: sqlite3.Connection) -> sqlite3.Connection:
        """The same database with its tables, made where they are missing; closed after an error."""
        try:
            # The last line of the schema writes, so a full disk is
            # noticed here, not at the first job.
            database.executescript(self._schema)
            database.execute(f"PRAGMA busy_timeout = {_BUSY_LIMIT * 1000:.0f}")
        except sqlite3.Error:
            database.close()
            raise
        return database

    def _replaced(self, why: str) -> sqlite3.Connection:
        """A new file with all that can be read of the damaged one, which is moved aside."""
        aside = _set_aside(self._path)
        fresh = self._created(_connect(self._path))
        kept, whole = 0, False
        with suppress(sqlite3.Error), closing(_connect_to_read(aside)) as old:
            kept, whole = copy_rows(old, fresh)
        lost = "nothing is lost" if whole else "the rest could not be read"
        self.mended = (
            f"{self._path} was not usable ({clean_line(why, 200)}): {kept} rows were copied into a new file, {lost};"
            f" the old one is {aside.name}"
        )
        log.warning("%s", self.mended)
        return fresh

    def _readable(self, why: str) -> sqlite3.Connection:
        """The existing file, for reading; an empty database in memory if there is none."""
        self._sealed, self.trouble = True, self._sentence(why)
        # If SQLite cannot create its files beside the database,
        # `immutable` reads the database alone.
        for options in ("mode=ro", _ALONE):
            try:
                database = _connect_to_read(self._path, options)
            except sqlite3.Error:
                continue
            try:
                database.execute(self._least).fetchone()
            except sqlite3.Error as error:
                why = str(error)
                database.close()
            else:
                if options == _ALONE and _size(_beside(self._path, "-wal")):
                    self.unread = (
                        f"{self._path} can be read only in part ({clean_line(why, 200)}): what was"
                        " written last may be missing"
                    )
                return database
        if _size(self._path):
            self.unread = f"{self._path} cannot be read ({clean_line(why, 200)})"
        return self._created(_connect(_MEMORY))

    def _opened_again(self) -> bool:
        try:
            fresh = self._writable()
        except (sqlite3.Error, OSError):
            return False
        self._sealed = False
        self._exchange(fresh)
        return True

    # ---- while it is open

    def _identity(self) -> tuple[int, int] | None:
        """Which file lies at the path; None if there is none, or
        this database is not of that file.
        """
        return None if self._sealed or self._path == _MEMORY else _inode(self._path)

    def _take_other_file(self) -> None:
        """Open the file that took the place of ours, or make it again, and add what ours had.

        Raises sqlite3.Error.
        """
        with closing(sqlite3.connect(_MEMORY)) as ours:
            # Before the new file is made: the files beside both have the same names.
            self.database.backup(ours)
            try:
                for suffix in _BESIDE:
                    # SQLite would read what is beside our file as a part of the new one.
                    if _inode(_beside(self._path, suffix)) == self._partners[suffix]:
                        _beside(self._path, suffix).unlink(missing_ok=True)
                fresh = self._writable()
            except OSError as error:
                raise sqlite3.OperationalError(str(error)) from error
            kept, _ = copy_rows(ours, fresh)
        self.mended = f"{self._path} was removed or replaced while it was open: its {kept} rows are written again"
        log.warning("%s", self.mended)
        self._exchange(fresh)

    def _repair(self, why: str) -> None:
        """Put another file in the place of ours, which is damaged. Raises sqlite3.Error."""
        self.database.close()
        try:
            with _alone(self._path):
                fresh = self._replaced(why)
        except (sqlite3.Error, OSError) as error:
            fresh = self._readable(str(error))
        self._exchange(fresh)

    def _exchange(self, fresh: sqlite3.Connection) -> None:
        self.database.close()
        self.renewed += 1
        self._use(fresh)

    def _use(self, database: sqlite3.Connection) -> None:
        """Work on this database from now on, and note which files belong to it."""
        self.database = database
        self._seen = self._identity()
        self._partners = {suffix: _inode(_beside(self._path, suffix)) for suffix in _BESIDE}

    def _sentence(self, why: str) -> str:
        return f"{self._path} cannot be written ({clean_line(why, 200)}): what happens now is not remembered"

    def _refused(self, why: str) -> None:
        self._tried = time.monotonic()
        text = self._sentence(why)
        if text != self.trouble:
            self.trouble = text
            log.warning("%s", text)


def _transact(database: sqlite3.Connection, work: Callable[[sqlite3.Connection], object]) -> None:
    with database:
        work(database)


def _connect(path: Path) -> sqlite3.Connection:
    # One thread at a time uses it, but opening is not done in the thread that goes on with it.
    return _with_any_text(sqlite3.connect(path, timeout=_OPEN_LIMIT, check_same_thread=False))


def _connect_to_read(path: Path, options: str = "mode=ro") -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{options}"
    return _with_any_text(
        sqlite3.connect(uri, uri=True, timeout=_BUSY_LIMIT, check_same_thread=False)
    )


def _with_any_text(database: sqlite3.Connection) -> sqlite3.Connection:
    """The same database; text that is no UTF-8 is read with replacement
    characters: an error would hide all other rows.
    """
    database.text_factory = partial(str, encoding="utf-8", errors="replace")
    return database


@contextmanager
def _alone(path: Path) -> Generator[None]:
    """Keep other consoles from opening or repairing the file
    meanwhile, as far as a lock can be made.
    """
    try:
        held = os.open(_beside(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield  # on a full or read-only disk nothing is repaired either
        return
    try:
        _lock(held)
        yield
    finally:
        os.close(held)


def _lock(held: int) -> None:
    deadline = time.monotonic() + _OPEN_LIMIT
    while time.monotonic() < deadline:
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.02)


def _inode(path: Path) -> tuple[int, int] | None:
    """Which file lies there; None if there is none."""
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


def _size(path: Path) -> int:
    """Bytes of the file; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _set_aside(path: Path) -> Path:
    """Rename the database with the files beside it, so that they still
    belong together; returns its new path.

    A console that has it open goes on in the renamed file, until it notices the new one.
    """
    with suppress(sqlite3.Error), closing(_connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    number = 1
    while (aside := _beside(path, f".old{number}")).exists():
        number += 1
    for suffix in ("", *_BESIDE):
        with suppress(FileNotFoundError):
            _beside(path, suffix).rename(_beside(aside, suffix))
    return aside


# ---- copying


def copy_rows(old: sqlite3.Connection, fresh: sqlite3.Connection) -> tuple[int, bool]:
    """Copy what can be read of all tables that both have, without rows that are
    there; (rows copied, nothing was unreadable).

    A table with a damaged page is read from its beginning, and from its end, up to the damage. Of
    rows whose text is no UTF-8, which SQLite does not notice, none is copied.
    """
    copied, whole = 0, True
    old.text_factory = _text_or_bytes
    for (table,) in fresh.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        try:
            columns, wanted = _columns_of(old, table), _columns_of(fresh, table)
        except sqlite3.Error:
            whole = False
            continue
        names = [name for name in wanted if name in columns]
        if not names or table.startswith("sqlite_"):
            continue
        fields = ", ".join(f'"{name}"' for name in names)
        key = [f'"{name}"' for name, part in wanted.items() if part] or ["rowid"]
        insert = f"INSERT OR IGNORE INTO {table} ({fields}) VALUES ({', '.join('?' * len(names))})"
        for direction in ("ASC", "DESC"):
            order = ", ".join(f"{one} {direction}" for one in key)
            query = f"SELECT {fields} FROM {table} ORDER BY {order}"
            count, complete = _copy_result(old, query, fresh, insert)
            copied += count
            if complete:
                break
            whole = False
    fresh.commit()
    return copied, whole


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _columns_of(database: sqlite3.Connection, table: str) -> dict[str, int]:
    """Column -> its place in the primary key, from 1; 0: not in it."""
    return {row[1]: row[5] for row in database.execute(f"PRAGMA table_info({table})")}


def _copy_result(
    old: sqlite3.Connection, query: str, fresh: sqlite3.Connection, insert: str
) -> tuple[int, bool]:
    """Insert the rows of the query up to the first that cannot be read;
    (rows inserted, all could be read).
    """
    copied, whole = 0, True
    reading = old.cursor()
    try:
        reading.execute(query)
        row = reading.fetchone()
    except sqlite3.Error:
        return copied, False
    while row is not None:
        if any(isinstance(value, bytes) for value in row):
            whole = False
        else:
            copied += fresh.execute(insert, row).rowcount
        try:
            row = reading.fetchone()
        except sqlite3.Error:
            return copied, False
    return copied, whole
