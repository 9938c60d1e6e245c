"""A history that is damaged, removed, locked or of another version: nothing is
lost that can be read, and it is said.
"""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rankdeck.state import history as module
from rankdeck.state.database import Store
from rankdeck.state.history import History
from rankdeck.values import replace
from tests.support.effort import effort
from tests.support.locked_file import locked
from tests.support.polling import wait_until
from tests.unit.test_history import JOB, PLAN


def job(number: int):
    name = f"j-{number}"
    return replace(JOB, id=name, plan=replace(PLAN, job=name), created=float(number))


def ids(history: History) -> set[str]:
    return {one.id for one in history.load("c")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


def fill(path: Path, many: int) -> set[str]:
    with History(path) as history:
        for number in range(many):
            history.save(job(number))
        return ids(history)


def scribble(path: Path, first: int, last: int) -> None:
    """Overwrite these pages of the file with bytes that mean nothing."""
    with path.open("r+b") as file:
        file.seek(first * 4096)
        file.write(random.Random(7).randbytes((last - first) * 4096))


def test_damaged_pages_are_said_and_what_can_be_read_is_kept(path: Path) -> None:
    before = fill(path, 400)
    pages = path.stat().st_size // 4096
    scribble(path, pages // 2, pages // 2 + 4)

    with History(path) as history:
        after = ids(history)
        assert "rows were copied into a new file" in history.state.mended
    assert after <= before
    assert len(after) > 100
    assert path.with_name("history.db.old1").exists()
    with History(path) as history:
        assert (ids(history), history.state.mended, history.state.unread) == (after, "", "")


def test_pages_that_are_damaged_while_it_is_open_are_found_and_repaired(path: Path) -> None:
    fill(path, 400)
    with History(path) as history:
        pages = path.stat().st_size // 4096
        scribble(path, 1, pages)
        # A first page that is whole: the file is opened, and only its rows cannot be read.
        found = ids(history)
        history.save(job(1000))

        assert "j-1000" in ids(history)
        assert history.state.mended or history.state.unread or len(found) == 400


def test_text_that_is_no_utf8_hides_no_other_row(path: Path) -> None:
    """A page that holds only the text of a row can be damaged, and SQLite does not notice it."""
    before = fill(path, 4)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE job SET record = CAST(x'7b22ff227d' AS TEXT) WHERE id = 'j-1'")
    with History(path) as history:
        assert ids(history) == before - {"j-1"}
        assert "j-1" in history.state.unread


@pytest.mark.parametrize("beside", [False, True])
def test_what_is_removed_while_it_is_open_is_written_again(path: Path, beside: bool) -> None:
    before = fill(path, 4)
    with History(path) as history:
        assert ids(history) == before
        path.unlink()
        for suffix in ("-wal", "-shm") if beside else ():
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        history.save(job(4))
        assert "was removed or replaced while it was open" in history.state.mended
    with History(path) as again:
        assert ids(again) == before | {"j-4"}


def test_another_history_in_its_place_gets_what_ours_had(path: Path) -> None:
    other = path.with_name("other.db")
    with History(other) as history:
        history.save(job(100))
    before = fill(path, 4)
    with History(path) as history:
        history.save(
            job(4)
        )  # it lies in the file beside it, which must not become a part of the other
        other.rename(path)
        history.save(job(5))
    with History(path) as again:
        assert ids(again) == before | {"j-4", "j-5", "j-100"}


def test_two_versions_on_one_home_lose_nothing(path: Path) -> None:
    """Version 2 cannot use the tables of version 1 and puts the file aside,
    while a console of version 1 has it open.
    """
    with History(path) as older:
        for number in range(3):
            older.save(job(number))
        newer = Store(path, module.SCHEMA, 2, module._LEAST)
        newer.close()
        older.save(job(3))
        kept = {
            row[0]
            for file in path.parent.glob("history.db*")
            if not file.name.endswith((".lock", "-wal", "-shm"))
            for row in sqlite3.connect(file).execute("SELECT id FROM job")
        }
    assert kept == {"j-0", "j-1", "j-2", "j-3"}


def test_an_older_file_is_migrated_in_place(path: Path) -> None:
    before = fill(path, 4)
    schema = module.SCHEMA.replace("PRAGMA user_version = 1", "PRAGMA user_version = 2")
    steps = {1: "ALTER TABLE job ADD COLUMN note TEXT NOT NULL DEFAULT ''"}
    newer = Store(path, schema, 2, module._LEAST, steps)

    assert {name for (name,) in newer.rows("SELECT id FROM job WHERE note = ''")} == before
    assert (newer.mended, newer.trouble) == ("", "")
    newer.close()
    assert not path.with_name("history.db.old1").exists()


def test_a_file_that_another_process_has_locked_is_said_and_written_when_it_is_free(
    path: Path,
) -> None:
    before = fill(path, 4)
    with locked(path) as holder, History(path) as history:
        assert ids(history) == before
        assert "what was written last may be missing" in history.state.unread
        assert effort(lambda: history.save(job(4))) < 40
        assert "locked" in history.state.trouble
        holder.communicate()
        wait_until(
            lambda: history.save_due() or not history.state.trouble, what="a file that is free"
        )
        assert ids(history) == before | {"j-4"}
        assert {turn.id for turn in history.news("c")} >= before


def test_a_folder_that_takes_no_lock_is_no_hindrance(path: Path) -> None:
    path.with_name("history.db.lock").mkdir()
    assert fill(path, 2) == {"j-0", "j-1"}
