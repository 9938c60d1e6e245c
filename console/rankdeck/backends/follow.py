"""Follows a job over SSH: one channel per node, opened again when it breaks; starts MPI daemons."""

import asyncio
import json
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import suppress

from rankdeck.backends.daemon_requests import FLOOD, DaemonRequests
from rankdeck.backends.frames import FrameError
from rankdeck.backends.node_link import TICK, LinkState, NodeLink
from rankdeck.backends.node_stream import NodeStream
from rankdeck.errors import NodeError
from rankdeck.model.job_events import Body, Connected, Disconnected, Lost, NodeEvent, NotStarted
from rankdeck.model.plan import Plan
from rankdeck.model.rank_output import Chunk, Followed
from rankdeck.model.safe_text import clean_line
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import Channel
from rankdeck.state.launch_lock import is_launched
from rankdeck.state.lines import ReadPositionsOf
from rankdeck_agent.wire.job_events import DaemonAsked, Trouble

LOST_AFTER = 15.0
SILENT_AFTER = 15.0
"""Seconds without a frame after which a channel is opened again; twice as many for each channel in
a row that has sent none. On a slow node an agent takes long to start, and longer if those that were
given up are starting too.
"""
TURN = 0.01
"""Seconds for which events are passed on before other tasks, such as the keyboard, get a turn."""
SHORTEST_SILENCE = 6.0
"""Fewest seconds of silence after which a node counts as lost; every
node sends its clock every 2 seconds.
"""
BACKOFF = (0.2, 0.5, 1.0, 2.0, 3.0)
MOST_WAITING = 2 << 20
"""Bytes of output that may wait for the caller before all channels are paused. Kept small: output
of a quiet rank waits behind that of a rank that floods.
"""
SPAWN_LIMIT = 30.0
LEFTOVER = 3.0
"""Seconds that nodes without a launcher get to end by themselves after the launcher has ended."""
BELIEVE_AFTER = 3.0
"""Seconds for which a node must report that it does not know a job before this is believed."""
_MOST_REREADS = 3
_LOOK = 0.02


class WaitingOutput:
    """Queue of items that arrived and were not passed to the caller
    yet, with counts for each node.
    """

    def __init__(self) -> None:
        self._items: deque[Followed] = deque()
        self.of = Counter[str]()
        """Node -> number of items in the queue."""
        self.output_of = Counter[str]()
        """Node -> bytes of output in the queue."""
        self.output = 0
        """Bytes of output of all nodes in the queue."""

    def __len__(self) -> int:
        return len(self._items)

    def extend(self, items: Iterable[Followed]) -> None:
        """Append these items."""
        for item in items:
            self._items.append(item)
            self._count(item, 1)

    def take(self) -> Followed:
        """Remove and return the first item."""
        item = self._items.popleft()
        self._count(item, -1)
        return item

    def _count(self, item: Followed, sign: int) -> None:
        self.of[item.node] += sign
        if isinstance(item, Chunk):
            self.output_of[item.node] += sign * len(item.data)
            self.output += sign * len(item.data)


