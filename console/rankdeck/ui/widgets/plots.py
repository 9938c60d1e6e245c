"""Plots of numbers over time: filled areas of dots, blocks or ASCII,
calm at their foot and hot at their top.
"""

from collections.abc import Callable, Sequence
from math import floor, log10

from rankdeck.ui.themes import RAMP_STEPS, RAMPS, Glyphs
from rankdeck.ui.widgets.canvas import Run, Runs, box_edge, fit_runs, merge_runs
from rankdeck.values import Value

_DOTS = ((0x00, 0x40, 0x44, 0x46, 0x47), (0x00, 0x80, 0xA0, 0xB0, 0xB8))
"""Dots of braille for a column of 0 to 4 dots, in the left and in the right half of a cell."""
_BRAILLE = 0x2800
_NICE = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
LABEL = 8
"""Cells of the numbers of an axis and the blank after them."""
_FRAME = 2
_LEAST_MIDDLE = 5
"""Plots of at least this many lines have a number in their middle."""


class Scale(Value):
    """What the foot and the top of a plot stand for, and its colours:
    a ramp of the theme, or one role.
    """

    top: float
    foot: float = 0.0
    ramp: str = "calm"

    def share(self, value: float) -> float:
        """How high a value lies between foot and top, from 0 to 1."""
        span = self.top - self.foot
        return min(max((value - self.foot) / span, 0.0), 1.0) if span > 0 else 0.0

    def role(self, share: float) -> str:
        """The role of what lies this high."""
        if self.ramp not in RAMPS:
            return self.ramp
        return f"{self.ramp}{min(int(share * RAMP_STEPS), RAMP_STEPS - 1)}"


def round_up(number: float) -> float:
    """The next number that is good for the end of an axis: one digit, or a 0 for nothing."""
    if number <= 0:
        return 0.0
    tens = 10.0 ** floor(log10(number))
    return next(step * tens for step in _NICE if step * tens >= number * 0.999_999)


def columns_of(width: int, glyphs: Glyphs) -> int:
    """How many numbers a plot shows in so many cells."""
    return width * (2 if glyphs.braille else 1)


def draw_plot(
    values: Sequence[float | None], room: tuple[int, int], glyphs: Glyphs, scale: Scale
) -> list[Runs]:
    """The newest numbers as a filled area in `room` (cells, lines), the newest at
    the right edge, the highest line first.

    A number has at least one dot; only None leaves a gap. A single line of blocks is never filled
    to its upper edge: it would merge with the line above.
    """
    width, rows = room
    steps = 4 if glyphs.braille else len(glyphs.steps) - (rows == 1)
    shown = values[-columns_of(width, glyphs) :] if width > 0 else ()
    gaps: list[float | None] = [None] * (columns_of(width, glyphs) - len(shown))
    shares = [None if v is None else scale.share(v) for v in (*gaps, *shown)]
    heights = [0 if s is None else 1 + round(s * (rows * steps - 1)) for s in shares]
    lines: list[Runs] = []
    for row in reversed(range(rows)):
        text = _line([height - row * steps for height in heights], steps, glyphs)
        if rows > 1:
            lines.append([(text, scale.role((row + 0.5) / rows))])
        else:
            lines.append(_coloured(text, shares, scale))
    return lines


def draw_spark(
    values: Sequence[float | None], width: int, glyphs: Glyphs, scale: Scale
) -> list[Run]:
    """The same on one line."""
    return list(draw_plot(values, (width, 1), glyphs, scale)[0])


def draw_columns(values: Sequence[float | None], glyphs: Glyphs, scale: Scale) -> list[Run]:
    """One cell for each of several things, as high as its number."""
    most = len(glyphs.steps) - 2
    shares = [None if value is None else scale.share(value) for value in values]
    runs = ((_step(share, most, glyphs), scale.role(share or 0.0)) for share in shares)
    return merge_runs(list(runs))


def _step(share: float | None, most: int, glyphs: Glyphs) -> str:
    return " " if share is None else glyphs.steps[round(share * most)]


def _line(heights: Sequence[int], steps: int, glyphs: Glyphs) -> str:
    """One line of an area; the heights count from the lower edge of this line."""
    if glyphs.braille:
        dots = [min(max(height, 0), steps) for height in heights]
        pairs = zip(dots[::2], dots[1::2], strict=True)
        return "".join(_braille(left, right) for left, right in pairs)
    return "".join(
        glyphs.fill if height > steps else glyphs.steps[height - 1] if height > 0 else " "
        for height in heights
    )


def _braille(left: int, right: int) -> str:
    dots = _DOTS[0][left] | _DOTS[1][right]
    return chr(_BRAILLE + dots) if dots else " "


def _coloured(text: str, shares: Sequence[float | None], scale: Scale) -> list[Run]:
    """A single line: each cell has the colour of the highest number in it."""
    each = len(shares) // max(len(text), 1)
    highest = (
        max(share or 0.0 for share in shares[at * each : at * each + each])
        for at in range(len(text))
    )
    return merge_runs([(sign, scale.role(high)) for sign, high in zip(text, highest, strict=True)])


# ---- with axes, in a frame


class Figure(Value):
    """A plot with what is written around it: its title, its newest number, how
    numbers are said, seconds in a column; 0: the columns have no times.
    """

    title: str
    newest: str
    values: Sequence[float | None]
    say: Callable[[float | None], str]
    seconds: float
    scale: Scale


