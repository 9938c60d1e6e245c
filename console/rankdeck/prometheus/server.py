"""Serves text to Prometheus on a small HTTP server with strict limits."""

import asyncio
import os
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from typing import NamedTuple, Protocol
from urllib.parse import parse_qs, urlsplit

from rankdeck.errors import RankdeckError
from rankdeck.model.series import GROUPS, Choice, Kinds

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
HEAD_LIMIT = 8 << 10
LIMIT = 10.0
"""Seconds within which a request must arrive, and within which each
piece of its answer must be taken.
"""
MOST_COLLECTED = 64
"""Most fields of a query."""
AT_ONCE = 64
"""Most connections; a further one closes the oldest, so that nobody can occupy all."""
PAGE = b"<html><body><a href='/metrics'>/metrics</a> of a Rankdeck cluster</body></html>\n"
_NEWER, _NEWER_VERSIONS = "application/openmetrics-text", ("", "0.0.1", "1.0.0")
_LEAST = 0.001
"""The least weight of HTTP that is not "never"."""
_PACKED_QUICKLY = 1
_GZIP = 31
"""`wbits` of zlib for the format of gzip."""


class Write(Protocol):
    """Writes the series that are wanted, in pieces."""

    def __call__(self, choice: Choice, *, openmetrics: bool) -> AsyncGenerator[str]: ...


class ListenError(RankdeckError):
    """The server cannot listen on the address."""


class HttpRequest(NamedTuple):
    """The parts of a request that are used."""

    method: str
    path: str
    headers: dict[str, str]
    collect: tuple[str, ...] = ()
    """What `collect[]` names; () for everything."""
    excludes: bool = False
    """Whether it names an `exclude[]`."""
    newer: bool = True
    """Whether it is of HTTP/1.1: its answer may come in chunks."""


class HttpReply(NamedTuple):
    """The answer to a request: its whole body, or the choice of what is written into it."""

    status: HTTPStatus
    body: bytes = b""
    kind: str = "text/plain; charset=utf-8"
    choice: Choice | None = None
    openmetrics: bool = False
    """The format of what is written."""


class HttpServer:
    """Answers requests, and limits the number of open connections."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._open: dict[asyncio.StreamWriter, None] = {}
        """Open connections, oldest first."""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, from the request to the end of the answer."""
        self._open[writer] = None
        if len(self._open) > AT_ONCE:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        try:
            async with asyncio.timeout(LIMIT):
                request = await read_request(reader)
            async with aclosing(self.answer(request)) as pieces:
                async for piece in pieces:
                    writer.write(piece)
                    async with asyncio.timeout(LIMIT):
                        await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            # The client has gone, or does not read.
            writer.transport.abort()
        finally:
            self._open.pop(writer, None)
            writer.close()

    async def answer(self, request: HttpRequest | None) -> AsyncGenerator[bytes]:
        """The bytes of the answer to a request; None stands for an invalid request."""
        reply = _reply_to(request)
        packed = bool(request and _takes_gzip(request.headers.get("accept-encoding", "")))
        chunked = reply.choice is not None and bool(request and request.newer)
        yield _head(reply, packed=packed and reply.choice is not None, chunked=chunked)
        if request and request.method == "HEAD":
            return
        if reply.choice is None:
            yield reply.body
            return
        text = self._write(reply.choice, openmetrics=reply.openmetrics)
        async with aclosing(text):
            async for piece in _packed(text) if packed else _encoded(text):
                yield b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
        if chunked:
            yield b"0\r\n\r\n"


async def _encoded(text: AsyncIterator[str]) -> AsyncGenerator[bytes]:
    async for piece in text:
        if piece:
            yield piece.encode()


async def _packed(text: AsyncIterator[str]) -> AsyncGenerator[bytes]:
    packer = zlib.compressobj(_PACKED_QUICKLY, zlib.DEFLATED, _GZIP)
    async for piece in text:
        # In a thread: a million series take a second to pack.
        packed = await asyncio.to_thread(packer.compress, piece.encode())
        if packed:
            yield packed
    yield packer.flush()


