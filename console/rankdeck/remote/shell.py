"""What it takes to run a program on a node: the part of SSH that the layers above see."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rankdeck.errors import NodeError

OnData = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Result:
    """What a program left behind."""

    code: int
    """128 + signal where a signal ended it."""
    out: bytes
    err: bytes


@dataclass(frozen=True, slots=True)
class Clock:
    """How a node's clock differs from ours: node = console + offset, give or take."""

    offset: float = 0.0
    uncertainty: float = 0.5


class Channel(Protocol):
    """A running program on a node."""

    def write(self, data: bytes) -> None:
        """Send to its stdin; nothing where it has ended."""
        ...

    async def drain(self) -> None:
        """Wait until what was written is on its way; at once where the program has ended."""
        ...

    def end(self) -> None:
        """End its stdin."""
        ...

    def pause(self) -> None:
        """Take no more output for now; the program waits when the window is full."""
        ...

    def resume(self) -> None: ...

    @property
    def complaint(self) -> str:
        """The end of its stderr, as one line."""
        ...

    def wait(self) -> Awaitable[int]:
        """Its exit status; raises UnreachableError when the connection is lost first."""
        ...

    async def close(self) -> None: ...


class Shell(Protocol):
    """Programs and tunnels on nodes; every failure to get there is an UnreachableError."""

    async def run(
        self, node: str, argv: Sequence[str], stdin: bytes = b"", limit: float = 30
    ) -> Result: ...

    async def open(self, node: str, argv: Sequence[str], on_data: OnData) -> Channel: ...

    async def reverse_tunnel(self, node: str, host: str, port: int) -> int: ...

    async def clock(self, node: str) -> Clock: ...


T = TypeVar("T")


async def on_each(
    names: Iterable[str], ask: Callable[[str], Awaitable[T]]
) -> dict[str, T | NodeError]:
    """The answer of every node, or its error."""
    answers: dict[str, T | NodeError] = {}

    async def one(name: str) -> None:
        try:
            answers[name] = await ask(name)
        except NodeError as error:
            answers[name] = error

    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(one(name))
    return answers
