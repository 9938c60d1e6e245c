"""Ctrl-C as something one can wait for."""

import asyncio
import signal
from types import TracebackType
from typing import Self


class Interrupts:
    """While entered, SIGINT ends nothing: it is counted and waited for."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[None] = asyncio.Queue()

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGINT, self._waiting.put_nowait, None
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    async def next(self) -> None:
        """Wait for the next one."""
        await self._waiting.get()
