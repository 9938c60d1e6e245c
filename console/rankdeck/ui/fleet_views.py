"""How the fleet is shown: columns of its table, filter, order and map, saved
views, and the overview below a short table.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain, islice, zip_longest
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from rankdeck.config.document import load_json
from rankdeck.config.files import create_private_folder, is_missing, write_user_file
from rankdeck.errors import ConfigError
from rankdeck.model.health import Occurrence, leading_events
from rankdeck.model.json_tables import is_table
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.rank import State
from rankdeck.model.safe_text import printable_line
from rankdeck.rules import query
from rankdeck.rules.shared_causes import SharedCause
from rankdeck.state.fleet import Fleet, NodeState
from rankdeck.state.fleet_history import FleetPicture, Past
from rankdeck.ui import formatting
from rankdeck.ui.themes import CELL, RAMP_STEPS, Glyphs, Mark
from rankdeck.ui.widgets.canvas import (
    MARGIN,
    Run,
    Runs,
    cut_text,
    draw_share,
    fit_runs,
    fit_text,
    measure_runs,
    spread_rows,
)
from rankdeck.ui.widgets.grid import section_head
from rankdeck.ui.widgets.plots import (
    LABEL,
    Figure,
    Scale,
    columns_of,
    draw_frame,
    draw_spark,
    round_up,
)
from rankdeck.values import Value, value_table
from rankdeck_agent.rules.levels import SUMMARY, Level, sum_of
from rankdeck_agent.wire import METRICS

if TYPE_CHECKING:
    from rankdeck.model.job import Job


BAR, GPU_BARS = 6, 15
"""Cells of a bar, and of the small bars of the GPUs."""


class NodeColumn(Value):
    """A column of numbers, with all that Fleet, its maps and its past need to know about it."""

    title: str
    width: int
    keep: int
    """Of columns that do not fit, those with the lowest number go first."""
    metric: str
    """Its number is that of the node in lists (SUMMARY); a metric without one needs samples."""
    say: Callable[[float | None], str]
    warn: float = float("inf")
    bar: int = 0
    """Cells of the bar that is drawn beside the number; 0: none."""
    always: bool = False
    """Whether it is shown even if no node has the metric."""
    map: str = ""
    """Name of the map that shows this number; "" if there is none."""

    def number(self, node: NodeState) -> float | None:
        """The number of this node; of a counter its growth per second over all devices."""
        if self.metric in SUMMARY:
            return node.summary(self.metric)
        if METRICS[self.metric].kind == "counter":
            return sum_of(self.metric)(node.current)
        return formatting.node_number(node, self.metric)


NUMBERS: tuple[NodeColumn, ...] = (
    NodeColumn("CPU", 4, 9, "cpu.used", formatting.format_percent, bar=BAR, always=True, map="CPU"),
    NodeColumn("MEM", 4, 8, "mem.used", formatting.format_percent, 90, bar=BAR, always=True, map="MEM"),
    NodeColumn("GPU", 4, 9, "gpu.used", formatting.format_percent, bar=GPU_BARS, map="GPU"),
    NodeColumn("GMEM", 4, 6, "gpu.mem_used", formatting.format_percent, 98),
    # For a node without GPUs, the temperature is that of the CPU.
    NodeColumn("TEMP", 4, 6, "gpu.temp", formatting.format_celsius, 85, always=True, map="TEMP"),
    NodeColumn("POWER", 6, 4, "gpu.power", formatting.format_watts, map="POWER"),
    NodeColumn("RDMA rx", 7, 5, "rdma.rx", formatting.format_traffic, map="RDMA"),
    NodeColumn("RDMA tx", 7, 5, "rdma.tx", formatting.format_traffic),
    NodeColumn("NET", 7, 4, "net.rx", formatting.format_traffic),
    NodeColumn("LOAD", 5, 3, "cpu.load1", lambda value: formatting.format_plain(value, 1)),
)  # fmt: skip


BY_TITLE = {column.title: column for column in NUMBERS}
SORTS = ("STATE", "NODE", *(column.title for column in NUMBERS), "SEEN")
SORTED = {title.split()[0]: title for title in SORTS}
"""Sort orders as the user types them, in one word -> title of the column."""
MAPS = ("STATE", *(column.map for column in NUMBERS if column.map))
_TENTHS = 10


SAY: dict[str, Callable[[float | None], str]] = {
    "%": formatting.format_percent,
    "C": formatting.format_celsius,
    "B": formatting.format_size,
    "B/s": formatting.format_rate,
}
"""Unit -> how numbers are written; other units have at most four digits."""
NETWORKS = ("net.", "rdma.")
"""Metrics in bytes per second that are shown in bits, like the speed of links."""


@cache
def find_column(name: str) -> NodeColumn | None:
    """The column for a title, a short name or any metric; None if there is none."""
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
        say = formatting.format_traffic
    return NodeColumn(metric, max(len(metric), 6), 5, metric, say)


def column_names() -> list[str]:
    """The names that `find_column` knows: titles in lower case, then all metrics."""
    return [*(k.title.lower() for k in NUMBERS if " " not in k.title), *METRICS]


@lru_cache(maxsize=8)  # asked with every look at the model
def needs_samples(view: "FleetView") -> bool:
    """Whether the view shows, sorts or filters by a number that only full samples have."""
    columns = map(find_column, (*view.columns, *view.sort))
    shown = {column.metric for column in columns if column}
    return not (shown <= SUMMARY.keys() and query.query_metrics(view.filter) <= formatting.LISTED)


def map_column(name: str) -> NodeColumn | None:
    """The column whose number the map of this name shows; None for the map of states."""
    return next((one for one in NUMBERS if one.map == name), None)


def map_scale(column: NodeColumn, numbers: Iterable[float | None]) -> Scale:
    """The scale of the map of a column, for nodes with these numbers."""
    say = column.say
    if say is formatting.format_percent:
        return Scale(100.0)
    if say is formatting.format_celsius:
        return Scale(100.0, foot=20.0, ramp="hot")
    return Scale(round_up(max((number for number in numbers if number is not None), default=0.0)))


def heat_role(value: float | None, scale: Scale, mark: Mark) -> Mark:
    """A node on the map of a number: filled with its colour, the sign of its state if
    it is not well, else tenths of the scale.
    """
    if value is None:
        return Mark(mark.glyph, "unknown")
    share = scale.share(value)
    tenth = str(min(int(share * _TENTHS), _TENTHS - 1))
    return Mark(tenth if mark.role == "ok" else mark.glyph, f"{CELL}{scale.role(share)}")


def map_legend(column: NodeColumn, scale: Scale) -> Runs:
    """What the colours of the map mean."""
    say = column.say
    steps: list[Run] = [
        (str(step * _TENTHS // RAMP_STEPS), f"{CELL}{scale.ramp}{step}")
        for step in range(RAMP_STEPS)
    ]
    ends = f"{say(scale.foot)} ", f" {say(scale.top)}"
    return [("   map ", "dim"), (f"{column.title} {ends[0]}", "text"), *steps, (ends[1], "text")]


def map_row(
    names: Sequence[str], leaves: Iterable[str], counts: Mapping[Level, int], glyphs: Glyphs
) -> Runs:
    """What stands beside a row of the map: its leaves, or its nodes,
    and how many of them are not well.
    """
    group = ", ".join(leaves) or fold_nodes(names)
    runs: list[Run] = [(f" {cut_text(printable_line(group), MAP_NAMES - 1, glyphs.more)}", "dim")]
    for level in (Level.BAD, Level.WARN, Level.UNKNOWN):
        if counts.get(level):
            mark = glyphs.level(level)
            runs.append((f" {mark.glyph}{counts[level]}", mark.role))
    return runs


def cause_line(cause: SharedCause, width: int, glyphs: Glyphs) -> Runs:
    """How many nodes have a cause in common, what to do, and the filter that lists them."""
    mark = glyphs.level(cause.level)
    action = f" {glyphs.dot} {printable_line(cause.action)}" if cause.action else ""
    left: list[Run] = [
        (f" {mark.glyph} {len(cause.nodes):,} nodes  ", mark.role),
        (printable_line(cause.seen), "text"),
        (action, "dim"),
    ]
    right: Runs = (("  /", "dim"), (f"check={cause.check}", "key"))
    return [*fit_runs(left, max(width - measure_runs(right), 0), glyphs.more), *right]


MAP_NAMES = 18
"""Cells of the name of a row of the map."""


def name_cell(name: str, level: Level) -> Runs:
    """The node's name, in bold if something is wrong."""
    return [(printable_line(name), "title" if level >= Level.WARN else "text")]


