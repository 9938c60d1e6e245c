"""`rankdeck ack`, `silence` and `expect`: acknowledged problems, and what nodes should have."""

import argparse
import getpass
import time
from pathlib import Path

from rankdeck.cli import choose, output
from rankdeck.cli.opening import until_done
from rankdeck.cli.status import heard, wait_of
from rankdeck.config.clusters import block, write_block
from rankdeck.config.document import suggest
from rankdeck.config.paths import state_folder
from rankdeck.model.cluster import Cluster
from rankdeck.model.health import Ack, seconds_of
from rankdeck.model.text import clean
from rankdeck.rules.expectations import Learnt, Seen, learn
from rankdeck.state.history import History
from rankdeck.state.node import NodeState
from rankdeck_agent.rules.explain import check_names, is_check

WORDS = 200


def ack(options: argparse.Namespace, _open_console: object) -> int:
    """List a reason without counting it, until it gets worse or the time is over."""
    if not is_check(options.check) and not options.off:
        hint = suggest(options.check, check_names())
        raise output.UsageError(
            f"no check `{options.check}`{hint or '; `rankdeck health` names them'}"
        )
    return _keep(options, options.check, options.device)


def silence(options: argparse.Namespace, _open_console: object) -> int:
    """Count no reason of these nodes until the time is over."""
    return _keep(options, "", "")


def _keep(options: argparse.Namespace, check: str, device: str) -> int:
    cluster = choose.cluster(options.cluster)
    nodes = choose.nodes(cluster, options.nodes)
    now = time.time()
    until = 0.0 if options.off else now + span(options.limit)
    who, why = getpass.getuser(), clean(options.why, WORDS)
    made = [Ack(node, check, until, who, why, device) for node in nodes]
    with History(state_folder() / "history.db") as history:
        log = history.nodes_of(cluster.name)
        for one in made:
            log.acknowledge(one)
        kept = log.acks(now)
    if options.json:
        output.say_object({"cluster": cluster.name, "acknowledged": [_shape(one) for one in kept]})
    elif not kept:
        output.say("nothing is acknowledged")
    for one in kept if not options.json else ():
        what = one.check + (f" {one.device}" if one.device else "") or "everything"
        said = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.until))
        output.say(f"{one.node}: {what} until {said}, {one.words}")
    return output.OK


def _shape(one: Ack) -> dict[str, object]:
    return {
        "node": one.node, "check": one.check, "device": one.device, "until": one.until,
        "who": one.who, "why": one.why,
    }  # fmt: skip


def span(text: str) -> float:
    """Seconds of `30m`, `4h`, `2d`; raises UsageError."""
    try:
        return seconds_of(text)
    except ValueError as error:
        raise output.UsageError(f"--for: {error}") from error


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
        return output.TROUBLE
    if len(told) < len(cluster.nodes):
        output.progress(f"only {len(told)} of {len(cluster.nodes)} nodes were heard")
    _say(learnt, options)
    return output.OK


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
