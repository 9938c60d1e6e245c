"""A small HTTP/1.1 server over asyncio: JSON answers, and streams
that end when the client disconnects.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

_HEAD_LIMIT = 64 << 10


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    def one(self, name: str, default: str = "") -> str:
        """The value of a query parameter."""
        return self.query.get(name, [default])[-1]

    def flag(self, name: str) -> bool:
        return self.one(name) in ("1", "true", "True")


@dataclass
class Reply:
    """One answer: either `send`, or `begin` and then any number of `part`."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    begun: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Whether a stream has begun."""

    async def send(self, code: int, body: object, after: str = "", warning: str = "") -> None:
        """Send the whole answer: bytes and text unchanged, other values as JSON.

        `after` becomes Retry-After, in seconds.
        """
        if isinstance(body, bytes | str):
            content = body.encode() if isinstance(body, str) else body
            kind = "text/plain; charset=utf-8"
        else:
            content, kind = json.dumps(body, separators=(",", ":")).encode(), "application/json"
        more = f'Warning: 299 - "{warning}"\r\n' if warning else ""
        more += f"Retry-After: {after}\r\n" if after else ""
        head = f"HTTP/1.1 {code} -\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
        self.writer.write((head + more + "\r\n").encode() + content)
        await self.writer.drain()

    async def begin(self, kind: str) -> None:
        """Start a stream."""
        self.begun.set()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.writer.write(head.encode())
        await self.writer.drain()

    async def part(self, content: bytes) -> None:
        """Send a part of a stream."""
        if content:
            self.writer.write(b"%x\r\n%s\r\n" % (len(content), content))
            await self.writer.drain()


Handler = Callable[[Request, Reply], Awaitable[None]]


class Server:
    """Listens on a loopback port; `start` after `stop` uses the same port."""

    def __init__(self, handler: Handler, context: ssl.SSLContext) -> None:
        self.port = 0
        self._handler, self._context = handler, context
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._connection, "127.0.0.1", self.port, ssl=self._context, limit=_HEAD_LIMIT,
            backlog=1000,
        )  # fmt: skip
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._open.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; returns whether the connection stays open."""
        head = await reader.readuntil(b"\r\n\r\n")
        request = await _request(head, reader)
        reply = Reply(reader, writer)
        handling = asyncio.ensure_future(self._handler(request, reply))
        gone = asyncio.ensure_future(_until_gone(reply))
        try:
            await asyncio.wait({handling, gone}, return_when=asyncio.FIRST_COMPLETED)
            if handling.done():
                await handling
        finally:
            for task in (handling, gone):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError, CutError):
                    await task
        if reply.begun.is_set():
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        return handling.done() and not reply.begun.is_set()


class CutError(OSError):
    """Raised by a handler to close the connection in the middle of an answer."""


async def _until_gone(reply: Reply) -> None:
    """Wait until the client of a stream disconnects.

    Not for other requests, whose clients only wait for the answer.
    """
    await reply.begun.wait()
    await reply.reader.read(1)


async def _request(head: bytes, reader: asyncio.StreamReader) -> Request:
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    parts = urlsplit(target)
    body = b""
    if headers.get("transfer-encoding") == "chunked":
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    elif length := int(headers.get("content-length", 0)):
        body = await reader.readexactly(length)
    return Request(
        method, unquote(parts.path), parse_qs(parts.query, keep_blank_values=True), headers, body
    )
