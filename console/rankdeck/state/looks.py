"""What the nodes of a job say that its ranks do: the newest looks are kept with it."""

from collections import deque
from collections.abc import Mapping

from rankdeck.model.activity import Activity
from rankdeck.model.job import NodeEvent
from rankdeck.state.record import NodeRecord, Record

KEPT = 12
"""Looks at a rank that are kept."""
_SAME = 0.5
"""Seconds between two stamps of one look, where the clock of the node was measured anew."""


def looked(record: Record, node: NodeRecord, event: NodeEvent) -> None:
    """Take in one look of a node at those of its ranks that run."""
    looks: Mapping[int, Activity] = event.fields.get("looks", {})
    for rank, activity in looks.items():
        state = record.ranks.get(rank)
        if state is None or state.state.final:
            continue
        if record.plan.keeper(state.node) != node.name:
            continue
        kept = record.looks.setdefault(rank, deque(maxlen=KEPT))
        # A follower that connects again tells looks that are known.
        if not kept or activity.at > kept[-1].at + _SAME:
            kept.append(activity)
