"""Writes running jobs to the history, with health and numbers of their
nodes; adds notes about nodes to jobs.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rankdeck.model.health import Ack, Occurrence
from rankdeck.model.job import Job, NodeNote
from rankdeck.model.job_events import NodeEvent
from rankdeck.model.rank_output import Followed
from rankdeck.model.safe_text import clean_line
from rankdeck.rules.job_news import (
    MARGIN,
    SENTENCE,
    NodeHistory,
    event_concerns_job,
    is_made_up,
    is_telling,
    node_notes,
)
from rankdeck.state.black_box import NodeBox, missing_numbers
from rankdeck.state.fleet import Fleet
from rankdeck.state.fleet_history import PICTURED
from rankdeck.state.history import WrittenJob
from rankdeck.state.history_thread import HistoryThread
from rankdeck.state.jobs import Jobs
from rankdeck.state.node import NodeState
from rankdeck.state.node_event_log import SharedEventLog
from rankdeck.values import Value, value_table
from rankdeck_agent.rules.levels import SUMMARY, Level

_VALUES = (
    "cpu.used",
    "mem.used",
    "gpu.used",
    "gpu.temp",
    "gpu.ecc_uncorrected",
    "rdma.up",
    "rdma.errors",
)
"""Metrics saved with the health of a node."""


MOST_NODES = 64
"""Most nodes of a job whose numbers are saved."""
_FRAMES = 100
"""Numbers are saved once a second at first, later each time 1/_FRAMES of the job's run time has
passed: 60 rows for a minute, about 1,000 for a week.
"""


class JobRecorder:
    """Notes what is to be written of jobs, and writes it in batches."""

    def __init__(self, history: HistoryThread, fleet: Fleet, cluster: str) -> None:
        self._history, self._fleet, self._cluster = history, fleet, cluster
        self._told: dict[str, tuple[str, bool, bool]] = {}
        self._numbered: dict[str, float] = {}
        """Job -> when the numbers of its nodes were last saved, epoch seconds."""

    def take(self, event: Followed) -> None:
        """Note an event of a supervisor for the next `write`; other items are ignored."""
        if isinstance(event, NodeEvent) and event.seq is not None:
            self._history.due.events.append(event)

    def save(self, job: Job, now: float) -> None:
        """Note the job for the next `write`, with due numbers and, if its state
        has changed, the health of its nodes.
        """
        self._history.due.jobs[job.id] = job
        self._save_numbers(job, now)
        turn = (job.state.value, job.first_failure is not None, bool(job.stalled))
        if self._told.get(job.id) == turn:
            return
        if health := node_health(self._fleet, job):
            self._told[job.id] = turn
            self._history.due.health.append((job.id, now, {"turn": turn[0], "nodes": health}))

    def _save_numbers(self, job: Job, now: float) -> None:
        """Save the numbers of its nodes if it runs and they are due."""
        if job.state.final or job.clock is not None:
            self._numbered.pop(job.id, None)
            return
        period = max(1.0, (now - job.created) / _FRAMES)
        if 0 <= now - self._numbered.get(job.id, 0.0) < period * 0.95:
            return
        if numbers := node_numbers(self._fleet, job):
            self._numbered[job.id] = now
            self._history.due.numbers.append((job.id, now, numbers))

    async def fill_numbers(self, job: Job, boxes: Iterable[NodeBox]) -> None:
        """Note the numbers of black boxes from times in which no console heard the node."""
        kept = await self._history.ask(lambda history: history.numbers(job.id))
        rows = ((job.id, at, body) for at, body in missing_numbers(job, boxes, kept))
        self._history.due.numbers.extend(rows)

    def forget(self, job_id: str) -> None:
        """Delete a job from the history at the next `write`."""
        self._history.due.forget(job_id)

    async def write(self) -> None:
        """Write all that was noted."""
        await self._history.write()

    async def news(self) -> tuple[WrittenJob, ...]:
        """What other consoles wrote about the jobs of this cluster since the last call."""
        return await self._history.ask(lambda history: history.news(self._cluster))

    async def last_seen(self, job_id: str) -> dict[str, int]:
        """Node -> number of the job's last event in the history."""
        return await self._history.ask(lambda history: history.last_seen(job_id))


def node_health(fleet: Fleet, job: Job) -> dict[str, Any]:
    """Node -> its present health as JSON, for the nodes of a job; without
    nodes that have sent no telemetry.
    """
    found: dict[str, Any] = {}
    for name in job.nodes:
        if not fleet.knows(name) or fleet.node(name).heard_s() is None:
            continue
        node = fleet.node(name)
        found[name] = {
            "level": node.health.level.word,
            "heard_s": node.heard_s(),
            "reasons": [{**value_table(r), "level": r.level.word} for r in node.health.reasons],
            "values": _numbers(node),
            "simulated": list(node.simulated),
        }
    return found


def _numbers(node: NodeState) -> dict[str, dict[str, float]]:
    """Numbers per device from a full sample, or else those of the health message."""
    if node.detailed:
        return {m: dict(node.current(m)) for m in _VALUES if node.current(m)}
    numbers = {m: node.summary(m) for m in _VALUES if m in SUMMARY}
    return {metric: {"": number} for metric, number in numbers.items() if number is not None}


