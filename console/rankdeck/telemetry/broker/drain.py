"""Reads many connections on a tick: one wake-up for all that spoke, not one for each."""

import asyncio
from collections.abc import Callable
from selectors import EVENT_READ, DefaultSelector

TICK = 0.05
"""Seconds between two readings of connections that never stop: screens are painted more seldom."""
TURN = 0.01
"""Seconds of reading after which others have their turn."""


class Drain:
    """Calls whoever has something to read; a first word at once, further ones on the tick."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._selector = DefaultSelector()
        self._timer: asyncio.TimerHandle | None = None
        self._wait()

    def add(self, fd: int, read: Callable[[], None]) -> None:
        """Call `read` whenever there is something; it must read or remove."""
        self._selector.register(fd, EVENT_READ, read)

    def remove(self, fd: int) -> None:
        """Read no more of a connection that is, or is no longer, read."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def close(self) -> None:
        self._loop.remove_reader(self._selector.fileno())
        if self._timer:
            self._timer.cancel()
        self._selector.close()

    def _wait(self) -> None:
        # A selector is itself readable once one of its connections is.
        self._loop.add_reader(self._selector.fileno(), self._ready)

    def _ready(self) -> None:
        self._loop.remove_reader(self._selector.fileno())
        until, pause = self._loop.time() + TURN, TICK
        for key, _ in self._selector.select(0):
            key.data()
            if self._loop.time() > until:
                pause = 0.0
                break
        self._timer = self._loop.call_later(pause, self._wait)