NAME_LIMIT = 40
MOST = 200


class ViewError(ValueError):
    """A view cannot be saved or found; the text says why."""


class FleetView(Value):
    """One way to look at all nodes."""

    filter: str = ""
    sort: tuple[str, ...] = ("STATE",)
    """Titles of columns, the most important first."""
    reversed: bool = False
    columns: tuple[str, ...] = ()
    """Titles or metrics; (): the usual columns."""
    map: str = "STATE"


class Views:
    """The saved views of a user, in one JSON file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def all(self) -> dict[str, FleetView]:
        """Name -> view; raises ViewError if the file cannot be read."""
        if is_missing(self._file):
            return {}
        try:
            raw = load_json(self._file)
        except ConfigError as error:
            raise ViewError(str(error)) from error
        return {name: self._view(name, raw[name]) for name in sorted(raw)[:MOST]}

    def save(self, name: str, view: FleetView) -> None:
        """Save a view under a name, in place of an older one."""
        if not name or len(name) > NAME_LIMIT or not name.isprintable() or " " in name:
            raise ViewError("a view has a name of one word, at most 40 letters")
        if name in ("save", "delete"):
            raise ViewError(f"`{name}` is a word of the command; take another name")
        self._write({**self.all(), name: view})

    def delete(self, name: str) -> None:
        """Delete the view of that name; raises ViewError."""
        kept = self.all()
        _named(name, kept)
        self._write({key: view for key, view in kept.items() if key != name})

    def find(self, name: str) -> FleetView:
        """The view of that name; raises ViewError."""
        return _named(name, self.all())

    def _view(self, name: str, raw: object) -> FleetView:
        where = f"{self._file}: {name}"
        if not is_table(raw):
            raise ViewError(f"{where}: a table is wanted")
        try:
            view = FleetView(
                filter=str(raw.get("filter", "")),
                sort=tuple(map(str, raw.get("sort", ("STATE",)))),
                reversed=raw.get("reversed") is True,
                columns=tuple(map(str, raw.get("columns", ()))),
                map=str(raw.get("map", "STATE")),
            )
            return check_view(view)
        except (TypeError, ViewError) as error:
            raise ViewError(f"{where}: {error}") from error

    def _write(self, views: Mapping[str, FleetView]) -> None:
        text = json.dumps({name: value_table(view) for name, view in views.items()}, indent=1)
        try:
            create_private_folder(self._file.parent)
            write_user_file(self._file, text + "\n")
        except OSError as error:
            raise ViewError(
                f"{self._file}: cannot be written: {error.strerror or error}"
            ) from error


def check_view(view: FleetView) -> FleetView:
    """Return the view if all its columns, filters and orders are known; else raises ViewError."""
    try:
        query.parse_query(view.filter)
    except query.QueryError as error:
        raise ViewError(f"filter: {error}") from error
    if view.map not in MAPS:
        raise ViewError(f"no map of `{view.map}`; there are {', '.join(MAPS)}")
    for name in (*view.columns, *(n for n in view.sort if n not in SORTS)):
        require_column(name)
    return view


def require_column(name: str) -> NodeColumn:
    """The column for this title or metric, in upper or lower case; raises ViewError."""
    found = find_column(name)
    if found is None:
        raise ViewError(f"no column or metric `{name}`; tab completes")
    return found


def _named(name: str, kept: Mapping[str, FleetView]) -> FleetView:
    if name not in kept:
        there = f"there are {', '.join(kept)}" if kept else ":view save NAME keeps this one"
        raise ViewError(f"no view `{name}`; {there}")
    return kept[name]


_NAME, _MOST_NAME = 10, 20
_TREND, _MOST_TREND = 30, 80
"""Least and most cells of one trend with its number."""
_LOWEST, _HIGHEST = 5, 12
"""Lines of the figure of all nodes together: at least (if there are
several rows of figures), and at most.
"""
_BESIDE = 140
"""Jobs and events are side by side on screens of at least this width."""
_JOBS = 6
_JOB_NAME, _BAR = 36, 8
"""Most cells of a job's name, and those of the bar that says how far it is."""
_SHORT = 12
"""Pictures of the past in the short trend of a large fleet."""
Series = list[float | None]
Frames = Sequence[FleetPicture | None]
"""A picture of the fleet for each column of a plot, oldest first; None where none was taken."""
Room = tuple[int, int]
"""Width in cells and height in lines."""


