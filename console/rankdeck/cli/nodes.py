"""`rankdeck nodes`: the nodes of the cluster file, and with `--live` what is heard of them."""

import argparse
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rankdeck.cli import choose, output
from rankdeck.cli.listening import judge_states, open_listening, troubles_of
from rankdeck.cli.opening import until_done
from rankdeck.cli.output import OK, TROUBLE
from rankdeck.cli.shapes import Shape, node_shape, scheduler_shapes
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.nodeset import fold_nodes
from rankdeck.state.node import NodeState


def run_nodes(options: argparse.Namespace, _open_console: object) -> int:
    """List the nodes of the file, with their inventory if requested; or
    make a cluster file from another list.
    """
    if options.imported:
        from rankdeck.cli.site_lists import import_nodes

        return import_nodes(options.imported, options.format)
    cluster = choose.choose_cluster(options.cluster)
    # If the file names no nodes, only those that Kubernetes knows can be listed.
    if cluster.nodes and not options.live:
        return _list(cluster, [node_shape(node) for node in cluster.nodes], options)
    return until_done(_live(cluster, options))


async def _live(cluster: Cluster, options: argparse.Namespace) -> int:
    async with open_listening(cluster, options) as session:
        states = {state.name: state for state in session.fleet.nodes()}
        found = cluster.nodes or tuple(Node(name=name) for name in states)
        shapes = [_live_shape(node, states) for node in found]
        views = {name: state.in_scheduler for name, state in states.items()}
        said = {name: view.lines for name, view in views.items() if view is not None}
        troubles = troubles_of(session)
        nothing = judge_states(tuple(states.values()), troubles, complete=True).nothing
        mute = [name for name, state in states.items() if not _has_spoken(state)]
    silent = f"{fold_nodes(mute)}: not heard" if mute else ""
    for trouble in filter(None, (nothing, silent) if nothing else (*troubles, silent)):
        output.print_progress(trouble)
    _list(cluster, shapes, options, said)
    return TROUBLE if len(mute) == len(states) else OK


def _has_spoken(state: NodeState) -> bool:
    """Whether anything is known of the node: by its agent, or by the scheduler."""
    return state.was_heard or state.in_scheduler is not None


def _live_shape(node: Node, states: dict[str, NodeState]) -> Shape:
    state = states.get(node.name)
    hello = state.hello if state else None
    shape = node_shape(node, hello.inventory if hello else {})
    return {**shape, **scheduler_shapes(state.in_scheduler if state else None)}


def _list(
    cluster: Cluster,
    shapes: Sequence[Shape],
    options: argparse.Namespace,
    said: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> int:
    """`said`: node -> what its scheduler says of it."""
    if options.json:
        output.say_object({"cluster": cluster.name, "nodes": list(shapes)})
        return output.OK
    keys = ("name", "address", "port", "slots", "gpus", "rdma")
    rows = ([str(shape[key]) for key in keys] for shape in shapes)
    output.say_table([key.upper() for key in keys], rows)
    for shape in shapes:
        inventory: dict[str, str] = shape["inventory"] or {}
        for key, value in sorted(inventory.items()):
            output.print_text(f"{shape['name']}: {key} = {value}")
        for line in said.get(shape["name"], ()):
            output.print_text(f"{shape['name']}: {line}")
    return output.OK
