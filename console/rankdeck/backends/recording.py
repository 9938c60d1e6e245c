"""A whole job read back from its nodes: every event, and the end of every log with its times."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from rankdeck.backends.base import Backend, Follower
from rankdeck.model.job import Chunk, Followed, Job, NodeEvent, Plan, Tail
from rankdeck.state.jobs import Jobs
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


MOST_BYTES = 64 << 20
"""Output that is held for one replay, over all ranks."""
MOST_PER_LOG = 1 << 20
PAUSE = 3.0
"""Seconds of nothing, as one sits there, after which the replay goes on to the next event."""
_STEP = 0.05


@dataclass(frozen=True, slots=True)
class Replay:
    """A recording under an id of its own."""

    plan: Plan
    created: float
    items: tuple[Followed, ...]
    """By time."""


async def read_replay(
    backend: Backend, job: Job, job_id: str, kept: Iterable[NodeEvent] = ()
) -> Replay:
    """What the nodes have of this job; `kept` stands in for nodes that do not answer."""
    output: list[Followed] = []
    each = min(MOST_PER_LOG, MOST_BYTES // max(2 * len(job.ranks), 1))
    recording = await record(backend, job, output.append, each)
    told = {event.node for event in recording.events}
    events = [*recording.events, *(e for e in kept if e.node not in told)]
    # An event and output of the same moment: the start of a rank comes before its words.
    items = sorted([*events, *output], key=lambda item: item.at)
    plan = replace(job.plan, job=job_id)
    return Replay(plan, job.created, tuple(replace(i, job=job_id) for i in items))


async def play(jobs: Jobs, shown: Replay, speed: float) -> None:
    """Take it in as time goes by, `speed` times as fast as it was."""
    clock = shown.created
    before = time.monotonic()
    for item in shown.items:
        if (item.at - clock) / speed > PAUSE:
            clock = item.at - PAUSE * speed
        while clock < item.at:
            jobs.set_clock(shown.plan.job, clock)
            await asyncio.sleep(_STEP)
            now = time.monotonic()
            clock, before = clock + (now - before) * speed, now
        jobs.apply(item)
    if shown.items:
        jobs.set_clock(shown.plan.job, shown.items[-1].at)