ALL_NODES: Mapping[str, Callable[[list[float]], float]] = {
    "sum": sum,
    # `statistics` is loaded only by what computes more than a mean.
    "mean": lambda numbers: sum(numbers) / len(numbers),
    "most": max,
}
"""How the numbers of nodes are combined."""


class Trend(Value):
    """A number over time: the metrics to add up, and how nodes are combined."""

    title: str
    metrics: tuple[str, ...]
    say: Callable[[float | None], str]
    of_all: str = "sum"
    """How nodes are combined, a word of ALL_NODES."""
    top: float = 0.0
    """The upper end of the scale; 0: the highest number, rounded up."""
    ramp: str = "calm"


TRENDS = (
    Trend("CPU", ("cpu.used",), formatting.format_percent, "mean", top=100.0),
    Trend("GPU", ("gpu.used",), formatting.format_percent, "mean", top=100.0),
    Trend("GPU POWER", ("gpu.power",), formatting.format_watts),
    Trend("RDMA rx+tx", ("rdma.rx", "rdma.tx"), formatting.format_traffic),
    Trend("NETWORK rx+tx", ("net.rx",), formatting.format_traffic),
    Trend("MEMORY", ("mem.used",), formatting.format_percent, "mean", top=100.0),
    Trend("GPU MEMORY", ("gpu.mem_used",), formatting.format_percent, "mean", top=100.0),
    Trend("GPU TEMP", ("gpu.temp",), formatting.format_celsius, "most", top=100.0, ramp="hot"),
)
"""The most important first; as many are shown as fit."""


