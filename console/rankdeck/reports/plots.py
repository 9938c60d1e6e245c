"""Pictures for pages, as SVG: lines over time, a timeline, a matrix of cells. No I/O."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from rankdeck.model.text import duration
from rankdeck.reports.html import Html, join, tag

WIDTH = 1000.0
_LEFT, _RIGHT = 110.0, 12.0
_TICKS = 6
MOST_LINES = 8
"""Lines of one plot that can be told apart; of more series the range and the median are drawn, with those that are pointed out."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment that is pointed out."""

    at: float
    """Epoch seconds."""
    name: str
    """A few letters, written above it; "" for none."""
    kind: str = "event"
    """`mark`: what went wrong first; `event`: something else."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Time from left to right, in epoch seconds."""

    start: float
    end: float

    def x(self, at: float) -> float:
        """Where a moment is; one outside is on the edge."""
        share = (at - self.start) / max(self.end - self.start, 1e-9)
        return _LEFT + min(max(share, 0.0), 1.0) * (WIDTH - _LEFT - _RIGHT)

    def ticks(self) -> Iterator[float]:
        """Round times since the start."""
        length = max(self.end - self.start, 1e-9)
        step = next((one for one in _STEPS if length / one <= _TICKS), length / _TICKS)
        at = 0.0
        while at <= length * 1.0001:
            yield self.start + at
            at += step


_STEPS = tuple(
    one * unit
    for unit, several in (
        (0.1, (1, 2, 5)),
        (1, (1, 2, 5, 10, 20, 30)),
        (60, (1, 2, 5, 10, 20, 30)),
        (3600, (1, 2, 4, 6, 12)),
        (86400, (1, 2, 7, 14, 30)),
    )
    for one in several
)


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot."""

    name: str
    points: Sequence[tuple[float, float]]
    """(epoch seconds, value), oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Lines over the same time."""

    title: str
    series: Sequence[Series]
    shown: Callable[[float], str]
    """A value with its unit."""
    most: float | None = None
    """Where the scale ends; None: at the highest value."""
    pointed: frozenset[str] = frozenset()
    """Series that are drawn though there are too many."""
    gap: float = 30.0
    """Seconds without a value over which no line is drawn."""


def svg(height: float, *parts: Html, label: str) -> Html:
    """A picture as wide as the page; `label` says what it shows."""
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH:.0f} {height:.0f}", role="img", aria_label=label)


def words(x: float, y: float, said: str, class_: str = "") -> Html:
    """A text in a picture."""
    return tag("text", said, x=x, y=y, class_=class_ or None)


def _grid(axis: Axis, top: float, bottom: float) -> Html:
    parts: list[Html] = []
    for at in axis.ticks():
        x = axis.x(at)
        parts.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
        name = "start" if at == axis.start else f"+{duration(at - axis.start)}"
        parts.append(words(x, bottom + 14, name, "middle"))
    return join(parts)


def _marks(axis: Axis, marks: Iterable[Mark], top: float, bottom: float) -> Html:
    parts: list[Html] = []
    for mark in marks:
        x = axis.x(mark.at)
        parts.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_=mark.kind))
        parts.append(words(x, top - 3, mark.name, "ink middle"))
    return join(parts)


# ---- lines over time


def plot(one: Plot, axis: Axis, marks: Iterable[Mark] = ()) -> Html:
    """The plot with its title and key; nothing where no series has a value."""
    series = [each for each in one.series if each.points]
    if not series:
        return Html()
    top, bottom = 16.0, 116.0
    highest = max(value for each in series for _, value in each.points)
    most = one.most if one.most is not None and one.most >= highest else highest * 1.05 or 1.0

    def place(at: float, value: float) -> tuple[float, float]:
        return axis.x(at), bottom - min(max(value / most, 0.0), 1.0) * (bottom - top)

    lines = series if len(series) <= MOST_LINES else [s for s in series if s.name in one.pointed]
    lines = lines[:MOST_LINES]
    body = [_grid(axis, top, bottom), _scale(most, one.shown, top, bottom)]
    if len(series) > MOST_LINES:
        body.append(_band(series, place))
    body += [_line(each, number, place, one.gap) for number, each in enumerate(lines)]
    body.append(_marks(axis, marks, top, bottom))
    drawn = svg(bottom + 20, *body, label=f"{one.title} over time")
    return join((tag("h3", one.title), _key(lines, len(series)), tag("figure", drawn)))


def _scale(most: float, shown: Callable[[float], str], top: float, bottom: float) -> Html:
    parts: list[Html] = []
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * (bottom - top)
        parts.append(tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid"))
        parts.append(words(_LEFT - 6, y + 4, shown(share * most), "end"))
    return join(parts)


Place = Callable[[float, float], tuple[float, float]]


def _line(series: Series, number: int, place: Place, gap: float) -> Html:
    colour = f"var(--s{number})"
    parts: list[Html] = []
    for run in _unbroken(series.points, gap):
        spots = [place(at, value) for at, value in run]
        if len(spots) == 1:
            parts.append(tag("circle", cx=spots[0][0], cy=spots[0][1], r=2, fill=colour))
        else:
            parts.append(
                tag("polyline", points=_points(spots), class_="series", style=f"stroke:{colour}")
            )
    return tag("g", tag("title", series.name), *parts)


def _points(spots: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)


def _unbroken(
    points: Sequence[tuple[float, float]], gap: float
) -> Iterator[list[tuple[float, float]]]:
    run: list[tuple[float, float]] = []
    for at, value in points:
        if run and at - run[-1][0] > gap:
            yield run
            run = []
        run.append((at, value))
    if run:
        yield run


def _band(series: Sequence[Series], place: Place) -> Html:
    """From the lowest to the highest value at each time, and the median."""
    values: dict[float, list[float]] = {}
    for each in series:
        for at, value in each.points:
            values.setdefault(at, []).append(value)
    times = sorted(values)
    upper = [place(at, max(values[at])) for at in times]
    lower = [place(at, min(values[at])) for at in reversed(times)]
    middle = [place(at, median(values[at])) for at in times]
    return join(
        (
            tag("polygon", points=_points([*upper, *lower]), class_="band"),
            tag("polyline", points=_points(middle), class_="series", style="stroke:var(--dim)"),
        )
    )


def _key(lines: Sequence[Series], of: int) -> Html:
    names = [key(f"var(--s{number})", each.name) for number, each in enumerate(lines)]
    if of > MOST_LINES:
        names.insert(0, key("var(--dim)", f"median of {of}, and from the lowest to the highest"))
    return tag("p", *names)


def key(colour: str, name: str) -> Html:
    """What a colour stands for."""
    return tag("span", tag("i", style=f"background:{colour}"), name, class_="key")


# ---- timeline


@dataclass(frozen=True, slots=True)
class Span:
    """A bar in a row."""

    start: float
    end: float
    kind: str
    """How it is coloured: `run`, `good`, `bad`, `slow`, `unknown`, `alt`."""
    said: str
    """Written in it where there is room, and shown when it is pointed at."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a timeline."""

    name: str
    spans: Sequence[Span]