def _reply_to(request: HttpRequest | None) -> HttpReply:
    if request is None:
        return HttpReply(HTTPStatus.BAD_REQUEST, b"not a request of HTTP\n")
    if request.method not in ("GET", "HEAD"):
        return HttpReply(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET\n")
    if request.path == "/":
        return HttpReply(HTTPStatus.OK, PAGE, "text/html; charset=utf-8")
    if request.path != "/metrics":
        return HttpReply(HTTPStatus.NOT_FOUND, b"only /metrics\n")
    unknown = [name for name in request.collect if name not in GROUPS]
    if unknown:
        known = " ".join(sorted(GROUPS))
        text = f"no collect[]={unknown[0]!a}; there are: {known}\n"
        return HttpReply(HTTPStatus.BAD_REQUEST, text.encode())
    if request.excludes:
        text = b"no exclude[] here: name what you want with collect[]\n"
        return HttpReply(HTTPStatus.BAD_REQUEST, text)
    kinds = Kinds().union(*(GROUPS[name] for name in request.collect))
    choice = Choice(kinds) if kinds else Choice()
    openmetrics = _wants_openmetrics(request.headers.get("accept", ""))
    kind = OPENMETRICS if openmetrics else TEXT
    return HttpReply(HTTPStatus.OK, b"", kind, choice, openmetrics=openmetrics)


@asynccontextmanager
async def serve_metrics(host: str, port: int, write: Write) -> AsyncGenerator[int]:
    """Serve inside this block; gives the port. `write` is called for each request.

    Raises ListenError.
    """
    try:
        server = await asyncio.start_server(
            HttpServer(write).talk, host or None, port, limit=HEAD_LIMIT
        )
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)
        # asyncio writes a long sentence of its own for some of these errors.
        why = os.strerror(number) if number and number > 0 else str(error)
        raise ListenError(f"cannot listen on {host}:{port}: {why}") from error
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """The request that comes in; None if it is none of HTTP. Raises asyncio.IncompleteReadError."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return None
    first, *rest = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return None
    pairs = (line.partition(":") for line in rest)
    headers = {key.strip().lower(): value.strip() for key, _, value in pairs}
    try:
        # A proxy names the whole address.
        place = urlsplit(words[1])
        asked = parse_qs(place.query, max_num_fields=MOST_COLLECTED)
    except ValueError:
        return None
    collect = tuple(asked.get("collect[]", ()))
    newer = words[2] != "HTTP/1.0"
    return HttpRequest(words[0], place.path, headers, collect, "exclude[]" in asked, newer)


def _wants_openmetrics(accept: str) -> bool:
    """Whether a version of OpenMetrics that we write is liked at least as much as plain text."""
    liked = list(_preferences(accept))
    newer = [w for kind, version, w in liked if kind == _NEWER and version in _NEWER_VERSIONS]
    text = [weight for kind, _, weight in liked if kind == "text/plain"]
    return max(newer, default=0.0) >= max([*text, _LEAST])


def _takes_gzip(accept: str) -> bool:
    return any(kind == "gzip" and weight > 0 for kind, _, weight in _preferences(accept))


def _preferences(header: str) -> Iterator[tuple[str, str, float]]:
    """(name, its version, weight from 0 to 1) of each entry of an Accept header."""
    for entry in header.lower().split(","):
        kind, *more = (part.strip() for part in entry.split(";"))
        said = {key.strip(): value.strip() for key, _, value in (p.partition("=") for p in more)}
        try:
            yield kind, said.get("version", ""), float(said.get("q", "1"))
        except ValueError:
            continue


def _head(reply: HttpReply, *, packed: bool, chunked: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status.value} {reply.status.phrase}",
        f"Content-Type: {reply.kind}",
        # Without a length the body ends with the connection.
        *([f"Content-Length: {len(reply.body)}"] if reply.choice is None else []),
        *(["Transfer-Encoding: chunked"] if chunked else []),
        "Connection: close",
        *(["Content-Encoding: gzip"] if packed else []),
        *(["Allow: GET, HEAD"] if reply.status == 405 else []),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
