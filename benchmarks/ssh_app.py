"""Brings up the nodes of a cluster file, from nothing: `python -m
benchmarks.ssh_app FILE [agents]`.

Logs in to every node, runs `true` there and keeps all connections until the last one stands; or,
with `agents`, opens the cluster as the console does, until every node's agent was heard, says on
standard error how far it is, and on standard output as JSON what it took, see `be_heard`.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from benchmarks.measure import resident_of
from rankdeck.config.clusters import read_cluster
from rankdeck.model.cluster import Cluster
from rankdeck.opening import open_cluster_session
from rankdeck.remote.shell import run_program
from rankdeck.remote.ssh import Connections
from rankdeck.session import Session

LIMIT = 1200.0
STEADY = 20.0


async def come_up(cluster: Cluster) -> int:
    """Connect to all nodes; returns how many. Raises NodeError if one fails."""
    names = [node.name for node in cluster.nodes]
    async with Connections(cluster) as connections:
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(run_program(connections, name, ("true",), limit=LIMIT))
        return sum(map(connections.connected, names))


async def be_heard(cluster: Cluster) -> dict[str, float]:
    """Open the cluster until every agent is heard; prints why one was not.

    Returns the number of nodes (`heard`), seconds (`wall`) and CPU seconds until
    then, MiB, and percent of a core afterwards.
    """
    begin = time.monotonic()
    async with open_cluster_session(cluster) as session, asyncio.TaskGroup() as tasks:
        telling = tasks.create_task(_tell(session))
        await session.hearing.settle(LIMIT)
        wall, cpu = time.monotonic() - begin, time.process_time()
        await asyncio.sleep(STEADY)
        steady = 100 * (time.process_time() - cpu) / (time.monotonic() - begin - wall)
        telling.cancel()
        nodes = session.fleet.nodes()
        for node in nodes:
            if not node.was_heard:
                print(f"{node.name}: {node.attach}", file=sys.stderr)
        heard, resident = sum(node.was_heard for node in nodes), resident_of(os.getpid())
        return {"heard": heard, "wall": wall, "cpu": cpu, "resident": resident, "steady": steady}


async def _tell(session: Session) -> None:
    """Print once a second what the bar at the top of the screens shows."""
    while True:
        done, of = session.hearing.connecting
        heard = sum(node.was_heard for node in session.fleet.nodes())
        print(f"connecting {done:,} of {of:,}, {heard:,} heard", file=sys.stderr, flush=True)
        await asyncio.sleep(1.0)


def main() -> int:
    cluster = read_cluster(Path(sys.argv[1]))
    if sys.argv[2:] == ["agents"]:
        told = asyncio.run(be_heard(cluster))
        print(json.dumps(told))
        return int(told["heard"] < len(cluster.nodes))
    return int(asyncio.run(come_up(cluster)) < len(cluster.nodes))


if __name__ == "__main__":
    sys.exit(main())
