"""`rankdeck status` and `rankdeck nodes`."""

import argparse
from collections.abc import Sequence

from rankdeck.cli import choose, codes, output
from rankdeck.cli.opening import opened, until_done
from rankdeck.cli.shapes import Shape, health_shape, node_shape
from rankdeck.cli.verdict import of_level
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.health import Level
from rankdeck.state.fleet import NodeState
from rankdeck_agent.wire import METRICS

WAIT_LIMIT = 600.0
SHOWN = ("cpu.used", "mem.used", "gpu.used", "gpu.temp")
"""Columns of the table: the highest over the devices of a node."""


def status(options: argparse.Namespace, _open_console: object) -> int:
    """Say how every node is; the code is that of the worst."""
    return until_done(_status(choose.cluster(options.cluster), _wait(options), options))


async def _status(cluster: Cluster, wait: float, options: argparse.Namespace) -> int:
    states = await _heard(cluster, wait)
    if options.json:
        nodes = [state_shape(state) for state in states]
        output.say_object({"cluster": cluster.name, "nodes": nodes})
    else:
        output.say_table(
            ("NODE", "LEVEL", "HEARD", *map(str.upper, SHOWN), "WHY"), map(_row, states)
        )
    return of_level(max((state.health.level for state in states), default=Level.OK))


async def _heard(cluster: Cluster, wait: float) -> Sequence[NodeState]:
    """The nodes once each has spoken, or cannot, or the time is over."""
    output.progress(f"{cluster.name}: asking {len(cluster.nodes)} nodes …")
    async with opened(cluster, telemetry=True) as session:
        await session.settle(wait)
        return tuple(session.fleet.nodes())


def state_shape(state: NodeState) -> Shape:
    """One node of `status --json`."""
    heard = state.heard_s()
    return {
        "name": state.name,
        **health_shape(state.health),
        "heard_s": None if heard is None else round(heard, 3),
        "values": _values(state),
        "simulated": list(state.simulated),
    }


def _values(state: NodeState) -> dict[str, dict[str, float]]:
    """metric -> device -> number, of what is known now."""
    values: dict[str, dict[str, float]] = {}
    for metric in METRICS:
        read = {device: state.value(metric, device) for device in state.devices(metric)}
        known = {
            device: number for device, number in read.items() if number is not None
        }
        if known:
            values[metric] = known
    return values


def _row(state: NodeState) -> tuple[str, ...]:
    heard = state.heard_s()
    values = _values(state)
    numbers = (
        _highest(values.get(metric, {}), METRICS[metric].unit) for metric in SHOWN
    )
    why = "; ".join(reason.text for reason in state.health.reasons)
    made_up = f"SIMULATED: {', '.join(state.simulated)}" if state.simulated else ""
    words = " · ".join(filter(None, (why, made_up)))
    said = "never" if heard is None else f"{heard:.0f} s"
    return state.name, state.health.level.word, said, *numbers, words


def _highest(values: dict[str, float], unit: str) -> str:
    return f"{max(values.values()):.0f} {unit}" if values else "-"


def nodes(options: argparse.Namespace, _open_console: object) -> int:
    """List the nodes of the file, with what they say of themselves if asked."""
    cluster = choose.cluster(options.cluster)
    if not options.live:
        return _list(cluster, [node_shape(node) for node in cluster.nodes], options)
    return until_done(_live(cluster, _wait(options), options))


async def _live(cluster: Cluster, wait: float, options: argparse.Namespace) -> int:
    states = {state.name: state for state in await _heard(cluster, wait)}
    return _list(
        cluster, [_live_shape(node, states) for node in cluster.nodes], options
    )


def _live_shape(node: Node, states: dict[str, NodeState]) -> Shape:
    state = states.get(node.name)
    hello = state.hello if state else None
    return node_shape(node, hello.inventory if hello else {})


def _list(
    cluster: Cluster, shapes: Sequence[Shape], options: argparse.Namespace
) -> int:
    if options.json:
        output.say_object({"cluster": cluster.name, "nodes": list(shapes)})
        return codes.OK
    keys = ("name", "address", "port", "slots", "gpus", "rdma")
    rows = ([str(shape[key]) for key in keys] for shape in shapes)
    output.say_table([key.upper() for key in keys], rows)
    for shape in shapes:
        for key, value in sorted((shape["inventory"] or {}).items()):
            output.say(f"{shape['name']}: {key} = {value}")
    return codes.OK


def _wait(options: argparse.Namespace) -> float:
    if not 0 <= options.wait <= WAIT_LIMIT:
        raise codes.UsageError(f"--wait: seconds, at most {WAIT_LIMIT:.0f}")
    return float(options.wait)
