"""Copies one image to many nodes (read once, written in parallel), and a
file from each of many nodes to here.
"""

import asyncio
import hashlib
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from rankdeck.config.files import open_regular, replace_file
from rankdeck.errors import AgentError, NodeError, UnreachableError, leaf_errors
from rankdeck.model.json_tables import parse_table
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.safe_text import clean_line
from rankdeck.remote.agent import Agents
from rankdeck.remote.dialogue import Dialogue
from rankdeck.remote.shell import Channel, OnData, limit_time, on_each
from rankdeck.values import Value
from rankdeck_agent.rules.units import write_duration, write_size, write_speed

PIECE = 256 << 10
READY_LIMIT = 600.0
"""Seconds: a node may first have to read the part of a large image that it already has."""
STALL_LIMIT = 60.0
"""Seconds without progress after which a node counts as lost; longer where nodes are given
more time (`patience`, as READY_LIMIT too).
"""
_UNSENT = 4 << 20


Failed = dict[str, NodeError]
"""Node -> why it did not receive the file, or did not send it."""
Hand = Callable[[bytes], Awaitable[None]]
"""Awaited with each piece of an image, in order."""
Start = Callable[[int, OnData], Awaitable[Channel]]
"""Starts a command that writes an image to its stdout, from this byte offset if it can."""


class ImageSource(Protocol):
    """The source of one image."""

    size: int
    """Bytes."""

    async def pump(self, offset: int, hand: Hand) -> None:
        """Pass all bytes from this offset on to `hand`; raises NodeError or OSError."""
        ...


class CopyTarget(Protocol):
    """A node that receives an image."""

    node: str

    async def open(self, stack: AsyncExitStack) -> int:
        """Start receiving; returns the offset from which it needs the image. `stack` closes it.

        Raises NodeError.
        """
        ...

    async def write(self, data: bytes) -> None:
        """Send data, no faster than the node accepts it; raises NodeError."""
        ...

    async def finish(self) -> None:
        """Wait until the node has stored and checked everything; raises NodeError."""
        ...


# ---- sources ---------------------------------------------------------------------------


async def sha256_of(path: Path) -> str:
    """The SHA-256 of a file on this machine, in hex; read in a thread. Raises OSError."""

    def read() -> str:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return await asyncio.to_thread(read)


class LocalFile:
    """A file on the console's machine, as an `ImageSource`."""

    def __init__(self, path: Path) -> None:
        found = path.stat()
        self._path, self.size = path, found.st_size
        self.mode = found.st_mode & 0o777

    async def pump(self, offset: int, hand: Hand) -> None:
        """See `ImageSource.pump`; raises OSError."""
        file: BinaryIO = await asyncio.to_thread(open_regular, self._path)
        with file:
            file.seek(offset)
            while piece := await asyncio.to_thread(file.read, PIECE):
                await hand(piece)


class NodeOutput:
    """The output of a command on a node as an `ImageSource`; read
    no faster than it is passed on.
    """

    def __init__(self, node: str, start: Start, size: int, patience: float) -> None:
        """`patience`: all limits are multiplied by it (see `Access.patience`)."""
        self._node, self._start, self.size = node, start, size
        self._patience = patience
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
        """See `ImageSource.pump`; raises NodeError."""
        channel = self._channel = await self._start(offset, self._take)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._wait(channel))
                await self._pass_on(channel, hand)
        except ExceptionGroup as group:
            raise next(leaf_errors(group)) from group
        finally:
            await channel.close()
        if self._why:
            raise AgentError(
                self._node, f"could not be read: {self._why.removeprefix('rankdeck: ')}"
            )

    async def _wait(self, channel: Channel) -> None:
        try:
            code = await channel.wait()
            self._why = (clean_line(channel.complaint) or f"exit status {code}") if code else ""
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
                async with _no_stall(self._node, self._patience):
                    await self._news.wait()


# ---- targets ---------------------------------------------------------------------------


def _no_stall(node: str, patience: float) -> AbstractAsyncContextManager[None]:
    limit = STALL_LIMIT * patience
    return limit_time(node, limit, f"no progress for {limit:.0f} s")


class FilePlace(Value):
    """Where a file must be on the nodes (`path`, relative to `base`), size, digest,
    permissions; `replace` an existing one.
    """

    path: str
    base: str
    size: int
    sha256: str
    replace: bool = False
    mode: int = 0o644


