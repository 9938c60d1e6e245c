"""Plain jobs: the ranks themselves, started by the supervisors, and nothing between them."""

from collections.abc import Mapping
from dataclasses import replace

from rankdeck.backends.layout import Layout, Place, interface_env
from rankdeck_agent.wire import NodePlan, ProcessPlan


def plan_plain(layout: Layout) -> tuple[NodePlan, ...]:
    """As many processes per node as it has ranks."""
    return tuple(_node(layout, place) for place in layout.places)


def _node(layout: Layout, place: Place) -> NodePlan:
    processes = tuple(rank_process(layout, place, i, {}) for i in range(len(place.ranks)))
    return replace(layout.node_plan(place, interface_env(place.node)), processes=processes)


def rank_process(layout: Layout, place: Place, local: int, extra: Mapping[str, str]) -> ProcessPlan:
    """A rank that knows its number and its place; the supervisor puts the shim before it."""
    rank = place.ranks[local]
    env = {
        "RANKDECK_RANK": str(rank),
        "RANK": str(rank),
        "WORLD_SIZE": str(layout.world_size),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(len(place.ranks)),
        **extra,
    }
    argv = layout.wrapped()
    return ProcessPlan(f"rank {rank}", argv, env, layout.spec.workdir, rank)
