"""HTML pages that are safe to open (all text escaped, nothing loaded, no
scripts), and their pictures as SVG. No I/O.

A page is one file that includes its style and its pictures (SVG). Markup has the type `Html` and is
made only by functions of this module; any other text is escaped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from statistics import median

from msgspec import field

from rankdeck.model.safe_text import printable_line
from rankdeck.values import Value
from rankdeck_agent.rules.units import write_duration

LONGEST = 4000
"""Most characters of one text; the rest is cut, with `…`."""
LARGEST = 256 << 10
"""Most characters of one block of lines, such as the output of a rank."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"
"""Content security policy: the browser runs no script and loads no picture, font or frame."""
_VOID = frozenset({"meta", "br", "line", "rect", "polyline", "polygon", "circle", "path"})


class Html(str):
    """Markup; any other text must go through `text_html` or `element_html`, which escape it."""

    __slots__ = ()


Part = str | int | Html | None
"""A part of a page: markup is kept, other text is escaped, None is left out."""


def text_html(value: object, limit: int = LONGEST) -> Html:
    """One line of text, escaped, without unprintable characters, cut after `limit` characters."""
    whole = str(value)
    words = printable_line(whole, limit + 1)
    is_cut = len(whole) > limit or len(words) > limit
    return Html(escape(f"{words[:limit]}…" if is_cut else words))


def join_html(parts: Iterable[Part]) -> Html:
    """The parts joined."""
    return Html("".join(_html(part) for part in parts))


def _html(part: Part) -> Html:
    if part is None:
        return Html()
    return part if isinstance(part, Html) else text_html(part)


def element_html(name: str, /, *parts: Part, **attributes: object) -> Html:
    """An element. In names of attributes `_` becomes `-`, and a final `_` is dropped (`class_`).

    An attribute that is None is left out; floats have at most two decimals.
    """
    text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not parts:
        return Html(f"<{name}{text}/>")
    return Html(f"<{name}{text}>{join_html(parts)}</{name}>")


