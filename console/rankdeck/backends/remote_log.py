"""Reads a job's output back from its nodes: in parts, by searching, or as a recording to replay."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from secrets import token_hex
from typing import Any, cast

from rankdeck.backends.base import Backend, Follower
from rankdeck.backends.frames import Frame, FrameError, FrameParser
from rankdeck.errors import AgentError
from rankdeck.model.field_checks import is_integer, is_stamp
from rankdeck.model.job import Job
from rankdeck.model.job_events import Lost, NodeEvent
from rankdeck.model.patterns import search_pattern
from rankdeck.model.plan import Plan
from rankdeck.model.rank_output import Chunk, Followed, FoundLine, LogPart, LogPlace
from rankdeck.model.safe_text import clean_line
from rankdeck.remote.agent import Agents
from rankdeck.remote.dialogue import next_answer
from rankdeck.remote.shell import Channel
from rankdeck.state.jobs import Jobs
from rankdeck.state.lines import JobPositions
from rankdeck.values import Value, replace
from rankdeck_agent.wire.job_events import Part, may_say

LIMIT = 20.0
"""Seconds that a node may be silent while an answer is expected."""


class Browsing:
    """The agent command `job browse` for one job on one node; started by the first question."""

    def __init__(self, agents: Agents, job: str, node: str) -> None:
        self._agents = agents
        self.job, self.node = job, node
        self._channel: Channel | None = None
        self._starting = asyncio.Lock()
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Queue[Frame]] = {}

    async def ask(self, **question: object) -> AsyncGenerator[Frame]:
        """Send a question; yields the answer's frames as they arrive. Callers know the last one.

        Raises NodeError.
        """
        number, answers = next(self._numbers), asyncio.Queue[Frame]()
        limit = LIMIT * self._agents.patience
        line = json.dumps({"id": number, **question}).encode() + b"\n"
        self._waiting[number] = answers
        try:
            channel = await self.open()
            channel.write(line)
            first = await next_answer(self.node, channel, answers, limit)
            if first is None:
                # The agent had ended: after a long time without questions, or with its connection.
                self.forget(channel)
                channel = await self.open()
                channel.write(line)
                first = await next_answer(self.node, channel, answers, limit)
            frame = first
            while frame is not None:
                self._refuse(frame[0])
                yield frame
                frame = await next_answer(self.node, channel, answers, limit)
            self.forget(channel)
            raise AgentError(self.node, channel.complaint or "the agent has ended")
        finally:
            del self._waiting[number]

    def _refuse(self, head: Mapping[str, Any]) -> None:
        if head["kind"] == "no":
            raise AgentError(self.node, clean_line(head.get("text"), 300))

    async def open(self) -> Channel:
        """The channel of the running agent, which is started if needed; raises NodeError."""
        async with self._starting:
            if self._channel is None:
                command, parser = ("job", "browse", self.job, self.node), FrameParser()
                self._channel = await self._agents.open(
                    self.node, command, lambda data: self._take(parser, data)
                )
            return self._channel

    def _take(self, parser: FrameParser, data: bytes) -> None:
        try:
            frames = parser.feed(data)
        except FrameError as error:
            head = {"kind": "no", "text": f"the agent sends invalid data: {error}"}
            for answers in self._waiting.values():
                answers.put_nowait((head, b""))
            return
        for head, found in frames:
            number = head.get("id")
            if not may_say(Part.BROWSE, "", head["kind"]):
                continue
            if type(number) is int and number in self._waiting:
                self._waiting[number].put_nowait((head, found))

    def forget(self, channel: Channel | None) -> None:
        """End the agent on this channel and do not use it again."""
        if channel is not None and channel is self._channel:
            self._channel = None
            channel.end()

    def end(self) -> None:
        """End the agent; the next question starts it again."""
        self.forget(self._channel)


class RemoteLogs:
    """Gives access to the output of ranks; keeps one `job browse` agent running at a time."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._browsing: Browsing | None = None

    def of(self, job: Job, rank: int) -> "Ranges":
        """The output of this rank; for LAUNCHER, of the launcher on the first node."""
        nodes = (job.plan.supervising_node(r.node) for r in job.ranks if r.rank == rank)
        node = next(nodes, job.plan.nodes[0].node)
        there = self._browsing
        if there is None or (there.job, there.node) != (job.id, node):
            if there is not None:
                there.end()
            there = self._browsing = Browsing(self._agents, job.id, node)
        return Ranges(self._agents, there)