class SshFollower:
    """Follows one job over SSH; see `base.Follower`."""

    def __init__(
        self,
        agents: Agents,
        plan: Plan,
        seen: Mapping[str, int],
        positions: ReadPositionsOf,
        lost_after: float = LOST_AFTER,
    ) -> None:
        self._agents, self._plan = agents, plan
        self._lost_after = lost_after * agents.patience
        self._links = {
            node.node: NodeLink(NodeStream(node, seen.get(node.node, -1), positions, plan.backend))
            for node in plan.nodes
        }
        self._requests = DaemonRequests(self._links)
        self._waiting = WaitingOutput()
        self._paused = False
        self._news = asyncio.Event()
        self._open = True
        self._runners: list[asyncio.Task[None]] = []
        self._sweeper: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup

    # ---- the caller

    def __aiter__(self) -> AsyncIterator[Followed]:
        return self._events()

    def watch(self, ranks: Collection[int], backlog: int | None) -> None:
        """Fetch the full output of these ranks from now on, and `backlog`
        bytes of earlier output (None: all).
        """
        for link in self._links.values():
            link.stream.watch(ranks, backlog)
            self._send_watch(link)
            if link.stream.fresh_watch and link.state is LinkState.ENDED and self._open:
                # Its part of the job is over, but the requested output is still on its disk.
                link.go(LinkState.READING_AGAIN)
                self._begin(link)

    @property
    def behind(self) -> set[str]:
        """Nodes that have not reported all events up to now, without lost ones."""
        return {name for name, link in self._links.items() if link.behind or self._waiting.of[name]}

    async def close(self) -> None:
        """End the iteration; the job goes on."""
        self._open = False
        self._news.set()

    def give_up_lost(self) -> None:
        """Stop waiting for nodes that do not answer now, because the job is over."""
        for link in self._links.values():
            link.given_up = link.given_up or link.state is LinkState.LOST
        self._news.set()

    async def _events(self) -> AsyncIterator[Followed]:
        async with asyncio.TaskGroup() as self._tasks:
            self._runners.append(self._tasks.create_task(self._watch_silence()))
            for link in self._links.values():
                self._begin(link)
            try:
                while not self._over():
                    turn, given = time.monotonic(), set[str]()
                    while self._waiting and self._open:
                        item = self._waiting.take()
                        if isinstance(item, Chunk):
                            given.add(item.node)
                        yield item
                        # Give other tasks a turn here, not in the caller: if
                        # the caller's task ended there,
                        # this iterator would stay open.
                        if time.monotonic() - turn > TURN:
                            self._make_room(given)
                            await asyncio.sleep(0)
                            turn, given = time.monotonic(), set[str]()
                    self._make_room(given)
                    self._news.clear()
                    if not self._waiting and not self._over():
                        await self._news.wait()
            except GeneratorExit:  # the caller has stopped; a group would make an error of it
                return
            finally:
                self._end()

    def _end(self) -> None:
        self._open = False
        for task in (*self._runners, *([self._sweeper] if self._sweeper else [])):
            task.cancel()

    def _begin(self, link: NodeLink) -> None:
        self._runners.append(self._tasks.create_task(self._keep(link)))

    def _over(self) -> bool:
        if not self._open:
            return True
        return not self._waiting and all(link.over for link in self._links.values())

    def _channels(self) -> list[Channel]:
        return [link.channel for link in self._links.values() if link.channel is not None]

    def _make_room(self, nodes: Iterable[str]) -> None:
        """Called when output of these nodes was passed on: let them, and
        channels that were paused, send more.
        """
        for node in nodes:
            self._ask_for_more(self._links[node])
        if self._paused and self._waiting.output < MOST_WAITING // 4:
            self._paused = False
            for channel in self._channels():
                channel.resume()

    def _ask_for_more(self, link: NodeLink) -> None:
        """Tell the node how much of its output was used, so that it sends more."""
        line = link.stream.taken_line(self._waiting.output_of[link.node])
        if link.channel is not None and line:
            link.channel.write(line)

    # ---- one node

    async def _keep(self, link: NodeLink) -> None:
        """Follow one node until it closes, however often the link breaks."""
        stream = link.stream
        link.heard_at, failures, again = time.monotonic(), 0, 0
        while again < _MOST_REREADS:
            if link.state is LinkState.AWAITED and not is_launched(self._plan.job):
                link.go(LinkState.CONNECTING)
            link.why = await self._look_once(link)
            await self._handed_on(link.node)
            if stream.closed:
                # Output that was requested too late is still on the
                # node's disk: connect again for it.
                again = again + 1 if stream.unread else _MOST_REREADS
                continue
            if link.connected:
                link.go(LinkState.CONNECTING)
                failures = 0
                self._report(link, Disconnected(link.why, stream.heard))
            elif (
                # It did not answer a new attempt, and its silence has lasted long enough.
                link.state is LinkState.CONNECTING
                and time.monotonic() - link.heard_at >= self._lost_after
            ):
                self._lose(link)
            await asyncio.sleep(BACKOFF[min(failures, len(BACKOFF) - 1)])
            failures += 1
        link.go(LinkState.ENDED)
        self._news.set()

    async def _handed_on(self, node: str) -> None:
        """Wait until all items of this node were passed on: only then are the
        read positions of its logs up to date.
        """
        while self._waiting.of[node]:  # noqa: ASYNC110 - plain data
            await asyncio.sleep(_LOOK)

    async def _watch_silence(self) -> None:
        """Notice nodes and channels that no longer send anything, even
        if the connection seems to be up.
        """
        while True:
            await asyncio.sleep(TICK)
            if not self._paused:
                for link in self._links.values():
                    link.look()
                    self._judge_silence(link)

    def _judge_silence(self, link: NodeLink) -> None:
        tried = link.state in (LinkState.CONNECTING, LinkState.FOLLOWING)
        longest = max(self._lost_after, SHORTEST_SILENCE)
        if tried and not link.stream.closed and link.silence >= longest:
            link.why = link.why or f"nothing has come from it for {link.silence:.0f} s"
            self._lose(link)
        silent_after = SILENT_AFTER * self._agents.patience * link.slowness
        if link.channel is not None and link.channel_silence >= silent_after:
            silence = f"{link.channel_silence:.0f} s"
            link.stream.broken = f"the agent has said nothing for {silence}"

    def _lose(self, link: NodeLink) -> None:
        """Report that the node does not answer, unless a console is starting the job there: then
        it has nothing to say yet.
        """
        if is_launched(self._plan.job):
            link.go(LinkState.AWAITED)
            return
        link.go(LinkState.LOST)
        self._report(link, Lost(link.why, link.stream.heard))

    async def _look_once(self, link: NodeLink) -> str:
        """Open one channel and use it until it ends; returns why it ended."""
        stream = link.stream
        try:
            channel = await self._connect(link)
            try:
                code = await _ended(stream, channel)
            finally:
                link.channel = None
                await channel.close()
        except NodeError as error:
            return error.why
        if stream.unknown and not stream.closed:
            self._not_there(link)
            return stream.unknown
        return stream.broken or channel.complaint or f"the agent ended with exit code {code}"

    def _not_there(self, link: NodeLink) -> None:
        """Note that the node does not know the job; believed only if
        no console is starting it there.
        """
        if is_launched(self._plan.job):
            link.go(LinkState.AWAITED)
            return
        if link.connected:
            link.go(LinkState.CONNECTING)
        now = time.monotonic()
        link.unknown_since = now if link.unknown_since is None else link.unknown_since
        # A job that a console launched just before it was killed may still be starting.
        if now - link.unknown_since >= BELIEVE_AFTER:
            self._report(link, NotStarted(link.stream.unknown))
            link.stream.closed = True

    async def _connect(self, link: NodeLink) -> Channel:
        stream = link.stream
        clock = await self._agents.shell.clock(link.node)
        stream.reconnected(clock.offset, clock.uncertainty)
        command = ("job", "follow", stream.plan.job, link.node, "--after", str(stream.seen))
        channel = await self._agents.open(link.node, command, lambda data: self._feed(link, data))
        link.opened(channel)
        if link.state is LinkState.AWAITED:
            link.go(LinkState.CONNECTING)
        channel.write(stream.watch_line())
        return channel

    def _note_connected(self, link: NodeLink) -> None:
        """Note that the node has sent something, so it is connected."""
        stream = link.stream
        told = link.state in (LinkState.FOLLOWING, LinkState.READING_AGAIN, LinkState.ENDED)
        if told or stream.unknown or (link.doubted and not stream.caught_up):
            return
        link.go(LinkState.FOLLOWING)
        link.why, link.doubted = "", False
        self._report(link, Connected(stream.clock.offset, stream.clock.uncertainty))

    def _feed(self, link: NodeLink, data: bytes) -> None:
        stream = link.stream
        if stream.broken:
            return
        before = stream.frames
        try:
            found = stream.feed(data)
        except FrameError as error:
            self._doubt(link, str(error))
            return
        if stream.frames:
            self._note_connected(link)
            stream.heard, link.heard_at = time.time(), time.monotonic()
        if stream.frames > before:
            link.heard()
        self._waiting.extend(found)
        self._ask_for_more(link)
        if self._waiting.output > MOST_WAITING and not self._paused:
            self._paused = True
            for channel in self._channels():
                channel.pause()
        self._act(link)
        self._news.set()

    def _doubt(self, link: NodeLink, what: str) -> None:
        """Give up a stream that cannot be read any further."""
        link.stream.broken = f"the agent sends invalid data: {what}"
        link.doubted = True
        if link.connected:
            link.go(LinkState.CONNECTING)
        self._waiting.extend(link.stream.refuse(what))
        self._news.set()

    def _act(self, link: NodeLink) -> None:
        """Act on what a node has sent: update its watch line, start
        daemons, end leftover processes.
        """
        self._send_watch(link)
        for request in link.stream.take_spawns():
            flooded = self._requests.flooded(link.node)
            if flooded:
                self._report(link, Trouble(FLOOD))
            elif flooded is False:
                self._tasks.create_task(self._spawn(link, request))
        if link.stream.closed and not self._sweeper and self._launchers_closed():
            self._sweeper = self._tasks.create_task(self._sweep())

    def _send_watch(self, link: NodeLink) -> None:
        if link.channel is not None and link.stream.fresh_watch:
            link.channel.write(link.stream.watch_line())

    def _report(self, link: NodeLink, body: Body) -> None:
        """Pass on something that this follower has noticed by itself."""
        event = NodeEvent(self._plan.job, link.node, time.time(), body)
        self._waiting.extend((event,))
        self._news.set()

    # ---- daemons

    async def _spawn(self, link: NodeLink, request: DaemonAsked) -> None:
        """Start the MPI daemon that the launcher on this node
        requested, and answer the launcher.
        """
        plan = link.stream.plan
        if why := self._requests.refusal(plan, request):
            self._report(link, Trouble(f"asked to start {why}"))
            reply = f"the console does not start {why}"
        else:
            reply = await self._start_daemon(request)
            if reply != "ok":
                self._requests.failed(link.node, request.host)
        answer = ("job", "answer", self._plan.job, link.node, "--", request.id, reply)
        try:
            await self._agents.call(link.node, answer, limit=SPAWN_LIMIT)
        except NodeError as error:
            self._report(link, Trouble(f"the launcher could not be answered: {error.why}"))

    async def _start_daemon(self, request: DaemonAsked) -> str:
        host, row = (
            request.host,
            {"id": request.id, "host": request.host, "command": request.command},
        )
        spawn = ("job", "spawn", self._plan.job, host)
        try:
            answer = await self._agents.call(
                host, spawn, json.dumps(row).encode(), limit=SPAWN_LIMIT
            )
        except NodeError as error:
            return f"{host}: {error.why}"
        if answer.row.get("ok") is True:
            return "ok"
        return f"{host}: {clean_line(answer.row.get('error'), 300) or answer.complaint}"

    def _launchers_closed(self) -> bool:
        """Whether every node with planned processes has closed, while others have none planned."""
        streams = [link.stream for link in self._links.values()]
        having = [stream.closed for stream in streams if stream.plan.processes]
        return all(having) and len(having) < len(streams)

    async def _sweep(self) -> None:
        """End processes that the launcher left on nodes that only had its daemons."""
        await asyncio.sleep(LEFTOVER)
        for link in self._links.values():
            if link.stream.closed:
                continue
            job = (self._plan.job, link.node)
            command = ("job", "cancel", *job, "--grace", "2", "--by", "system")
            try:
                await self._agents.call(link.node, command, limit=2 + SPAWN_LIMIT)
            except NodeError as error:
                text = f"what the launcher left could not be ended: {error.why}"
                self._report(link, Trouble(text))


async def _ended(stream: NodeStream, channel: Channel) -> int:
    """Wait for the end of the program; its exit code, or -1 if the stream is broken.

    Raises UnreachableError.
    """
    while not stream.broken:
        with suppress(TimeoutError):
            async with asyncio.timeout(TICK):
                return await channel.wait()
    return -1
