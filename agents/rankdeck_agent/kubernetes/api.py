"""HTTP to a Kubernetes API server through the Unix socket of `kubectl proxy`: requests, logs, list and watch."""

import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Callable, Optional, cast
from urllib.parse import urlencode

from rankdeck_agent.job.journal import plain, table

Object = dict[str, Any]
Params = Mapping[str, str]
LIMIT = 30.0
"""Seconds for an answer, and between two parts of it."""
WATCH_SECONDS = 300
"""Asked of the server: it ends a watch then, and we begin the next one where it stopped."""
LONGEST_ANSWER = 64 << 20
LONGEST_LINE = 4 << 20
"""Bytes; an object cannot be longer in etcd, and of a line of output the rest is left out."""
PAGE = "500"
BACKOFF = (0.5, 1.0, 2.0, 5.0, 10.0)
UNREACHABLE = "Unreachable"
_CHUNK = 1 << 16


class ApiError(Exception):
    """A request that failed. `status` is HTTP's, 0 where no answer came; `reason` is Kubernetes' word."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


class _Connection(http.client.HTTPConnection):
    """One connection to the socket; kubectl answers only to the name localhost."""

    def __init__(self, path: str, limit: float) -> None:
        super().__init__("localhost", timeout=limit)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


_HEAD = re.compile(rb"(?:\r\n)?([0-9a-fA-F]{1,8})(?:;[^\r\n]*)?\r\n")
_LONGEST_HEAD = 1024


class Chunks:
    """Takes the frames of HTTP's chunked encoding off a stream; http.client needs three times as long."""

    def __init__(self) -> None:
        self._raw, self._left = b"", 0
        self.over = False
        """The last chunk has come: the answer is whole."""

    def feed(self, data: bytes) -> bytes:
        """What these bytes bring; raises ValueError where they are no chunks."""
        raw, parts = self._raw + data, list[bytes]()
        while raw and not self.over:
            if not self._left:
                head = _HEAD.match(raw)
                if head is None:
                    break
                self._left, raw = int(head[1], 16), raw[head.end() :]
                self.over = not self._left
                continue
            parts.append(raw[: self._left])
            raw = raw[self._left :]
            self._left -= len(parts[-1])
        self._raw = raw
        if not self.over and not self._left and len(raw) > _LONGEST_HEAD:
            raise ValueError("no chunks")
        return b"".join(parts)


class Stream:
    """An answer that goes on; `close` may be called from any thread, and ends the iteration.

    With a `pause` (seconds) what comes slowly is taken in larger pieces.
    """

    def __init__(
        self, connection: _Connection, answer: http.client.HTTPResponse, pause: float = 0.0
    ) -> None:
        self._connection, self._answer, self._pause = connection, answer, pause
        self._socket = connection.sock
        self._over = threading.Event()

    @property
    def closed(self) -> bool:
        return self._over.is_set()

    def _pieces(self) -> Iterator[bytes]:
        if not self._answer.chunked:
            while data := self._answer.read1(_CHUNK):
                yield data
            return
        chunks = Chunks()
        while not chunks.over:
            data = self._answer.fp.read1(_CHUNK)
            if not data:
                raise ValueError("it ended in the middle")
            yield chunks.feed(data)
            if self._pause and len(data) < _CHUNK // 2:
                self._over.wait(self._pause)

    def __iter__(self) -> Iterator[bytes]:
        """Lines without their ends as they come, the last one also if it has none.

        Of lines over LONGEST_LINE the rest is left out. Raises ApiError where the stream breaks.
        """
        rest = b""
        try:
            for data in self._pieces():
                *lines, rest = (rest + data).split(b"\n")
                yield from lines
                rest = rest[:LONGEST_LINE]
        except (OSError, ValueError, AttributeError, http.client.HTTPException) as error:
            if not self.closed:
                raise ApiError(0, UNREACHABLE, f"the stream broke: {_words(error)}") from error
        finally:
            self._connection.close()
        if rest and not self.closed:
            yield rest

    def close(self) -> None:
        """End the stream."""
        self._over.set()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended


