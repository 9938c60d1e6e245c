"""Follows a job over SSH: one channel per node, opened again when it breaks; starts MPI daemons."""

import asyncio
import json
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from rankdeck.backends.node_stream import FrameError, NodeStream
from rankdeck.errors import NodeError
from rankdeck.model.job import MUTE, Chunk, Followed, NodeEvent, Plan
from rankdeck.model.safe_text import clean
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import Channel
from rankdeck.state.lines import ReadPositionsOf
from rankdeck.state.shared import is_launched
from rankdeck_agent.rules.mpi_daemon import daemon_of, daemons_of
from rankdeck_agent.wire import NO_FOLDER, NodePlan

_SPARE = 16
"""Requests of one node that are carried out, in addition to two for each node of the job."""
FLOOD = "asks for too many daemons: no longer answered"


class Spawns:
    """Decides which requests for MPI daemons of one job are carried out."""

    def __init__(self, hosts: Collection[str]) -> None:
        self._hosts = frozenset(hosts)
        self._asked: dict[str, int] = {}
        self._there: set[tuple[str, str]] = set()
        """(node that asked, host on which its daemon starts or runs)."""

    def flooded(self, node: str) -> bool | None:
        """Count a request of the node. False: carry it out; True: it reaches the limit, report it; None: ignore it."""
        most = 2 * len(self._hosts) + _SPARE
        asked = self._asked[node] = self._asked.get(node, 0) + 1
        return None if asked > most else asked == most

    def refusal(self, origin: NodePlan, request: Mapping[str, Any]) -> str:
        """Why the request is refused, worded to follow "asked to start …"; "" if it is to be carried out.

        In that case the daemon counts as running until `failed` is called.
        """
        host, command = request.get("host"), request.get("command")
        allowed = {name for p in origin.processes for name in daemons_of(p.argv, origin.job)}
        on = f"on {clean(host, 64)}"
        if not allowed:
            return f"a command {on}, but has no launcher of MPI: refused"
        if not isinstance(host, str) or host not in self._hosts:
            return f"a command {on}, which is no node of this job: refused"
        if not isinstance(command, str) or daemon_of(command) not in allowed:
            return f"a command {on} that is no MPI daemon: refused"
        if (origin.node, host) in self._there:
            return f"a second MPI daemon {on}: refused"
        self._there.add((origin.node, host))
        return ""

    def failed(self, origin: str, host: str) -> None:
        """Note that the daemon did not start on `host`: `origin` may request it again."""
        self._there.discard((origin, host))


LOST_AFTER = 15.0
SILENT_AFTER = 15.0
"""Seconds without a frame after which a channel is opened again."""
TURN = 0.01
"""Seconds for which events are passed on before other tasks, such as the keyboard, get a turn."""
TICK = 1.0
"""Seconds between two checks for silent nodes."""
SHORTEST_SILENCE = 6.0
"""Fewest seconds of silence after which a node counts as lost; every node sends its clock every 2 seconds."""
BACKOFF = (0.2, 0.5, 1.0, 2.0, 3.0)
MOST_WAITING = 2 << 20
"""Bytes of output that may wait for the caller before all channels are paused. Kept small: output of a quiet rank
waits behind that of a rank that floods."""
SPAWN_LIMIT = 30.0
LEFTOVER = 3.0
"""Seconds that nodes without a launcher get to end by themselves after the launcher has ended."""
BELIEVE_AFTER = 3.0
"""Seconds for which a node must report that it does not know a job before this is believed."""
_MOST_REREADS = 3
_LOOK = 0.02


class Silence:
    """Measures how long nodes and channels have sent no frame.

    It counts calls of `look`, TICK seconds apart, instead of time, so that the time for which this console
    was suspended does not count as silence.
    """

    def __init__(self) -> None:
        self._looks = 0
        self._heard: dict[str, int] = {}
        self._opened: dict[str, int] = {}

    def look(self) -> None:
        """Count a look."""
        self._looks += 1

    def opened(self, node: str) -> None:
        """Note that a channel to the node has just been opened."""
        self._opened[node] = self._looks

    def heard(self, node: str) -> None:
        """Note that the node has sent a frame."""
        self._heard[node] = self._looks

    def of_node(self, node: str) -> float:
        """Seconds since the node's last frame on any channel; 0 if it has never sent one."""
        return (self._looks - self._heard.get(node, self._looks)) * TICK

    def of_channel(self, node: str) -> float:
        """Seconds since the last frame on the node's present channel, or since that channel was opened."""
        return (self._looks - max(self._opened.get(node, 0), self._heard.get(node, 0))) * TICK


