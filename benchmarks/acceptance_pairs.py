"""Started by `acceptance` on the head of the lab: measures all pairs of a cluster
file; prints seconds and the number of pairs.
"""

import asyncio
import sys
import time
from pathlib import Path

from rankdeck.acceptance.run import Request
from rankdeck.acceptance.values import Stage
from rankdeck.config.clusters import read_cluster
from rankdeck.opening import open_cluster_session


async def main(file: Path) -> None:
    """Plan first: the time to ask the nodes does not count."""
    async with open_cluster_session(read_cluster(file), telemetry=False) as session:
        await session.acceptance.plan(Request(recipes=("iperf3",), seconds=1, only=(Stage.PAIRS,)))
        begin = time.monotonic()
        run = await session.acceptance.start()
        pairs = {
            frozenset((one.sender, one.receiver)) for one in run.results if one.value is not None
        }
        print(time.monotonic() - begin, len(pairs))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