class Api:
    """Asks the server; a connection for each request and stream, so that none waits for another."""

    def __init__(self, path: str) -> None:
        self._path = path

    def request(
        self,
        method: str,
        path: str,
        params: Optional[Params] = None,
        body: Optional[Mapping[str, Any]] = None,
        limit: float = LIMIT,
    ) -> Object:
        """The answer's JSON object; raises ApiError. PATCH sends a merge patch."""
        connection, answer = self._ask(method, path, params, body, limit)
        try:
            data = answer.read(LONGEST_ANSWER + 1)
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(0, UNREACHABLE, f"the answer broke off: {_words(error)}") from error
        finally:
            connection.close()
        if len(data) > LONGEST_ANSWER:
            raise ApiError(0, "TooLarge", f"the answer is over {LONGEST_ANSWER >> 20} MB")
        found = table(data.decode("utf-8", "replace"))
        if found is None:
            raise ApiError(answer.status, "NoJson", "the answer is no JSON object")
        return found

    def lines(
        self, path: str, params: Params, idle: Optional[float] = None, pause: float = 0.0
    ) -> Stream:
        """The lines of an answer that goes on; raises ApiError.

        `pause`: see Stream. `idle` is how many seconds may pass without any; None where whoever opens it closes it.
        """
        connection, answer = self._ask("GET", path, params, None, LIMIT)
        connection.sock.settimeout(idle)
        return Stream(connection, answer, pause)

    def items(self, path: str, params: Params) -> tuple[list[Object], str]:
        """All objects of a list, page by page, and the version to watch from; raises ApiError."""
        found: list[Object] = []
        size, more = 0, ""
        while True:
            page = self.request("GET", path, {**params, "limit": PAGE, "continue": more})
            found += _objects(page.get("items"))
            meta = page.get("metadata")
            meta = cast("Object", meta) if isinstance(meta, dict) else {}
            more, size = str(meta.get("continue") or ""), size + 1
            if not more or size > 100:
                return found, str(meta.get("resourceVersion") or "")

    def watch(self, path: str, params: Params) -> "Watch":
        """The objects of a list and what becomes of them, for ever."""
        return Watch(self, path, params)

    def _ask(
        self,
        method: str,
        path: str,
        params: Optional[Params],
        body: Optional[Mapping[str, Any]],
        limit: float,
    ) -> tuple[_Connection, http.client.HTTPResponse]:
        connection = _Connection(self._path, limit)
        given = {key: value for key, value in (params or {}).items() if value}
        url = f"{path}?{urlencode(given)}" if given else path
        kind = "merge-patch+json" if method == "PATCH" else "json"
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = f"application/{kind}"
        try:
            connection.request(method, url, data, headers)
            answer = connection.getresponse()
            if answer.status < 300:
                return connection, answer
            said = answer.read(_CHUNK)
        except (OSError, ValueError, http.client.HTTPException) as error:
            connection.close()
            raise ApiError(0, UNREACHABLE, f"no answer from kubectl: {_words(error)}") from error
        connection.close()
        raise _refusal(answer.status, said)


LISTED = "LISTED"
TROUBLE = "TROUBLE"


class Watch:
    """List, then watch from there; list again where the server no longer knows the place (410).

    Gives (LISTED, {"items": […]}) after each list, then the server's ADDED, MODIFIED and DELETED, and
    (TROUBLE, {"status", "reason", "message"}) where it is refused or breaks; then it waits and goes on.
    """

    def __init__(self, api: Api, path: str, params: Params) -> None:
        self._api, self._path, self._params = api, path, params
        self._over = threading.Event()
        self._stream: Optional[Stream] = None
        self._version, self._failures = "", 0

    def close(self) -> None:
        """End the iteration, from any thread."""
        self._over.set()
        if self._stream is not None:
            self._stream.close()

    def __iter__(self) -> Iterator[tuple[str, Object]]:
        while not self._over.is_set():
            trouble: Optional[ApiError] = None
            try:
                yield from self._once()
            except ApiError as error:
                trouble = error
            if trouble is not None and not self._over.is_set():
                yield from self._recover(trouble)

    def _once(self) -> Iterator[tuple[str, Object]]:
        """List where the place is not known, then one watch to its end."""
        if not self._version:
            items, self._version = self._api.items(self._path, self._params)
            yield LISTED, {"items": items}
        for kind, found in self._events(self._version):
            self._version, self._failures = _version(found) or self._version, 0
            if kind != "BOOKMARK":
                yield kind, found

    def _recover(self, error: ApiError) -> Iterator[tuple[str, Object]]:
        self._failures += 1
        expired, again = error.status == 410, self._failures > 1
        # A watch that breaks once is usual: only what fails again is told.
        if again or (error.status and not expired):
            yield TROUBLE, vars(error)
        # What happened meanwhile may be more than the server still knows: list again.
        if expired or again:
            self._version = ""
        if again or not expired:
            self._over.wait(BACKOFF[min(self._failures, len(BACKOFF)) - 1])

    def _events(self, version: str) -> Iterator[tuple[str, Object]]:
        asked = {
            **self._params,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        self._stream = stream = self._api.lines(self._path, asked, WATCH_SECONDS + LIMIT)
        if self._over.is_set():
            stream.close()
        for line in stream:
            event = table(line.decode("utf-8", "replace"))
            found = event.get("object") if event else None
            if event is None or not isinstance(found, dict):
                raise ApiError(0, "NoJson", "the watch sends what is no event")
            found = cast("Object", found)
            if event.get("type") == "ERROR":
                raise _refusal(_number(found.get("code")), json.dumps(found).encode())
            yield str(event.get("type")), found


def each(watch: Watch, tell: Callable[[str, Object], None]) -> threading.Thread:
    """Tell every event of a watch from a thread of its own, until it is closed."""

    def go() -> None:
        for kind, found in watch:
            tell(kind, found)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    return thread


def _objects(value: object) -> list[Object]:
    rows = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Object", row) for row in rows if isinstance(row, dict)]


def _version(found: Object) -> str:
    meta = found.get("metadata")
    value = cast("Object", meta).get("resourceVersion") if isinstance(meta, dict) else ""
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if type(value) is int else 0


def _words(error: BaseException) -> str:
    return plain(str(error), 200) or type(error).__name__


def _refusal(status: int, said: bytes) -> ApiError:
    """What the server's Status says, or kubectl's own text where it could not ask the server."""
    text = said.decode("utf-8", "replace")
    row = table(text)
    if row is None:
        return ApiError(status, UNREACHABLE, plain(text, 400) or f"HTTP status {status}")
    reason = plain(str(row.get("reason") or ""), 60)
    return ApiError(status, reason, plain(str(row.get("message") or reason), 1000))
