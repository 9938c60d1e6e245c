"""The past of nodes from the site's Prometheus: queried over HTTP with
limits, mapped to Rankdeck's metrics, cached.

Series of `rankdeck export` come first, then those of dcgm-exporter and node_exporter.
"""

import asyncio
import base64
import http
import logging
import os
import socket
import ssl
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from math import isfinite
from typing import Any
from urllib.parse import urlencode, urlsplit

from rankdeck.config.files import expand_path, read_regular
from rankdeck.errors import MetricsError
from rankdeck.model.cluster import Cluster, Metrics, Node
from rankdeck.model.health import POINTS, PastNumbers, PastSeries, PastView, Times, times_between
from rankdeck.model.json_tables import as_list, as_table, is_list, parse_table
from rankdeck.model.safe_text import clean_line
from rankdeck.model.series import escape_label
from rankdeck.values import Value, replace

LIMIT = 10.0
"""Seconds for one query, from resolving the server's name to the last byte of its answer."""
SERVERS_LIMIT = 8
"""Seconds after which the server itself should give up a query."""
LARGEST = 8 << 20
"""Most bytes of an answer."""
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


class Response(Value):
    """A server's HTTP response."""

    status: int
    headers: Mapping[str, str]
    """Name in lower case -> value."""
    body: bytes = b""


async def query_range(
    server: Metrics, expression: str, times: Mapping[str, float]
) -> dict[str, Any]:
    """The `data` of the answer to a range query, with its `warnings`;
    `times` has start, end and step in seconds.

    Its content is not checked. Raises MetricsError.
    """
    asked: dict[str, object] = {"query": expression, **times, "timeout": f"{SERVERS_LIMIT}s"}
    answer = await _post(server, f"{server.path}/api/v1/query_range", urlencode(asked).encode())
    return data_of(answer)


async def _post(server: Metrics, path: str, body: bytes) -> Response:
    """Send a form directly to the server, because a proxy could read the login.

    Raises MetricsError.
    """
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
        why = f"shows a certificate that cannot be trusted: {clean_line(error.verify_message)}"
        raise MetricsError(f"{why}; see `ca_file` in `metrics:`") from error
    except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as error:
        raise MetricsError(_words(error)) from error


def _prepared(server: Metrics, path: str, size: int) -> tuple[bytes, ssl.SSLContext | None]:
    """The request head and the TLS context.

    Runs in a thread, because it reads files, and a file server may hang.
    """
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
    file = expand_path(server.ca_file) if server.ca_file else None
    return ssl.create_default_context(cadata=read_regular(file).decode("ascii") if file else None)


def _login(server: Metrics) -> Iterator[str]:
    """The Authorization header, if a login is set; raises OSError and ValueError."""
    if token := _secret(server.token_env, server.token_file):
        yield f"Authorization: Bearer {token}"
    elif server.user:
        password = _secret(server.password_env, server.password_file)
        login = base64.b64encode(f"{server.user}:{password}".encode()).decode()
        yield f"Authorization: Basic {login}"


def _secret(variable: str, file: str) -> str:
    """A password or token, read again for each query because tokens are renewed.

    Raises OSError and ValueError.
    """
    if variable:
        found = os.environ.get(variable)
        if found is None:
            raise ValueError(f"not asked: the environment has no {variable}, which holds the login")
    elif file:
        found = read_regular(expand_path(file), _CREDENTIAL_LIMIT).decode()
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
    """The parts of the body as they arrive: chunked, of a known
    length, or until the server closes.
    """
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
    """A size in an answer; raises ValueError if it is invalid or above LARGEST."""
    word = raw.partition(b";")[0].strip().lower()
    if not 0 < len(word) <= 16 or word.strip(b"0123456789abcdef"[:base]):
        raise ValueError("does not speak HTTP")
    size = int(word, base)
    if size > LARGEST:
        raise ValueError(_TOO_LONG)
    return size


