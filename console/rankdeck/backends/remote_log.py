"""Reads what a job wrote back from its nodes: part by part, searched, or as a recording to play again."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import count
from secrets import token_hex
from typing import Any, cast

from rankdeck.backends.base import Backend, Follower
from rankdeck.backends.node_stream import Frame, FrameError, FrameParser
from rankdeck.errors import AgentError
from rankdeck.model.job import Chunk, Followed, FoundLine, Job, LogPart, LogPlace, NodeEvent, Plan
from rankdeck.model.text import clean, integer, searched, stamp
from rankdeck.remote.agent import Agents, next_of
from rankdeck.remote.shell import Channel
from rankdeck.state.jobs import Jobs
from rankdeck.state.lines import JobPositions

LIMIT = 20.0
"""Seconds that a node may say nothing while it is asked."""


class Browsing:
    """The `job browse` agent of one job on one node; started with the first question."""

    def __init__(self, agents: Agents, job: str, node: str) -> None:
        self._agents = agents
        self.job, self.node = job, node
        self._channel: Channel | None = None
        self._starting = asyncio.Lock()
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Queue[Frame]] = {}

    async def ask(self, **question: object) -> AsyncGenerator[Frame]:
        """The frames of the answer, as they come; the asker knows which is the last. Raises NodeError."""
        number, answers = next(self._numbers), asyncio.Queue[Frame]()
        line = json.dumps({"id": number, **question}).encode() + b"\n"
        self._waiting[number] = answers
        try:
            channel = await self.open()
            channel.write(line)
            first = await next_of(self.node, channel, answers, LIMIT)
            if first is None:
                # It had ended after a long time without questions, or with its connection.
                self.forget(channel)
                channel = await self.open()
                channel.write(line)
                first = await next_of(self.node, channel, answers, LIMIT)
            frame = first
            while frame is not None:
                self._refuse(frame[0])
                yield frame
                frame = await next_of(self.node, channel, answers, LIMIT)
            self.forget(channel)
            raise AgentError(self.node, channel.complaint or "the agent has ended")
        finally:
            del self._waiting[number]

    def _refuse(self, head: Mapping[str, Any]) -> None:
        if head["kind"] == "no":
            raise AgentError(self.node, clean(head.get("text"), 300))

    async def open(self) -> Channel:
        """The running agent; raises NodeError."""
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
            if type(number) is int and number in self._waiting:
                self._waiting[number].put_nowait((head, found))

    def forget(self, channel: Channel | None) -> None:
        """End this agent and use it no more."""
        if channel is not None and channel is self._channel:
            self._channel = None
            channel.end()

    def end(self) -> None:
        """End the agent; another question starts it again."""
        self.forget(self._channel)


class RemoteLogs:
    """Gives access to the output of ranks; keeps one agent running at a time."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._browsing: Browsing | None = None

    def of(self, job: Job, rank: int) -> "Ranges":
        """The output of this rank, or of the launcher."""
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
        """Make ready on the node, so that the first answer comes at once."""
        await self._agents.shell.clock(self._browsing.node)
        await self._browsing.open()

    async def read(self, place: LogPlace, size: int) -> LogPart:
        """Whole lines from about that offset on; a negative one counts from the end."""
        clock = await self._agents.shell.clock(self._browsing.node)
        where = [place.rank, place.stream, place.offset, size]
        chunks: list[Chunk] = []
        async with aclosing(self._browsing.ask(read=where)) as frames:
            async for head, data in frames:
                at, start = head.get("at"), head.get("o")
                if not integer(start) or start < 0:
                    continue
                if head["kind"] == "end":
                    return LogPart(place.stream, tuple(chunks), start)
                if head["kind"] == "data" and stamp(at):
                    at = float(at) - clock.offset
                    chunks.append(self._chunk(place, start, at, data))
        raise AgentError(self._browsing.node, "reading gave no answer")

    def _chunk(self, place: LogPlace, offset: int, at: float, data: bytes) -> Chunk:
        one = self._browsing
        return Chunk(one.job, one.node, place.rank, place.stream, offset, at, data)

    async def find(self, place: LogPlace, text: str, *, back: bool) -> AsyncGenerator[FoundLine]:
        """The next line with `text`, or the one before, until all is counted.

        The text may be a regular expression, see `model.text.searched`.
        """
        pattern = searched(text)
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
    if any(not integer(one) or one < 0 for one in (*known, *rest)):
        return None
    lines, counted, end = cast("list[int]", rest)
    share = min(1.0, counted / end) if end else 1.0
    return FoundLine(at, before, lines, share, head.get("looking") is True)


