"""HTTP requests and watches to a Kubernetes API server, through a
`kubectl proxy` of our own on a Unix socket.
"""

import ctypes
import http.client
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable, Optional, Union, cast
from urllib.parse import urlencode

from rankdeck_agent.older_python import delete_file, is_ascii, without_prefix
from rankdeck_agent.text import parse_json_table, plain_line

Object = Mapping[str, Any]
"""A JSON object."""
Params = Mapping[str, str]
LIMIT = 30.0
"""Seconds to wait for an answer, and for each next part of it."""
WATCH_SECONDS = 300
"""Seconds after which we ask the server to end a watch; the next one begins where it stopped."""
LONGEST_ANSWER = 64 << 20
LONGEST_LINE = 4 << 20
"""Most bytes of a line.

An object cannot be longer in etcd; the rest of a longer line of output is dropped.
"""
PAGE = "500"
BACKOFF = (0.5, 1.0, 2.0, 5.0, 10.0)
_HELD = 5.0
"""A watch that breaks after this many seconds has not failed: proxies cut
connections that are idle for a minute.
"""
UNREACHABLE, SILENT = "Unreachable", "Silent"
"""Reasons that are ours: no answer came; nothing came on a stream
for as long as its caller waits.
"""
_BUSY, _PATIENCE = (429, 503), 6.0
"""HTTP statuses with which a server asks for a pause, and the most
seconds that one request waits for that.
"""
_CHUNK = 1 << 16


class ApiError(Exception):
    """A request failed.

    `status`: of HTTP, 0 if no answer came; `reason`: a word of Kubernetes such as AlreadyExists.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


class _Connection(http.client.HTTPConnection):
    """One connection to kubectl's Unix socket; kubectl accepts only the host name localhost."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=LIMIT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


_HEAD = re.compile(rb"(?:\r\n)?([0-9a-fA-F]{1,8})(?:;[^\r\n]*)?\r\n")
_LONGEST_HEAD = 1024


class Chunks:
    """Decodes HTTP's chunked encoding; http.client takes three times as long."""

    def __init__(self) -> None:
        self._raw, self._left = b"", 0
        self.over = False
        """The last chunk has come: the answer is complete."""

    def feed(self, data: bytes) -> bytes:
        """The decoded bytes that `data` completes; raises ValueError if the encoding is wrong."""
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
            raise ApiError(answer.status, "NoJson", "the answer is no JSON object")
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

    def items(self, path: str, params: Params) -> tuple[list[Object], str]:
        """All objects of a list, read in pages, and the resourceVersion
        to watch from; raises ApiError.
        """
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
                raise self._with_words_of_plugin(_refusal(answer.status, text))
            patience -= pause
            time.sleep(pause)

    def _with_words_of_plugin(self, error: ApiError) -> ApiError:
        """The error, with what a plug-in said that could not log in: it alone
        knows what to do (`aws sso login`).
        """
        if self._log is None or not _NO_LOGIN.search(error.message):
            return error
        said = plugin_words(self._log.read_bytes()[-4096:].decode("utf-8", "replace"))
        return ApiError(error.status, error.reason, f"{error.message}{_SAYS}{said}" if said else error.message)  # fmt: skip


LISTED = "LISTED"
TROUBLE = "TROUBLE"


