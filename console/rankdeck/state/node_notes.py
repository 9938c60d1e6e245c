"""What happens on the nodes of jobs, from the history of nodes to the jobs: once a second."""

from collections.abc import Iterable

from rankdeck.model.health import Ack, Level, Occurrence
from rankdeck.model.job import Job, NodeNote
from rankdeck.model.text import clean
from rankdeck.rules.job_news import (
    MARGIN,
    SENTENCE,
    NodeHistory,
    concerns,
    is_made_up,
    is_telling,
    node_notes,
)
from rankdeck.state.fleet import Fleet
from rankdeck.state.jobs import Jobs
from rankdeck.state.node_history import SharedEventLog

LATE = 5.0
"""Seconds by which news of a node may come late."""
KEEP = 500
"""Occurrences remembered for a job; of more, the oldest go."""


class NodeNotes:
    """Reads what all consoles wrote down of nodes; gives it to `Jobs`."""

    def __init__(self, jobs: Jobs, fleet: Fleet, log: SharedEventLog) -> None:
        self._jobs, self._fleet, self._log = jobs, fleet, log
        self._told: dict[str, list[Occurrence]] = {}
        """Job that is watched -> what was told of its nodes."""
        self._row = 0
        """The last row that was read of the history of nodes."""

    def notice(self, now: float) -> list[Job]:
        """Look once; gives the jobs of which something new was noted."""
        watched = [job for job in self._jobs.all() if _is_watched(job, now)]
        self._told = {j.id: self._told[j.id] for j in watched if j.id in self._told}
        if not watched:
            return []
        self._read(watched)
        acks = self._log.acks(now) if any(self._told.values()) else ()
        return [job for one in watched if (job := self._judge(one, acks, now))]

    def _read(self, watched: Iterable[Job]) -> None:
        """Give the newest rows to the jobs that they concern; a new job gets its past too."""
        fresh = self._log.after(self._row) if self._told else ()
        newest = max((row for row, _ in fresh), default=self._row)
        for job in watched:
            rows = fresh
            if job.id not in self._told:
                rows = self._log.since(job.created - MARGIN)
                newest = max(newest, *(row for row, _ in rows), 0)
            mine = [one for _, one in rows if concerns(job, one)]
            # A row that came between two questions is in both answers.
            known = dict.fromkeys((*self._told.get(job.id, ()), *mine))
            self._told[job.id] = list(known)[-KEEP:]
        self._row = newest

    def _judge(self, job: Job, acks: tuple[Ack, ...], now: float) -> Job | None:
        standing = self._standing(job, now)
        told = self._told.get(job.id, [])
        if not (told or standing or job.node_notes):
            return None
        nodes = [self._fleet.node(n) for n in job.nodes if self._fleet.knows(n)]
        heard = NodeHistory(
            told=told,
            standing=standing,
            acks=acks,
            first_heard={n.name: n.first_heard for n in nodes if n.first_heard},
            simulated={n.name: n.simulated for n in nodes},
        )
        notes = node_notes(job, heard)
        if notes == job.node_notes:
            return None
        self._jobs.set_node_notes(job.id, notes)
        return self._jobs.job(job.id)

    def _standing(self, job: Job, now: float) -> list[NodeNote]:
        """What is bad on its nodes now, as it was judged last."""
        if job.ended is not None:
            return []
        return [
            NodeNote(
                at=min(now - (self._fleet.node(name).held_s(reason) or 0.0), now),
                node=name,
                level=reason.level,
                check=reason.check,
                device=reason.device,
                text=clean(reason.text.split(" · ")[0], SENTENCE),
                before=True,
                simulated=is_made_up(reason.check, self._fleet.node(name).simulated),
            )
            for name in job.nodes
            for reason in self._fleet.reasons_of(name)
            if reason.level is Level.BAD
            and reason.acknowledged_until is None
            and is_telling(reason.check, reason.level)
        ]


def _is_watched(job: Job, now: float) -> bool:
    """Whether something may still be noted of this job."""
    if job.clock is not None:
        return False
    return job.ended is None or now <= job.ended + MARGIN + LATE
