"""A fleet that a command listens to until its nodes have been heard and judged."""

import argparse
import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from rankdeck.cli import output
from rankdeck.cli.opening import open_for_command
from rankdeck.cli.spans import seconds_of_option
from rankdeck.following import wait_for_condition
from rankdeck.model.cluster import Cluster
from rankdeck.session import Session
from rankdeck.state.fleet import Fleet
from rankdeck.state.node import NodeState
from rankdeck.values import Value
from rankdeck_agent.rules.levels import Level

HEAR_LIMIT = 10.0
"""Seconds to wait for nodes if nothing is said."""
LOOK = 0.05
SECOND_SAMPLE = 4.0
"""Seconds until the growth of counters is known."""


@asynccontextmanager
async def open_listening(cluster: Cluster, options: argparse.Namespace) -> AsyncGenerator[Session]:
    """Open the session, and wait for the nodes: with `--wait` so many seconds at most until each
    was heard, else until each was heard or failed.
    """
    wait = 0.0 if options.wait is None else seconds_of_option(options, "wait")
    lister = cluster.can.scheduler or "the broker"
    known = f"{len(cluster.nodes)} nodes" if cluster.nodes else f"{lister} for its nodes"
    output.print_progress(f"{cluster.name}: asking {known} …")
    async with open_for_command(cluster, telemetry=True, brief=True) as session:
        if options.wait is None:
            await session.hearing.settle(HEAR_LIMIT * cluster.access.patience)
        else:
            await wait_for_condition(session.fleet.all_heard, wait)
        yield session


def troubles_of(session: Session) -> tuple[str, ...]:
    """What is wrong with the broker, the scheduler, the switches and
    this machine's clock; () if nothing.
    """
    told = (
        session.fleet.trouble,
        session.fleet.clock_trouble,
        *session.switches.troubles.values(),
        *session.queue.troubles(),
        f"{session.cluster.can.scheduler} has not answered yet" if session.fleet.awaited else "",
    )
    return tuple(filter(None, told))


class Verdict(Value):
    """The level of a cluster, and why no node of it is known ("" if some are)."""

    level: Level
    nothing: str = ""


def judge_states(
    states: Sequence[NodeState], troubles: Sequence[str], *, complete: bool
) -> Verdict:
    """The worst level of the nodes; to know none is unknown, and never well.

    `complete`: whether all nodes of the cluster are among those asked for; if
    not, the cluster is at least unknown.
    """
    if not states:
        why = troubles or ("name them under `nodes` of the cluster file",)
        return Verdict(Level.UNKNOWN, f"no node is known: {'; '.join(why)}")
    worst = max(state.health.level for state in states)
    return Verdict(worst if complete else max(worst, Level.UNKNOWN))


def lists_all_nodes(session: Session) -> bool:
    """Whether all nodes are known: the cluster file names them, or
    the scheduler has listed them.
    """
    fleet = session.fleet
    return not fleet.open or not (fleet.awaited or session.queue.trouble)


async def judge_fleet(fleet: Fleet, watch: float) -> None:
    """Judge every node by at least two samples, and for `watch` seconds.

    A problem in both samples counts as lasting, so that the command need not wait for a minute.
    """
    before = {state.name: state.samples for state in fleet.nodes()}
    began = time.monotonic()
    while (passed := time.monotonic() - began) < max(SECOND_SAMPLE, watch):
        waiting = (s for s in fleet.nodes() if not s.silent)
        if passed >= watch and all(s.samples > before[s.name] for s in waiting):
            break
        await asyncio.sleep(LOOK)
    fleet.compare_peers(SECOND_SAMPLE / 2)
    fleet.take_as_lasting()
    # The session judges the samples, which takes a moment.
    while fleet.behind:  # noqa: ASYNC110
        await asyncio.sleep(LOOK)