class ReceivedFile:
    """A file that a node's agent receives: it resumes, checks, and
    renames the file when complete.
    """

    def __init__(self, agents: Agents, node: str, place: FilePlace) -> None:
        self._agents, self.node, self._place = agents, node, place
        self._talk: Dialogue

    async def open(self, stack: AsyncExitStack) -> int:
        """See `CopyTarget.open`; raises NodeError."""
        place = self._place
        command = (
            "image",
            "receive",
            f"--base={place.base}",
            f"--mode={place.mode:o}",
            *(["--replace"] if place.replace else []),
            "--",
            place.path,
            str(place.size),
            place.sha256,
        )
        self._talk = await stack.enter_async_context(self._agents.dialogue(self.node, command))
        offset = self._checked(await self._talk.hear(READY_LIMIT)).get("offset")
        if type(offset) is not int or not 0 <= offset <= place.size:
            raise AgentError(self.node, "said no offset to go on from")
        return offset

    async def write(self, data: bytes) -> None:
        """See `CopyTarget.write`; raises NodeError."""
        if self._talk.answered:
            return  # The agent has given up: `finish` says why.
        self._talk.channel.write(data)
        async with _no_stall(self.node, self._agents.patience):
            await self._talk.channel.drain()

    async def finish(self) -> None:
        """See `CopyTarget.finish`; raises NodeError."""
        self._talk.channel.end()
        self._checked(await self._talk.hear(READY_LIMIT))

    def _checked(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        if answer.get("ok") is False:
            raise AgentError(self.node, clean_line(answer.get("error"), 400))
        return answer


class NodeStore:
    """The image store of podman or docker on a node: `load` reads the image from its stdin."""

    def __init__(self, agents: Agents, node: str, runtime: str) -> None:
        self._shell, self.node, self._runtime = agents.shell, node, runtime
        self._patience = agents.patience
        self._channel: Channel

    async def open(self, stack: AsyncExitStack) -> int:
        """Always from the beginning; raises NodeError."""
        argv = (self._runtime, "load", "--quiet")
        self._channel = await self._shell.open(self.node, argv, lambda _: None)
        stack.push_async_callback(self._channel.close)
        return 0

    async def write(self, data: bytes) -> None:
        """See `CopyTarget.write`; raises NodeError."""
        self._channel.write(data)
        async with _no_stall(self.node, self._patience):
            await self._channel.drain()

    async def finish(self) -> None:
        """Wait until the store has loaded the image; raises NodeError."""
        self._channel.end()
        async with limit_time(
            self.node, READY_LIMIT * self._patience, "the image store refuses it"
        ):
            code = await self._channel.wait()
        if code:
            raise AgentError(
                self.node, clean_line(self._channel.complaint) or f"exit status {code}"
            )


AT_ONCE = 32
"""Nodes that are served at the same time; further ones wait for their turn."""
_PERIOD = 0.5
_AHEAD = 16
"""Pieces that a slow node may be behind before the others wait for it."""


class CopyState(Value):
    """The progress of a copy."""

    done: Mapping[str, int]
    """Node -> bytes that it has or that are being sent to it."""
    total: int
    """Bytes of the image."""
    sent: int
    """Bytes sent to all nodes together, without what they had before."""
    seconds: float
    """Seconds since the transfer began."""

    @property
    def rate(self) -> float:
        """Bytes per second to all nodes together."""
        return self.sent / self.seconds if self.seconds > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Estimated seconds left; None if not known."""
        missing = sum(max(0, self.total - done) for done in self.done.values())
        return missing / self.rate if self.rate > 0 else None


Tell = Callable[[CopyState], None]
TellLaunch = Callable[[CopyState | str], None]
"""Called during a launch with the progress of the copy, or with a sentence."""


def progress_words(progress: CopyState) -> str:
    """`512 MiB of 6.1 GiB to n[2-3], 110 MiB/s, 51 s left`; the slowest node counts."""
    least = min(progress.done.values())
    left = progress.left_s
    words = (
        f"{write_size(least)} of {write_size(progress.total)} to {fold_nodes(progress.done)},"
        f" {write_speed(progress.rate)}"
    )
    return words + (f", {write_duration(left)} left" if left and left >= 1 else "")


async def copy_image(
    source: ImageSource, targets: Sequence[CopyTarget], tell: Tell
) -> dict[str, NodeError]:
    """Copy to all targets; returns node -> error of failed ones.

    Raises NodeError or OSError if the source fails.
    """
    failed: dict[str, NodeError] = {}
    for first in range(0, len(targets), AT_ONCE):
        turn = _Turn(source, targets[first : first + AT_ONCE], tell)
        failed |= await turn.run()
    return failed


class _Turn:
    """The copy to the nodes that are served at the same time."""

    def __init__(self, source: ImageSource, targets: Sequence[CopyTarget], tell: Tell) -> None:
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

    async def _open(self, target: CopyTarget, stack: AsyncExitStack) -> None:
        try:
            self._done[target.node] = await target.open(stack)
            self._queues[target.node] = asyncio.Queue(_AHEAD)
        except NodeError as error:
            self._failed[target.node] = error

    async def _transfer(self) -> None:
        """Send what any node lacks, then wait until every node has finished."""
        trouble: NodeError | OSError | None = None
        async with asyncio.TaskGroup() as tasks:
            ticker = tasks.create_task(self._tick())
            writers = [
                tasks.create_task(self._serve(t)) for t in self._targets if t.node in self._queues
            ]
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
        """Queue for every node the part of this piece that it lacks."""
        start, end = self._position, self._position + len(piece)
        self._position = end
        for node, queue in self._queues.items():
            if (done := self._done[node]) < end and node not in self._failed:
                part = piece[max(0, done - start) :]
                self._done[node] = end
                self._sent += len(part)
                await queue.put(part)

    async def _serve(self, target: CopyTarget) -> None:
        """Write the queued pieces; after a failure drop them, so that
        the other nodes need not wait.
        """
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


# ---- from nodes to this machine

_CHATTER = 64 << 10
"""Most bytes that a login shell may print before and after a file."""
_SLACK = 64 << 20
"""Bytes of disk space that must stay free on this machine."""
OWN, NOT_FOR_OTHERS_TO_WRITE = 0o600, 0o755
"""Permissions that every fetched file has, and the most that a node may give it."""


class FetchState(Value):
    """The progress of fetching files from many nodes."""

    nodes: int
    over: int
    """Number of nodes whose file is complete or has failed."""
    done: int
    total: int
    """Bytes of all files whose size is known."""

    @property
    def words(self) -> str:
        """`2 of 3 nodes, 12 MiB of 40 MiB`."""
        return f"{self.over} of {self.nodes} nodes, {write_size(self.done)} of {write_size(self.total)}"


TellFetch = Callable[[FetchState], None]


class FetchedFile:
    """One file that is fetched from a node: written under a temporary
    name, renamed when it is complete.
    """

    def __init__(self, node: str, path: Path) -> None:
        self.node, self.path = node, path
        self.size, self.done, self.over = 0, 0, False
        self._mode = OWN
        self._begun = False
        self._digest = hashlib.sha256()
        self._lines = b""
        """Received lines that are not part of the file: its head, its
        digest, output of the login shell.
        """

    async def fetch(self, source: NodeOutput) -> None:
        """Receive the file; raises NodeError, and then leaves no partial file."""
        try:
            with replace_file(self.path) as file:
                await source.pump(0, lambda data: asyncio.to_thread(self._take, file, data))
                self._check()
            self.path.chmod(self._mode)
        except OSError as error:
            raise AgentError(self.node, f"{self.path}: {error.strerror or error}") from error
        finally:
            self.over = True

    def _take(self, file: BinaryIO, data: bytes) -> None:
        if not self._begun:
            data = self._after_head(data)
        body = data[: self.size - self.done]
        file.write(body)
        self._digest.update(body)
        self.done += len(body)
        self._lines += data[len(body) :]
        if len(self._lines) > _CHATTER:
            raise AgentError(self.node, "sent something else than this file")

    def _after_head(self, data: bytes) -> bytes:
        """The part of `data` that belongs to the file, which begins
        after the line with its size.
        """
        before, self._lines = self._lines + data, b""
        while not self._begun and b"\n" in before:
            line, _, before = before.partition(b"\n")
            head = parse_table(line) or {}
            announced, mode = head.get("size"), head.get("mode")
            if type(announced) is int and 0 <= announced < 1 << 62:
                self._begun, self.size = True, announced
                self._mode = OWN | (mode & NOT_FOR_OTHERS_TO_WRITE if type(mode) is int else 0)
        if not self._begun:
            self._lines = before
            return b""
        free = shutil.disk_usage(self.path.parent).free
        if self.size + _SLACK > free:
            why = (
                f"its file has {write_size(self.size)}, {self.path.parent} {write_size(free)} free"
            )
            raise AgentError(self.node, why)
        return before

    def _check(self) -> None:
        rows = [parse_table(line) or {} for line in self._lines.splitlines()]
        digest = next((row["sha256"] for row in rows if "sha256" in row), None)
        if not self._begun or self.done < self.size or digest is None:
            raise AgentError(self.node, "the file broke off")
        if digest != self._digest.hexdigest():
            raise AgentError(self.node, "what arrived is not what was sent: nothing was kept")


def places_for(
    folder: Path, name: str, nodes: Iterable[str], *, overwrite: bool
) -> tuple[list[FetchedFile], Failed]:
    """(files NAME.NODE to fetch into this folder, nodes whose file exists); creates the folder.

    Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = [FetchedFile(node, folder / f"{name}.{node}") for node in nodes]
    there = [] if overwrite else [file for file in files if os.path.lexists(file.path)]
    why = "is there already; --replace puts this one in its place"
    kept: Failed = {file.node: AgentError(file.node, f"{file.path} {why}") for file in there}
    return [file for file in files if file.node not in kept], kept


async def fetch_files(
    files: Iterable[FetchedFile], source: Callable[[str], NodeOutput], tell: TellFetch
) -> Failed:
    """Fetch the file of every node, AT_ONCE at a time; returns the nodes that failed."""
    by_node = {file.node: file for file in files}

    async def one(node: str) -> None:
        await by_node[node].fetch(source(node))

    async def tick() -> None:
        while True:
            tell(_fetch_state(by_node.values()))
            await asyncio.sleep(_PERIOD)

    async with asyncio.TaskGroup() as tasks:
        ticker = tasks.create_task(tick())
        _, failed = await on_each(by_node, one, AT_ONCE)
        ticker.cancel()
    return failed


def _fetch_state(files: Iterable[FetchedFile]) -> FetchState:
    some = tuple(files)
    over, done = sum(one.over for one in some), sum(one.done for one in some)
    return FetchState(len(some), over, done, sum(one.size for one in some))