class Ranges:
    """The output of one rank, or of the launcher, by offset; every failure is a NodeError."""

    def __init__(self, agents: Agents, browsing: Browsing) -> None:
        self._agents, self._browsing = agents, browsing

    async def open(self) -> None:
        """Start the agent on the node, so that the first answer comes quickly."""
        await self._agents.shell.clock(self._browsing.node)
        await self._browsing.open()

    async def read(self, place: LogPlace, size: int) -> LogPart:
        """Whole lines, about `size` bytes, from about that offset on; a
        negative offset counts from the end.
        """
        job, node = self._browsing.job, self._browsing.node
        clock = await self._agents.shell.clock(node)
        where = [place.rank, place.stream, place.offset, size]
        chunks: list[Chunk] = []
        async with aclosing(self._browsing.ask(read=where)) as frames:
            async for head, data in frames:
                at, start = head.get("at"), head.get("o")
                if not is_integer(start) or start < 0:
                    continue
                if head["kind"] == "end":
                    return LogPart(place.stream, tuple(chunks), start)
                if head["kind"] == "data" and is_stamp(at):
                    at = float(at) - clock.offset
                    chunks.append(Chunk(job, node, place.rank, place.stream, start, at, data))
        raise AgentError(node, "reading gave no answer")

    async def find(self, place: LogPlace, text: str, *, back: bool) -> AsyncGenerator[FoundLine]:
        """Search for the next line with `text`, or with `back` the previous
        one; yields results until all is counted.

        The text may be a regular expression, see `model.patterns.searched`.
        """
        pattern = search_pattern(text)
        where = [place.rank, place.stream, place.offset, back, pattern or text]
        asked = {"find": where, **({"pattern": True} if pattern else {})}
        async with aclosing(self._browsing.ask(**asked)) as frames:
            async for head, _ in frames:
                found = _found(head)
                if found is None:
                    why = "searching gave no answer"
                    raise AgentError(self._browsing.node, why)
                yield found
                if found.whole:
                    return


def _found(head: Mapping[str, Any]) -> FoundLine | None:
    """The result in one report of the agent; None if it is invalid."""
    at, before = head.get("at"), head.get("before")
    rest = [head.get("lines"), head.get("counted"), head.get("end")]
    known = [one for one in (at, before) if one is not None]
    if any(not is_integer(one) or one < 0 for one in (*known, *rest)):
        return None
    lines, counted, end = cast("list[int]", rest)
    share = min(1.0, counted / end) if end else 1.0
    return FoundLine(at, before, lines, share, head.get("looking") is True)


SETTLE = 1.2
"""Seconds to wait so that every node reports the size of its logs, which it does twice a second."""
QUIET = 20.0
"""The logs count as complete after this many seconds without a byte."""
_LOOK = 0.05

Take = Callable[[Followed], None]


@dataclass(slots=True)
class _ReadSoFar:
    """What has been read from the nodes so far; for output only the positions."""

    events: list[NodeEvent] = field(default_factory=list[NodeEvent])
    seq: dict[str, int] = field(default_factory=dict[str, int])
    output: JobPositions = field(default_factory=JobPositions)
    missing: dict[str, str] = field(default_factory=dict[str, str])

    def take(self, item: Followed) -> None:
        self.output.take(item)
        if not isinstance(item, NodeEvent):
            return
        if isinstance(item.body, Lost):
            self.missing[item.node] = item.body.sentence[:300]
        if item.seq is not None:
            self.seq[item.node] = max(item.seq, self.seq.get(item.node, -1))
            self.events.append(item)


class Recording(Value):
    """The events that could be read; the output itself was passed to `take` of `record_job`."""

    events: tuple[NodeEvent, ...]
    missing: Mapping[str, str]
    """Node -> why its part is missing."""


async def record_job(backend: Backend, job: Job, take: Take, backlog: int | None) -> Recording:
    """Read a job back from its nodes.

    `take` gets the output: the last `backlog` bytes of each log, None: all.
    """
    seen = _ReadSoFar()
    first = backend.follow(job.plan, {}, seen.output.of)
    await _consume(first, seen.take, lambda: not first.behind, LIMIT, SETTLE)
    wanted, output = seen.output.ends(), JobPositions()

    def hear(item: Followed) -> None:
        if new := output.take(item):
            take(new)

    def complete() -> bool:
        return all(output.of(*key).has(ends) for key, ends in wanted.items())

    if any(end for ends in wanted.values() for end in ends.values()):
        second = backend.follow(job.plan, seen.seq, output.of)
        second.watch([rank.rank for rank in job.ranks], backlog)
        await _consume(second, hear, complete, QUIET, 0.0)
    return Recording(tuple(sorted(seen.events, key=lambda e: e.at)), seen.missing)


