"""Which series of the site's Prometheus are which number of a node, asked for and read.

Our own names come first (`rankdeck export`), then those of dcgm-exporter and node_exporter.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

from rankdeck.errors import MetricsError
from rankdeck.model.cluster import Metrics, Node
from rankdeck.model.past import PastNumbers, PastSeries, Times
from rankdeck.model.text import clean
from rankdeck.prometheus.client import query_range

_MARK = "rankdeck_number"
"""The label by which an answer says which row of `_ROWS` it is of."""
_NAMES_AT_ONCE = 500
"""Characters of node names in one question: VictoriaMetrics takes 16 KB, and they are in it 25 times."""
_MOST_SERIES = 20_000
_BEYOND = 1e18
_CABLES = 'device!~"lo|veth.*|docker.*|br-.*|cni.*|cali.*|flannel.*|virbr.*|vnet.*|ifb.*|tap.*|tun.*|dummy.*|kube-.*|vxlan.*|lxc.*|podman.*"'
"""As the agent's collector leaves them out."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One way to a number. In `expression` {m:NAME} is a gauge's mean and {r:NAME} a counter's growth per second."""

    metric: str
    source: str
    expression: str
    gpu: bool = False
    """Whether the node stands in the label of dcgm-exporter."""


_OURS, _DCGM, _NODE = "rankdeck", "dcgm-exporter", "node_exporter"
_ROWS: tuple[_Row, ...] = (
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
"""The earlier row of a metric wins; the same sums as `rankdeck_agent.rules.summary`."""


async def past_numbers(server: Metrics, nodes: Sequence[Node], times: Times) -> PastNumbers:
    """What the server has of these nodes at these times; raises MetricsError."""
    whole = PastNumbers(times)
    asked = {"start": times.start, "end": times.end, "step": times.step}
    for part in _parts(nodes):
        data = await query_range(server, expression(server, part, times), asked)
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


# ---- the question


def expression(server: Metrics, nodes: Sequence[Node], times: Times) -> str:
    """One expression that has every number of the nodes, each with its row in a label."""
    window = f"{max(times.step, 2 * server.interval):.0f}s"
    growth = f"{max(times.step + server.interval, 4 * server.interval):.0f}s"
    rows = (
        f'label_replace({_filled(row, server, nodes, window, growth)}, "{_MARK}", "{place}", "job", ".*")'
        for place, row in enumerate(_ROWS)
    )
    return " or ".join(rows)


def _filled(row: _Row, server: Metrics, nodes: Sequence[Node], window: str, growth: str) -> str:
    label = server.gpu_label if row.gpu else server.label
    chosen = [f'{label}=~"{_pattern(nodes)}"']
    chosen += [f"{key}={_quoted(value)}" for key, value in server.labels.items()]
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
    """RE2 for the names and addresses, alone or with a domain and a port behind them."""
    known = dict.fromkeys(word for node in nodes for word in (node.name, node.address) if word)
    words = "|".join(_plain(word.strip("[]")) for word in known)
    return f"[[]?({words})[]]?([.][^:]*)?(:[0-9]+)?"


def _plain(word: str) -> str:
    """A word that means itself: no backslash, which a quoted string would need twice."""
    return "".join(c if c.isalnum() or c in "_-:%" else f"[{c}]" for c in word)


def _quoted(text: str) -> str:
    safe = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{safe}"'


# ---- the answer


def read_matrix(
    data: Mapping[str, Any], server: Metrics, nodes: Sequence[Node], times: Times
) -> PastNumbers:
    """The numbers in the `data` of an answer; what is no number of ours is left out.

    Raises MetricsError where it is no matrix, or has more series than anyone asked for.
    """
    result = data.get("result")
    if data.get("resultType") != "matrix" or not isinstance(result, list):
        raise MetricsError("sent something that is no answer of a Prometheus")
    rows = cast("list[object]", result)
    if len(rows) > _MOST_SERIES:
        raise MetricsError(f"sent {len(rows)} series, which is more than was asked for")
    best: dict[tuple[str, str], tuple[tuple[int, int], PastSeries]] = {}
    for series in rows:
        if (one := _series(series, server, nodes, times)) is None:
            continue
        node, place, found = one
        there = sum(value is not None for value in found.values)
        key, rank = (node, _ROWS[place].metric), (-place, there)
        if there and (key not in best or rank > best[key][0]):
            best[key] = rank, found
    kept = {key: found for key, (_, found) in best.items()}
    return PastNumbers(times, kept, _warning(data.get("warnings")))


def _series(
    row: object, server: Metrics, nodes: Sequence[Node], times: Times
) -> tuple[str, int, PastSeries] | None:
    """Node, place in `_ROWS` and numbers; None for what we did not ask for."""
    if not isinstance(row, dict):
        return None
    fields = cast("dict[str, object]", row)
    raw, values = fields.get("metric"), fields.get("values")
    if not isinstance(raw, dict) or not isinstance(values, list):
        return None
    labels = {
        key: text for key, text in cast("dict[str, object]", raw).items() if isinstance(text, str)
    }
    mark = labels.get(_MARK, "")
    place = int(mark) if mark.isascii() and mark.isdigit() and len(mark) < 4 else len(_ROWS)
    if place >= len(_ROWS):
        return None
    one = _ROWS[place]
    node = node_of(labels.get(server.gpu_label if one.gpu else server.label, ""), nodes)
    if node is None:
        return None
    job = clean(labels.get("job", ""), 60)
    source = f"{one.source}, job {job}" if job else one.source
    points = _values(cast("list[object]", values), times)
    return node, place, PastSeries(points, source, labels.get("simulated") == "1")


def node_of(value: str, nodes: Iterable[Node]) -> str | None:
    """The node that a label's value names: by name or address, with or without domain and port."""
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
    """A number for each time; gaps, NaN and what is beyond all bounds stay gaps."""
    found: list[float | None] = [None] * times.count
    for point in points:
        if not isinstance(point, list) or len(cast("list[object]", point)) != 2:
            continue
        at, text = cast("list[object]", point)
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
    said = cast("list[object]", raw) if isinstance(raw, list) else []
    return clean(next((text for text in said if isinstance(text, str)), ""), 300)
