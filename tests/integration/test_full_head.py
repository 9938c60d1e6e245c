"""The disk of the head takes nothing: what is there is read, what is not kept is said."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.tinydisk import TinyDisk, tiny_disk
from tests.unit.test_history import JOB

from rankdeck.state.history import History

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
CLUSTER = """\
cluster: c
nodes:
  - {name: n1, address: 127.0.0.1, port: 1}
"""
ACK = ("ack", "n1", "node.silent", "--for", "4h", "--why", "known")
ROOT = Path(__file__).resolve().parents[2]
SAVES = """
import sys
from pathlib import Path
from rankdeck.state.history import History
from tests.unit.test_history import JOB
with History(Path(sys.argv[1])) as history:
    for _ in sys.stdin:
        history.save(JOB)
        print(len(history.load("c")), history.state.trouble, flush=True)
"""


class Head:
    """The command line, with its state on the tiny disk."""

    def __init__(self, disk: TinyDisk, folder: Path) -> None:
        self.disk, self._file = disk, folder / "c.yaml"
        self._file.write_text(CLUSTER)
        self.env = {
            **os.environ,
            "XDG_STATE_HOME": str(disk.path),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    @property
    def state(self) -> Path:
        return self.disk.seen / "rankdeck/console"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = (sys.executable, "-m", "rankdeck", "-c", str(self._file), *words)
        done = self.disk.run(*argv, env=self.env)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def remember(self, folder: Path) -> None:
        """Put a job into the history, as an earlier console did."""
        with History(folder / "before.db") as history:
            history.save(JOB)
        with sqlite3.connect(folder / "before.db") as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()
        self.state.mkdir(parents=True)
        (self.state / "history.db").write_bytes((folder / "before.db").read_bytes())


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    with tiny_disk(tmp_path / "disk") as disk:
        one = Head(disk, tmp_path)
        one.remember(tmp_path)
        yield one


def full(disk: TinyDisk) -> None:
    disk.fill()


def read_only(disk: TinyDisk) -> None:
    disk.remount("ro")


def no_inodes(disk: TinyDisk) -> None:
    disk.remount("nr_inodes=64")
    number = 0
    while True:
        try:
            (disk.seen / f"file.{number}").touch()
        except OSError:
            return
        number += 1


@pytest.mark.left_out("read_only", "no_inodes")
@pytest.mark.parametrize("ill", [full, read_only, no_inodes])
def test_the_jobs_of_before_are_listed_and_one_line_says_what_is_wrong(head: Head, ill) -> None:
    ill(head.disk)

    done = head.run("jobs", "--all")

    assert (done.returncode, "j-1" in done.stdout) == (0, True), done.stderr
    said = [line for line in done.stderr.splitlines() if "cannot be written" in line]
    assert len(said) == 1, done.stderr


@pytest.mark.parametrize("ill", [full, read_only])
def test_nothing_is_acknowledged_where_it_cannot_be_kept(head: Head, ill) -> None:
    ill(head.disk)

    done = head.run(*ACK)

    assert done.returncode == 1
    assert "nothing was acknowledged" in done.stderr
    assert "cannot be written" in done.stderr
    assert done.stdout == ""


def test_the_same_is_acknowledged_when_there_is_space_again(head: Head) -> None:
    head.disk.fill()
    assert head.run(*ACK).returncode == 1
    head.disk.free()

    done = head.run(*ACK)

    assert (done.returncode, "node.silent" in done.stdout) == (0, True), done.stderr


def test_a_full_disk_without_any_history_is_said_and_no_traceback(head: Head) -> None:
    (head.state / "history.db").unlink()
    head.disk.fill()

    done = head.run("jobs", "--all")

    assert done.returncode == 0, done.stderr
    assert "cannot be written" in done.stderr


@pytest.mark.left_out
def test_a_broken_history_on_a_full_disk_is_kept_aside(head: Head) -> None:
    (head.state / "history.db").write_bytes(b"this is no database" * 100)
    head.disk.fill()

    done = head.run("jobs", "--all")

    assert "cannot be written" in done.stderr
    assert (head.state / "history.db.old1").read_bytes().startswith(b"this is no")


@pytest.mark.left_out
def test_an_open_history_writes_again_by_itself(head: Head) -> None:
    head.disk.fill()
    words = (sys.executable, "-c", SAVES, str(head.disk.path / "rankdeck/console/history.db"))
    pipe = subprocess.PIPE
    with subprocess.Popen(
        head.disk.words(*words),
        env={**head.env, "PYTHONPATH": str(ROOT)},
        stdin=pipe,
        stdout=pipe,
        text=True,
    ) as console:
        assert console.stdin
        assert console.stdout

        def save() -> str:
            console.stdin.write("\n")
            console.stdin.flush()
            return console.stdout.readline()

        assert "cannot be written" in save()
        head.disk.free()
        while "cannot be written" in save():
            pass
        console.stdin.close()

    assert "j-1" in head.run("jobs", "--all").stdout