def draw_frame(figure: Figure, room: tuple[int, int], glyphs: Glyphs) -> list[Runs]:
    """The figure in a frame that fills `room` exactly: numbers beside
    the area, the time in the lower edge.
    """
    width, height = room
    rows = height - _FRAME
    inner = width - _FRAME - LABEL
    labels = _axis_numbers(figure.scale.foot, figure.scale.top, rows, figure.say)
    side = (glyphs.vertical, "border")
    lines = draw_plot(figure.values, (inner, rows), glyphs, figure.scale)
    body = [
        [side, (f"{labels.get(y, ''):>{LABEL - 1}} ", "dim"), *line, side]
        for y, line in enumerate(lines)
    ]
    upper = box_edge(figure.title, figure.newest, width, glyphs, ("border", "title"))
    return [upper, *body, _lower_edge(figure, width, glyphs)]


def _axis_numbers(
    foot: float, top: float, rows: int, say: Callable[[float | None], str]
) -> dict[int, str]:
    """Row, from the top -> the number beside it; of an axis without length only its foot."""
    numbers = {rows - 1: foot}
    if top > foot:
        numbers[0] = top
        if rows >= _LEAST_MIDDLE:
            numbers[rows // 2] = (top + foot) / 2
    return {row: say(number) for row, number in numbers.items()}


def _lower_edge(figure: Figure, width: int, glyphs: Glyphs) -> Runs:
    """The time below the area: how long ago its left edge and its middle were, and now."""
    inner = width - _FRAME - LABEL
    span = columns_of(inner, glyphs) * figure.seconds
    begin, middle, end = f" {_ago(span)} ", f" {_ago(span / 2)} ", " now "
    if not figure.seconds:
        begin, middle, end = " before ", "", " newest "
    edge = glyphs.horizontal
    before = inner // 2 - len(begin) - len(middle) // 2
    after = inner - len(begin) - before - len(middle) - len(end)
    if not middle or before < 1 or after < 1:
        middle, before, after = "", 0, max(inner - len(begin) - len(end), 0)
    return [
        (glyphs.corners[2] + edge * LABEL, "border"), (begin, "dim"), (edge * before, "border"),
        (middle, "dim"), (edge * after, "border"), (end, "dim"), (glyphs.corners[3], "border"),
    ]  # fmt: skip


def draw_time_axis(span: float, width: int, glyphs: Glyphs) -> Runs:
    """A line below a plot of the last `span` seconds: how long ago its left edge and its middle
    were, and now.
    """
    begin, middle, end = f"{_ago(span)} ", f" {_ago(span / 2)} ", " now"
    before = width // 2 - len(begin) - len(middle) // 2
    after = width - len(begin) - before - len(middle) - len(end)
    edge = glyphs.horizontal
    return [
        (begin, "dim"), (edge * before, "border"), (middle, "dim"), (edge * after, "border"), (end, "dim"),
    ]  # fmt: skip


def _ago(seconds: float) -> str:
    """`-80 s`, `-6 min`, `-3 h`, `-2 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"-{seconds / size:.0f} {unit}"
    return f"-{seconds:.0f} s"


# ---- bars over named places


class BarGroup(Value):
    """Bars side by side over one name."""

    name: str
    bars: Sequence[tuple[float | None, str]]
    """(value, role) of each."""


class BarFigure(Value):
    """Groups of bars with what is written around them; `top` is the upper end of their scale."""

    title: str
    newest: str
    groups: Sequence[BarGroup]
    say: Callable[[float | None], str]
    top: float


def draw_bars(figure: BarFigure, room: tuple[int, int], glyphs: Glyphs) -> list[Runs]:
    """The figure in a frame that fills `room` exactly; of groups that do not fit, the last ones."""
    width, height = room
    rows, inner = height - _FRAME, width - _FRAME - LABEL
    most = max((len(group.bars) for group in figure.groups), default=1)
    groups = figure.groups[-max(inner // (most + 1), 1) :]
    each = inner // max(len(groups), 1)
    wide = max((each - 1) // most, 1)
    gap = int(most > 1 and wide > 2)  # between bars, which may have one height and one sign
    blocks = [_group(group, (wide - gap, rows), glyphs, figure.top, gap) for group in groups]
    labels = _axis_numbers(0.0, figure.top, rows, figure.say)
    side = (glyphs.vertical, "border")
    body: list[Runs] = []
    for y in range(rows):
        parts = [part for block in blocks for part in fit_runs(block[y], each, "")]
        area = fit_runs(parts, inner, "")
        body.append([side, (f"{labels.get(y, ''):>{LABEL - 1}} ", "dim"), *area, side])
    upper = box_edge(figure.title, figure.newest, width, glyphs, ("border", "title"))
    names = "".join(f"{_short_name(group.name, each):{each}}" for group in groups)
    lower = [
        (glyphs.corners[2] + glyphs.horizontal * LABEL, "border"),
        *fit_runs([(names, "dim")], inner, ""),
        (glyphs.corners[3], "border"),
    ]
    return [upper, *body, lower]


def _short_name(name: str, width: int) -> str:
    return name[: width - 1] if width > 1 else name[:1]


def _group(
    group: BarGroup, room: tuple[int, int], glyphs: Glyphs, top: float, gap: int
) -> list[list[Run]]:
    """The lines of a group, each bar painted as a plot of one number and followed by a gap."""
    wide, rows = room
    lines: list[list[Run]] = [[] for _ in range(rows)]
    for value, role in group.bars:
        plot = draw_plot([value] * columns_of(wide, glyphs), room, glyphs, Scale(top, 0.0, role))
        for line, part in zip(lines, plot, strict=True):
            line += [*part, (" " * gap, "text")]
    return lines