class Watch:
    """Lists objects, then watches them; lists again when the server no
    longer knows the resourceVersion (410).

    Yields (LISTED, {"items": […]}) after each list, then the server's ADDED, MODIFIED and DELETED
    with the object, and (TROUBLE, {"status", "reason", "message"}) when it is refused or breaks;
    then it waits and goes on.
    """

    def __init__(self, api: Api, path: str, params: Params) -> None:
        self._api, self._path, self._params = api, path, params
        self._over = threading.Event()
        self._stream: Optional[HttpStream] = None
        self._version, self._failures = "", 0
        self._opened = float("inf")
        """When the server began to answer the watch (monotonic seconds)."""

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
        """List if no resourceVersion is known, then watch once until the server ends it."""
        self._opened = float("inf")
        if not self._version:
            items, self._version = self._api.items(self._path, self._params)
            yield LISTED, {"items": items}
        # If nothing comes, not even a bookmark, list again: a server that was restored from a
        # backup counts from an older version, and sends nothing until it has passed ours.
        version, self._version = self._version, ""
        for kind, found in self._events(version):
            version = self._version = _version(found) or version
            self._failures = 0
            if kind != "BOOKMARK":
                yield kind, found

    def _recover(self, error: ApiError) -> Iterator[tuple[str, Object]]:
        if not error.status and time.monotonic() - self._opened > _HELD:
            self._failures = 0
        self._failures += 1
        expired, again = error.status == 410, self._failures > 1
        # A watch may break now and then: only a second failure in a row is reported.
        if again or (error.status and not expired):
            yield TROUBLE, vars(error)
        # The server may have forgotten changes by now: list again.
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
        self._opened = time.monotonic()
        if self._over.is_set():
            stream.close()
        for line in stream:
            event = parse_json_table(line.decode("utf-8", "replace"))
            found = event.get("object") if event else None
            if event is None or not isinstance(found, dict):
                raise ApiError(0, "NoJson", "the watch sends what is no event")
            found = cast("Object", found)
            if event.get("type") == "ERROR":
                raise _refusal(whole_or_zero(found.get("code")), json.dumps(found).encode())
            yield str(event.get("type")), found


def start_watch_thread(watch: Watch, tell: Callable[[str, Object], None]) -> threading.Thread:
    """Call `tell(kind, object)` for every event of a watch, in a new
    thread, until the watch is closed.
    """

    def go() -> None:
        for kind, found in watch:
            tell(kind, found)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    return thread


def object_rows(value: object) -> list[Object]:
    """The JSON objects in a list; empty if `value` is no list."""
    rows = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Object", row) for row in rows if isinstance(row, dict)]


def table_of(value: object) -> Object:
    """`value` if it is a JSON object, otherwise an empty one."""
    return cast("Object", value) if isinstance(value, dict) else {}


def whole_or_zero(value: object) -> int:
    """`value` if it is a whole number of 0 or more, otherwise 0."""
    return value if type(value) is int and value >= 0 else 0


def _version(found: Object) -> str:
    value = table_of(found.get("metadata")).get("resourceVersion")
    return value if isinstance(value, str) else ""


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


_NO_API = frozenset({400, 404, 405, 426, 501})
"""HTTP statuses that a Kubernetes server never sends without an object that says why."""


def _no_api(answer: str) -> str:
    """The sentence if something other than Kubernetes answers: kubectl without a
    configuration asks port 8080 of this machine.
    """
    files = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not any(Path(file).is_file() for file in files.split(os.pathsep) if file):
        return "no configuration has been provided"
    return f"what answers is no Kubernetes server: compare the address in `kubectl config view` ({answer})"


def _refusal(status: int, answer: bytes) -> ApiError:
    """The error in the server's Status object, or in kubectl's own text
    if it could not reach the server.
    """
    text = answer.decode("utf-8", "replace")
    row = parse_json_table(text)
    if row is None:
        message = plain_line(text, 400) or f"HTTP status {status}"
        return ApiError(status, UNREACHABLE, _no_api(message) if status in _NO_API else message)
    reason = plain_line(str(row.get("reason") or ""), 60)
    return ApiError(status, reason, plain_line(str(row.get("message") or reason), 1000))


START_LIMIT = 15.0
ASK_LIMIT = 15.0
_STOP_LIMIT = 2.0
_POLL = 0.02
_PREFIX = "rankdeck-kubectl-"
_FRESH = 20.0
"""Seconds for which a new folder is not removed: its kubectl may be about to start."""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class ProxyError(Exception):
    """`kubectl proxy` does not work; the text is a sentence that says what to do."""