class WaitingOutput:
    """Queue of items that arrived and were not passed to the caller yet, with counts for each node."""

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
        self._lost_after = lost_after
        self._streams = {n.node: NodeStream(n, seen.get(n.node, -1), positions) for n in plan.nodes}
        self._spawns = Spawns(self._streams)
        self._channels: dict[str, Channel] = {}
        self._waiting = WaitingOutput()
        self._paused = False
        self._news = asyncio.Event()
        self._given_up: set[str] = set()
        self._lost: set[str] = set()
        self._linked: set[str] = set()
        """Nodes that have sent something since the connection was made."""
        self._nonsense: set[str] = set()
        """Nodes whose last stream was invalid; they stay here until a new stream has caught up."""
        self._why: dict[str, str] = {}
        """Why the last channel of a node ended, until it sends something again."""
        self._heard_at: dict[str, float] = {}
        """Node -> when it last sent anything, monotonic seconds."""
        self._silence = Silence()
        self._awaited: set[str] = set()
        """Nodes on which another console is about to start the job."""
        self._unstarted: dict[str, float] = {}
        """Node -> since when it reports that it does not know the job, while no console is starting it."""
        self._done: set[str] = set()
        self._open = True
        self._again: set[str] = set()
        """Nodes on which the job is over, but whose output was requested again since."""
        self._runners: list[asyncio.Task[None]] = []
        self._sweeper: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup

    # ---- the caller

    def __aiter__(self) -> AsyncIterator[Followed]:
        return self._events()

    def watch(self, ranks: Collection[int], backlog: int | None) -> None:
        """Fetch the full output of these ranks from now on, and `backlog` bytes of earlier output (None: all)."""
        for stream in self._streams.values():
            stream.watch(ranks, backlog)
            self._send_watch(stream)
            if stream.fresh_watch and stream.node in self._done and self._open:
                # Its part of the job is over, but the requested output is still on its disk.
                self._done.discard(stream.node)
                self._again.add(stream.node)
                self._begin(stream)

    @property
    def behind(self) -> set[str]:
        """Nodes that have not reported all events up to now, without lost ones."""
        silent = self._lost | self._awaited
        coming = {
            name
            for name, stream in self._streams.items()
            if not (stream.caught_up or stream.closed or name in silent)
        }
        return coming | self._again | {name for name, count in self._waiting.of.items() if count}

    async def close(self) -> None:
        """End the iteration; the job goes on."""
        self._open = False
        self._news.set()

    def give_up_lost(self) -> None:
        """Stop waiting for nodes that do not answer now, because the job is over."""
        self._given_up |= self._lost
        self._news.set()

    async def _events(self) -> AsyncIterator[Followed]:
        async with asyncio.TaskGroup() as self._tasks:
            self._runners.append(self._tasks.create_task(self._watch_silence()))
            for stream in self._streams.values():
                self._begin(stream)
            try:
                while not self._over():
                    turn = time.monotonic()
                    while self._waiting and self._open:
                        item = self._waiting.take()
                        if isinstance(item, Chunk):
                            self._make_room(self._streams[item.node])
                        yield item
                        # Give other tasks a turn here, not in the caller: if the caller's task ended there,
                        # this iterator would stay open.
                        if time.monotonic() - turn > TURN:
                            await asyncio.sleep(0)
                            turn = time.monotonic()
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

    def _begin(self, stream: NodeStream) -> None:
        self._runners.append(self._tasks.create_task(self._keep(stream)))

    def _over(self) -> bool:
        if not self._open:
            return True
        return not self._waiting and self._done | self._given_up >= self._streams.keys()

    def _make_room(self, stream: NodeStream) -> None:
        """Called when output of this node was passed on: let the node, and channels that were paused, send more."""
        self._ask_for_more(stream)
        if self._paused and self._waiting.output < MOST_WAITING // 4:
            self._paused = False
            for channel in self._channels.values():
                channel.resume()

    def _ask_for_more(self, stream: NodeStream) -> None:
        """Tell the node how much of its output was used, so that it sends more."""
        channel, line = (
            self._channels.get(stream.node),
            stream.taken_line(self._waiting.output_of[stream.node]),
        )
        if channel is not None and line:
            channel.write(line)

    # ---- one node

    async def _keep(self, stream: NodeStream) -> None:
        """Follow one node until it closes, however often the link breaks."""
        heard, failures, again = time.monotonic(), 0, 0
        while again < _MOST_REREADS:
            why = self._why[stream.node] = await self._look_once(stream)
            await self._handed_on(stream.node)
            if stream.closed:
                # Output that was requested too late is still on the node's disk: connect again for it.
                again = again + 1 if stream.unread else _MOST_REREADS
                continue
            if stream.node in self._linked:
                self._linked.discard(stream.node)
                heard, failures = self._heard_at[stream.node], 0
                self._made(stream, "disconnected", text=why, **_last_heard(stream))
            elif (
                # It did not answer a new attempt, and its silence has lasted long enough.
                time.monotonic() - heard >= self._lost_after and stream.node not in self._lost
            ):
                self._lose(stream, why)
            await asyncio.sleep(BACKOFF[min(failures, len(BACKOFF) - 1)])
            failures += 1
        self._again.discard(stream.node)
        self._done.add(stream.node)
        self._news.set()

    async def _handed_on(self, node: str) -> None:
        """Wait until all items of this node were passed on: only then are the read positions of its logs up to date."""
        while self._waiting.of[node]:  # noqa: ASYNC110 - plain data
            await asyncio.sleep(_LOOK)

    async def _watch_silence(self) -> None:
        """Notice nodes and channels that no longer send anything, even if the connection seems to be up."""
        while True:
            await asyncio.sleep(TICK)
            if not self._paused:
                self._silence.look()
                for stream in self._streams.values():
                    self._judge_silence(stream)

    def _judge_silence(self, stream: NodeStream) -> None:
        node = stream.node
        if not stream.closed and node not in self._lost | self._awaited:
            seconds = self._silence.of_node(node)
            if seconds >= max(self._lost_after, SHORTEST_SILENCE):
                silent = f"nothing has come from it for {seconds:.0f} s"
                self._lose(stream, self._why.get(node, silent))
        seconds = self._silence.of_channel(node)
        if node in self._channels and seconds >= SILENT_AFTER:
            stream.broken = f"the agent has said nothing for {seconds:.0f} s"

    def _lose(self, stream: NodeStream, why: str) -> None:
        self._lost.add(stream.node)
        self._linked.discard(stream.node)
        self._made(stream, "lost", text=f"{MUTE}: {why}", **_last_heard(stream))

    async def _look_once(self, stream: NodeStream) -> str:
        """Open one channel and use it until it ends; returns why it ended."""
        try:
            channel = await self._connect(stream)
            try:
                code = await _ended(stream, channel)
            finally:
                del self._channels[stream.node]
                await channel.close()
        except NodeError as error:
            return error.why
        if stream.broken:
            return stream.broken
        why = channel.complaint or f"the agent ended with exit code {code}"
        if code != 0 and not stream.closed and NO_FOLDER in why:
            self._not_there(stream, why)
        return why

    def _not_there(self, stream: NodeStream, why: str) -> None:
        """Note that the node does not know the job; believed only if no console is starting it there."""
        self._linked.discard(stream.node)
        if is_launched(self._plan.job):
            self._awaited.add(stream.node)
            return
        self._awaited.discard(stream.node)
        since = self._unstarted.setdefault(stream.node, time.monotonic())
        # A job that a console launched just before it was killed may still be starting.
        if time.monotonic() - since >= BELIEVE_AFTER:
            self._made(stream, "closed", unstarted=why)
            stream.closed = True

    async def _connect(self, stream: NodeStream) -> Channel:
        clock = await self._agents.shell.clock(stream.node)
        stream.reconnected(clock.offset, clock.uncertainty)
        command = ("job", "follow", stream.plan.job, stream.node, "--after", str(stream.seen))
        channel = await self._agents.open(
            stream.node, command, lambda data: self._feed(stream, data)
        )
        self._channels[stream.node] = channel
        self._silence.opened(stream.node)
        self._awaited.discard(stream.node)
        channel.write(stream.watch_line())
        return channel

    def _link(self, stream: NodeStream) -> None:
        """Note that the node has sent something, so it is connected."""
        node = stream.node
        if node in self._linked or (node in self._nonsense and not stream.caught_up):
            return
        self._linked.add(node)
        self._why.pop(node, None)
        self._nonsense.discard(node)
        self._lost.discard(node)
        clock = stream.clock
        self._made(stream, "connected", offset=clock.offset, uncertainty=clock.uncertainty)

    def _feed(self, stream: NodeStream, data: bytes) -> None:
        if stream.broken:
            return
        before = stream.frames
        try:
            found = stream.feed(data)
        except FrameError as error:
            stream.broken = f"the agent sends invalid data: {error}"
            self._nonsense.add(stream.node)
            self._linked.discard(stream.node)
            if doubt := stream.doubt(str(error)):
                self._waiting.extend((doubt,))
            self._news.set()
            return
        if stream.frames:
            self._link(stream)
            stream.heard, self._heard_at[stream.node] = time.time(), time.monotonic()
        if stream.frames > before:
            self._silence.heard(stream.node)
        self._waiting.extend(found)
        self._ask_for_more(stream)
        if self._waiting.output > MOST_WAITING and not self._paused:
            self._paused = True
            for channel in self._channels.values():
                channel.pause()
        self._act(stream)
        self._news.set()

    def _act(self, stream: NodeStream) -> None:
        """Act on what a node has sent: update its watch line, start daemons, end leftover processes."""
        if stream.fresh_watch:
            self._send_watch(stream)
        for request in stream.take_spawns():
            flooded = self._spawns.flooded(stream.node)
            if flooded:
                self._made(stream, "trouble", text=FLOOD)
            elif flooded is False:
                self._tasks.create_task(self._spawn(stream, request))
        if stream.closed and not self._sweeper and self._launchers_closed():
            self._sweeper = self._tasks.create_task(self._sweep())

    def _send_watch(self, stream: NodeStream) -> None:
        channel = self._channels.get(stream.node)
        if channel is not None and stream.fresh_watch:
            channel.write(stream.watch_line())

    def _made(self, stream: NodeStream, kind: str, **fields: Any) -> None:  # noqa: ANN401 - JSON
        event = NodeEvent(self._plan.job, stream.node, kind, time.time(), fields)
        self._waiting.extend((event,))
        self._news.set()

    # ---- daemons

    async def _spawn(self, origin: NodeStream, request: Mapping[str, Any]) -> None:
        """Start the MPI daemon that the launcher on `origin` requested, and answer the launcher."""
        asked, host = str(request["id"]), str(request.get("host"))
        why = self._spawns.refusal(origin.plan, request)
        if why:
            self._made(origin, "trouble", text=f"asked to start {why}")
            reply = f"the console does not start {why}"
        else:
            reply = await self._start_daemon(host, asked, str(request["command"]))
            if reply != "ok":
                self._spawns.failed(origin.node, host)
        answer = ("job", "answer", self._plan.job, origin.node, "--", asked, reply)
        try:
            await self._agents.call(origin.node, answer, limit=SPAWN_LIMIT)
        except NodeError as error:
            text = f"the launcher could not be answered: {error.why}"
            self._made(origin, "trouble", text=text)

    async def _start_daemon(self, host: str, asked: str, command: str) -> str:
        stdin = json.dumps({"id": asked, "host": host, "command": command}).encode()
        spawn = ("job", "spawn", self._plan.job, host)
        try:
            answer = await self._agents.call(host, spawn, stdin, limit=SPAWN_LIMIT)
        except NodeError as error:
            return f"{host}: {error.why}"
        if answer.row.get("ok") is True:
            return "ok"
        return f"{host}: {clean(answer.row.get('error'), 300) or answer.complaint}"

    def _launchers_closed(self) -> bool:
        """Whether every node with planned processes has closed, while others have none planned."""
        having = [s.closed for s in self._streams.values() if s.plan.processes]
        return all(having) and len(having) < len(self._streams)

    async def _sweep(self) -> None:
        """End processes that the launcher left on nodes that only had its daemons."""
        await asyncio.sleep(LEFTOVER)
        for stream in self._streams.values():
            if stream.closed:
                continue
            job = (self._plan.job, stream.node)
            command = ("job", "cancel", *job, "--grace", "2", "--by", "system")
            try:
                await self._agents.call(stream.node, command, limit=2 + SPAWN_LIMIT)
            except NodeError as error:
                text = f"what the launcher left could not be ended: {error.why}"
                self._made(stream, "trouble", text=text)


async def _ended(stream: NodeStream, channel: Channel) -> int:
    """Wait for the end of the program; its exit code, or -1 if the stream is broken. Raises UnreachableError."""
    while not stream.broken:
        with suppress(TimeoutError):
            async with asyncio.timeout(TICK):
                return await channel.wait()
    return -1


def _last_heard(stream: NodeStream) -> dict[str, float]:
    """The event field `heard`: when the node last sent anything, if it ever did. A loss is noticed only later."""
    return {} if stream.heard is None else {"heard": stream.heard}
