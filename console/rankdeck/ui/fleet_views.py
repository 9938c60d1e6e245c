"""How the fleet is shown: the columns of its table, filter, order and map, and views kept under names."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankdeck.config.files import private_folder, write_private
from rankdeck.model.health import Level
from rankdeck.model.text import printable
from rankdeck.state.fleet import NodeState
from rankdeck.ui import formatting, query
from rankdeck.ui.widgets.canvas import Runs
from rankdeck_agent.rules.levels import SUMMARY, total
from rankdeck_agent.wire import METRICS

if TYPE_CHECKING:
    from rankdeck.model.schedulers import SlurmNode

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
    return lambda node: formatting.number(node, metric)


def _r(metric: str) -> Number:
    of = total(metric)
    return lambda node: of(node.current)


def _s(metric: str) -> Number:
    """The number that stands for a metric in lists."""
    return lambda node: node.summary(metric)


NUMBERS: tuple[NodeColumn, ...] = (
    NodeColumn("CPU", 4, 9, "cpu.used", _s("cpu.used"), formatting.percent, gauge=True),
    NodeColumn("MEM", 4, 8, "mem.used", _s("mem.used"), formatting.percent, 90, True),
    NodeColumn("GPU", 4, 9, "gpu.used", _s("gpu.used"), formatting.percent, gauge=True),
    NodeColumn("GMEM", 4, 6, "gpu.mem_used", _s("gpu.mem_used"), formatting.percent, 98),
    NodeColumn("TEMP", 4, 6, "gpu.temp", _s("gpu.temp"), formatting.celsius, 85),
    NodeColumn("POWER", 6, 4, "gpu.power", _s("gpu.power"), formatting.watts),
    NodeColumn("RDMA rx", 7, 5, "rdma.rx", _s("rdma.rx"), formatting.traffic),
    NodeColumn("RDMA tx", 7, 5, "rdma.tx", _s("rdma.tx"), formatting.traffic),
    NodeColumn("NET", 7, 4, "net.rx", _s("net.rx"), formatting.traffic),
    NodeColumn(
        "LOAD", 5, 3, "cpu.load1", _s("cpu.load1"), lambda value: formatting.plain(value, 1)
    ),
)
ALWAYS = frozenset({"cpu.used", "mem.used", "gpu.temp"})
"""Shown even if no node has them; for a node without GPUs, the temperature is that of the CPU."""


@dataclass(frozen=True, slots=True)
class SlurmColumn:
    """A column of Slurm's words about a node."""

    title: str
    width: int
    keep: int
    say: Callable[["SlurmNode"], str]
    right: bool = False


SLURM: tuple[SlurmColumn, ...] = (
    SlurmColumn("SLURM", 12, 9, lambda view: view.words or "gone"),
    SlurmColumn("JOBS", 4, 6, lambda view: str(len(view.jobs) or ""), right=True),
    SlurmColumn("GRES", 14, 6, lambda view: view.gres_words),
    SlurmColumn("PARTITION", 12, 3, lambda view: ",".join(view.partitions)),
    SlurmColumn("FEATURES", 12, 1, lambda view: view.features),
)
"""Shown where Slurm says anything of a node, as far as there is room."""
BY_TITLE = {column.title: column for column in NUMBERS}
SORTS = ("STATE", "NODE", *(column.title for column in NUMBERS), "SEEN")
SORTED = {title.split()[0]: title for title in SORTS}
"""Sorts that are typed in one word."""
MAPS = ("STATE", "CPU", "MEM", "GPU", "TEMP")
HEAT = ((50.0, "dim"), (80.0, "ok"), (95.0, "warn"))
"""Below which value a number has which role on the map; above all: bad."""


SAY: dict[str, Callable[[float | None], str]] = {
    "%": formatting.percent,
    "C": formatting.celsius,
    "B": formatting.size,
    "B/s": formatting.rate,
}
"""Unit -> how its numbers are written; other units: at most four digits."""
NETWORKS = ("net.", "rdma.")
"""Metrics in bytes per second that are shown in bits, like the speed of links."""


@cache
def find(name: str) -> NodeColumn | None:
    """The column of a title, a short name or any metric; None if there is none."""
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
    if unit == "B/s" and metric.startswith(NETWORKS):
        say = formatting.traffic
    number = _r(metric) if counter else _n(metric)
    return NodeColumn(metric, max(len(metric), 6), 5, metric, number, say)


def names() -> list[str]:
    """The names that `find` knows: titles in lower case, then all metrics."""
    return [*(k.title.lower() for k in NUMBERS if " " not in k.title), *METRICS]