async def _consume(
    follower: Follower, take: Take, enough: Callable[[], bool], limit: float, more: float
) -> None:
    """Pass the follower's items to `take` until it ends, `enough` is true,
    or no output came for `limit` seconds.

    Once `enough` is true, reading goes on for `more` seconds, for items that come just after.
    """
    heard = time.monotonic()

    async def read() -> None:
        nonlocal heard
        async for item in follower:
            if isinstance(item, Chunk):  # not events: they may come forever
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
"""Most bytes of output that are held for one replay, over all ranks."""
MOST_PER_LOG = 1 << 20
PAUSE = 3.0
"""Longest pause of a replay, in seconds of real time."""
_STEP = 0.05
SLICE = 100
"""Items that are applied before other tasks get a turn."""


class Replay(Value):
    """A recording, with the plan of the replay."""

    plan: Plan
    created: float
    items: tuple[Followed, ...]
    """Events and output, oldest first."""


def as_replay(job: Job) -> Job:
    """The job as a replay with its own id; a job that is a replay already is returned unchanged."""
    if job.plan.replay_of:
        return job
    fresh = f"replay-{token_hex(2)}-of-{job.id}"
    return replace(job, id=fresh, plan=replace(job.plan, job=fresh, replay_of=job.id))


async def read_replay(backend: Backend, shown: Job, kept: Iterable[NodeEvent] = ()) -> Replay:
    """Read the recording for a replay made by `as_replay`; `kept` are saved
    events, for nodes that do not answer.
    """
    ran = shown.plan.replay_of
    job = replace(shown, id=ran, plan=replace(shown.plan, job=ran, replay_of=""))
    output: list[Followed] = []
    each = min(MOST_PER_LOG, MOST_BYTES // max(2 * len(job.ranks), 1))
    recording = await record_job(backend, job, output.append, each)
    recorded = {event.node for event in recording.events}
    events = [*recording.events, *(e for e in kept if e.node not in recorded)]
    # At the same time, events come before output: a rank starts before it writes.
    items = sorted([*events, *output], key=lambda item: item.at)
    return Replay(shown.plan, job.created, tuple(replace(i, job=shown.id) for i in items))


class Player:
    """Plays a recording `speed` times as fast as the job ran; it
    can be paused (`held`) and wound.
    """

    def __init__(self, jobs: Jobs, shown: Replay, speed: float) -> None:
        self._jobs, self._shown, self._speed = jobs, shown, speed
        self._clock = shown.created
        self._next = 0
        """Index of the next item."""
        self.held = False
        self._begin()

    def _begin(self) -> None:
        self._jobs.add(self._shown.plan, self._shown.created)
        self._show(self._shown.created)
        self._next = 0

    @property
    def over(self) -> bool:
        """Whether all items were applied."""
        return self._next >= len(self._shown.items)

    def wind(self, seconds: float) -> None:
        """Move forward or back by `seconds` of the job's time; if the replay
        was over, `run` must be started again.
        """
        if seconds < 0:
            # Applied items cannot be undone: start again from the beginning and catch up.
            self._begin()
        self._clock = max(self._clock + seconds, self._shown.created)
        self._show(self._clock)

    async def run(self) -> None:
        """Apply the items to the jobs in time, until the end."""
        before = time.monotonic()
        while not self.over:
            if self._clock < self._shown.items[self._next].at:
                self._skip_pause()
                self._show(self._clock)
                await asyncio.sleep(_STEP)
                now = time.monotonic()
                self._clock += 0.0 if self.held else (now - before) * self._speed
                before = now
            else:
                await self._apply()
        if self._shown.items:
            self._clock = self._shown.items[-1].at
            self._show(self._clock)

    def _show(self, at: float) -> None:
        self._jobs.set_clock(self._shown.plan.job, at)

    def _skip_pause(self) -> None:
        """Shorten the pause before the next item to PAUSE seconds of real time."""
        due = self._shown.items[self._next].at
        if not self.held and (due - self._clock) / self._speed > PAUSE:
            self._clock = due - PAUSE * self._speed

    async def _apply(self) -> None:
        """Apply the next item; after SLICE items let other tasks run."""
        self._jobs.apply(self._shown.items[self._next])
        self._next += 1
        if self._next % SLICE == 0:
            await asyncio.sleep(0)
