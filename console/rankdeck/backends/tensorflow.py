"""TensorFlow jobs: one rank per node, told by TF_CONFIG who the others are."""

import json
from dataclasses import replace

from rankdeck.backends.layout import Layout, Place, interface_env
from rankdeck.backends.plain import rank_process
from rankdeck.backends.tokens import port_token
from rankdeck_agent.wire import NodePlan


def plan_tensorflow(layout: Layout) -> tuple[NodePlan, ...]:
    """One worker per node; each knows the same list of workers and its own place in it."""
    workers = worker_addresses(layout)
    return tuple(_node(layout, place, workers) for place in layout.places)


def worker_addresses(layout: Layout) -> list[str]:
    """`host:port` of every worker; nodes that share an address get ports one after another."""
    taken: dict[str, int] = {}
    workers: list[str] = []
    for place in layout.places:
        host = place.node.host
        shown = f"[{host}]" if ":" in host else host
        workers.append(f"{shown}:{port_token(taken.get(host, 0))}")
        taken[host] = taken.get(host, 0) + 1
    return workers


def _node(layout: Layout, place: Place, workers: list[str]) -> NodePlan:
    task = {"type": "worker", "index": place.index}
    config = json.dumps({"cluster": {"worker": workers}, "task": task})
    process = rank_process(layout, place, 0, {"TF_CONFIG": config})
    return replace(layout.node_plan(place, interface_env(place.node)), processes=(process,))
