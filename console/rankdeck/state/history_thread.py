"""The history of an open session, in a thread of its own: a disk that hangs,
or a locked file, holds up no screen.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rankdeck.model.health import Ack, Occurrence
from rankdeck.model.job import Job
from rankdeck.model.job_events import NodeEvent
from rankdeck.model.plan import Plan
from rankdeck.state.history import History, HistoryState
from rankdeck.state.node_event_log import RECALLED, SharedEventLog
from rankdeck.values import Value

T = TypeVar("T")
KEPT = 20_000
"""Events kept in memory while writing fails; the nodes still have older ones."""
_MOST_ROWS = 1000
"""Most rows of health and of numbers that wait to be written."""
Row = tuple[str, float, Mapping[str, Any]]
"""(job, epoch seconds, JSON object)."""


@dataclass(slots=True)
class DueWrites:
    """What is to be written next.

    `forgotten` goes first: a job may be saved anew under the same id.
    """

    forgotten: set[str] = field(default_factory=set[str])
    events: deque[NodeEvent] = field(default_factory=lambda: deque(maxlen=KEPT))
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    plans: dict[str, Plan] = field(default_factory=dict[str, Plan])
    """Job -> its plan as it was carried out."""
    health: deque[Row] = field(default_factory=lambda: deque(maxlen=_MOST_ROWS))
    numbers: deque[Row] = field(default_factory=lambda: deque(maxlen=_MOST_ROWS))

    def forget(self, job_id: str) -> None:
        """Delete this job, and write nothing that was due of it."""
        self.jobs.pop(job_id, None)
        self.plans.pop(job_id, None)
        for rows in (self.health, self.numbers):
            kept = [row for row in rows if row[0] != job_id]
            rows.clear()
            rows.extend(kept)
        events = [event for event in self.events if event.job != job_id]
        self.events.clear()
        self.events.extend(events)
        self.forgotten.add(job_id)

    def write_to(self, history: History) -> None:
        """Write it; events that could not be written stay due, and
        `History` itself keeps such jobs.
        """
        history.forget(*self.forgotten)
        if history.add_events(list(self.events)):
            self.events.clear()
        for job in self.jobs.values():
            history.save(job)
        history.save_due()
        for plan in self.plans.values():
            history.plan(plan)
        for job_id, at, body in self.health:
            history.add_health(job_id, at, body)
        for job_id, at, body in self.numbers:
            history.add_numbers(job_id, at, body)


class KeptRecords(Value):
    """What earlier sessions left of one cluster."""

    jobs: tuple[Job, ...]
    """The newest jobs, newest first."""
    seen: Mapping[str, Mapping[str, int]]
    """Job -> node -> number of its last saved event."""
    events: tuple[Occurrence, ...]
    """The newest node events, in the order of saving."""
    acks: tuple[Ack, ...]
    """The acknowledgements that are valid now."""


class HistoryThread:
    """The history of one session.

    All that reads or writes the file runs in one thread, one piece after the other.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._thread = ThreadPoolExecutor(1, "history")
        self._turn = asyncio.Lock()
        self.due = DueWrites()
        """What the next `write` writes."""

    @property
    def state(self) -> HistoryState:
        """What is wrong with the file."""
        return self._history.state

    def nodes_of(self, cluster: str) -> SharedEventLog:
        """The event log of this cluster's nodes, in the same file; use it only within `ask`."""
        return self._history.nodes_of(cluster)

    async def ask(self, work: Callable[[History], T]) -> T:
        """The result of `work`, which runs in the thread of the history."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, work, self._history)

    async def write(self) -> None:
        """Write all that is due.

        What cannot be written is tried again at the next call; `state` says why.
        """
        async with self._turn:
            writes, self.due = self.due, DueWrites()
            await self.ask(writes.write_to)
            self.due.events = deque((*writes.events, *self.due.events), maxlen=KEPT)

    async def read_kept(self, cluster: str, now: float) -> KeptRecords:
        """Remove what is too old or too much, and read what is left of
        this cluster; `now` is epoch seconds.
        """

        def read(history: History) -> KeptRecords:
            history.prune(cluster)
            jobs = history.load(cluster)
            log = history.nodes_of(cluster)
            log.forget_old_acks()
            seen = {job.id: history.last_seen(job.id) for job in jobs}
            return KeptRecords(jobs, seen, log.recent(RECALLED), log.acks(now))

        return await self.ask(read)

    async def close(self) -> None:
        """Write what is due and close the file."""
        await self.write()
        await self.ask(History.close)
        self._thread.shutdown()


@asynccontextmanager
async def open_history(path: Path) -> AsyncGenerator[HistoryThread]:
    """The history in this file; a file that is large, damaged or locked takes its time."""
    history = HistoryThread(await asyncio.to_thread(History, path))
    try:
        yield history
    finally:
        await history.close()
