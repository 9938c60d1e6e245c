"""Writes running jobs to the history: their state, their events, health and numbers of their nodes."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rankdeck.model.health import Level
from rankdeck.model.job import Followed, Job, NodeEvent
from rankdeck.state.fleet import Fleet
from rankdeck.state.fleet_history import PICTURED
from rankdeck.state.history import History, Turn
from rankdeck.state.node import NodeState
from rankdeck_agent.rules.summary import SUMMARY

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


MOST_NODES = 64
"""Nodes of a job whose numbers are kept."""
_FRAMES = 100
"""The numbers are written at least once a second, later each time a hundredth of the job's time has passed:
a minute has 60 rows, a week about 1,000."""
KEPT = 20_000
"""Events kept while the disk refuses writes; the nodes still have older ones."""


class JobRecorder:
    """Writes to the history, in batches."""

    def __init__(self, history: History, fleet: Fleet, cluster: str) -> None:
        self._history, self._fleet, self._cluster = history, fleet, cluster
        self._events: list[NodeEvent] = []
        self._told: dict[str, tuple[str, bool, bool]] = {}
        self._numbered: dict[str, float] = {}
        """Job -> when the numbers of its nodes were written last."""

    def take(self, event: Followed) -> None:
        """Remember an event of a supervisor until the next `save`."""
        if isinstance(event, NodeEvent) and isinstance(event.fields.get("seq"), int):
            self._events.append(event)

    def save(self, job: Job, now: float) -> None:
        """Write what is new, and the health of the job's nodes at each change of its state."""
        events, self._events = self._events, []
        if not self._history.add_events(events):
            self._events = events[-KEPT:]
        self._history.save(job)
        self._save_numbers(job, now)
        turn = (job.state.value, job.first_failure is not None, bool(job.stalled))
        if self._told.get(job.id) == turn:
            return
        if health := node_health(self._fleet, job):
            self._told[job.id] = turn
            self._history.add_health(job.id, now, {"turn": turn[0], "nodes": health})

    def _save_numbers(self, job: Job, now: float) -> None:
        """Write the numbers of its nodes, while it runs and where they are due."""
        if job.state.final or job.clock is not None:
            self._numbered.pop(job.id, None)
            return
        period = max(1.0, (now - job.created) / _FRAMES)
        if 0 <= now - self._numbered.get(job.id, 0.0) < period * 0.95:
            return
        if numbers := node_numbers(self._fleet, job):
            self._numbered[job.id] = now
            self._history.add_numbers(job.id, now, numbers)

    def news(self) -> tuple[Turn, ...]:
        """What other consoles wrote of the jobs of this cluster since the last call."""
        return self._history.news(self._cluster)

    def last_seen(self, job_id: str) -> dict[str, int]:
        """Node -> number of the last event in the history."""
        return self._history.last_seen(job_id)


def node_health(fleet: Fleet, job: Job) -> dict[str, Any]:
    """The health of each node of a job now, without nodes that have sent no telemetry."""
    found: dict[str, Any] = {}
    for name in job.nodes:
        if not fleet.knows(name) or fleet.node(name).heard_s() is None:
            continue
        node = fleet.node(name)
        found[name] = {
            "level": node.health.level.word,
            "heard_s": node.heard_s(),
            "reasons": [{**asdict(r), "level": r.level.word} for r in node.health.reasons],
            "values": _numbers(node),
            "simulated": list(node.simulated),
        }
    return found


def _numbers(node: NodeState) -> dict[str, dict[str, float]]:
    """Per device where a full sample is there, else the numbers of the health message."""
    if node.detailed:
        return {m: dict(node.current(m)) for m in _VALUES if node.current(m)}
    told = {m: node.summary(m) for m in _VALUES if m in SUMMARY}
    return {metric: {"": number} for metric, number in told.items() if number is not None}


def node_numbers(fleet: Fleet, job: Job) -> dict[str, Any]:
    """`{metrics, of, nodes, simulated}`: of each node that is heard one number a metric (see `fleet_history.PICTURED`).

    Of more than 64 nodes those that are not OK, and others evenly; `of` says how many there are, `simulated`
    which prefixes of metrics are made up on any of them. Empty where no node is heard.
    """
    names = [name for name in job.nodes if fleet.knows(name) and not fleet.node(name).silent]
    kept = chosen(names, [name for name in names if fleet.node(name).health.level > Level.OK])
    nodes = {
        name: [_short(fleet.node(name).summary(metric)) for metric in PICTURED] for name in kept
    }
    simulated = sorted({prefix for name in kept for prefix in fleet.node(name).simulated})
    about = {"metrics": list(PICTURED), "of": len(job.nodes), "simulated": simulated}
    return {**about, "nodes": nodes} if nodes else {}


def chosen(names: Sequence[str], odd: Sequence[str]) -> list[str]:
    """At most `MOST_NODES`, the odd ones first, in the order of the job."""
    first = odd[: MOST_NODES // 2] if len(names) > MOST_NODES else odd
    others = [name for name in names if name not in {*first}]
    step = max(-(-len(others) // max(MOST_NODES - len(first), 1)), 1)
    kept = {*first, *others[::step]}
    return [name for name in names if name in kept]


def troubled_nodes(job: Job) -> list[str]:
    """The nodes of which something was said, the first to fail among them, in the order of the job."""
    told = {note.node for note in job.node_notes}
    if job.first_failure is not None:
        told.add(job.first_failure.node)
    return [name for name in job.nodes if name in told]


def _short(value: float | None) -> float | None:
    """Four digits are enough for a plot."""
    return None if value is None else float(f"{value:.4g}")
