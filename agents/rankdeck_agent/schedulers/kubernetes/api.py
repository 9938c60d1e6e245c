"""HTTP requests to a Kubernetes API server, through the Unix socket of `kubectl proxy`."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Optional
from urllib.parse import urlencode

from rankdeck_agent.older_python import is_ascii
from rankdeck_agent.schedulers.kubernetes.chunked_encoding import Chunks
from rankdeck_agent.schedulers.kubernetes.json_values import Object, object_rows, table_of
from rankdeck_agent.schedulers.kubernetes.kubectl_errors import (
    NO_LOGIN,
    PLUGIN_SAYS,
    SILENT,
    UNREACHABLE,
    ApiError,
    no_json,
    parse_refusal,
    plugin_words,
)
from rankdeck_agent.text import parse_json_table, plain_line

Params = Mapping[str, str]
LIMIT = 30.0
"""Seconds to wait for an answer, and for each next part of it."""
LONGEST_ANSWER = 64 << 20
LONGEST_LINE = 4 << 20
"""Most bytes of a line.

An object cannot be longer in etcd; the rest of a longer line of output is dropped.
"""
PAGE = "500"
_EXPIRED, _LISTS = 410, 3
"""HTTP status if the server no longer knows a list or a resourceVersion; how often to list."""
_BUSY, _PATIENCE = (429, 503), 6.0
"""HTTP statuses with which a server asks for a pause, and the most
seconds that one request waits for that.
"""
_CHUNK = 1 << 16


class _Connection(http.client.HTTPConnection):
    """One connection to kubectl's Unix socket; kubectl accepts only the host name localhost."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=LIMIT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class HttpStream:
    """An answer that is read while it arrives; `close` may be called from
    any thread, and ends the iteration.

    With a `pause` (seconds), slow output is read in fewer and larger pieces.
    """

    def __init__(
        self, connection: _Connection, answer: http.client.HTTPResponse, pause: float = 0.0
    ) -> None:
        self._connection, self._answer, self._pause = connection, answer, pause
        self._socket = connection.sock
        self._over, self._hurried = threading.Event(), threading.Event()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._over.is_set()

    def _pieces(self) -> Iterator[bytes]:
        if not self._answer.chunked:
            yield from iter(lambda: self._answer.read1(_CHUNK), b"")
            return
        chunks = Chunks()
        while not chunks.over:
            data = self._answer.fp.read1(_CHUNK)
            if not data:
                raise ValueError("it ended in the middle")
            yield chunks.feed(data)
            if self._pause and len(data) < _CHUNK // 2:
                self._hurried.wait(self._pause)

    def __iter__(self) -> Iterator[bytes]:
        """Lines without their newline, as they arrive; the last one may have had none.

        Lines are cut after LONGEST_LINE bytes. Raises ApiError if the stream breaks.
        """
        rest = b""
        try:
            for data in self._pieces():
                *lines, rest = (rest + data).split(b"\n")
                yield from lines
                rest = rest[:LONGEST_LINE]
        except socket.timeout as error:
            raise ApiError(0, SILENT, "the stream broke: nothing came on it") from error
        except (OSError, ValueError, AttributeError, http.client.HTTPException) as error:
            if not self.closed:
                raise ApiError(0, UNREACHABLE, f"the stream broke: {_words(error)}") from error
        finally:
            self._connection.close()
        if rest and not self.closed:
            yield rest

    def hurry(self) -> None:
        """Read without pauses from now on, from any thread: the rest
        of the stream is wanted at once.
        """
        self._hurried.set()

    def close(self) -> None:
        """End the stream."""
        self._over.set()
        self._hurried.set()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended


