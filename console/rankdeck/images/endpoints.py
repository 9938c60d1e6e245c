"""Sources and targets of a copy: files here, files on nodes, image stores of Podman and Docker."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from rankdeck.errors import AgentError, UnreachableError
from rankdeck.model.text import clean
from rankdeck.remote.agent import Agents, Dialogue
from rankdeck.remote.shell import Channel, OnData, Shell

PIECE = 256 << 10
READY_LIMIT = 600.0
"""Seconds: a node may have to read what it has of a large image first."""
STALL_LIMIT = 60.0
"""Seconds without progress after which a node counts as lost."""
_AHEAD = 4 << 20


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
        if len(self._waiting) > _AHEAD and self._channel is not None:
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