class Overview(Value):
    """What the overview draws: these nodes in this order, and these
    jobs, now or at an earlier time.
    """

    fleet: Fleet
    nodes: tuple[NodeState, ...]
    jobs: "tuple[Job, ...]"
    others: int = 0
    """How many jobs there are that this console does not follow."""
    moment: float | None = None
    """Epoch seconds; None: now."""
    opening: str = ""
    """What is still being asked, so that there may be more; "" if nothing."""

    def events(self, most: int) -> list[Occurrence]:
        """The newest events of these nodes, without those that are
        consequences of others; at most `most`.
        """
        names = {node.name for node in self.nodes}
        of_nodes = (one for one in reversed(self.fleet.event_log.newest) if one.node in names)
        newest = islice((one for one in of_nodes if one.at <= self._until), 2 * most)
        return leading_events(list(newest), lambda one: one.kind)[:most]

    @property
    def pictures(self) -> Past:
        """What plots are drawn from: the last minutes, second by second, or else hours."""
        live = self.moment is None and self.fleet.recent.span() is not None
        return self.fleet.recent if live else self.fleet.past

    def frames(self, most: int) -> Frames:
        """The pictures of the last `most` columns of a plot up to `moment`;
        of now, all but the newest column.
        """
        span = self.pictures.span()
        end = self.moment if self.moment is not None else span[1] if span else 0.0
        return self.pictures.columns(end, most if self.moment is not None else most - 1)

    def series(self, node: NodeState, metric: str, frames: Frames) -> Series:
        """The node's number in each picture, and now if that is what is shown."""
        place = self.fleet.place(node.name)
        past = [None if frame is None else frame.number(place, metric) for frame in frames]
        return past if self.moment is not None else [*past, self.now(node, metric)]

    def now(self, node: NodeState, metric: str) -> float | None:
        return None if node.silent else node.summary(metric)

    @property
    def _until(self) -> float:
        return inf if self.moment is None else self.moment


