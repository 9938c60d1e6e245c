"""One image to many nodes: read once, written to all of them side by side."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from rankdeck.errors import NodeError
from rankdeck.images.endpoints import ImageSource, Target
from rankdeck.model.nodeset import fold
from rankdeck.model.text import duration, size, speed

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