def data_of(answer: Response) -> dict[str, Any]:
    """The `data` of a complete response; raises MetricsError, also
    with the server's own error message.
    """
    body = parse_table(answer.body, LARGEST) or {}
    if 300 <= answer.status < 400:
        host = clean_line(_host(answer.headers.get("location", ""))) or "another address"
        raise MetricsError(
            f"sends us on to {host}: name the right address in `metrics: {{url: …}}`"
        )
    error = body.get("error")
    if body.get("status") == "error" and isinstance(error, str):
        raise MetricsError(f"refuses the question: {clean_line(error, _WORDS)}")
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
    return clean_line(text, _WORDS)


_MARK = "rankdeck_number"
"""Label that is added to each series: the index of its row in `PAST_ROWS`."""
_NAMES_AT_ONCE = 500
"""Characters of node names in one query: VictoriaMetrics accepts 16 KB,
and the names occur 25 times in it.
"""
_MOST_SERIES = 20_000
_BEYOND = 1e18
_CABLES = 'device!~"lo|veth.*|docker.*|br-.*|cni.*|cali.*|flannel.*|virbr.*|vnet.*|ifb.*|tap.*|tun.*|dummy.*|kube-.*|vxlan.*|lxc.*|podman.*"'
"""Selects physical network devices: leaves out the same ones as the agent's collector."""


class _Row(Value):
    """One way to get a metric.

    In `expression`, {m:NAME} is a gauge's mean, {r:NAME} a counter's growth per second.
    """

    metric: str
    source: str
    expression: str
    gpu: bool = False
    """Whether the node is named by dcgm-exporter's label (`gpu_label`)."""


_OURS, _DCGM, _NODE = "rankdeck", "dcgm-exporter", "node_exporter"
PAST_ROWS: tuple[_Row, ...] = (
    _Row("cpu.used", _OURS, "100 * max by ({by}) ({m:rankdeck_cpu_used_ratio})"),
    _Row(
        "cpu.used",
        _NODE,
        '100 * (1 - avg by ({by}) ({r:node_cpu_seconds_total mode="idle"}))',
    ),
    _Row("mem.used", _OURS, "100 * max by ({by}) ({m:rankdeck_mem_used_ratio})"),
    _Row(
        "mem.used",
        _NODE,
        "100 * (1 - max by ({by}) ({m:node_memory_MemAvailable_bytes})"
        " / max by ({by}) ({m:node_memory_MemTotal_bytes}))",
    ),
    _Row("gpu.used", _OURS, "100 * avg by ({by}) ({m:rankdeck_gpu_used_ratio})"),
    _Row("gpu.used", _DCGM, "avg by ({by}) ({m:DCGM_FI_DEV_GPU_UTIL})", gpu=True),
    _Row(
        "gpu.mem_used",
        _OURS,
        "100 * sum by ({by}) ({m:rankdeck_gpu_mem_used_bytes})"
        " / sum by ({by}) ({m:rankdeck_gpu_mem_total_bytes})",
    ),
    _Row(
        "gpu.mem_used",
        _DCGM,
        "100 * sum by ({by}) ({m:DCGM_FI_DEV_FB_USED}) / (sum by ({by}) ({m:DCGM_FI_DEV_FB_USED})"
        " + sum by ({by}) ({m:DCGM_FI_DEV_FB_FREE}))",
        gpu=True,
    ),
    _Row("gpu.temp", _OURS, "max by ({by}) ({m:rankdeck_gpu_temp_celsius})"),
    _Row("gpu.temp", _DCGM, "max by ({by}) ({m:DCGM_FI_DEV_GPU_TEMP})", gpu=True),
    _Row("gpu.temp", _OURS, "max by ({by}) ({m:rankdeck_cpu_temp_celsius})"),
    _Row("gpu.power", _DCGM, "sum by ({by}) ({m:DCGM_FI_DEV_POWER_USAGE})", gpu=True),
    _Row("rdma.rx", _NODE, "sum by ({by}) ({r:node_infiniband_port_data_received_bytes_total})"),
    _Row("rdma.tx", _NODE, "sum by ({by}) ({r:node_infiniband_port_data_transmitted_bytes_total})"),
    _Row(
        "net.rx",
        _NODE,
        f"sum by ({{by}}) ({{r:node_network_receive_bytes_total {_CABLES}}})"
        f" + sum by ({{by}}) ({{r:node_network_transmit_bytes_total {_CABLES}}})",
    ),
    _Row("cpu.load1", _NODE, "max by ({by}) ({m:node_load1})"),
)  # fmt: skip
"""For each metric the first row with data is used; sums and means are
those of `rankdeck_agent.rules.report`.
"""