class Api:
    """A client of the server; each request and stream has its own
    connection, so that none waits for another.
    """

    def __init__(self, path: str, log: Optional[Path] = None) -> None:
        """`path`: kubectl's socket; `log`: its stderr, which has the
        words of a plug-in that logs in.
        """
        self._path, self._log = path, log

    def request(
        self,
        method: str,
        path: str,
        params: Optional[Params] = None,
        body: Optional[Object] = None,
    ) -> Object:
        """The JSON object of the answer; raises ApiError. PATCH sends `body` as a merge patch."""
        connection, answer = self._ask(method, path, params, body)
        try:
            data = answer.read(LONGEST_ANSWER + 1)
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(0, UNREACHABLE, f"the answer broke off: {_words(error)}") from error
        finally:
            connection.close()
        if len(data) > LONGEST_ANSWER:
            raise ApiError(0, "TooLarge", f"the answer is over {LONGEST_ANSWER >> 20} MB")
        found = parse_json_table(data.decode("utf-8", "replace"))
        if found is None:
            raise no_json(answer.status, data)
        return found

    def lines(
        self, path: str, params: Params, idle: Optional[float] = None, pause: float = 0.0
    ) -> HttpStream:
        """The lines of an answer that is read while it arrives; raises ApiError.

        `pause`: see `HttpStream`. `idle`: seconds without data after which it
        breaks; None: never, the caller closes it.
        """
        connection, answer = self._ask("GET", path, params, None)
        connection.sock.settimeout(idle)
        return HttpStream(connection, answer, pause)

    def items(self, path: str, params: Params, tries: int = _LISTS) -> tuple[list[Object], str]:
        """All objects of a list, read in pages, and the resourceVersion
        to watch from; raises ApiError.

        Read from the beginning again if the server forgets the list while its pages are read.
        """
        try:
            return self._pages(path, params)
        except ApiError as error:
            if error.status != _EXPIRED or tries <= 1:
                raise
        return self.items(path, params, tries - 1)

    def _pages(self, path: str, params: Params) -> tuple[list[Object], str]:
        found: list[Object] = []
        size, more = 0, ""
        while True:
            page = self.request("GET", path, {**params, "limit": PAGE, "continue": more})
            found += object_rows(page.get("items"))
            meta = table_of(page.get("metadata"))
            more, size = str(meta.get("continue") or ""), size + 1
            if not more or size > 100:
                return found, str(meta.get("resourceVersion") or "")

    def _ask(
        self, method: str, path: str, params: Optional[Params], body: Optional[Object]
    ) -> tuple[_Connection, http.client.HTTPResponse]:
        connection = _Connection(self._path)
        given = {key: value for key, value in (params or {}).items() if value}
        url = f"{path}?{urlencode(given)}" if given else path
        kind = "merge-patch+json" if method == "PATCH" else "json"
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = f"application/{kind}"
        patience = _PATIENCE
        while True:
            answer, text = _exchange(connection, method, url, data, headers)
            if answer.status < 300:
                return connection, answer
            pause = _pause_asked(answer)
            if not pause or pause > patience:
                raise self._with_words_of_plugin(parse_refusal(answer.status, text))
            patience -= pause
            time.sleep(pause)

    def _with_words_of_plugin(self, error: ApiError) -> ApiError:
        """The error, with what a plug-in said that could not log in: it alone
        knows what to do (`aws sso login`).
        """
        if self._log is None or not NO_LOGIN.search(error.message):
            return error
        said = plugin_words(self._log.read_bytes()[-4096:].decode("utf-8", "replace"))
        return ApiError(
            error.status,
            error.reason,
            f"{error.message}{PLUGIN_SAYS}{said}" if said else error.message,
        )


def _words(error: BaseException) -> str:
    return plain_line(str(error), 200) or type(error).__name__


def _exchange(
    connection: _Connection,
    method: str,
    url: str,
    data: Optional[bytes],
    headers: Mapping[str, str],
) -> tuple[http.client.HTTPResponse, bytes]:
    """(the answer, its body if it is a refusal); raises ApiError."""
    try:
        connection.request(method, url, data, headers)
        answer = connection.getresponse()
        if answer.status < 300:
            return answer, b""
        body = answer.read(_CHUNK)
    except (OSError, ValueError, http.client.HTTPException) as error:
        connection.close()
        raise ApiError(0, UNREACHABLE, f"no answer from kubectl: {_words(error)}") from error
    connection.close()
    return answer, body


def _pause_asked(answer: http.client.HTTPResponse) -> float:
    """Seconds after which an overloaded server wants to be asked again; 0 if it does not say."""
    after = answer.getheader("Retry-After") or ""
    busy = answer.status in _BUSY and is_ascii(after) and after.isdecimal() and len(after) < 5
    return max(1.0, float(after)) if busy else 0.0
