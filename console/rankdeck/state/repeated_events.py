"""Holds back what a node sends again of a job that was restored from the history."""

from collections.abc import Mapping, Sequence
from math import inf

from rankdeck.model.job import Job
from rankdeck.model.job_events import NodeEvent
from rankdeck.state.job_events import forget_reports
from rankdeck.state.record import JobRecord, NodeRecord
from rankdeck_agent.wire.job_events import NodeClosed

MOST = 100_000
"""Most events of one node and job that are held back."""


class RepeatedEvents:
    """Holds back events of a restored job that a node sends again, until it sends a new one."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], float] = {}
        """(job, node) -> number of the last event that the restored job includes."""
        self._held: dict[tuple[str, str], list[NodeEvent]] = {}

    def expect(self, job: Job, seen: Mapping[str, int]) -> None:
        """Hold back events that this job already includes; `seen` is
        node -> number of the last one.
        """
        nothing = inf if job.state.final else -1
        for node in job.plan.nodes:
            self._known[job.id, node.node] = seen.get(node.node, nothing)
            self._held.pop((job.id, node.node), None)

    def due(self, record: JobRecord, node: NodeRecord, event: NodeEvent) -> Sequence[NodeEvent]:
        """The events to apply now: none while the node repeats known
        ones, then all that were held back.
        """
        seq = event.seq
        if not node.restored or seq is None:
            return (event,)
        key = (record.plan.job, node.name)
        if seq == 0:
            self._held[key] = []
        elif key not in self._held:
            return (event,)
        held = self._held[key]
        held.append(event)
        whole = seq >= self._known.get(key, -1) or isinstance(event.body, NodeClosed)
        if not whole and len(held) < MOST:
            return ()
        forget_reports(record, node)
        return self._held.pop(key)
