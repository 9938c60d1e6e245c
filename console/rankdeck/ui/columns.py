"""The columns of the fleet table, each with how it is painted and sorted: one row per column."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from rankdeck.model.health import Level
from rankdeck.model.text import printable
from rankdeck.state.fleet import NodeState
from rankdeck.ui import query, readings, words
from rankdeck.ui.glyphs import Glyphs
from rankdeck.ui.widgets.canvas import Runs
from rankdeck.ui.widgets.gauges import bar
from rankdeck_agent.wire import METRICS

Number = Callable[[NodeState], float | None]
BAR = 6


@dataclass(frozen=True, slots=True)
class NodeColumn:
    """A column of numbers. `metric` says which simulated prefix and which failure concern it."""

    title: str
    width: int
    keep: int
    metric: str
    number: Number
    say: Callable[[float | None], str]
    warn: float = float("inf")
    gauge: bool = False


def _n(metric: str) -> Number:
    return lambda node: readings.number(node, metric)


def _r(metric: str) -> Number:
    return lambda node: readings.total_rate(node, metric)


NUMBERS: tuple[NodeColumn, ...] = (
    NodeColumn("CPU", 4, 9, "cpu.used", _n("cpu.used"), words.percent, gauge=True),
    NodeColumn("MEM", 4, 8, "mem.used", _n("mem.used"), words.percent, 90, True),
    NodeColumn(
        "GPU",
        4,
        9,
        "gpu.used",
        lambda node: readings.mean(node, "gpu.used"),
        words.percent,
        gauge=True,
    ),
    NodeColumn("GMEM", 4, 6, "gpu.mem_used", readings.gpu_memory, words.percent, 98),
    NodeColumn("TEMP", 4, 6, "gpu.temp", readings.temperature, words.celsius, 85),
    NodeColumn("RDMA rx", 7, 5, "rdma.rx", _r("rdma.rx"), words.rate),
    NodeColumn("RDMA tx", 7, 5, "rdma.tx", _r("rdma.tx"), words.rate),
    NodeColumn("NET", 7, 4, "net.rx", readings.network, words.rate),
    NodeColumn("LOAD", 5, 3, "cpu.load1", _n("cpu.load1"), lambda value: words.plain(value, 1)),
)
ALWAYS = frozenset({"cpu.used", "mem.used", "gpu.temp"})
"""Shown even where no node has them; a node without GPUs has the CPU's temperature."""
BY_TITLE = {column.title: column for column in NUMBERS}
SORTS = ("STATE", "NODE", *(column.title for column in NUMBERS), "SEEN")
SORTED = {title.split()[0]: title for title in SORTS}
"""Sorts that are typed in one word."""
MAPS = ("STATE", "CPU", "MEM", "GPU", "TEMP")
HEAT = ((50.0, "dim"), (80.0, "ok"), (95.0, "warn"))
"""Below which value a number has which role on the map; above all: bad."""


SAY: dict[str, Callable[[float | None], str]] = {
    "%": words.percent,
    "C": words.celsius,
    "B": words.size,
    "B/s": words.rate,
}
"""How a number of a unit is said; of others: at most four digits."""


@cache
def find(name: str) -> NodeColumn | None:
    """The column of a title, a short name or any metric; None where there is none."""
    title, metric = name.upper(), query.SHORT.get(name.lower(), name.lower())
    for known in NUMBERS:
        if title == known.title.upper() or metric == known.metric:
            return known
    if metric not in METRICS:
        return None
    kind = METRICS[metric]
    counter = kind.kind == "counter"
    unit = f"{kind.unit}/s" if counter else kind.unit
    say = SAY.get(unit, lambda value: "" if value is None else f"{value:.4g}")
    number = _r(metric) if counter else _n(metric)
    return NodeColumn(metric, max(len(metric), 6), 5, metric, number, say)


def names() -> list[str]:
    """What `find` knows: titles in small letters, then all metrics."""
    return [*(k.title.lower() for k in NUMBERS if " " not in k.title), *METRICS]


def paint_past(column: NodeColumn, value: float | None) -> Runs:
    """The cell of this column at an earlier time."""
    return [(words.NOTHING if value is None else column.say(value), "text")]


def paint(column: NodeColumn, node: NodeState, width: int, glyphs: Glyphs) -> Runs:
    """The cell of this column: a number, with a bar where there is room; `ERR` where reading failed."""
    value = column.number(node)
    if value is None:
        failed = any(name.split("/")[0] == column.metric for name in node.failed)
        return [("ERR" if failed else words.NOTHING, "warn" if failed else "dim")]
    hot = value >= column.warn
    stale = node.health.level.word == "unknown"
    role = "dim" if stale else "warn" if hot else "text"
    text = column.say(value).rjust(4 if column.gauge else 0)
    if column.gauge and width > column.width:
        return [*bar(value, width - 5, glyphs, high=column.warn), (f" {text}", role)]
    return [(text, role)]


def heat(value: float | None) -> str:
    """The role of a percentage or temperature on the map."""
    if value is None:
        return "unknown"
    return next((role for limit, role in HEAT if value < limit), "bad")


def name_cell(name: str, level: Level) -> Runs:
    """The node's name, stronger where something is wrong."""
    return [(printable(name), "title" if level >= Level.WARN else "text")]