SETTLE = 1.2
"""Seconds after which every node has reported the length of its logs: it does so twice a second."""
QUIET = 20.0
"""After so many seconds without a byte, the logs count as complete."""
_LOOK = 0.05

Take = Callable[[Followed], None]


@dataclass(slots=True)
class _Seen:
    """What has been read from the nodes so far; of their output only how far it was read."""

    events: list[NodeEvent] = field(default_factory=list[NodeEvent])
    seq: dict[str, int] = field(default_factory=dict[str, int])
    output: JobPositions = field(default_factory=JobPositions)
    missing: dict[str, str] = field(default_factory=dict[str, str])

    def take(self, item: Followed) -> None:
        self.output.take(item)
        if not isinstance(item, NodeEvent):
            return
        seq = item.fields.get("seq")
        if item.kind == "lost":
            self.missing[item.node] = str(item.fields.get("text", ""))[:300]
        if isinstance(seq, int):
            self.seq[item.node] = max(seq, self.seq.get(item.node, -1))
            self.events.append(item)


@dataclass(frozen=True, slots=True)
class Recording:
    """What could be read; the output itself was passed to `take`."""

    events: tuple[NodeEvent, ...]
    missing: Mapping[str, str]
    """Node -> why its part is missing."""


async def record(backend: Backend, job: Job, take: Take, backlog: int | None) -> Recording:
    """Read a job back, at most `backlog` bytes from the end of each log; None: all of them."""
    seen = _Seen()
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
    """Take what the follower gives until it ends, it is enough, or no output came for `limit` s.

    `more` seconds are waited after it is enough, for what comes with it.
    """
    heard = time.monotonic()

    async def read() -> None:
        nonlocal heard
        async for item in follower:
            if isinstance(item, Chunk):  # events may come for ever of a node that tells no end
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
"""Longest pause of a replay, in seconds of the person who watches."""
_STEP = 0.05
SLICE = 100
"""Items that are taken in at one go."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A recording under an id of its own."""

    plan: Plan
    created: float
    items: tuple[Followed, ...]
    """By time."""


def as_replay(job: Job) -> Job:
    """The job as it is listed while it is shown again, under an id of its own; a replay stays as it is."""
    if job.plan.replay_of:
        return job
    fresh = f"replay-{token_hex(2)}-of-{job.id}"
    return replace(job, id=fresh, plan=replace(job.plan, job=fresh, replay_of=job.id))


async def read_replay(backend: Backend, shown: Job, kept: Iterable[NodeEvent] = ()) -> Replay:
    """What the nodes have of the job that `as_replay` gave; `kept` stands in for nodes that do not answer."""
    ran = shown.plan.replay_of
    job = replace(shown, id=ran, plan=replace(shown.plan, job=ran, replay_of=""))
    output: list[Followed] = []
    each = min(MOST_PER_LOG, MOST_BYTES // max(2 * len(job.ranks), 1))
    recording = await record(backend, job, output.append, each)
    told = {event.node for event in recording.events}
    events = [*recording.events, *(e for e in kept if e.node not in told)]
    # An event and output of the same moment: the start of a rank comes before its words.
    items = sorted([*events, *output], key=lambda item: item.at)
    return Replay(shown.plan, job.created, tuple(replace(i, job=shown.id) for i in items))


class Player:
    """Shows a recording as time goes by, `speed` times as fast as it was; it can be held and wound."""

    def __init__(self, jobs: Jobs, shown: Replay, speed: float) -> None:
        self._jobs, self._shown, self._speed = jobs, shown, speed
        self._clock = shown.created
        self._next = 0
        """The item that comes next."""
        self.held = False
        self._begin()

    def _begin(self) -> None:
        self._jobs.add(self._shown.plan, self._shown.created)
        self._show(self._shown.created)
        self._next = 0

    @property
    def over(self) -> bool:
        return self._next >= len(self._shown.items)

    def wind(self, seconds: float) -> None:
        """Go on or back by so many seconds of the job; `run` must be begun again where it was over."""
        if seconds < 0:
            # What was applied cannot be taken back: the job begins again, and catches up.
            self._begin()
        self._clock = max(self._clock + seconds, self._shown.created)
        self._show(self._clock)

    async def run(self) -> None:
        """Apply it to the jobs, until the end."""
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
        """Skip a long pause up to its end."""
        due = self._shown.items[self._next].at
        if not self.held and (due - self._clock) / self._speed > PAUSE:
            self._clock = due - PAUSE * self._speed

    async def _apply(self) -> None:
        """Take in the next item; after some of them keys have their turn."""
        self._jobs.apply(self._shown.items[self._next])
        self._next += 1
        if self._next % SLICE == 0:
            await asyncio.sleep(0)