@lru_cache(maxsize=8)  # asked with every look at the model
def needs_samples(view: "FleetView") -> bool:
    """Whether the view shows, sorts or filters by a number that only full samples have."""
    columns = map(find, (*view.columns, *view.sort))
    shown = {column.metric for column in columns if column}
    return not (shown <= SUMMARY.keys() and query.metrics(view.filter) <= formatting.LISTED)


def heat(value: float | None) -> str:
    """The role of a percentage or temperature on the map."""
    if value is None:
        return "unknown"
    return next((role for limit, role in HEAT if value < limit), "bad")


def name_cell(name: str, level: Level) -> Runs:
    """The node's name, stronger where something is wrong."""
    return [(printable(name), "title" if level >= Level.WARN else "text")]


NAME_LIMIT = 40
MOST = 200


class ViewError(ValueError):
    """A view that cannot be kept or found; the text says why."""


@dataclass(frozen=True, slots=True)
class FleetView:
    """One way to look at all nodes."""

    filter: str = ""
    sort: tuple[str, ...] = ("STATE",)
    """Titles of columns, the most important first."""
    reversed: bool = False
    columns: tuple[str, ...] = ()
    """Titles or metrics; none: the usual ones."""
    map: str = "STATE"


class Views:
    """The saved views of a user, in one JSON file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def all(self) -> dict[str, FleetView]:
        """Name -> view; raises ViewError where the file cannot be read."""
        try:
            raw: Any = json.loads(self._file.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ViewError(f"{self._file}: {error}") from error
        if not isinstance(raw, dict):
            raise ViewError(f"{self._file}: a table of views by name is wanted")
        table: dict[str, Any] = raw  # pyright: ignore[reportUnknownVariableType]
        return {name: self._view(name, table[name]) for name in sorted(table)[:MOST]}

    def save(self, name: str, view: FleetView) -> None:
        """Keep a view under a name, in the place of an older one."""
        if not name or len(name) > NAME_LIMIT or not name.isprintable() or " " in name:
            raise ViewError("a view has a name of one word, at most 40 letters")
        if name in ("save", "delete"):
            raise ViewError(f"`{name}` is a word of the command; take another name")
        self._write({**self.all(), name: view})

    def delete(self, name: str) -> None:
        """Forget a view."""
        kept = self.all()
        if name not in kept:
            raise ViewError(_unknown(name, kept))
        self._write({key: view for key, view in kept.items() if key != name})

    def find(self, name: str) -> FleetView:
        """The view of that name; raises ViewError."""
        kept = self.all()
        if name not in kept:
            raise ViewError(_unknown(name, kept))
        return kept[name]

    def _view(self, name: str, raw: object) -> FleetView:
        where = f"{self._file}: {name}"
        if not isinstance(raw, dict):
            raise ViewError(f"{where}: a table is wanted")
        table: dict[str, Any] = raw  # pyright: ignore[reportUnknownVariableType]
        try:
            view = FleetView(
                filter=str(table.get("filter", "")),
                sort=tuple(map(str, table.get("sort", ("STATE",)))),
                reversed=table.get("reversed") is True,
                columns=tuple(map(str, table.get("columns", ()))),
                map=str(table.get("map", "STATE")),
            )
            return checked(view)
        except (TypeError, ViewError) as error:
            raise ViewError(f"{where}: {error}") from error

    def _write(self, views: Mapping[str, FleetView]) -> None:
        text = json.dumps({name: asdict(view) for name, view in views.items()}, indent=1)
        fresh = self._file.with_suffix(".new")
        try:
            private_folder(self._file.parent)
            write_private(fresh, text + "\n")
            fresh.replace(self._file)
        except OSError as error:
            raise ViewError(f"{self._file}: {error.strerror}") from error


def checked(view: FleetView) -> FleetView:
    """The same view where all of it is known; raises ViewError."""
    try:
        query.parse(view.filter)
    except query.QueryError as error:
        raise ViewError(f"filter: {error}") from error
    if view.map not in MAPS:
        raise ViewError(f"no map of `{view.map}`; there are {', '.join(MAPS)}")
    for name in (*view.columns, *(n for n in view.sort if n not in SORTS)):
        column(name)
    return view


def column(name: str) -> NodeColumn:
    """The column of this title or metric, in any case; raises ViewError."""
    found = find(name)
    if found is None:
        raise ViewError(f"no column or metric `{name}`; tab completes")
    return found


def _unknown(name: str, kept: Mapping[str, FleetView]) -> str:
    there = f"there are {', '.join(kept)}" if kept else ":view save NAME keeps this one"
    return f"no view `{name}`; {there}"