async def past_numbers(server: Metrics, nodes: Sequence[Node], times: Times) -> PastNumbers:
    """The numbers of these nodes at these times; raises MetricsError."""
    whole = PastNumbers(times)
    asked = {"start": times.start, "end": times.end, "step": times.step}
    for part in _parts(nodes):
        data = await query_range(server, past_expression(server, part, times), asked)
        found = read_matrix(data, server, part, times)
        whole = PastNumbers(times, {**whole.series, **found.series}, whole.warning or found.warning)
    return whole


def _parts(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    part: list[Node] = []
    for node in nodes:
        if part and len(_pattern((*part, node))) > _NAMES_AT_ONCE:
            yield part
            part = []
        part.append(node)
    if part:
        yield part


# ---- the query


def past_expression(server: Metrics, nodes: Sequence[Node], times: Times) -> str:
    """One PromQL expression for all metrics of these nodes; each series
    has its row in the label `_MARK`.
    """
    window = f"{max(times.step, 2 * server.interval):.0f}s"
    growth = f"{max(times.step + server.interval, 4 * server.interval):.0f}s"
    rows = (
        f'label_replace({_filled(row, server, nodes, window, growth)}, "{_MARK}", "{place}", "job", ".*")'
        for place, row in enumerate(PAST_ROWS)
    )
    return " or ".join(rows)


def _filled(row: _Row, server: Metrics, nodes: Sequence[Node], window: str, growth: str) -> str:
    label = server.gpu_label if row.gpu else server.label
    chosen = [f'{label}=~"{_pattern(nodes)}"']
    chosen += [
        f'{key}="{escape_label(value, quotes=True)}"' for key, value in server.labels.items()
    ]
    text = row.expression.replace("{by}", f"{label}, job, simulated")
    pieces = text.split("{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        inside, _, rest = piece.partition("}")
        kind, _, series = inside.partition(":")
        name, _, more = series.partition(" ")
        selector = f"{name}{{{', '.join(filter(None, (more, *chosen)))}}}"
        mean = f"avg_over_time({selector}[{window}])"
        filled += [f"rate({selector}[{growth}])" if kind == "r" else mean, rest]
    return "".join(filled)


def _pattern(nodes: Iterable[Node]) -> str:
    """An RE2 pattern for the names and addresses of nodes, with or without domain and port."""
    known = dict.fromkeys(word for node in nodes for word in (node.name, node.address) if word)
    words = "|".join(_plain(word.strip("[]")) for word in known)
    return f"[[]?({words})[]]?([.][^:]*)?(:[0-9]+)?"


def _plain(word: str) -> str:
    """A pattern that matches exactly this word; without backslashes, which
    would need escaping in PromQL strings.
    """
    return "".join(c if c.isalnum() or c in "_-:%" else f"[{c}]" for c in word)


# ---- the answer


def read_matrix(
    data: Mapping[str, Any], server: Metrics, nodes: Sequence[Node], times: Times
) -> PastNumbers:
    """The numbers in the `data` of an answer; unknown series are left out.

    Raises MetricsError if it is not a matrix, or has too many series.
    """
    result = data.get("result")
    if data.get("resultType") != "matrix" or not is_list(result):
        raise MetricsError("sent something that is no answer of a Prometheus")
    if len(result) > _MOST_SERIES:
        raise MetricsError(f"sent {len(result)} series, which is more than was asked for")
    best: dict[tuple[str, str], tuple[tuple[int, int], PastSeries]] = {}
    for series in result:
        if (one := _series(series, server, nodes, times)) is None:
            continue
        node, place, found = one
        there = sum(value is not None for value in found.values)
        key, rank = (node, PAST_ROWS[place].metric), (-place, there)
        if there and (key not in best or rank > best[key][0]):
            best[key] = rank, found
    kept = {key: found for key, (_, found) in best.items()}
    return PastNumbers(times, kept, _warning(data.get("warnings")))


def _series(
    row: object, server: Metrics, nodes: Sequence[Node], times: Times
) -> tuple[str, int, PastSeries] | None:
    """(node, index in `PAST_ROWS`, numbers); None for a series that was not requested."""
    fields = as_table(row)
    metric = as_table(fields.get("metric"))
    labels = {key: text for key, text in metric.items() if isinstance(text, str)}
    mark = labels.get(_MARK, "")
    place = int(mark) if mark.isascii() and mark.isdigit() and len(mark) < 4 else len(PAST_ROWS)
    if place >= len(PAST_ROWS):
        return None
    one = PAST_ROWS[place]
    node = node_of_label(labels.get(server.gpu_label if one.gpu else server.label, ""), nodes)
    if node is None:
        return None
    job = clean_line(labels.get("job", ""), 60)
    source = f"{one.source}, job {job}" if job else one.source
    points = _values(as_list(fields.get("values")), times)
    return node, place, PastSeries(points, source, labels.get("simulated") == "1")


def node_of_label(value: str, nodes: Iterable[Node]) -> str | None:
    """The name of the node that a label's value means, by name or address,
    with or without domain and port; or None.
    """
    known = {
        word.strip("[]"): node.name for node in nodes for word in (node.address, node.name) if word
    }
    host, colon, port = value.rpartition(":")
    bare = host if colon and port.isdigit() else value
    for word in (value, value.strip("[]"), bare.strip("[]")):
        while word:
            if word in known:
                return known[word]
            word = word.rpartition(".")[0]
    return None


def _values(points: Sequence[object], times: Times) -> tuple[float | None, ...]:
    """A number for each time; None for gaps, NaN and too large numbers."""
    found: list[float | None] = [None] * times.count
    for point in points:
        if len(pair := as_list(point)) != 2:
            continue
        at, text = pair
        if not isinstance(at, int | float) or not isinstance(text, str) or len(text) > 40:
            continue
        place = round((at - times.start) / times.step)
        if 0 <= place < times.count:
            found[place] = _number(text)
    return tuple(found)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) and abs(value) < _BEYOND else None


