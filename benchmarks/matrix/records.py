"""What the head remembers: versions, damage, locks, removed files,
wrong clocks, floods, and a year of use.
"""

import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.locked_file import locked

from benchmarks.matrix.model import Group, Row, Tally
from benchmarks.matrix.sites import Sites
from rankdeck.model.health import Ack, Occurrence
from rankdeck.model.job import Job, RankState
from rankdeck.model.job_events import NodeEvent
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State
from rankdeck.state import history as history_module
from rankdeck.state.database import Store
from rankdeck.state.history import FIRST_BYTES, KEEP, History
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import NodePlan
from rankdeck_agent.wire.job_events import Trouble

CLUSTER, NODE = "c", "n1"
FEW, MANY = 4, 400
"""Jobs in a history: in a file of some pages, and in one of hundreds."""
PAGE = 4096
DAY = 86400.0
WRITES = """
import sys
from pathlib import Path
from benchmarks.matrix.records import job
from rankdeck.state.history import History
with History(Path(sys.argv[1])) as history:
    for number in range(1000, 100000):
        history.save(job(number))
        print(number, flush=True)
"""


@dataclass
class Records:
    """A history on disk, what was saved in it, and what was found wrong."""

    path: Path
    saved: set[str] = field(default_factory=set[str])
    wrong: list[str] = field(default_factory=list[str])
    said: str = ""
    """What a console said about the file."""
    excused: bool = False
    """Whether jobs lay on pages that were destroyed."""

    def fill(self, many: int) -> None:
        """Save so many jobs."""
        with History(self.path) as history:
            for number in range(many):
                self.save(history, number)

    def save(self, history: History, number: int) -> None:
        """Save one more job."""
        history.save(job(number))
        self.saved.add(f"j-{number}")

    def expect(self, what: bool, otherwise: str) -> None:
        """Note a statement that is not true."""
        if not what:
            self.wrong.append(otherwise)


Harm = Callable[[Records], None]


def job(number: int) -> Job:
    """A job of one rank that has ended."""
    name = f"j-{number}"
    plan = Plan(
        job=name, name="j", cluster=CLUSTER, backend="ssh", nodes=(NodePlan(name, NODE, (0,)),)
    )
    rank = RankState(rank=0, node=NODE, state=State.DONE, exit_code=0, started=1.0, ended=2.0)
    return Job(id=name, name="j", cluster=CLUSTER, plan=plan, state=State.DONE, ranks=(rank,), created=float(number), ended=2.0)  # fmt: skip


def ids(history: History) -> set[str]:
    return {one.id for one in history.load(CLUSTER)}


def played(harm: Harm, many: int = FEW) -> Callable[[Sites], Tally]:
    """A row: fill a history, harm it, and look at what a new console has and says."""

    def run(_: Sites) -> Tally:
        with tempfile.TemporaryDirectory() as folder:
            records = Records(Path(folder) / "history.db")
            records.fill(many)
            harm(records)
            began = time.monotonic()
            with History(records.path) as history:
                found = ids(history)
                said = " ".join(
                    (
                        records.said,
                        history.state.mended,
                        history.state.unread,
                        history.state.trouble,
                    )
                )
            seconds = time.monotonic() - began
            lost = len(records.saved - found)
            if lost and records.excused:
                records.expect(
                    "could not be read" in said,
                    f"{lost} jobs are gone, and nothing says so: {said}",
                )
                lost = 0
            records.expect(
                not found - records.saved, f"jobs that nobody saved: {found - records.saved}"
            )
            size = records.path.stat().st_size
            note = f"{len(found)} jobs, {size / 1e6:.1f} MB"
            return Tally(lost=lost, wrong=tuple(records.wrong), seconds=seconds, note=note)

    return run


# ---- versions, damage, files that go away --------------------------------------------------


