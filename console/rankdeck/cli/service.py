"""`rankdeck drain` and `resume`: nodes out of Slurm's service and back, after the exact command was agreed to."""

import argparse
from dataclasses import asdict
from typing import Any

from rankdeck.cli import choose, output
from rankdeck.cli.opening import opened, typed, until_done
from rankdeck.errors import RankdeckError
from rankdeck.model.cluster import Cluster
from rankdeck.model.slurm_cluster import ServiceChange, ServiceOrder


def drain(options: argparse.Namespace, _open_console: object) -> int:
    """Take nodes out of service; trouble where one was left alone."""
    return _serve("drain", options, why=options.why)


def resume(options: argparse.Namespace, _open_console: object) -> int:
    """Give nodes back; trouble where one was left alone."""
    return _serve("resume", options, anyway=options.anyway)


def _serve(do: str, options: argparse.Namespace, *, why: str = "", anyway: bool = False) -> int:
    cluster = choose.cluster(options.cluster)
    nodes = choose.nodes(cluster, options.nodes)
    order = ServiceOrder(do=do, nodes=nodes, why=why, anyway=anyway)
    return until_done(_carry_out(cluster, order, options))


async def _carry_out(cluster: Cluster, order: ServiceOrder, options: argparse.Namespace) -> int:
    async with opened(cluster) as session:
        change = await session.service(order)
        if change.line and not change.error and not options.dry_run:
            await _agree(order, change, options)
            change = await session.service(order, change.line)
    if options.json:
        output.say_object(shape(order, change))
    else:
        _say(order, change)
    if change.error:
        raise RankdeckError(change.error)
    return output.TROUBLE if change.left_alone else output.OK


async def _agree(order: ServiceOrder, change: ServiceChange, options: argparse.Namespace) -> None:
    """Have the operator type what is meant; raises UsageError where that was not done."""
    if options.yes:
        return
    _tell_left(change)
    question = f"{change.line}\nType {change.word} to {order.do} it: "
    if await typed(question) != change.word:
        raise output.UsageError(f"not run: {change.line} (`--yes` runs it without a question)")


def _say(order: ServiceOrder, change: ServiceChange) -> None:
    _tell_left(change)
    if change.line:
        output.say(change.line)
    if change.said:
        output.say(f"Slurm: {change.said}")
    for node in change.nodes if change.done else ():
        output.say(f"{node}: {change.now.get(node, 'not known')}")
    if not change.nodes and not change.error:
        output.progress(f"nothing to {order.do}")


def _tell_left(change: ServiceChange) -> None:
    for node, why in change.left_alone.items():
        output.progress(f"{node} is left alone: {why}")


def shape(order: ServiceOrder, change: ServiceChange) -> dict[str, Any]:
    """`drain --json` and `resume --json`."""
    return {"do": order.do, **asdict(change), "nodes": list(change.nodes)}
