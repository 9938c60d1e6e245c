"""A whole job read back from its nodes: every event, and the end of every log with its times."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rankdeck.backends.base import Backend, Follower
from rankdeck.model.job import Chunk, Followed, Job, NodeEvent, Tail
from rankdeck_agent.wire import LAUNCHER

SETTLE = 1.2
"""Seconds in which every node has told how long its logs are: it tells twice a second."""
LIMIT = 20.0
"""Seconds for the events: a node that does not answer is given up after 15."""
QUIET = 20.0
"""Seconds without a byte after which the logs are as complete as they will be."""
_LOOK = 0.05

Take = Callable[[Followed], None]


@dataclass(slots=True)
class _Seen:
    """What a pass over the nodes has told so far."""

    events: list[NodeEvent] = field(default_factory=list[NodeEvent])
    seq: dict[str, int] = field(default_factory=dict[str, int])
    ends: dict[tuple[str, int, str], int] = field(default_factory=dict[tuple[str, int, str], int])
    missing: dict[str, str] = field(default_factory=dict[str, str])

    def take(self, item: Followed) -> None:
        if isinstance(item, NodeEvent):
            self._event(item)
            return
        end = item.end if isinstance(item, Tail) else item.offset + len(item.data)
        key = (item.node, item.rank, item.stream)
        self.ends[key] = max(end, self.ends.get(key, 0))

    def _event(self, event: NodeEvent) -> None:
        seq = event.fields.get("seq")
        if event.kind == "lost":
            self.missing[event.node] = str(event.fields.get("text", ""))[:300]
        if isinstance(seq, int):
            self.seq[event.node] = max(seq, self.seq.get(event.node, -1))
            self.events.append(event)


@dataclass(frozen=True, slots=True)
class Recording:
    """What could be read: the output went to `take` as it came."""

    events: tuple[NodeEvent, ...]
    missing: Mapping[str, str]
    """Node -> why its part is not here."""


async def record(backend: Backend, job: Job, take: Take, backlog: int | None) -> Recording:
    """Read a job back, at most `backlog` bytes from the end of each log; None: all of them."""
    seen = _Seen()
    first = backend.follow(job.plan, {})
    await _consume(first, seen.take, lambda: first.current, LIMIT, SETTLE)
    wanted = dict(seen.ends)
    offsets = _offsets(wanted, backlog)
    reached: dict[tuple[str, int, str], int] = {}

    def hear(item: Followed) -> None:
        if isinstance(item, Chunk):
            reached[item.node, item.rank, item.stream] = item.offset + len(item.data)
            take(item)

    def complete() -> bool:
        return all(reached.get(key, 0) >= end for key, end in wanted.items() if end)

    if any(wanted.values()):
        second = backend.follow(job.plan, seen.seq)
        second.watch(offsets)
        await _consume(second, hear, complete, QUIET, 0.0)
    return Recording(tuple(sorted(seen.events, key=lambda e: e.at)), seen.missing)


def _offsets(
    ends: Mapping[tuple[str, int, str], int], backlog: int | None
) -> dict[int, dict[str, int]]:
    offsets: dict[int, dict[str, int]] = {}
    for (_, rank, stream), end in ends.items():
        if rank != LAUNCHER:
            start = 0 if backlog is None else max(0, end - backlog)
            offsets.setdefault(rank, {"out": 0, "err": 0})[stream] = start
    return offsets


async def _consume(
    follower: Follower,
    take: Take,
    enough: Callable[[], bool],
    limit: float,
    more: float,
) -> None:
    """Take what the follower gives until it ends, it is enough, or nothing came for `limit` s.

    `more` seconds are waited after it is enough, for what comes with it.
    """
    heard = time.monotonic()

    async def read() -> None:
        nonlocal heard
        async for item in follower:
            heard = time.monotonic()
            take(item)

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read())
        while not reading.done() and time.monotonic() - heard < limit:
            if enough():
                await asyncio.wait((reading,), timeout=more)
                break
            await asyncio.sleep(_LOOK)
        await follower.close()
