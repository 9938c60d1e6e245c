"""Asks a Prometheus server over HTTP: with limits, and without following it anywhere else."""

import asyncio
import base64
import http
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from rankdeck.config.files import read_regular
from rankdeck.errors import MetricsError
from rankdeck.model.cluster import Metrics
from rankdeck.model.text import clean, table

LIMIT = 10.0
"""Seconds for one question, from the name of the server to the last byte of its answer."""
SERVERS_LIMIT = 8
"""Seconds after which the server itself should give up."""
LARGEST = 8 << 20
"""Bytes of an answer."""
_CREDENTIAL_LIMIT = 64 << 10
_LONGEST_HEAD = _PIECE = 64 << 10
_TOO_LONG = f"sent more than {LARGEST >> 20} MB as an answer"
_WORDS = 300
_STATUS: Mapping[int, str] = {
    401: "refuses the login: look at `user`, `password_file` and `token_file` in `metrics:`",
    403: "does not allow this user to read numbers",
    404: "has no query API at this address: is the path in the `url` of `metrics:` right?",
    405: "has no query API at this address: is the path in the `url` of `metrics:` right?",
    429: "was asked too often; asked again later",
}

_SENTENCES: tuple[tuple[type[BaseException], str], ...] = (
    (ConnectionRefusedError, "refuses the connection: does it run, and is the port right?"),
    (TimeoutError, f"does not answer within {LIMIT:.0f} s"),
    (socket.gaierror, "has a name that does not resolve"),
    (EOFError, "ended the connection before its answer was whole"),
    (asyncio.LimitOverrunError, "does not speak HTTP"),
    (UnicodeError, "not asked: its login or certificate file is not ASCII text"),
)


@dataclass(frozen=True, slots=True)
class Response:
    """What a server sent."""

    status: int
    headers: Mapping[str, str]
    """By name in small letters."""
    body: bytes = b""


async def query_range(
    server: Metrics, expression: str, times: Mapping[str, float]
) -> dict[str, Any]:
    """The `data` of an answer, with `warnings` beside it; `times` are start, end and step.

    It is only checked to be an object. Raises MetricsError.
    """
    asked: dict[str, object] = {"query": expression, **times, "timeout": f"{SERVERS_LIMIT}s"}
    answer = await _post(server, f"{server.path}/api/v1/query_range", urlencode(asked).encode())
    return data_of(answer)


async def _post(server: Metrics, path: str, body: bytes) -> Response:
    """Send a form, straight to the server: a proxy would read the login. Raises MetricsError."""
    try:
        async with asyncio.timeout(LIMIT):
            head, context = await asyncio.to_thread(_prepared, server, path, len(body))
            reader, writer = await asyncio.open_connection(
                server.host, server.port, ssl=context, limit=_LONGEST_HEAD
            )
            try:
                writer.write(head + body)
                return await _answer(reader)
            finally:
                writer.transport.abort()
    except ssl.SSLCertVerificationError as error:
        why = f"shows a certificate that cannot be trusted: {clean(error.verify_message)}"
        raise MetricsError(f"{why}; see `ca_file` in `metrics:`") from error
    except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as error:
        raise MetricsError(_words(error)) from error


def _prepared(server: Metrics, path: str, size: int) -> tuple[bytes, ssl.SSLContext | None]:
    """What needs files, in a thread: they may lie on a file server that hangs."""
    return _head(server, path, size), _tls(server)


def _head(server: Metrics, path: str, size: int) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {server.place}",
        "User-Agent: rankdeck",
        "Accept-Encoding: identity",
        "Content-Type: application/x-www-form-urlencoded",
        f"Content-Length: {size}",
        "Connection: close",
        *_login(server),
    ]
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii")


def _tls(server: Metrics) -> ssl.SSLContext | None:
    if not server.tls:
        return None
    file = Path(server.ca_file).expanduser() if server.ca_file else None
    return ssl.create_default_context(cadata=read_regular(file).decode("ascii") if file else None)