def set_version(records: Records) -> None:
    with sqlite3.connect(records.path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with History(records.path) as history:
        records.said = history.state.trouble
        records.expect(
            "newer" in history.state.trouble, f"of a newer version: {history.state.trouble}"
        )
    with sqlite3.connect(records.path) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        records.expect(version == 99, "an older console has changed the file of a newer one")
        database.execute(f"PRAGMA user_version = {history_module.VERSION}")
    database.close()


def set_aside(records: Records) -> None:
    """A version that cannot use the tables puts the file aside, while a console has it open."""
    with History(records.path) as older:
        records.save(older, 1000)
        other = Store(
            records.path,
            history_module.SCHEMA.replace(f"= {history_module.VERSION}", "= 2"),
            2,
            "SELECT 1",
        )
        other.close()
        with sqlite3.connect(records.path) as database:
            database.execute(f"PRAGMA user_version = {history_module.VERSION}")
        database.close()
        records.save(older, 1001)


def scribbled(first: float, last: float, byte: bytes = b"") -> Harm:
    """Destroys the pages from one share of the file to another."""

    def harm(records: Records) -> None:
        size = records.path.stat().st_size
        begin, end = (int(size * share) // PAGE * PAGE for share in (first, last))
        with records.path.open("r+b") as file:
            file.seek(begin)
            file.write(byte * (end - begin) or random.Random(1).randbytes(end - begin))
        records.excused = True

    return harm


def cut(records: Records) -> None:
    with records.path.open("r+b") as file:
        file.truncate(records.path.stat().st_size * 2 // 3)
    records.excused = True


def removed(*suffixes: str) -> Harm:
    """Removes these files while a console has them open."""

    def harm(records: Records) -> None:
        with History(records.path) as history:
            records.save(history, 1000)
            for suffix in suffixes:
                records.path.with_name(records.path.name + suffix).unlink(missing_ok=True)
            records.save(history, 1001)
            records.expect(
                "removed" in history.state.mended, f"of a removed file: {history.state.mended}"
            )

    return harm


def exchanged(records: Records) -> None:
    """Puts another history in its place, while a console has it open."""
    other = Records(records.path.with_name("other.db"))
    with History(other.path) as history:
        other.save(history, 2000)
    with History(records.path) as history:
        records.save(history, 1000)
        other.path.rename(records.path)
        records.saved |= other.saved
        records.save(history, 1001)


# ---- other processes -----------------------------------------------------------------------


def kept_locked(records: Records) -> None:
    with locked(records.path) as holder, History(records.path) as history:
        records.expect(
            "locked" in history.state.trouble, f"of a locked file: {history.state.trouble}"
        )
        records.expect(bool(ids(history)) or bool(history.state.unread), "no jobs, and not a word")
        records.save(history, 1000)
        holder.communicate()
        deadline = time.monotonic() + 30
        while history.state.trouble and time.monotonic() < deadline:
            time.sleep(0.1)
            history.save_due()


def killed(records: Records) -> None:
    """kill -9 in the middle of writing."""
    argv = [sys.executable, "-c", WRITES, str(records.path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        for _ in range(50):
            records.saved.add(f"j-{int(writer.stdout.readline())}")
        writer.send_signal(signal.SIGKILL)
        records.saved |= {f"j-{int(line)}" for line in writer.stdout if line.endswith("\n")}
    with History(records.path) as history:
        # The last one may have been written before it was printed.
        extra = ids(history) - records.saved
        records.expect(len(extra) <= 1, f"more than was written: {extra}")
        records.saved |= extra


def together(records: Records) -> None:
    with History(records.path) as one, History(records.path) as two:
        for number in range(1000, 1100):
            records.save(one if number % 2 else two, number)


# ---- clocks, floods, a year ----------------------------------------------------------------


def clock_off(days: float) -> Harm:
    """The head's clock is wrong for a while."""

    def harm(records: Records) -> None:
        now = time.time()
        wrong = now + days * DAY
        with History(records.path) as history:
            log = history.nodes_of(CLUSTER)
            log.acknowledge(Ack(NODE, "a", now + 100 * DAY, "me", "why", "", Level.BAD))
            for at, text in ((now - 5, "before"), (wrong, "meanwhile"), (now + 5, "after")):
                log.forget_old_acks()
                log.exchange([Occurrence(at, NODE, "event", Level.BAD, "a", "", text)], at)
                history.prune(CLUSTER)
            told = [one.text for one in log.recent(9)]
            records.expect(told == ["before", "meanwhile", "after"], f"events kept: {told}")
            records.expect(len(log.acks(now)) == 1, "an acknowledgement of 100 days is gone")

    return harm


def flooded(records: Records) -> None:
    """A node sends 130 MB of events for one job."""
    with History(records.path) as history:
        running = replace(job(1000), state=State.RUNNING)
        history.save(running)
        body = Trouble("x" * 900)
        for begin in range(0, 130_000, 1000):
            events = [
                NodeEvent("j-1000", NODE, 1.0, body, seq) for seq in range(begin, begin + 1000)
            ]
            history.add_events(events)
        records.save(history, 1000)
    size = records.path.stat().st_size
    records.expect(size < 3 * FIRST_BYTES, f"{size / 1e6:.0f} MB from one node of one job")


def year(records: Records) -> None:
    """20 jobs a day for a year, each with 40 events and health; a console is opened each day."""
    for day in range(365):
        with History(records.path) as history:
            history.prune(CLUSTER)
            for number in range(20):
                name = f"j-{10_000 + day * 20 + number}"
                events = [
                    NodeEvent(name, NODE, 1.0, Trouble(f"event {seq} of a job"), seq)
                    for seq in range(40)
                ]
                history.add_events(events)
                history.add_health(name, 1.0, {"turn": "running", "nodes": {NODE: {"level": "OK"}}})
                records.save(history, 10_000 + day * 20 + number)
    with History(records.path) as history:
        history.prune(CLUSTER)
    newest = sorted(records.saved, key=lambda name: -int(name[2:]))
    records.saved = set(newest[:KEEP])
    size = records.path.stat().st_size
    records.expect(size < 32e6, f"{size / 1e6:.0f} MB after a year")


HARMS: Mapping[str, tuple[str, Callable[[Sites], Tally]]] = {
    "version.newer": ("a newer Rankdeck has written the history", played(set_version)),
    "version.other": (
        "another version puts the history aside while a console has it open",
        played(set_aside),
    ),
    "damage.header": (
        "the first page of the history is destroyed",
        played(scribbled(0, 0.02), MANY),
    ),
    "damage.middle": ("some pages in its middle are destroyed", played(scribbled(0.5, 0.55), MANY)),
    "damage.end": ("its last pages are destroyed", played(scribbled(0.9, 1), MANY)),
    "damage.zeros": (
        "pages of it are zeros, as after a power failure",
        played(scribbled(0.3, 0.4, b"\0"), MANY),
    ),
    "damage.whole": ("all but its first page is destroyed", played(scribbled(0.01, 1), MANY)),
    "damage.cut": ("a third of it is cut off", played(cut, MANY)),
    "removed.file": ("the history is removed while a console has it open", played(removed(""))),
    "removed.all": ("it is removed with the files beside it", played(removed("", "-wal", "-shm"))),
    "removed.exchanged": ("another history is put in its place", played(exchanged)),
    "locked": ("another process has locked it", played(kept_locked)),
    "killed": ("`kill -9` of a console that writes it", played(killed)),
    "together": ("two consoles write it at once", played(together)),
    **{
        f"clock.{days:+d}d": (
            f"the head's clock is {days:+d} days off for a while",
            played(clock_off(days)),
        )
        for days in (-400, -1, 1, 400)
    },
    "flood": ("a node sends 130 MB of events for one job", played(flooded)),
    "year": ("20 jobs a day for a year", played(year)),
}
"""Row -> what it does, and how."""


def rows() -> Iterable[Row]:
    """A row for each harm."""
    for name, (does, run) in HARMS.items():
        yield Row(
            name=f"records.{name}",
            group=Group.RECORDS,
            does=does,
            run=run,
            short=name not in ("year", "flood"),
        )


ROWS = tuple(rows())
