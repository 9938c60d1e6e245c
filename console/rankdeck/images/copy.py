"""Copies one image to many nodes: files here or there, stores of Podman and Docker; reads it once, writes in parallel."""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from rankdeck.errors import AgentError, NodeError, UnreachableError
from rankdeck.model.nodeset import fold
from rankdeck.model.text import clean, duration, size, speed
from rankdeck.remote.agent import Agents, Dialogue
from rankdeck.remote.shell import Channel, OnData, Shell

PIECE = 256 << 10
READY_LIMIT = 600.0
"""Seconds: a node may have to read what it has of a large image first."""
STALL_LIMIT = 60.0
"""Seconds without progress after which a node counts as lost."""
_UNSENT = 4 << 20


Hand = Callable[[bytes], Awaitable[None]]
Start = Callable[[int, OnData], Awaitable[Channel]]
"""Starts a command that writes an image, from this byte on where it can."""


class ImageSource(Protocol):
    """The bytes of one image."""

    size: int

    async def pump(self, offset: int, hand: Hand) -> None:
        """Hand over all of it from there on; raises NodeError or OSError."""
        ...


class Target(Protocol):
    """A node that takes an image."""

    node: str

    async def open(self, stack: AsyncExitStack) -> int:
        """The offset from which it wants it; raises NodeError."""
        ...

    async def write(self, data: bytes) -> None:
        """Hand on, as fast as the node takes it; raises NodeError."""
        ...

    async def finish(self) -> None:
        """Wait until all of it is safe there; raises NodeError."""
        ...


# ---- sources ---------------------------------------------------------------------------


async def sha256_of(path: Path) -> str:
    """The digest of a file of this machine, read in a thread."""

    def read() -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return await asyncio.to_thread(read)


class LocalFile:
    """A file of the console's own machine."""

    def __init__(self, path: Path) -> None:
        self._path, self.size = path, path.stat().st_size

    async def pump(self, offset: int, hand: Hand) -> None:
        """Hand over all of it from there on; raises OSError."""
        file: BinaryIO = await asyncio.to_thread(self._path.open, "rb")
        with file:
            file.seek(offset)
            while piece := await asyncio.to_thread(file.read, PIECE):
                await hand(piece)


class NodeOutput:
    """What a command on a node writes, read no faster than it is passed on."""

    def __init__(self, node: str, start: Start, size: int) -> None:
        self._node, self._start, self.size = node, start, size
        self._waiting = bytearray()
        self._news = asyncio.Event()
        self._channel: Channel | None = None
        self._why: str | None = None

    def _take(self, data: bytes) -> None:
        self._waiting += data
        if len(self._waiting) > _UNSENT and self._channel is not None:
            self._channel.pause()
        self._news.set()

    async def pump(self, offset: int, hand: Hand) -> None:
        """Hand over all of it from there on; raises NodeError."""
        channel = self._channel = await self._start(offset, self._take)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._wait(channel))
                await self._pass_on(channel, hand)
        finally:
            await channel.close()
        if self._why:
            raise AgentError(self._node, f"the image could not be read: {self._why}")

    async def _wait(self, channel: Channel) -> None:
        try:
            code = await channel.wait()
            self._why = (clean(channel.complaint) or f"exit status {code}") if code else ""
        except UnreachableError as error:
            self._why = error.why
        self._news.set()

    async def _pass_on(self, channel: Channel, hand: Hand) -> None:
        while self._why is None or self._waiting:
            self._news.clear()
            if self._waiting:
                piece, self._waiting = bytes(self._waiting), bytearray()
                channel.resume()
                await hand(piece)
            elif self._why is None:
                async with _no_stall(self._node):
                    await self._news.wait()


# ---- targets ---------------------------------------------------------------------------