_NO_CONFIGURATION = (
    "kubectl has no configuration here: put one in ~/.kube/config, or set KUBECONFIG"
)
_COMPLAINTS = (
    (r"fail(?:ed|ing) (?:to call|calling) webhook",
     "an admission webhook of the cluster does not work, and the server takes nothing without it: tell who runs the cluster ({said})"),
    (r"context .*(?:does not exist|nosuch|was not found)|cannot locate context",
     "kubectl knows no context `{context}`: `kubectl config get-contexts` lists those there are"),
    (r"current-context must exist|no configuration has been provided|127\.0\.0\.1:8080|localhost:8080",
     _NO_CONFIGURATION),
    (r"error loading config|couldn't get version/kind|yaml: |cannot unmarshal",
     "kubectl cannot read its configuration: {said}"),
    (r"getting credentials|exec: executable|exec plugin|refresh token|oauth2|invalid_grant|AADSTS",
     "kubectl could not log in: log in again as you do for kubectl ({said})"),
    (r"Unauthorized|must be logged in|token (?:has|is) expired",
     "your login to Kubernetes has expired or is not known there: log in again as you do for kubectl"),
    (r"x509|certificate|tls:",
     "the certificate of the Kubernetes server is not accepted: compare the clock here, and `kubectl cluster-info` ({said})"),
    (r"connection refused|no such host|no route|timeout|timed out|network is unreachable|\bEOF\b|connection reset|deadline exceeded",
     "the Kubernetes server does not answer: is it up, and the VPN? `kubectl cluster-info` asks it too ({said})"),
)  # fmt: skip
"""(pattern of what kubectl or the server write, the sentence for it); the first match counts."""


_NO_LOGIN = re.compile(r"getting credentials|exec: executable|exec plugin")
_SAYS = "; the plug-in says: "
_WARNING = re.compile(r"Warning:|[WI]\d{4} ")
_KUBECTL = re.compile(r"[WIEF]\d{4} |Starting to serve|Warning:|error: ")
_ERROR = re.compile(r"(?i)error\b|unable to |[EF]\d{4} ")


def kubectl_complaint(stderr: str) -> str:
    """The error in kubectl's stderr: the last line that is an error,
    else the last one that is no warning.

    Some versions write more after the error, such as that an option is deprecated.
    """
    lines = [line for line in stderr.splitlines() if line.strip()]
    relevant = [line for line in lines if not _WARNING.match(line)] or lines
    errors = [line for line in relevant if _ERROR.match(line)]
    return (errors or relevant or [""])[-1]


def plugin_words(stderr: str) -> str:
    """The last lines that a plug-in wrote among those of kubectl, as one line."""
    lines = (line.strip() for line in stderr.splitlines())
    own = [line for line in lines if line and not _KUBECTL.match(line)]
    return plain_line(" ".join(dict.fromkeys(own[-3:])), 200)


def in_words(message: str, context: str = "") -> str:
    """The sentence that says what to do about an error text of kubectl or the
    server; the text itself if none fits.
    """
    message, says, words = without_prefix(message, "error: ").partition(_SAYS)
    # The plug-in's words first: they say what to do.
    message = plain_line(f"the plug-in says: {words}; {message}" if says else message, 300)
    for pattern, sentence in _COMPLAINTS:
        if re.search(pattern, message, re.IGNORECASE):
            if sentence is _NO_CONFIGURATION and not context:
                return _without_context() or sentence
            return sentence.format(said=message, context=plain_line(context, 60))
    return message


