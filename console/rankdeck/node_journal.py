"""What happened on nodes, kept in the history and told to the jobs that it concerns."""

import time

from rankdeck.model.health import Ack
from rankdeck.state.fleet import Fleet
from rankdeck.state.history import History
from rankdeck.state.history_thread import HistoryThread
from rankdeck.state.job_recorder import JobRecorder, NodeNotes
from rankdeck.state.jobs import Jobs
from rankdeck.state.node_event_log import SharedEventLog


class NodeJournal:
    """Writes node events and acknowledgements, and takes those that other consoles wrote."""

    def __init__(
        self, log: SharedEventLog, history: HistoryThread, known: tuple[Fleet, Jobs, JobRecorder]
    ) -> None:
        self._log, self._history = log, history
        self._fleet, jobs, self._recorder = known
        self._notes = NodeNotes(jobs, self._fleet, history, log)

    async def acknowledge(self, *acks: Ack) -> None:
        """Store these acknowledgements of problems; an `until` in the past withdraws one.

        Raises HistoryError.
        """

        def store(_: History) -> None:
            for ack in acks:
                self._log.acknowledge(ack)

        await self._history.ask(store)
        await self._exchange(time.time())

    async def look(self) -> None:
        """Save new node events, and add node events to the jobs that they concern.

        One call at a time.
        """
        now = time.time()
        await self._exchange(now)
        for job in await self._notes.notice(now):
            self._recorder.save(job, now)

    async def _exchange(self, now: float) -> None:
        """Save new node events, and take the acknowledgements if any console changed them."""
        fresh = self._fleet.event_log.take()
        acks = await self._history.ask(lambda _: self._log.exchange(fresh, now))
        if acks is not None:
            self._fleet.set_acks(acks)