def _login(server: Metrics) -> Iterator[str]:
    """The line that says who asks; raises OSError and ValueError."""
    if token := _secret(server.token_env, server.token_file):
        yield f"Authorization: Bearer {token}"
    elif server.user:
        password = _secret(server.password_env, server.password_file)
        login = base64.b64encode(f"{server.user}:{password}".encode()).decode()
        yield f"Authorization: Basic {login}"


def _secret(variable: str, file: str) -> str:
    """One line, read again for each question: tokens are renewed. Raises OSError and ValueError."""
    if variable:
        found = os.environ.get(variable)
        if found is None:
            raise ValueError(f"not asked: the environment has no {variable}, which holds the login")
    elif file:
        found = read_regular(Path(file).expanduser(), _CREDENTIAL_LIMIT).decode()
    else:
        return ""
    found = found.strip()
    if not found.isascii() or not found.isprintable():
        raise ValueError(f"not asked: {variable or file} does not hold one line of ASCII text")
    return found


async def _answer(reader: asyncio.StreamReader) -> Response:
    """Read one answer; raises ValueError, EOFError, LimitOverrunError and OSError."""
    answer = Response(100, {})
    while 100 <= answer.status < 200:
        answer = read_head(await reader.readuntil(b"\r\n\r\n"))
    body = bytearray()
    async for piece in _pieces(reader, answer.headers):
        body += piece
        if len(body) > LARGEST:
            raise ValueError(_TOO_LONG)
    return replace(answer, body=bytes(body))


def read_head(raw: bytes) -> Response:
    """The status line and headers of an answer; raises ValueError."""
    first, *lines = raw.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit()):
        raise ValueError("does not speak HTTP")
    pairs = (line.partition(":") for line in lines if line)
    return Response(int(code), {name.strip().lower(): value.strip() for name, _, value in pairs})


async def _pieces(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    """The body as it comes: in chunks, of a known length, or until the server closes."""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        while size := _length(await reader.readuntil(b"\r\n"), 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
    elif "content-length" in headers:
        yield await reader.readexactly(_length(headers["content-length"].encode(), 10))
    else:
        while piece := await reader.read(_PIECE):
            yield piece


def _length(raw: bytes, base: int) -> int:
    """A size in an answer; raises ValueError where it is none, or more than anyone asked for."""
    word = raw.partition(b";")[0].strip().lower()
    if not 0 < len(word) <= 16 or word.strip(b"0123456789abcdef"[:base]):
        raise ValueError("does not speak HTTP")
    size = int(word, base)
    if size > LARGEST:
        raise ValueError(_TOO_LONG)
    return size


def data_of(answer: Response) -> dict[str, Any]:
    """The `data` of a whole answer; raises MetricsError, which says what the server refuses."""
    body = table(answer.body, LARGEST) or {}
    if 300 <= answer.status < 400:
        host = clean(_host(answer.headers.get("location", ""))) or "another address"
        raise MetricsError(
            f"sends us on to {host}: name the right address in `metrics: {{url: …}}`"
        )
    said = body.get("error")
    if body.get("status") == "error" and isinstance(said, str):
        raise MetricsError(f"refuses the question: {clean(said, _WORDS)}")
    if answer.status != http.HTTPStatus.OK:
        raise MetricsError(_STATUS.get(answer.status, f"answers with HTTP status {answer.status}"))
    data = body.get("data")
    if body.get("status") != "success" or not isinstance(data, dict):
        raise MetricsError("sent something that is no answer of a Prometheus")
    return {"warnings": body.get("warnings"), **data}


def _host(location: str) -> str:
    try:
        return urlsplit(location).hostname or ""
    except ValueError:
        return ""


def _words(error: Exception) -> str:
    for kind, sentence in _SENTENCES:
        if isinstance(error, kind):
            return sentence
    text = (error.strerror if isinstance(error, OSError) else "") or str(error)
    return clean(text, _WORDS)
