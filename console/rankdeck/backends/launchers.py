"""The launchers that need no program of their own on the first node: plain, torchrun, TensorFlow."""

import json
from collections.abc import Mapping
from dataclasses import replace

from rankdeck.backends.placement import Placement, RankPlace, interface_env
from rankdeck.backends.tokens import PORT_TOKEN, SHIM, port_token
from rankdeck_agent.wire import RUN_TOKEN, NodePlan, ProcessPlan


def plan_plain(layout: Placement) -> tuple[NodePlan, ...]:
    """As many processes per node as it has ranks."""
    return tuple(_plain_node(layout, place) for place in layout.places)


def _plain_node(layout: Placement, place: RankPlace) -> NodePlan:
    processes = tuple(rank_process(layout, place, i, {}) for i in range(len(place.ranks)))
    return replace(layout.node_plan(place, interface_env(place.node)), processes=processes)


def rank_process(
    layout: Placement, place: RankPlace, local: int, extra: Mapping[str, str]
) -> ProcessPlan:
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


def plan_torch(layout: Placement) -> tuple[NodePlan, ...]:
    """A torchrun on every node."""
    return tuple(_torch_node(layout, place) for place in layout.places)


def _torch_node(layout: Placement, place: RankPlace) -> NodePlan:
    process = ProcessPlan(
        name="torchrun",
        argv=layout.wrapped(torchrun_argv(layout, place)),
        env={"TORCHELASTIC_ERROR_FILE": f"{RUN_TOKEN}/torch-error.json"},
        cwd=layout.spec.workdir,
    )
    return replace(layout.node_plan(place, interface_env(place.node)), processes=(process,))


def torchrun_argv(layout: Placement, place: RankPlace) -> tuple[str, ...]:
    """The torchrun command of one node: static, so that rank and node are what the plan says."""
    torch = layout.spec.torch
    local = (f"--local-addr={place.node.address}",) if place.node.address else ()
    return (
        torch.path,
        f"--nnodes={len(layout.places)}",
        f"--nproc-per-node={len(place.ranks)}",
        f"--node-rank={place.index}",
        f"--master-addr={layout.places[0].node.host}",
        f"--master-port={torch.port or PORT_TOKEN}",
        *local,
        "--max-restarts=0",
        *torch.args,
        "--no-python",
        SHIM,
        *script_command(layout.spec.command),
    )


def script_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """`train.py …` made a command, as torchrun without --no-python would."""
    return ("python3", "-u", *command) if command[0].endswith(".py") else command


def plan_tensorflow(layout: Placement) -> tuple[NodePlan, ...]:
    """One worker per node; each knows the same list of workers and its own place in it."""
    workers = worker_addresses(layout)
    return tuple(_tensorflow_node(layout, place, workers) for place in layout.places)


def worker_addresses(layout: Placement) -> list[str]:
    """`host:port` of every worker; nodes that share an address get ports one after another."""
    taken: dict[str, int] = {}
    workers: list[str] = []
    for place in layout.places:
        host = place.node.host
        shown = f"[{host}]" if ":" in host else host
        workers.append(f"{shown}:{port_token(taken.get(host, 0))}")
        taken[host] = taken.get(host, 0) + 1
    return workers


def _tensorflow_node(layout: Placement, place: RankPlace, workers: list[str]) -> NodePlan:
    task = {"type": "worker", "index": place.index}
    config = json.dumps({"cluster": {"worker": workers}, "task": task})
    process = rank_process(layout, place, 0, {"TF_CONFIG": config})
    return replace(layout.node_plan(place, interface_env(place.node)), processes=(process,))
