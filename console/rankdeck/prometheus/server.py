"""A small HTTP server for one page: GET and HEAD, one answer a connection, strict limits."""

import asyncio
import gzip
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import NamedTuple

from rankdeck.errors import RankdeckError
from rankdeck.prometheus.exporter import OPENMETRICS, TEXT, Families

HEAD_LIMIT = 8 << 10
LIMIT = 10.0
"""Seconds for a request to come in, and for its answer to go out."""
AT_ONCE = 16
PAGE = b"<html><body><a href='/metrics'>/metrics</a> of a Rankdeck cluster</body></html>\n"

Gather = Callable[[], Families]


class ListenError(RankdeckError):
    """The address cannot be listened on."""


class Request(NamedTuple):
    """What matters of a request."""

    method: str
    path: str
    headers: dict[str, str]


class Answer(NamedTuple):
    """What goes back."""

    status: HTTPStatus
    body: bytes = b""
    kind: str = "text/plain; charset=utf-8"


class HttpServer:
    """Answers requests; counts those that are open."""

    def __init__(self, gather: Gather) -> None:
        self._gather = gather
        self._open = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from the request to the end of the answer."""
        self._open += 1
        try:
            async with asyncio.timeout(LIMIT):
                request = await _read(reader)
            writer.write(_written(self.answer(request), request))
            async with asyncio.timeout(LIMIT):
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            # Nobody is there any more, or nobody reads.
            writer.transport.abort()
        finally:
            self._open -= 1
            writer.close()

    def answer(self, request: Request | None) -> Answer:
        """What a request gets; None is one that cannot be read."""
        if request is None:
            return Answer(HTTPStatus.BAD_REQUEST, b"not a request of HTTP\n")
        if self._open > AT_ONCE:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, b"too many at once\n")
        if request.method not in ("GET", "HEAD"):
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET\n")
        if request.path == "/":
            return Answer(HTTPStatus.OK, PAGE, "text/html; charset=utf-8")
        if request.path != "/metrics":
            return Answer(HTTPStatus.NOT_FOUND, b"only /metrics\n")
        families = self._gather()
        if "application/openmetrics-text" in request.headers.get("accept", ""):
            return Answer(HTTPStatus.OK, families.openmetrics().encode(), OPENMETRICS)
        return Answer(HTTPStatus.OK, families.text().encode(), TEXT)


@asynccontextmanager
async def serve(host: str, port: int, gather: Gather) -> AsyncGenerator[int]:
    """Serves while open; gives the port. Raises ListenError."""
    try:
        server = await asyncio.start_server(
            HttpServer(gather).talk, host or None, port, limit=HEAD_LIMIT
        )
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ListenError(f"cannot listen on {host}:{port}: {why}") from error
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
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
    return Request(words[0], words[1].partition("?")[0], headers)


def _written(answer: Answer, request: Request | None) -> bytes:
    """The answer as it goes over the wire, packed where that is asked for."""
    packed = request and "gzip" in request.headers.get("accept-encoding", "")
    body = gzip.compress(answer.body, 1) if packed else answer.body
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(["Content-Encoding: gzip"] if packed else []),
        *(["Allow: GET, HEAD"] if answer.status == 405 else []),
    ]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode()
    return head if request and request.method == "HEAD" else head + body
