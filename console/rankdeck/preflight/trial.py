"""A small job that is run to its end only to hear what it says."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import token_hex

from rankdeck.backends.base import Backend
from rankdeck.errors import RankdeckError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Chunk, JobSpec, Plan
from rankdeck.model.text import clean
from rankdeck_agent.wire import LAUNCHER

LIMIT = 20.0
"""Seconds until what has not come by itself never will."""
_MOST_OUTPUT = 1 << 20
Texts = Mapping[tuple[int, str], str]


@dataclass(frozen=True, slots=True)
class Heard:
    """What became of the job; `late`: it had to be ended."""

    plan: Plan
    texts: Texts
    """(rank, stream) -> what it wrote."""
    complaint: str = ""
    """Why it could not be started."""
    late: bool = False

    def words_of(self, rank: int) -> Texts:
        """What one rank wrote."""
        return {key: text for key, text in self.texts.items() if key[0] == rank}


async def hear(backend: Backend, cluster: Cluster, spec: JobSpec, limit: float = LIMIT) -> Heard:
    """Launch, listen, end; leaves no process and says what happened."""
    plan = backend.plan(cluster, spec, f"probe-{token_hex(4)}")
    output: dict[tuple[int, str], bytes] = {}
    late, complaint = False, ""
    try:
        plan = await backend.launch(plan)
        async with asyncio.timeout(limit):
            await _listen(backend, plan, output)
    except TimeoutError:
        late = True
        await backend.cancel(plan, 0.0)
    except RankdeckError as error:
        complaint = str(error)
    texts = {key: data.decode("utf-8", "replace") for key, data in output.items()}
    return Heard(plan, texts, complaint, late)


async def _listen(backend: Backend, plan: Plan, output: dict[tuple[int, str], bytes]) -> None:
    follower = backend.follow(plan, {})
    ranks = [rank for node in plan.nodes for rank in node.ranks]
    follower.watch({rank: {"out": 0, "err": 0} for rank in ranks})
    async for event in follower:
        if isinstance(event, Chunk):
            key = (event.rank, event.stream)
            output[key] = (output.get(key, b"") + event.data)[-_MOST_OUTPUT:]


def last_words(texts: Texts, without: str) -> str:
    """The lines that say most: the launcher's first, then any rank's complaint."""
    for key in sorted(texts, key=lambda key: (key[0] != LAUNCHER, key[1] != "err")):
        lines = [line.strip(" -*\t") for line in texts[key].splitlines()]
        lines = [line for line in lines if len(line) > 8 and without not in line]
        if lines:
            return clean(" ".join(lines[:3]), 300)
    return "it said nothing"
