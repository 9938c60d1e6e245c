"""Carries an agent's connection to the broker over the agent's own
output, where the SSH server opens no ports.

The agent's half is `rankdeck_agent/relay.py`.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Callable

from rankdeck.model.field_checks import natural_or_zero
from rankdeck.model.json_tables import as_table, parse_table

CONNECT_LIMIT = 10.0
_LONGEST_ROW = 256 << 10
"""Most bytes of a row; the agent's have up to a fifth of that."""
_MOST_WAITING = 4 << 20
"""Most bytes that wait for the broker; an agent that sends more loses its connection."""
_PART = 32 << 10


class _BrokerSide(asyncio.Protocol):
    """One connection to the broker; `say` gets its bytes, and None at its end."""

    def __init__(self, say: Callable[[bytes | None], None]) -> None:
        self._say = say

    def data_received(self, data: bytes) -> None:
        for at in range(0, len(data), _PART):
            self._say(data[at : at + _PART])

    def connection_lost(self, exc: Exception | None) -> None:
        self._say(None)


class StdioRelay:
    """The connection of one running agent; the agent has at most one at a time."""

    def __init__(self, host: str, port: int, tasks: asyncio.TaskGroup) -> None:
        """`host:port` is the broker as seen from this machine."""
        self._broker, self._tasks = (host, port), tasks
        self._write: Callable[[bytes], None] = lambda _: None
        self._rest = b""
        self._number = 0
        """Of the connection that the agent has now, or had last."""
        self._early: list[bytes] = []
        """What the agent sent before the connection to the broker was made."""
        self._transport: asyncio.WriteTransport | None = None
        self._connecting: asyncio.Task[None] | None = None

    def begin(self, write: Callable[[bytes], None]) -> None:
        """The agent runs; `write` sends to its standard input."""
        self._write = write

    def end(self) -> None:
        """The agent has ended, and with it its connection."""
        self._write = lambda _: None
        self._drop()

    def take(self, data: bytes) -> None:
        """Take bytes of the agent's stdout; lines that are no rows of a
        relay come from the login shell.
        """
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) <= _LONGEST_ROW else b""
        for line in lines:
            row = as_table((parse_table(line, _LONGEST_ROW) or {}).get("relay"))
            if number := natural_or_zero(row.get("id")):
                self._row(number, row.get("data"))

    def _row(self, number: int, data: object) -> None:
        if number > self._number and isinstance(data, str):
            self._drop()
            self._number = number
            self._connecting = self._tasks.create_task(self._connect(number))
        if number != self._number:
            return
        if not isinstance(data, str):
            self._drop()
            return
        try:
            self._send(base64.b64decode(data, validate=True))
        except binascii.Error:
            self._drop()

    def _send(self, data: bytes) -> None:
        if self._transport is None:
            if self._connecting is not None:
                self._early.append(data)
        elif self._transport.get_write_buffer_size() > _MOST_WAITING:
            self._transport.abort()
        else:
            self._transport.write(data)

    async def _connect(self, number: int) -> None:
        def say(data: bytes | None) -> None:
            text = {} if data is None else {"data": base64.b64encode(data).decode()}
            self._write(json.dumps({"relay": {"id": number, **text}}).encode() + b"\n")

        try:
            async with asyncio.timeout(CONNECT_LIMIT):
                loop = asyncio.get_running_loop()
                transport, _ = await loop.create_connection(lambda: _BrokerSide(say), *self._broker)
        except OSError:  # TimeoutError is one
            say(None)
            return
        self._transport = transport
        for data in self._early:
            transport.write(data)
        self._early.clear()

    def _drop(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.close()
        self._connecting = self._transport = None
        self._early.clear()