def _attribute(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return text_html(value, LARGEST)


def block_html(lines: Iterable[str]) -> Html:
    """Lines in a monospaced block; after LARGEST characters it is cut, with a note."""
    return element_html("pre", Html("\n".join(_lines(lines, LARGEST))))


def _lines(lines: Iterable[str], limit: int) -> Iterator[Html]:
    left = limit
    for line in lines:
        shown = text_html(line)
        left -= len(shown) + 1
        if left < 0:
            yield text_html("… cut here: there is more")
            return
        yield shown


def details_html(summary: Part, *parts: Part) -> Html:
    """A part that is collapsed until the reader opens it; printed in full."""
    return element_html("details", element_html("summary", summary), *parts)


def section_html(title: str, *parts: Part) -> Html:
    """A part of the page with a heading; empty if the parts are empty."""
    body = join_html(parts)
    return element_html("section", element_html("h2", title), body) if body else Html()


def table_html(head: Sequence[Part], rows: Iterable[Sequence[Part]], most: int = 2000) -> Html:
    """A table that scrolls sideways; only the first `most` rows, with a note.

    Empty without rows.
    """
    body: list[Html] = []
    for number, row in enumerate(rows):
        if number == most:
            body.append(element_html("tr", element_html("td", "… and more", colspan=len(head))))
            break
        body.append(element_html("tr", *(element_html("td", cell) for cell in row)))
    if not body:
        return Html()
    heads = element_html("tr", *(element_html("th", cell) for cell in head))
    return element_html(
        "div",
        element_html("table", element_html("thead", heads), element_html("tbody", *body)),
        class_="wide",
    )


def facts_html(rows: Iterable[tuple[str, Part]]) -> Html:
    """A list of names and values; rows without a value are left out."""
    pairs = (
        join_html((element_html("dt", name), element_html("dd", value)))
        for name, value in rows
        if value
    )
    return element_html("dl", *pairs)


def page_html(title: str, *parts: Part) -> Html:
    """The whole HTML file, with the title as its heading."""
    head = element_html(
        "head",
        Html('<meta charset="utf-8"/>'),
        element_html("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element_html("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element_html("meta", name="color-scheme", content="light dark"),
        element_html("title", title),
        element_html("style", Html(_STYLE)),
    )
    body = element_html("body", element_html("main", element_html("h1", title), *parts))
    return Html(f"<!DOCTYPE html>\n{element_html('html', head, body, lang='en')}\n")


_STYLE = """
:root { --page: #fbfbfa; --panel: #fff; --ink: #1c1e21; --dim: #62676e; --line: #dcdfe3;
  --on: #fff; --good: #237a49; --fair: #6f8320; --slow: #b26a00; --bad: #bf2f2a; --unknown: #6b6d80; --run: #3369b8;
  --s0: #2a6fbb; --s1: #d0690d; --s2: #2c8a55; --s3: #9b4fb0; --s4: #a3803c; --s5: #c2417c; --s6: #5b6770; --s7: #0d8f9c; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #16181b; --panel: #1d2024; --ink: #e4e6e9; --dim: #9aa1a9; --line: #363b42;
  --on: #14161a; --good: #4cb57e; --fair: #b0c44f; --slow: #eba63a; --bad: #ef6a63; --unknown: #9b9eb5; --run: #6a9be6;
  --s0: #6aa5ea; --s1: #f09a4f; --s2: #5ec08c; --s3: #c48bd6; --s4: #cdaa66; --s5: #ea7fae; --s6: #a5afb8; --s7: #4cc3cf; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 20px 64px; }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 12px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 36px 0 10px; padding-top: 12px; border-top: 1px solid var(--line); }
h3 { font-size: 14px; margin: 18px 0 4px; color: var(--dim); font-weight: 600; }
p { margin: 6px 0; overflow-wrap: anywhere; }
.dim { color: var(--dim); }
.verdict { border-left: 4px solid var(--unknown); padding: 6px 12px; margin: 10px 0; background: var(--panel); overflow-wrap: anywhere; }
.verdict.bad { border-color: var(--bad); } .verdict.slow { border-color: var(--slow); }
.verdict.good { border-color: var(--good); } .verdict.fair { border-color: var(--fair); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 0; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
.wide, figure { overflow-x: auto; margin: 8px 0; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 3px 14px 3px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td:last-child { min-width: 14em; } th { color: var(--dim); font-weight: 600; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 4px; padding: 8px 10px; margin: 8px 0;
  font: 12.5px/1.45 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: 6px 0; } summary { cursor: pointer; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; min-width: 640px; }
svg text { font: 11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--dim); }
svg text.ink { fill: var(--ink); } svg text.on { fill: var(--on); font-weight: 600; } svg text.end { text-anchor: end; } svg text.middle { text-anchor: middle; }
svg .grid { stroke: var(--line); stroke-width: 1; } svg .mark { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 4 3; }
svg .event { stroke: var(--slow); stroke-width: 1.5; } svg .frame { fill: none; stroke: var(--ink); stroke-width: 1.5; }
svg .series { fill: none; stroke-width: 1.6; stroke-linejoin: round; } svg .band { fill: var(--s0); opacity: .18; }
svg .good { fill: var(--good); } svg .fair { fill: var(--fair); } svg .slow { fill: var(--slow); } svg .bad { fill: var(--bad); }
svg .unknown { fill: var(--unknown); } svg .run { fill: var(--run); } svg .none { fill: var(--line); } svg .alt { fill: var(--line); opacity: .6; }
.key { display: inline-block; margin: 0 14px 0 0; color: var(--dim); font-size: 13px; }
.key i { display: inline-block; width: 12px; height: 12px; margin-right: 5px; vertical-align: -1px; border-radius: 2px; }
@media print { body { background: #fff; font-size: 12px; } main { max-width: none; padding: 0; } section { break-inside: auto; }
  pre, figure, .verdict { break-inside: avoid-page; } details::details-content { content-visibility: visible; block-size: auto; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


WIDTH = 1000.0
_LEFT, _RIGHT = 110.0, 12.0
_TICKS = 6
MOST_LINES = 8
"""Most lines of a plot; with more series, it shows their range and
median, and the series in `Plot.pointed`.
"""


class PlotMark(Value):
    """A marked time in a plot."""

    at: float
    """Epoch seconds."""
    name: str
    """A few letters above the mark; "" for none."""
    kind: str = "event"
    """`mark`: the first failure; `event`: anything else."""


class Axis(Value):
    """The time axis, from left to right, in epoch seconds."""

    start: float
    end: float

    def x(self, at: float) -> float:
        """The x coordinate of a time; a time outside of the axis is on its edge."""
        share = (at - self.start) / max(self.end - self.start, 1e-9)
        return _LEFT + min(max(share, 0.0), 1.0) * (WIDTH - _LEFT - _RIGHT)

    def ticks(self) -> Iterator[float]:
        """Epoch seconds of the ticks, at round durations since the start."""
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


class PlotLine(Value):
    """One line of a plot."""

    name: str
    points: Sequence[tuple[float, float]]
    """(epoch seconds, value), oldest first."""


class Plot(Value, kw_only=True):
    """A plot of lines over time."""

    title: str
    series: Sequence[PlotLine]
    shown: Callable[[float], str]
    """Formats a value with its unit."""
    most: float | None = None
    """End of the scale; None, or if a value is higher: a little above the highest value."""
    pointed: frozenset[str] = frozenset()
    """Names of series that are drawn even if there are too many."""
    gap: float = 30.0
    """No line is drawn between values that are more seconds apart."""


def svg_html(height: float, *parts: Html, label: str) -> Html:
    """A picture as wide as the page; `label` says what it shows."""
    return element_html(
        "svg", *parts, viewBox=f"0 0 {WIDTH:.0f} {height:.0f}", role="img", aria_label=label
    )


def words_svg(x: float, y: float, text: str, class_: str = "") -> Html:
    """A text in a picture; `class_` is its CSS class."""
    return element_html("text", text, x=x, y=y, class_=class_ or None)


def _grid(axis: Axis, top: float, bottom: float) -> Html:
    parts: list[Html] = []
    for at in axis.ticks():
        x = axis.x(at)
        parts.append(element_html("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
        name = "start" if at == axis.start else f"+{write_duration(at - axis.start)}"
        parts.append(words_svg(x, bottom + 14, name, "middle"))
    return join_html(parts)


def _marks(axis: Axis, marks: Iterable[PlotMark], top: float, bottom: float) -> Html:
    parts: list[Html] = []
    for mark in marks:
        x = axis.x(mark.at)
        parts.append(element_html("line", x1=x, x2=x, y1=top, y2=bottom, class_=mark.kind))
        parts.append(words_svg(x, top - 3, mark.name, "ink middle"))
    return join_html(parts)


# ---- lines over time


def plot_html(one: Plot, axis: Axis, marks: Iterable[PlotMark] = ()) -> Html:
    """The plot with its title and key; empty if no series has a value."""
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
    drawn = svg_html(bottom + 20, *body, label=f"{one.title} over time")
    return join_html(
        (element_html("h3", one.title), _key(lines, len(series)), element_html("figure", drawn))
    )


def _scale(most: float, shown: Callable[[float], str], top: float, bottom: float) -> Html:
    parts: list[Html] = []
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * (bottom - top)
        parts.append(element_html("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid"))
        parts.append(words_svg(_LEFT - 6, y + 4, shown(share * most), "end"))
    return join_html(parts)


Place = Callable[[float, float], tuple[float, float]]


def _line(series: PlotLine, number: int, place: Place, gap: float) -> Html:
    colour = f"var(--s{number})"
    parts: list[Html] = []
    for run in _unbroken(series.points, gap):
        spots = [place(at, value) for at, value in run]
        if len(spots) == 1:
            parts.append(element_html("circle", cx=spots[0][0], cy=spots[0][1], r=2, fill=colour))
        else:
            parts.append(
                element_html(
                    "polyline", points=_points(spots), class_="series", style=f"stroke:{colour}"
                )
            )
    return element_html("g", element_html("title", series.name), *parts)


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


def _band(series: Sequence[PlotLine], place: Place) -> Html:
    """A band from the lowest to the highest value at each time, and the line of the median."""
    values: dict[float, list[float]] = {}
    for each in series:
        for at, value in each.points:
            values.setdefault(at, []).append(value)
    times = sorted(values)
    upper = [place(at, max(values[at])) for at in times]
    lower = [place(at, min(values[at])) for at in reversed(times)]
    middle = [place(at, median(values[at])) for at in times]
    return join_html(
        (
            element_html("polygon", points=_points([*upper, *lower]), class_="band"),
            element_html(
                "polyline", points=_points(middle), class_="series", style="stroke:var(--dim)"
            ),
        )
    )


def _key(lines: Sequence[PlotLine], of: int) -> Html:
    names = [key_html(f"var(--s{number})", each.name) for number, each in enumerate(lines)]
    if of > MOST_LINES:
        names.insert(
            0, key_html("var(--dim)", f"median of {of}, and from the lowest to the highest")
        )
    return element_html("p", *names)


def key_html(colour: str, name: str) -> Html:
    """An entry of a key: a colour and its meaning."""
    return element_html("span", element_html("i", style=f"background:{colour}"), name, class_="key")


# ---- timeline


class Span(Value):
    """A bar in a row of a timeline."""

    start: float
    end: float
    kind: str
    """Its colour: `run`, `good`, `bad`, `slow`, `unknown`, `alt`, `none`."""
    text: str
    """Text in the bar if it fits, and in its tooltip."""


class TimelineRow(Value):
    """A row of a timeline."""

    name: str
    spans: Sequence[Span]


_ROW = 17.0
_LIGHT = ("alt", "none")
"""Kinds of bars with a pale colour, on which text is dark."""


def timeline_html(
    rows: Sequence[TimelineRow], axis: Axis, marks: Iterable[PlotMark], label: str
) -> Html:
    """Rows of bars over time; empty without rows."""
    if not rows:
        return Html()
    top = 16.0
    bottom = top + _ROW * len(rows)
    bars = [_bars(row, axis, top + _ROW * number) for number, row in enumerate(rows)]
    body = (_grid(axis, top, bottom), *bars, _marks(axis, marks, top, bottom))
    return element_html("figure", svg_html(bottom + 20, *body, label=label))


def _bars(row: TimelineRow, axis: Axis, y: float) -> Html:
    parts = [words_svg(_LEFT - 6, y + 12, _short(row.name), "ink end")]
    for span in row.spans:
        x, width = axis.x(span.start), max(axis.x(span.end) - axis.x(span.start), 2.0)
        title = element_html("title", f"{row.name}: {span.text}")
        parts.append(
            element_html(
                "rect", title, x=x, y=y + 2, width=width, height=_ROW - 4, class_=span.kind
            )
        )
        if width > 6.5 * len(span.text) + 8:
            on = "ink" if span.kind in _LIGHT else "on"
            parts.append(words_svg(x + 4, y + 12.5, span.text, on))
    return join_html(parts)


# ---- matrix


class MatrixCell(Value):
    """A cell of a matrix."""

    kind: str
    """Its colour, see `Span`; `none`: empty."""
    letter: str
    """Shows its meaning without colour; "" for none."""
    text: str
    """Text of its tooltip."""


class Matrix(Value, kw_only=True):
    """Cells in rows and columns."""

    rows: Sequence[str]
    columns: Sequence[str]
    cells: Mapping[tuple[int, int], MatrixCell]
    """(row, column) -> cell; all others are empty."""
    breaks: frozenset[int] = field(default_factory=frozenset[int])
    """Numbers of rows and columns before which a new group begins."""
    down: str = "sends"
    across: str = "receives"


def matrix_html(one: Matrix, label: str) -> Html:
    """The matrix, with names on the left and above; without names if they would not be legible."""
    size = min(26.0, (WIDTH - _LEFT - _RIGHT) / max(len(one.columns), 1))
    head = 8.0 + (min(max(map(len, one.columns), default=0), 16) * 7.0 if size >= 9 else 0.0)
    height = head + size * len(one.rows) + 20
    parts = [words_svg(_LEFT, height - 6, f"a row {one.down}, a column {one.across}")]
    if size >= 9:
        parts += [
            words_svg(_LEFT - 6, head + size * (n + 0.5) + 4, _short(name), "ink end")
            for n, name in enumerate(one.rows)
        ]
        parts += [
            _upright(_LEFT + size * (n + 0.5), head - 5, name) for n, name in enumerate(one.columns)
        ]
    parts += [_cell(at, cell, size, head) for at, cell in sorted(one.cells.items())]
    parts += _breaks(one, size, head)
    return element_html("figure", svg_html(height, *parts, label=label))


def _short(name: str) -> str:
    """A name of at most sixteen characters; a longer one is cut at the
    front, because names differ at the end.
    """
    return name if len(name) <= 16 else f"…{name[-15:]}"


def _upright(x: float, y: float, name: str) -> Html:
    turned = f"rotate(-90 {x + 4:.1f} {y:.1f})"
    return element_html("text", _short(name), x=x + 4, y=y, class_="ink", transform=turned)


def _cell(at: tuple[int, int], cell: MatrixCell, size: float, head: float) -> Html:
    x, y = _LEFT + size * at[1], head + size * at[0]
    gap = 1.0 if size >= 6 else 0.2
    box = element_html(
        "rect",
        element_html("title", cell.text),
        x=x,
        y=y,
        width=size - gap,
        height=size - gap,
        class_=cell.kind,
    )
    if not cell.letter or size < 9:
        return box
    return join_html(
        (box, words_svg(x + (size - gap) / 2, y + size / 2 + 3.5, cell.letter, "on middle"))
    )


def _breaks(one: Matrix, size: float, head: float) -> list[Html]:
    right, bottom = _LEFT + size * len(one.columns), head + size * len(one.rows)
    found: list[Html] = []
    for place in sorted(one.breaks):
        x, y = _LEFT + size * place - 0.5, head + size * place - 0.5
        found.append(element_html("line", x1=x, x2=x, y1=head, y2=bottom, class_="frame"))
        found.append(element_html("line", x1=_LEFT, x2=right, y1=y, y2=y, class_="frame"))
    return found
