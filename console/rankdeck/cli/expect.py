"""`rankdeck expect`: learn from the nodes what the cluster file should expect of them."""

import argparse
from pathlib import Path

from rankdeck.cli import choose, codes, output
from rankdeck.cli.opening import until_done
from rankdeck.cli.status import heard, wait_of
from rankdeck.config.expectblock import block, write_block
from rankdeck.model.cluster import Cluster
from rankdeck.rules.expectations import Learnt, Seen, learn
from rankdeck.state.node import NodeState


def expect(options: argparse.Namespace, _open_console: object) -> int:
    """Print what most nodes have in common, or put it into the cluster file."""
    cluster = choose.cluster(options.cluster)
    return until_done(_expect(cluster, wait_of(options), options))


async def _expect(cluster: Cluster, wait: float, options: argparse.Namespace) -> int:
    async with heard(cluster, wait) as session:
        fleet = session.fleet
        told = [_seen(node) for node in fleet.nodes() if node.heard_s() is not None]
    learnt = learn(told)
    if not told:
        output.progress("no node was heard: there is nothing to learn from")
        return codes.TROUBLE
    if len(told) < len(cluster.nodes):
        output.progress(f"only {len(told)} of {len(cluster.nodes)} nodes were heard")
    _say(learnt, options)
    return codes.OK


def _seen(node: NodeState) -> Seen:
    inventory = node.hello.inventory if node.hello else dict[str, str]()
    return Seen(node.name, inventory, dict(node.values), node.simulated)


def _say(learnt: Learnt, options: argparse.Namespace) -> None:
    file = ""
    if options.write is not None:
        path = Path(options.write or choose.cluster(options.cluster).file)
        write_block(path, learnt.values, learnt.notes)
        file = str(path)
        output.progress(f"written to {path}")
    if options.json:
        output.say_object(
            {"expect": dict(learnt.values), "notes": dict(learnt.notes), "file": file}
        )
    else:
        output.say(block(learnt.values, learnt.notes).rstrip("\n"))
