"""Brings up the nodes of a cluster file, from nothing: `python -m benchmarks.ssh_app FILE [agents]`.

Logs in to every node, runs `true` there and keeps all connections until the last one stands; or, with
`agents`, opens the cluster as the console does, until every node's agent was heard.
"""

import asyncio
import sys
from pathlib import Path

from rankdeck.config.clusters import read_cluster
from rankdeck.model.cluster import Cluster
from rankdeck.remote.shell import run
from rankdeck.remote.ssh import Connections
from rankdeck.session import open_session

LIMIT = 600.0


async def come_up(cluster: Cluster) -> int:
    """How many nodes are connected in the end; raises NodeError where one is not."""
    names = [node.name for node in cluster.nodes]
    async with Connections(cluster) as connections:
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(run(connections, name, ("true",), limit=LIMIT))
        return sum(map(connections.connected, names))


async def be_heard(cluster: Cluster) -> int:
    """On how many nodes an agent was heard in the end; says why one was not."""
    async with open_session(cluster) as session:
        await session.settle(LIMIT)
        nodes = session.fleet.nodes()
        for node in nodes:
            if not node.was_heard:
                print(f"{node.name}: {node.attach}", file=sys.stderr)
        return sum(node.was_heard for node in nodes)


def main() -> int:
    cluster = read_cluster(Path(sys.argv[1]))
    work = be_heard if sys.argv[2:] == ["agents"] else come_up
    found = asyncio.run(work(cluster))
    print(found)
    return int(found < len(cluster.nodes))


if __name__ == "__main__":
    sys.exit(main())