def node_numbers(fleet: Fleet, job: Job) -> dict[str, Any]:
    """`{metrics, of, nodes, simulated}`: for each heard node, one number
    per metric of `fleet_history.PICTURED`.

    If there are more than 64, the nodes that are not OK and an even choice of the others. `of` is
    the number of the job's nodes, `simulated` the prefixes of metrics that are simulated on any of
    them. Empty if no node is heard.
    """
    names = [name for name in job.nodes if fleet.knows(name) and not fleet.node(name).silent]
    kept = choose_recorded(
        names, [name for name in names if fleet.node(name).health.level > Level.OK]
    )
    nodes = {
        name: [_short(fleet.node(name).summary(metric)) for metric in PICTURED] for name in kept
    }
    simulated = sorted({prefix for name in kept for prefix in fleet.node(name).simulated})
    about = {"metrics": list(PICTURED), "of": len(job.nodes), "simulated": simulated}
    return {**about, "nodes": nodes} if nodes else {}


def choose_recorded(names: Sequence[str], odd: Sequence[str]) -> list[str]:
    """At most `MOST_NODES` of `names`, in their order: the `odd` ones (at
    most half), an even choice of others.
    """
    first = odd[: MOST_NODES // 2] if len(names) > MOST_NODES else odd
    others = [name for name in names if name not in {*first}]
    step = max(-(-len(others) // max(MOST_NODES - len(first), 1)), 1)
    kept = {*first, *others[::step]}
    return [name for name in names if name in kept]


def troubled_nodes(job: Job) -> list[str]:
    """The nodes with notes and the node that failed first, in the order of the job."""
    names = {note.node for note in job.node_notes}
    if job.first_failure is not None:
        names.add(job.first_failure.node)
    return [name for name in job.nodes if name in names]


def _short(value: float | None) -> float | None:
    """`value` rounded to four digits, which is enough for a plot."""
    return None if value is None else float(f"{value:.4g}")


LATE = 5.0
"""Seconds by which an event of a node may arrive late."""
KEEP_PER_JOB = 500
"""Most events remembered per job."""


class NodeNotes:
    """Makes notes on jobs from the node events that all consoles
    saved, and passes them to `Jobs`.
    """

    def __init__(
        self, jobs: Jobs, fleet: Fleet, history: HistoryThread, log: SharedEventLog
    ) -> None:
        self._jobs, self._fleet, self._history, self._log = jobs, fleet, history, log
        self._told: dict[str, list[Occurrence]] = {}
        """Job -> the events about its nodes that were read."""
        self._row = 0
        """Number of the last row that was read from the event log."""

    async def notice(self, now: float) -> list[Job]:
        """Read new events; returns the jobs whose notes changed. One call at a time."""
        watched = [job for job in self._jobs.all() if _is_watched(job, now)]
        self._told = {j.id: self._told[j.id] for j in watched if j.id in self._told}
        if not watched:
            return []
        since = {job.id: job.created - MARGIN for job in watched if job.id not in self._told}
        row, told = self._row, bool(self._told)
        read = await self._history.ask(
            lambda _: _Read(
                self._log.after(row) if told else (),
                {job: self._log.since(at) for job, at in since.items()},
                self._log.acks(now),
            )
        )
        self._give(watched, read)
        # A job may have been forgotten meanwhile.
        known = (self._jobs.job(one.id) for one in watched if self._jobs.knows(one.id))
        return [job for one in known if (job := self._judge(one, read.acks, now))]

    def _give(self, watched: Iterable[Job], read: "_Read") -> None:
        """Give new rows to the jobs that they concern; a new job also gets the
        rows since shortly before its start.
        """
        for job in watched:
            mine = [
                one
                for _, one in read.of_new.get(job.id, read.fresh)
                if event_concerns_job(job, one)
            ]
            # A row written between two queries is in both answers.
            known = dict.fromkeys((*self._told.get(job.id, ()), *mine))
            self._told[job.id] = list(known)[-KEEP_PER_JOB:]
        rows = (*read.fresh, *(row for found in read.of_new.values() for row in found))
        self._row = max((self._row, *(number for number, _ in rows)))

    def _judge(self, job: Job, acks: tuple[Ack, ...], now: float) -> Job | None:
        present = self._present(job, now)
        events = self._told.get(job.id, [])
        if not (events or present or job.node_notes):
            return None
        nodes = [self._fleet.node(n) for n in job.nodes if self._fleet.knows(n)]
        history = NodeHistory(
            now=now,
            events=events,
            present=present,
            acks=acks,
            first_heard={n.name: n.first_heard for n in nodes if n.first_heard},
            simulated={n.name: n.simulated for n in nodes},
        )
        notes = node_notes(job, history)
        if notes == job.node_notes:
            return None
        self._jobs.set_node_notes(job.id, notes)
        return self._jobs.job(job.id)

    def _present(self, job: Job, now: float) -> list[NodeNote]:
        """The present problems of the job's nodes, according to the last
        judgement; [] once it has ended.
        """
        if job.ended is not None:
            return []
        return [
            NodeNote(
                at=min(now - (self._fleet.node(name).held_s(reason) or 0.0), now),
                node=name,
                level=reason.level,
                check=reason.check,
                device=reason.device,
                text=clean_line(reason.sentence.seen, SENTENCE),
                before=True,
                simulated=is_made_up(reason.check, self._fleet.node(name).simulated),
            )
            for name in job.nodes
            for reason in self._fleet.reasons_of(name)
            if reason.level is Level.BAD
            and reason.acknowledged_until is None
            and is_telling(reason.check, reason.level)
        ]


class _Read(Value):
    """One reading of the event log; events with the numbers of their rows."""

    fresh: "_Rows"
    """Written since the last reading."""
    of_new: "Mapping[str, _Rows]"
    """Job that was not watched before -> the events since shortly before its start."""
    acks: tuple[Ack, ...]


_Rows = tuple[tuple[int, Occurrence], ...]


def _is_watched(job: Job, now: float) -> bool:
    """Whether this job may still get notes."""
    return job.ended is None or now <= job.ended + MARGIN + LATE