_ROW = 17.0


def timeline(rows: Sequence[Row], axis: Axis, marks: Iterable[Mark], label: str) -> Html:
    """Rows of bars over time; nothing without rows."""
    if not rows:
        return Html()
    top = 16.0
    bottom = top + _ROW * len(rows)
    bars = [_bars(row, axis, top + _ROW * number) for number, row in enumerate(rows)]
    body = (_grid(axis, top, bottom), *bars, _marks(axis, marks, top, bottom))
    return tag("figure", svg(bottom + 20, *body, label=label))


def _bars(row: Row, axis: Axis, y: float) -> Html:
    parts = [words(_LEFT - 6, y + 12, row.name[:16], "ink end")]
    for span in row.spans:
        x, width = axis.x(span.start), max(axis.x(span.end) - axis.x(span.start), 2.0)
        title = tag("title", f"{row.name}: {span.said}")
        parts.append(
            tag("rect", title, x=x, y=y + 2, width=width, height=_ROW - 4, class_=span.kind)
        )
        if width > 6.5 * len(span.said) + 8:
            on = "ink" if span.kind == "alt" else "on"
            parts.append(words(x + 4, y + 12.5, span.said, on))
    return join(parts)


# ---- matrix


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a matrix."""

    kind: str
    """How it is coloured, see `Span`; `none`: empty."""
    letter: str
    """What it says without colour; "" for nothing."""
    said: str
    """Shown when it is pointed at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Cells in rows and columns."""

    rows: Sequence[str]
    columns: Sequence[str]
    cells: Mapping[tuple[int, int], Cell]
    """(row, column) -> cell; the others stay empty."""
    breaks: frozenset[int] = field(default_factory=frozenset[int])
    """Rows and columns before which a new group begins."""
    down: str = "sends"
    across: str = "receives"


def matrix(one: Matrix, label: str) -> Html:
    """The cells, names on the left and above; names are left out where they would not be legible."""
    size = min(26.0, (WIDTH - _LEFT - _RIGHT) / max(len(one.columns), 1))
    head = 24.0 + (min(max(map(len, one.columns), default=0), 16) * 5.2 if size >= 9 else 0.0)
    height = head + size * len(one.rows) + 12
    parts = [words(4, 14, f"rows: {one.down} · columns: {one.across}")]
    if size >= 9:
        parts += [
            words(_LEFT - 6, head + size * (n + 0.5) + 4, name[:16], "ink end")
            for n, name in enumerate(one.rows)
        ]
        parts += [
            _upright(_LEFT + size * (n + 0.5), head - 5, name) for n, name in enumerate(one.columns)
        ]
    parts += [_cell(at, cell, size, head) for at, cell in sorted(one.cells.items())]
    parts += _breaks(one, size, head)
    return tag("figure", svg(height, *parts, label=label))


def _upright(x: float, y: float, name: str) -> Html:
    turned = f"rotate(-90 {x + 4:.1f} {y:.1f})"
    return tag("text", name[:16], x=x + 4, y=y, class_="ink", transform=turned)


def _cell(at: tuple[int, int], cell: Cell, size: float, head: float) -> Html:
    x, y = _LEFT + size * at[1], head + size * at[0]
    gap = 1.0 if size >= 6 else 0.2
    box = tag(
        "rect", tag("title", cell.said), x=x, y=y, width=size - gap, height=size - gap,
        class_=cell.kind,
    )  # fmt: skip
    if not cell.letter or size < 9:
        return box
    return join((box, words(x + (size - gap) / 2, y + size / 2 + 3.5, cell.letter, "on middle")))


def _breaks(one: Matrix, size: float, head: float) -> list[Html]:
    right, bottom = _LEFT + size * len(one.columns), head + size * len(one.rows)
    found: list[Html] = []
    for place in sorted(one.breaks):
        x, y = _LEFT + size * place - 0.5, head + size * place - 0.5
        found.append(tag("line", x1=x, x2=x, y1=head, y2=bottom, class_="frame"))
        found.append(tag("line", x1=_LEFT, x2=right, y1=y, y2=y, class_="frame"))
    return found
