"""What nodes tell again of a job that was restored: taken in at once, so that the job never looks younger than it was."""

from collections.abc import Mapping, Sequence
from math import inf

from rankdeck.model.job import Job, NodeEvent
from rankdeck.state.job_events import forget
from rankdeck.state.record import NodeRecord, Record

MOST = 100_000
"""Events that are held back of one node."""


class Retold:
    """Written by `Jobs` alone."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], float] = {}
        """Job and node -> the last event that is part of what was restored."""
        self._held: dict[tuple[str, str], list[NodeEvent]] = {}

    def expect(self, job: Job, seen: Mapping[str, int]) -> None:
        """Hold back what is part of this job already; `seen` has the last event per node."""
        nothing = inf if job.state.final else -1
        for node in job.plan.nodes:
            self._known[job.id, node.node] = seen.get(node.node, nothing)
            self._held.pop((job.id, node.node), None)

    def due(self, record: Record, node: NodeRecord, event: NodeEvent) -> Sequence[NodeEvent]:
        """The events to take in now: none while the node tells what is known."""
        seq = event.fields.get("seq")
        if not node.restored or not isinstance(seq, int):
            return (event,)
        key = (record.plan.job, node.name)
        if seq == 0:
            self._held[key] = []
        elif key not in self._held:
            return (event,)
        held = self._held[key]
        held.append(event)
        whole = seq >= self._known.get(key, -1) or event.kind == "closed"
        if not whole and len(held) < MOST:
            return ()
        forget(record, node)
        return self._held.pop(key)