def overview_lines(scene: Overview, room: Room, glyphs: Glyphs) -> list[Runs]:
    """The lines of the overview: trends, jobs and events, as far as they fit."""
    width, height = room
    happened = scene.events(height)
    below = 2 + min(max(_JOBS, len(happened)), height // 3)
    lines = trend_lines(scene, (width, height - below), glyphs)
    left = height - len(lines)
    wide = width if width < _BESIDE else width // 2
    jobs = _job_lines(scene, glyphs) if scene.moment is None else []
    events = _event_lines(happened, scene.opening, glyphs)
    if width < _BESIDE:
        gap: list[Runs] = [[]] if jobs else []
        rows = [*jobs[: left // 2], *gap, *events][:left]
        spread = chain.from_iterable(spread_rows(rows, width - MARGIN, left))
        return [*lines, *(fit_runs(one, width - MARGIN, glyphs.more) for one in spread)]
    halves = [
        chain.from_iterable(spread_rows(rows[:left], wide - MARGIN - 1, left))
        for rows in (jobs, events)
    ]
    beside = zip_longest(*halves, fillvalue=())
    return [*lines, *([*fit_runs(one, wide, glyphs.more), *other] for one, other in beside)]


# ---- trends


class _Grid(Value):
    """How trends share the room: rows and columns of plots, their size in cells
    and lines, whether each node has a line.
    """

    rows: int
    columns: int
    cells: int
    high: int
    each: bool


def _grid(count: int, nodes: int, room: Room) -> _Grid:
    """As many rows of plots as leave room for a line per node; if not
    even one row does, no lines per node.
    """
    width, height = room
    across = max(width // _TREND, 1)
    most = -(-count // across)
    tries = [(rows, each) for each in (nodes, 0) for rows in range(most, 0, -1)]
    free = {rows: height // rows - 1 for rows, _ in tries}
    fits = (
        (rows, each) for rows, each in tries if free[rows] - each >= (_LOWEST if rows > 1 else 3)
    )
    rows, each = next(fits, (1, 0))
    columns = min(across, -(-count // rows))
    high = min(max(free[rows] - each, 3), _HIGHEST)
    return _Grid(rows, columns, min(width // columns, _MOST_TREND), high, bool(each))


def trend_lines(scene: Overview, room: Room, glyphs: Glyphs) -> list[Runs]:
    """Plots of all nodes together, and a line per node if there is
    room, for each trend that has numbers.
    """
    width, height = room
    names = [printable_line(node.name) for node in scene.nodes]
    name_width = min(max([_NAME, *map(len, names)]), _MOST_NAME)
    trends_shown = [trend for trend in TRENDS if _is_reported(scene, trend)]
    if not trends_shown:
        return []
    several = len(names) if len(names) > 1 else 0
    grid = _grid(len(trends_shown), several, (width - name_width - 2, height))
    frames = scene.frames(columns_of(grid.cells, glyphs))
    heads = [f"all {several}" if several else names[0], *[""] * (grid.high - 1), *names[:several]]
    lines: list[Runs] = []
    for place in range(0, grid.rows * grid.columns, grid.columns):
        some = trends_shown[place : place + grid.columns]
        drawn = [_drawn(scene, trend, frames, grid, glyphs) for trend in some]
        lines += [
            [(f" {fit_text(name, name_width, glyphs.more)} ", "text"), *chain.from_iterable(line)]
            for name, line in zip(heads, zip(*drawn, strict=True), strict=False)
        ]
        lines.append([])
    return lines


def _is_reported(scene: Overview, trend: Trend) -> bool:
    return any(scene.now(node, m) is not None for node in scene.nodes for m in trend.metrics)


def _drawn(
    scene: Overview, trend: Trend, frames: Frames, grid: _Grid, glyphs: Glyphs
) -> list[Runs]:
    """The figure of all nodes together, and the line of each node if there
    are several and the grid has room.
    """
    rows = [_series(scene, node, trend, frames) for node in scene.nodes]
    figure = _figure(scene, trend, rows)
    gap: Run = (" ", "text")
    lines: list[Runs] = [
        [*line, gap] for line in draw_frame(figure, (grid.cells - 1, grid.high), glyphs)
    ]
    if len(rows) > 1 and grid.each:
        scale = _scale(trend, [number for row in rows for number in row])
        inner = grid.cells - 3 - LABEL
        lines += [
            [
                (f" {_said(trend, row):>{LABEL - 1}} ", "text"),
                *draw_spark(row, inner, glyphs, scale),
                gap,
                gap,
            ]
            for row in rows
        ]
    return lines


def _figure(scene: Overview, trend: Trend, rows: Sequence[Series]) -> Figure:
    """The figure of all nodes together; `rows` are the numbers of each."""
    whole = [_together(column, trend) for column in zip(*rows, strict=True)]
    return Figure(
        trend.title,
        _said(trend, whole),
        whole,
        trend.say,
        scene.pictures.period,
        _scale(trend, whole),
    )


def trend_figures(scene: Overview, most: int, columns: int) -> list[Figure]:
    """At most `most` figures of these nodes together, the most important first,
    each of the newest `columns` numbers.
    """
    frames = scene.frames(columns)
    shown = [trend for trend in TRENDS if _is_reported(scene, trend)][:most]
    return [
        _figure(scene, one, [_series(scene, node, one, frames) for node in scene.nodes])
        for one in shown
    ]


def _said(trend: Trend, row: Series) -> str:
    return trend.say(row[-1] if row else None) or formatting.NOTHING


def _scale(trend: Trend, numbers: Series) -> Scale:
    """Up to the end of the scale that the trend has, else up to the highest number."""
    highest = max((number for number in numbers if number is not None), default=0.0)
    return Scale(trend.top or round_up(highest), ramp=trend.ramp)


def _series(scene: Overview, node: NodeState, trend: Trend, frames: Frames) -> Series:
    """The numbers of a trend for one node."""
    rows = [scene.series(node, metric, frames) for metric in trend.metrics]
    return [_sum(column) for column in zip(*rows, strict=True)]


def _sum(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _together(numbers: Sequence[float | None], trend: Trend) -> float | None:
    known = [number for number in numbers if number is not None]
    return ALL_NODES[trend.of_all](known) if known else None


def total_lines(past: Past, glyphs: Glyphs) -> list[Runs]:
    """All nodes of a large fleet together: each trend as a short plot with
    its newest number; empty at the start.
    """
    frames = past.newest(columns_of(_SHORT, glyphs))
    lines: list[Runs] = []
    for trend in TRENDS:
        row = [_total(frame, trend) for frame in frames]
        if row and row[-1] is not None:
            cells = -(-len(row) // columns_of(1, glyphs))
            drawn = draw_spark(row, cells, glyphs, _scale(trend, row))
            value = f" {trend.of_all} {trend.say(row[-1])}"
            lines.append([(f"   {trend.title} ", "dim"), *drawn, (value, "text")])
    return lines


@lru_cache(maxsize=2 * _SHORT * len(TRENDS))
def _total(frame: FleetPicture, trend: Trend) -> float | None:
    """One trend of all nodes that have a number; None if none has."""
    known = [number for metric in trend.metrics for number in frame.known(metric)]
    return ALL_NODES[trend.of_all](known) if known else None


# ---- jobs and events


def _job_lines(scene: Overview, glyphs: Glyphs) -> list[Runs]:
    """The jobs that are not over, newest first; if there are none, the last one.

    Jobs of acceptance runs and scaling studies are only counted.
    """
    newest = sorted(
        (job for job in scene.jobs if not job.plan.part_of), key=lambda job: -job.created
    )
    active = [job for job in newest if not job.state.final]
    parts = sum(1 for job in scene.jobs if job.plan.part_of and not job.state.final)
    shown = active[:_JOBS] or newest[:1]
    if scene.opening and not shown:
        return [section_head("Jobs", scene.opening)]
    count = formatting.format_many(len(active), "job") if active else "no job"
    beside = (
        f", {formatting.format_many(scene.others, 'job')} not followed here" if scene.others else ""
    )
    beside += (
        f", {formatting.format_many(parts, 'job')} of acceptance or scaling (6, 7)" if parts else ""
    )
    head = section_head("Jobs", f"{count} running or waiting{beside}")
    if not shown:
        return [head, [("   3 starts one", "dim")]]
    states = [_job_state(job, glyphs) for job in shown]
    wide = max(len(state) for state in states)
    name = min(max(len(job.id) for job in shown), _JOB_NAME)
    return [
        head,
        *(
            [
                (f"   {state:<{wide}}  ", glyphs.state(job.state).role),
                (f"{cut_text(printable_line(job.id), name, glyphs.more):<{name}}  ", "text"),
                *_job_words(job, glyphs),
            ]
            for job, state in zip(shown, states, strict=True)
        ),
    ]


def _job_state(job: "Job", glyphs: Glyphs) -> str:
    ago = f", {formatting.format_age(formatting.seconds_since(job.ended))} ago" if job.ended else ""
    return f"{glyphs.state(job.state).glyph} {job.state}{ago}"


def _job_words(job: "Job", glyphs: Glyphs) -> list[Run]:
    """How far a job is, what went wrong, since when it runs and where."""
    runs: list[Run] = []
    if job.state is State.RUNNING and job.progress and job.progress.share is not None:
        runs += [*draw_share(job.progress.share, _BAR, glyphs), ("  ", "text")]
    if job.first_failure:
        runs.append((f"{printable_line(job.first_failure.who)}, {job.first_failure.how}  ", "bad"))
    if job.stalled:
        runs.append((f"{printable_line(job.stalled[0].sentence)}  ", "warn"))
    if job.state is State.RUNNING:
        runs.append(
            (f"{formatting.format_duration(formatting.seconds_since(job.created))}  ", "text")
        )
    where = printable_line(fold_nodes(job.nodes))
    on = f" on {where}" if where else ""
    return [*runs, (f"{formatting.format_many(len(job.ranks), 'rank')}{on}", "dim")]


def _event_lines(happened: Iterable[Occurrence], opening: str, glyphs: Glyphs) -> list[Runs]:
    """What happened on the nodes, in the order given."""
    head = section_head("Events", "newest first")
    lines = [_event_line(one, glyphs) for one in happened]
    return [head, *(lines or [[(f"   {opening or 'nothing has happened yet'}", "dim")]])]


def _event_line(one: Occurrence, glyphs: Glyphs) -> Runs:
    quiet = one.level is Level.OK
    mark = glyphs.level(one.level)
    runs: list[Run] = [
        (f"   {formatting.format_clock(one.at)}  ", "dim"),
        (f"{glyphs.dot if quiet else mark.glyph} ", "dim" if quiet else mark.role),
        (f"{printable_line(one.node)}  ", "title"),
        (formatting.describe_occurrence(one), "dim" if quiet else "text"),
    ]
    return runs
