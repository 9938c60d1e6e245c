"""Logs in to every node of a cluster file, runs `true` there and keeps all connections until the last one stands."""

import asyncio
import sys
from pathlib import Path

from rankdeck.config.clusters import read_cluster
from rankdeck.remote.ssh import Connections

LIMIT = 600.0


async def come_up(file: Path) -> int:
    """How many nodes are connected in the end; raises NodeError where one is not."""
    cluster = read_cluster(file)
    names = [node.name for node in cluster.nodes]
    async with Connections(cluster) as connections:
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(connections.run(name, ("true",), limit=LIMIT))
        return sum(map(connections.connected, names))


if __name__ == "__main__":
    found = asyncio.run(come_up(Path(sys.argv[1])))
    print(found)
