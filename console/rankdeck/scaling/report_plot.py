"""Plots of a scaling study as SVG: a number over the ranks, with spread, ideal line and law."""

from collections.abc import Callable, Iterable, Sequence
from math import log2

from rankdeck.reports.html import (
    WIDTH,
    Html,
    element_html,
    join_html,
    key_html,
    svg_html,
    words_svg,
)
from rankdeck.values import Value

_LEFT, _RIGHT, _TOP, _BOTTOM = 110.0, 40.0, 14.0, 214.0
_MOST_LINES = 8
"""Colours that the page has for lines."""


class RankValue(Value):
    """A value at a number of ranks, and the range of its runs."""

    ranks: float
    value: float
    low: float
    high: float


class RankLine(Value):
    """One line over the ranks."""

    name: str
    values: Sequence[RankValue]
    colour: int
    """Number of its colour."""
    drawn: str = "measured"
    """`measured`: points, range and line; `law`: a dotted line; `ideal`: a dashed grey one."""


class RankPlot(Value):
    """A plot over the ranks."""

    title: str
    lines: Sequence[RankLine]
    say: Callable[[float], str]
    limit: float | None = None
    """A value at which a line is drawn across."""


def rank_plot_html(plot: RankPlot) -> Html:
    """The plot with its title and key; empty without values."""
    lines = [line for line in plot.lines if line.values]
    ranks = sorted({one.ranks for line in lines for one in line.values})
    if not ranks:
        return Html()
    most = max(one.high for line in lines for one in line.values) * 1.05 or 1.0
    first, last = log2(ranks[0]), log2(ranks[-1])

    def place(at: float, value: float) -> tuple[float, float]:
        share = (log2(at) - first) / (last - first) if last > first else 0.5
        height = min(max(value / most, 0.0), 1.0) * (_BOTTOM - _TOP)
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT), _BOTTOM - height

    measured = sorted(
        {one.ranks for line in lines if line.drawn == "measured" for one in line.values}
    )
    body = [_axes(plot, most, measured, place), *(_line(line, place) for line in lines)]
    drawn = svg_html(_BOTTOM + 36, *body, label=f"{plot.title} over ranks")
    keys = (key_html(_colour(line), line.name) for line in lines)
    return join_html(
        (element_html("h3", plot.title), element_html("p", *keys), element_html("figure", drawn))
    )


Place = Callable[[float, float], tuple[float, float]]


def _colour(line: RankLine) -> str:
    return "var(--dim)" if line.drawn == "ideal" else f"var(--s{line.colour % _MOST_LINES})"


def _axes(plot: RankPlot, most: float, ranks: Iterable[float], place: Place) -> Html:
    parts: list[Html] = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _BOTTOM - share * (_BOTTOM - _TOP)
        parts.append(element_html("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid"))
        parts.append(words_svg(_LEFT - 6, y + 4, plot.say(share * most), "end"))
    for at in ranks:
        x, _ = place(at, 0.0)
        parts.append(element_html("line", x1=x, x2=x, y1=_TOP, y2=_BOTTOM, class_="grid"))
        parts.append(words_svg(x, _BOTTOM + 14, f"{at:g}", "middle"))
    parts.append(words_svg((_LEFT + WIDTH) / 2, _BOTTOM + 30, "ranks", "middle"))
    if plot.limit is not None:
        _, y = place(next(iter(ranks), 1.0), plot.limit)
        parts.append(element_html("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="mark"))
        parts.append(words_svg(WIDTH - _RIGHT + 4, y + 4, plot.say(plot.limit)))
    return join_html(parts)


def _line(line: RankLine, place: Place) -> Html:
    spots = [place(one.ranks, one.value) for one in line.values]
    dashes = {"ideal": "6 4", "law": "2 3"}.get(line.drawn)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    colour = _colour(line)
    parts = [
        element_html("title", line.name),
        element_html(
            "polyline",
            points=points,
            class_="series",
            style=f"stroke:{colour}",
            stroke_dasharray=dashes,
        ),
    ]
    if line.drawn == "measured":
        parts += [part for one in line.values for part in _spot(one, colour, place)]
    return element_html("g", *parts)


def _spot(one: RankValue, colour: str, place: Place) -> Iterable[Html]:
    """A point, and the range of its runs."""
    (x, y), (_, low), (_, high) = (
        place(one.ranks, each) for each in (one.value, one.low, one.high)
    )
    yield element_html("circle", cx=x, cy=y, r=3.5, fill=colour)
    if one.high > one.low:
        yield element_html(
            "line", x1=x, x2=x, y1=low, y2=high, style=f"stroke:{colour};stroke-width:1.5"
        )
        for end in (low, high):
            yield element_html(
                "line",
                x1=x - 5,
                x2=x + 5,
                y1=end,
                y2=end,
                style=f"stroke:{colour};stroke-width:1.5",
            )