def _warning(raw: object) -> str:
    return clean_line(next((text for text in as_list(raw) if isinstance(text, str)), ""), 300)


log = logging.getLogger(__name__)
RETRY = 30.0
"""Seconds until a server that did not answer is queried again."""
_SCRAPES = 20
"""A job must last this many scrape intervals for the site's numbers
to be better than the console's own.
"""
_KEPT = 32
"""Answers that are cached, for moving back and forth in time."""
Start = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class JobNumbers(Value):
    """The site's numbers of a job's nodes while it ran."""

    rows: Sequence[Mapping[str, Any]] = ()
    """Like rows of the history: `{at, metrics, of, nodes, simulated}`, see `History.numbers`."""
    source: str = ""
    """Where the numbers come from, for people."""
    gap: float = 0.0
    """If two rows are more than this many seconds apart, some are missing in between."""
    trouble: str = ""
    """Why there are no numbers, or not all; one sentence."""


class _Question(Value):
    node: str
    hours: float
    times: Times


class SitePast:
    """Cache of the site's numbers: `view` returns at once what is known and
    queries the rest. Made by the session.

    For a cluster without `metrics:`, `view` returns None.
    """

    def __init__(self, cluster: Cluster, start: Start) -> None:
        """`start` starts a task that ends with the session at the latest."""
        self._cluster, self._start = cluster, start
        self._kept: dict[_Question, PastNumbers] = {}
        self._last: dict[tuple[str, float], PastNumbers] = {}
        self._wanted: _Question | None = None
        self._asking: asyncio.Task[None] | None = None
        self._trouble = ""
        self._again = 0.0
        """When the server may be queried again after a failure, monotonic seconds."""

    def view(self, node: str, hours: float, until: float | None = None) -> PastView | None:
        """What is known about a node in the `hours` before `until` (epoch
        seconds; None: now). Never waits.

        Until the answer arrives, it returns the last answer for the same node and number of hours.
        """
        server = self._cluster.metrics
        if server is None:
            return None
        end = time.time() if until is None else until
        wanted = _Question(node, hours, times_between(end - hours * 3600, end))
        self._wanted = wanted
        if wanted not in self._kept and self._may_ask():
            self._asking = self._start(self._ask(server))
        found = self._kept.get(wanted) or self._last.get((node, hours))
        return PastView(hours, server.place, found, self._trouble)

    async def of_job(self, nodes: Sequence[str], start: float, end: float, of: int) -> JobNumbers:
        """The numbers of these nodes between two times (epoch seconds);
        `of` is how many nodes the job has.

        Empty for a short job, for which the console's own numbers are finer.
        Never raises; see `JobNumbers.trouble`.
        """
        server = self._cluster.metrics
        if server is None or end - start < _SCRAPES * server.interval:
            return JobNumbers()
        try:
            found = await past_numbers(
                server, self._nodes(nodes), times_between(start, end, 2 * POINTS)
            )
        except MetricsError as error:
            return JobNumbers(trouble=f"The site's metrics are not in it: {server.place} {error}.")
        if not found.series:
            return JobNumbers(trouble=f"{server.place} has no numbers of these nodes at that time.")
        names = sorted({one.source for one in found.series.values()})
        source = f"{server.place}, series of {'; '.join(names)}"
        return JobNumbers(number_rows(found, of), source, 1.5 * found.times.step, found.warning)

    def _may_ask(self) -> bool:
        idle = self._asking is None or self._asking.done()
        return idle and time.monotonic() >= self._again

    async def _ask(self, server: Metrics) -> None:
        """Query what is wanted; repeat if something else is wanted by then."""
        while (wanted := self._wanted) is not None and wanted not in self._kept:
            try:
                found = await past_numbers(server, self._nodes([wanted.node]), wanted.times)
            except MetricsError as error:
                self._failed(f"{server.place} {error}")
                return
            self._trouble = ""
            self._keep(wanted, found)

    def _keep(self, asked: _Question, found: PastNumbers) -> None:
        self._kept[asked] = self._last[asked.node, asked.hours] = found
        for kept in (self._kept, self._last):
            if len(kept) > _KEPT:
                kept.pop(next(iter(kept)))  # pyright: ignore[reportArgumentType]

    def _failed(self, trouble: str) -> None:
        self._again = time.monotonic() + RETRY
        if trouble != self._trouble:
            log.warning("the site's metrics: %s", trouble)
        self._trouble = trouble

    def _nodes(self, names: Sequence[str]) -> list[Node]:
        known = {node.name: node for node in self._cluster.nodes}
        return [known.get(name) or Node(name=name) for name in names]


def number_rows(past: PastNumbers, of: int) -> list[Mapping[str, Any]]:
    """The numbers as rows of `JobNumbers`, one for each time; `of`
    is how many nodes the job has.
    """
    metrics = sorted({metric for _, metric in past.series})
    names = sorted({node for node, _ in past.series})
    made_up = {metric for (_, metric), one in past.series.items() if one.simulated}
    about = {
        "metrics": metrics,
        "of": of,
        "simulated": sorted({m.partition(".")[0] for m in made_up}),
    }
    columns = {
        name: [
            past.series[name, metric].values if (name, metric) in past.series else ()
            for metric in metrics
        ]
        for name in names
    }
    return [
        {
            **about,
            "at": at,
            "nodes": {
                name: [values[place] if values else None for values in columns[name]]
                for name in names
            },
        }
        for place, at in enumerate(past.times)
    ]
