"""The history in its thread: what is due is written in order, a locked file
holds up nobody, nothing is lost by it.
"""

import asyncio
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rankdeck.model.health import Occurrence
from rankdeck.state.history import History
from rankdeck.state.history_thread import HistoryThread, open_history
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level
from tests.support.node_events import node_event
from tests.unit.test_history import JOB, PLAN

EVENTS = [node_event(JOB.id, "n1", "trouble", 1.0, seq=n, text=f"{n}") for n in range(3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Another program holds the lock for writing."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


async def test_the_loop_goes_on_while_the_file_is_locked_and_all_is_written_later(
    path: Path,
) -> None:
    async with open_history(path) as thread:
        with locked(path):
            thread.due.jobs[JOB.id] = JOB
            thread.due.events.extend(EVENTS)
            writing = asyncio.create_task(thread.write())
            # If the loop waited for the file itself, it would come back
            # only after the write has given up.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not writing.done()
            await writing
            assert "cannot be written" in thread.state.trouble
        # After a failure it is tried once a second, and at the end.
        while thread.state.trouble:
            await asyncio.sleep(0.1)
            await thread.write()
    with History(path) as history:
        assert [job.id for job in history.load("c")] == [JOB.id]
        assert [event.seq for event in history.events(JOB.id, PLAN)] == [0, 1, 2]


async def test_node_events_that_could_not_be_written_are_written_later(path: Path) -> None:
    first, second = (Occurrence(at, "n", "event", Level.BAD, "a", "", "x") for at in (1.0, 2.0))
    async with open_history(path) as thread:
        log = thread.nodes_of("c")
        with locked(path):
            await thread.ask(lambda _: log.add([first]))
            assert thread.state.trouble
        while thread.state.trouble:
            await asyncio.sleep(0.1)
            await thread.ask(lambda _: log.add([]))
        await thread.ask(lambda _: log.add([second]))
    with History(path) as history:
        assert history.nodes_of("c").recent(9) == (first, second)


async def test_a_job_that_was_forgotten_can_be_saved_anew_in_the_same_write(path: Path) -> None:
    found = replace(JOB, plan=replace(PLAN, name="whole"))
    async with open_history(path) as thread:
        thread.due.jobs[JOB.id] = JOB
        thread.due.events.extend(EVENTS)
        await thread.write()
        thread.due.forget(JOB.id)
        thread.due.jobs[JOB.id] = found
    with History(path) as history:
        (job,) = history.load("c")
        assert (job.plan.name, history.events(JOB.id, PLAN)) == ("whole", ())


async def test_what_is_due_at_the_end_is_written(path: Path) -> None:
    thread = HistoryThread(History(path))
    thread.due.jobs[JOB.id] = JOB
    await thread.close()
    with History(path) as history:
        assert history.knows(JOB.id)
