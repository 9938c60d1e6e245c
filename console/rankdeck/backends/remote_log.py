"""Reads and searches a rank's output on its node, part by part."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from itertools import count
from typing import Any, cast

from rankdeck.backends.node_stream import Frame, FrameError, FrameParser
from rankdeck.errors import AgentError
from rankdeck.model.border import integer, stamp
from rankdeck.model.job import Chunk, FoundLine, Job, LogPart, LogPlace
from rankdeck.model.pattern import searched
from rankdeck.model.text import clean
from rankdeck.remote.agent import Agents, next_of
from rankdeck.remote.shell import Channel

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
            head = {"kind": "no", "text": f"the agent sends nonsense: {error}"}
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
        """Let the agent go; another question starts it again."""
        self.forget(self._channel)


class LogReader:
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

        The text may be a regular expression, see `model.pattern.searched`.
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
