"""Protocols to run programs on nodes: the part of SSH that the layers above see."""

import asyncio
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rankdeck.errors import HostKeyError, NodeError

OnData = Callable[[bytes], None]
Confirm = Callable[[HostKeyError], Awaitable[bool]]
"""Asked about an unknown host key; whether it is the right one."""
_ODD = re.compile(r"[\\!\n]")
"""Within single quotes these are themselves to sh; not `\\` to fish, not `!` and an end of line to csh."""
_CODED = re.compile(r"[\\'!\n]")


def login_line(argv: Sequence[str]) -> str:
    """The command line that any login shell (bash, zsh, ksh, fish, csh) takes for exactly these words."""
    line = shlex.join(argv)
    if not _ODD.search(line):
        return line
    coded = _CODED.sub(lambda found: f"\\0{ord(found[0]):03o}", line)
    return f"""sh -c 'eval "exec $(printf %b "$1")"' sh '{coded}'"""


@dataclass(frozen=True, slots=True)
class Result:
    """Output and exit status of a program."""

    code: int
    """128 + signal if a signal ended it."""
    out: bytes
    err: bytes


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds by which a node's clock is ahead of ours, give or take `uncertainty`."""

    offset: float = 0.0
    uncertainty: float = 0.5


class Channel(Protocol):
    """A running program on a node."""

    def write(self, data: bytes) -> None:
        """Send to its stdin; does nothing if it has ended."""
        ...

    async def drain(self) -> None:
        """Wait until the data written has been sent; returns at once if the program has ended."""
        ...

    def end(self) -> None:
        """End its stdin."""
        ...

    def pause(self) -> None:
        """Stop taking output; the program waits once SSH's window is full."""
        ...

    def resume(self) -> None: ...

    @property
    def complaint(self) -> str:
        """The end of its stderr, as one line."""
        ...

    def wait(self) -> Awaitable[int]:
        """Its exit status; raises UnreachableError when the connection is lost first, and what its
        `on_data` raised."""
        ...

    async def close(self) -> None: ...


class Shell(Protocol):
    """Programs and tunnels on nodes; every failure to reach a node is raised as UnreachableError.

    An `on_data` may raise NodeError: then it is called no more, and `Channel.wait` raises that.
    """

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


class Questions:
    """The question about a host key that waits for the operator."""

    def __init__(self) -> None:
        self.pending: HostKeyError | None = None
        self._answer: asyncio.Future[bool] | None = None
        self._asking = asyncio.Lock()

    async def confirm(self, error: HostKeyError) -> bool:
        """Show the question as `pending` and wait for the answer."""
        async with self._asking:
            self._answer = asyncio.get_running_loop().create_future()
            self.pending = error
            try:
                return await self._answer
            finally:
                self.pending = None

    def answer(self, accept: bool) -> None:
        """Answer the pending question."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(accept)
