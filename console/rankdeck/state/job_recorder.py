"""What is written down of a job while it runs: its state, its events, how its nodes were."""

from dataclasses import asdict
from typing import Any

from rankdeck.model.job import Followed, Job, NodeEvent
from rankdeck.state.fleet import Fleet
from rankdeck.state.history import History, Turn

_VALUES = (
    "cpu.used",
    "mem.used",
    "gpu.used",
    "gpu.temp",
    "gpu.ecc_uncorrected",
    "rdma.up",
    "rdma.errors",
)
"""Metrics kept with the health of a node."""


KEPT = 20_000
"""Events that wait for a disk that takes nothing; what is older the nodes still have."""


class JobRecorder:
    """Writes to the history, in batches."""

    def __init__(self, history: History, fleet: Fleet, cluster: str) -> None:
        self._history, self._fleet, self._cluster = history, fleet, cluster
        self._events: list[NodeEvent] = []
        self._told: dict[str, tuple[str, bool, bool]] = {}

    def take(self, event: Followed) -> None:
        """Remember an event of a supervisor until the next `save`."""
        if isinstance(event, NodeEvent) and isinstance(event.fields.get("seq"), int):
            self._events.append(event)

    def save(self, job: Job, now: float) -> None:
        """Write what is new; the health of the job's nodes at every turn it takes."""
        events, self._events = self._events, []
        if not self._history.add_events(events):
            self._events = events[-KEPT:]
        self._history.save(job)
        turn = (job.state.value, job.first_failure is not None, bool(job.stalled))
        if self._told.get(job.id) == turn:
            return
        if health := node_health(self._fleet, job):
            self._told[job.id] = turn
            self._history.add_health(job.id, now, {"turn": turn[0], "nodes": health})

    def news(self) -> tuple[Turn, ...]:
        """What other consoles wrote of the jobs of this cluster since the last call."""
        return self._history.news(self._cluster)

    def last_seen(self, job_id: str) -> dict[str, int]:
        """Per node the number of the last event that was written down."""
        return self._history.last_seen(job_id)


def node_health(fleet: Fleet, job: Job) -> dict[str, Any]:
    """How each node of a job is now; without those that telemetry has not heard."""
    found: dict[str, Any] = {}
    for name in job.nodes:
        if not fleet.knows(name) or fleet.node(name).heard_s() is None:
            continue
        node = fleet.node(name)
        found[name] = {
            "level": node.health.level.word,
            "heard_s": node.heard_s(),
            "reasons": [{**asdict(r), "level": r.level.word} for r in node.health.reasons],
            "values": {m: dict(node.current(m)) for m in _VALUES if node.current(m)},
            "simulated": list(node.simulated),
        }
    return found