def _without_context() -> str:
    """The sentence if kubectl's configuration has contexts and chooses
    none of them, else ""; asks kubectl.
    """
    argv = ("kubectl", "config", "get-contexts", "--output=name")
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=ASK_LIMIT, check=False)  # fmt: skip
        chosen = subprocess.call(("kubectl", "config", "current-context"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=ASK_LIMIT) == 0  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    names = done.stdout.decode("utf-8", "replace").split()
    if chosen or not names:
        return ""
    return (
        "kubectl's configuration chooses no context: `kubectl config use-context NAME` does, or name one in the"
        f" cluster file, `kubernetes: {{context: NAME}}`; there are: {plain_line(', '.join(names[:10]), 300)}"
    )


def describe_api_refusal(error: Union[ApiError, ProxyError]) -> str:
    """Why a request or kubectl failed, in a sentence; what the server says
    about objects and rights is not changed.
    """
    if isinstance(error, ProxyError):
        return str(error)
    if error.status in (0, 401, 500, 502, 503, 504) or error.reason == UNREACHABLE:
        return in_words(error.message or error.reason)
    return error.message or error.reason


class Proxy:
    """Owns one `kubectl proxy` process and the folder of its socket; a context manager.

    Always call `start` from the same thread, and keep that thread alive: kubectl ends with it.
    """

    def __init__(self, context: str = "", program: str = "kubectl") -> None:
        self._context, self._program = context, program
        self._folder: Optional[Path] = None
        self._process: Optional[subprocess.Popen[bytes]] = None

    def __enter__(self) -> "Proxy":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def api(self) -> Api:
        """A client; stays valid when kubectl is started again."""
        assert self._folder is not None
        return Api(str(self._folder / "s"), self._folder / "err")

    @property
    def alive(self) -> bool:
        """Whether kubectl runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start kubectl, or restart it; returns when it accepts connections. Raises ProxyError."""
        if shutil.which(self._program) is None:
            raise ProxyError(
                "no program kubectl in PATH: install it, or name the machine that has it with `kubernetes: {login: HOST}`"
            )
        self._reap()
        if self._folder is None:
            # Mode 0700: a user who can open the socket has all our rights in the cluster.
            base = _short_folder() or tempfile.gettempdir()
            _sweep(Path(base))
            self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        # A server may be behind a path (https://rancher/k8s/clusters/c-1);
        # kubectl before 1.21 cannot use one.
        if not self._serves(self._folder / "s", "--append-server-path"):
            self._serves(self._folder / "s")

    def _serves(self, path: Path, *options: str) -> bool:
        """Start kubectl with these options; False if it does not know them. Raises ProxyError."""
        assert self._folder is not None
        delete_file(path)
        errors = (self._folder / "err").open("wb")
        context = ("--context", self._context) if self._context else ()
        self._process = subprocess.Popen(
            (self._program, *context, "proxy", f"--unix-socket={path}", *options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
        errors.close()
        deadline = time.monotonic() + START_LIMIT
        while time.monotonic() < deadline:
            if not self.alive:
                if options and "unknown flag" in self._said():
                    return False
                raise ProxyError(self._complaint())
            if _answers(path):
                return True
            time.sleep(_POLL)
        raise ProxyError(f"kubectl proxy did not serve within {START_LIMIT:.0f} s")

    def _said(self) -> str:
        """What kubectl wrote last on stderr."""
        assert self._folder is not None
        return (self._folder / "err").read_bytes()[-4096:].decode("utf-8", "replace").strip()

    def _complaint(self) -> str:
        return in_words(
            kubectl_complaint(self._said()) or "kubectl proxy ended without an error message",
            self._context,
        )

    def stop(self) -> None:
        """End kubectl and remove its folder."""
        self._reap()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _reap(self) -> None:
        if self._process is None:
            return
        if self.alive:
            self._process.terminate()
        try:
            self._process.wait(_STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def namespace(self) -> str:
        """The namespace of the context, `default` if it names none; raises ProxyError."""
        context = ("--context", self._context) if self._context else ()
        what = ("config", "view", "--minify", "--output=jsonpath={.contexts[0].context.namespace}")
        try:
            done = subprocess.run(
                (self._program, *context, *what),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=ASK_LIMIT,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ProxyError(f"kubectl does not answer: {plain_line(str(error), 200)}") from error
        stderr = done.stderr.decode("utf-8", "replace").strip()
        if done.returncode:
            # In a pod kubectl needs no configuration: it uses the pod's service account.
            if "KUBERNETES_SERVICE_HOST" in os.environ and not self._context:
                return _pod_namespace()
            raise ProxyError(in_words(kubectl_complaint(stderr), self._context))
        return plain_line(done.stdout.decode("utf-8", "replace"), 63) or "default"


def _pod_namespace() -> str:
    try:
        file = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
        return plain_line(file.read_text(), 63) or "default"
    except OSError:
        return "default"


def _short_folder() -> Optional[str]:
    """A folder in which the socket's path stays below the limit of 107
    bytes; None: the usual one will do.
    """
    return None if len(tempfile.gettempdir()) < 70 else "/tmp"


def _sweep(base: Path) -> None:
    """Remove folders that are left because a proxy and its owner were killed."""
    for folder in base.glob(f"{_PREFIX}*"):
        try:
            about = folder.lstat()
            fresh = time.time() - about.st_mtime < _FRESH
        except OSError:
            continue
        ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
        if ours and not fresh and not _answers(folder / "s"):
            shutil.rmtree(folder, ignore_errors=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def end_tidily() -> None:
    """Make SIGTERM and SIGHUP end this process by SystemExit, so
    that the proxy's folder is removed.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