@asynccontextmanager
async def _no_stall(node: str) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(STALL_LIMIT):
            yield
    except TimeoutError as error:
        why = f"no progress for {STALL_LIMIT:.0f} s"
        raise UnreachableError(node, why) from error


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file shall lie: a path, relative to `base`, and what it must become."""

    path: str
    base: str
    size: int
    sha256: str
    replace: bool = False


class NodeFile:
    """A file on a node, taken by its agent: resumed, checked, renamed when whole."""

    def __init__(self, agents: Agents, node: str, place: Place) -> None:
        self._agents, self.node, self._place = agents, node, place
        self._talk: Dialogue

    async def open(self, stack: AsyncExitStack) -> int:
        """The offset from which it wants it; raises NodeError."""
        place = self._place
        command = ("image", "receive", f"--base={place.base}", *(["--replace"] if place.replace else []),
                "--", place.path, str(place.size), place.sha256)  # fmt: skip
        self._talk = await stack.enter_async_context(self._agents.dialogue(self.node, command))
        offset = self._checked(await self._talk.hear(READY_LIMIT)).get("offset")
        if type(offset) is not int or not 0 <= offset <= place.size:
            raise AgentError(self.node, "said no offset to go on from")
        return offset

    async def write(self, data: bytes) -> None:
        """Hand on, as fast as the node takes it; raises NodeError."""
        if self._talk.answered:
            return  # It gave up: `finish` says why.
        self._talk.channel.write(data)
        async with _no_stall(self.node):
            await self._talk.channel.drain()

    async def finish(self) -> None:
        """Wait until all of it is safe there; raises NodeError."""
        self._talk.channel.end()
        self._checked(await self._talk.hear(READY_LIMIT))

    def _checked(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        if answer.get("ok") is False:
            raise AgentError(self.node, clean(answer.get("error"), 400))
        return answer


class NodeStore:
    """The store of podman or docker on a node: `load` takes the image from its input."""

    def __init__(self, shell: Shell, node: str, runtime: str) -> None:
        self._shell, self.node, self._runtime = shell, node, runtime
        self._channel: Channel

    async def open(self, stack: AsyncExitStack) -> int:
        """Always from the beginning; raises NodeError."""
        argv = (self._runtime, "load", "--quiet")
        self._channel = await self._shell.open(self.node, argv, lambda _: None)
        stack.push_async_callback(self._channel.close)
        return 0

    async def write(self, data: bytes) -> None:
        """Hand on, as fast as the node takes it; raises NodeError."""
        self._channel.write(data)
        async with _no_stall(self.node):
            await self._channel.drain()

    async def finish(self) -> None:
        """Wait until the store has taken it in; raises NodeError."""
        self._channel.end()
        try:
            async with asyncio.timeout(READY_LIMIT):
                code = await self._channel.wait()
        except TimeoutError as error:
            raise UnreachableError(self.node, "the store does not take it in") from error
        if code:
            raise AgentError(self.node, clean(self._channel.complaint) or f"exit status {code}")


AT_ONCE = 32
"""Nodes served side by side; more take turns."""
_PERIOD = 0.5
_AHEAD = 16
"""Pieces that a slow node may be behind the others before these wait for it."""


@dataclass(frozen=True, slots=True)
class CopyState:
    """How far a copy is."""

    done: Mapping[str, int]
    """Node -> bytes that are there or on their way."""
    total: int
    """Bytes of the image."""
    sent: int
    """Bytes sent to all of them together: what was there already left out."""
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes per second to all nodes together."""
        return self.sent / self.seconds if self.seconds > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds to go, None while nothing can be said."""
        missing = sum(max(0, self.total - done) for done in self.done.values())
        return missing / self.rate if self.rate > 0 else None


Tell = Callable[[CopyState], None]


def progress_words(progress: CopyState) -> str:
    """`512 MiB of 6.1 GiB to n[2-3], 110 MiB/s, 51 s left`; the slowest node counts."""
    least = min(progress.done.values())
    left = progress.left_s
    words = (
        f"{size(least)} of {size(progress.total)} to {fold(progress.done)}, {speed(progress.rate)}"
    )
    return words + (f", {duration(left)} left" if left and left >= 1 else "")


async def copy(source: ImageSource, targets: Sequence[Target], tell: Tell) -> dict[str, NodeError]:
    """Copy to all; gives the nodes that failed. Raises NodeError or OSError of the source."""
    failed: dict[str, NodeError] = {}
    for first in range(0, len(targets), AT_ONCE):
        turn = _Turn(source, targets[first : first + AT_ONCE], tell)
        failed |= await turn.run()
    return failed


class _Turn:
    """The nodes that are served at the same time."""

    def __init__(self, source: ImageSource, targets: Sequence[Target], tell: Tell) -> None:
        self._source, self._targets, self._tell = source, targets, tell
        self._failed: dict[str, NodeError] = {}
        self._done: dict[str, int] = {}
        self._queues: dict[str, asyncio.Queue[bytes]] = {}
        self._position = 0
        self._sent = 0
        self._began = time.monotonic()

    async def run(self) -> dict[str, NodeError]:
        async with AsyncExitStack() as stack:
            async with asyncio.TaskGroup() as tasks:
                for target in self._targets:
                    tasks.create_task(self._open(target, stack))
            self._began = time.monotonic()
            await self._transfer()
        return self._failed

    async def _open(self, target: Target, stack: AsyncExitStack) -> None:
        try:
            self._done[target.node] = await target.open(stack)
            self._queues[target.node] = asyncio.Queue(_AHEAD)
        except NodeError as error:
            self._failed[target.node] = error

    async def _transfer(self) -> None:
        """Pump what somebody lacks, and let every node say that it is whole."""
        trouble: NodeError | OSError | None = None
        async with asyncio.TaskGroup() as tasks:
            ticker = tasks.create_task(self._tick())
            writers = [
                tasks.create_task(self._serve(t)) for t in self._targets if t.node in self._queues
            ]  # fmt: skip
            self._position = min(self._done.values(), default=self._source.size)
            try:
                if self._position < self._source.size:
                    await self._source.pump(self._position, self._hand)
            except (NodeError, OSError) as error:
                trouble = error
            for queue in self._queues.values():
                await queue.put(b"")
            if writers:
                await asyncio.wait(writers)
            ticker.cancel()
        self._report()
        if trouble is not None:
            raise trouble

    async def _hand(self, piece: bytes) -> None:
        """Give every node what it lacks of this piece."""
        start, end = self._position, self._position + len(piece)
        self._position = end
        for node, queue in self._queues.items():
            if (done := self._done[node]) < end and node not in self._failed:
                part = piece[max(0, done - start) :]
                self._done[node] = end
                self._sent += len(part)
                await queue.put(part)

    async def _serve(self, target: Target) -> None:
        """Write what comes; after a failure go on taking it, so that the others are not held up."""
        queue = self._queues[target.node]
        while piece := await queue.get():
            if target.node not in self._failed:
                try:
                    await target.write(piece)
                except NodeError as error:
                    self._failed[target.node] = error
        if target.node not in self._failed:
            try:
                await target.finish()
            except NodeError as error:
                self._failed[target.node] = error

    async def _tick(self) -> None:
        while True:
            self._report()
            await asyncio.sleep(_PERIOD)

    def _report(self) -> None:
        seconds = time.monotonic() - self._began
        self._tell(CopyState(dict(self._done), self._source.size, self._sent, seconds))
