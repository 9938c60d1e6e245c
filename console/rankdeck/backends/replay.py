"""A job of the past shown again: its recorded events and output, taken in at any speed."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rankdeck.backends.base import Backend
from rankdeck.backends.recording import record
from rankdeck.model.job import Followed, Job, NodeEvent, Plan
from rankdeck.state.jobs import Jobs

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
