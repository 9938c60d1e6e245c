"""Ctrl-C as something one can wait for."""

import asyncio
import signal
from types import TracebackType
from typing import Self


class Interrupts:
    """While entered, SIGINT ends nothing: it is counted and waited for.

    `terminate` also takes SIGTERM that way, for what runs under a supervisor.
    """

    def __init__(self, *, terminate: bool = False) -> None:
        self._signals = (signal.SIGINT, signal.SIGTERM)[: 1 + terminate]
        self._waiting: asyncio.Queue[None] = asyncio.Queue()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in self._signals:
            loop.add_signal_handler(number, self._waiting.put_nowait, None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number in self._signals:
            asyncio.get_running_loop().remove_signal_handler(number)

    async def next(self) -> None:
        """Wait for the next one."""
        await self._waiting.get()
