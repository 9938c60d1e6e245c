"""The base of everything drawn here: lines of runs, painted straight from the model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from rankdeck.ui.glyphs import Glyphs
from rankdeck.ui.themes import Palette

if TYPE_CHECKING:
    from rankdeck.ui.console_protocol import Theme


Run = tuple[str, str]
"""Text and the role it is painted in."""
Runs = Sequence[Run]


class OptionalRun(tuple[str, str]):
    """A run that is left out where there is no room, with those after it up to the next of its kind."""


def optional(text: str, role: str) -> Run:
    """An optional run, two blanks after the one before."""
    return OptionalRun((f"  {text}", role))


PLAIN = {
    "–": "-", "…": "~", "°": "C", "·": "-", "’": "'", "±": "+", "━": "#", "─": "-",
    "▁": "_", "▂": ".", "▃": "-", "▄": "=", "▅": "+", "▆": "*", "▇": "#", "█": "@", "×": "x", "→": ">", "−": "-",
}  # fmt: skip
"""What stands for our own signs in ASCII."""


class Canvas(Widget, inherit_bindings=False):
    """A widget that paints each of its lines when asked."""

    surface = "background"

    @property
    def theme(self) -> "Theme":
        """How to draw."""
        return cast("Theme", self.app)  # pyright: ignore[reportUnknownMemberType]

    @property
    def palette(self) -> Palette:
        return self.theme.palette

    @property
    def glyphs(self) -> Glyphs:
        return self.theme.glyphs

    def line(self, y: int, width: int) -> Runs:
        """What line `y` shows."""
        raise NotImplementedError

    def surface_of(self, y: int) -> str:
        """What line `y` lies on."""
        del y
        return self.surface

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        runs = self.line(y, width)
        if self.theme.ascii:
            runs = [(in_ascii(text), role) for text, role in runs]
        return strip(runs, width, self.palette, self.surface_of(y))


def in_ascii(text: str) -> str:
    """`text` for a terminal that has nothing else: same width, every other sign replaced."""
    if text.isascii():
        return text
    # A degree sign alone is a C; before one it is a blank: `61C`, `95 C`.
    text = text.replace("°C", " C")
    signs = (c if c.isascii() else PLAIN.get(c, "?") * cell_len(c) for c in text)
    return "".join(signs)


def strip(runs: Runs, width: int, palette: Palette, surface: str = "background") -> Strip:
    """The runs as exactly `width` cells. A role `name@surface` overrides the surface."""
    style, cells = palette.style, 0
    segments: list[Segment] = []
    for text, role in runs:
        if text:
            segments.append(Segment(text, style(role, surface)))
            cells += len(text) if text.isascii() else cell_len(text)
    # Told how long it is, nobody has to count again.
    return Strip(segments, cells).adjust_cell_length(width, style("text", surface))


def merge(runs: Sequence[Run]) -> list[Run]:
    """Neighbours of one role as one run: less to paint."""
    merged: list[Run] = []
    for text, role in runs:
        if merged and merged[-1][1] == role:
            merged[-1] = (merged[-1][0] + text, role)
        else:
            merged.append((text, role))
    return merged


def fit(text: str, width: int, more: str = "…") -> str:
    """`text` in exactly `width` cells, cut with a sign."""
    if text.isascii() and len(text) <= width:
        return text.ljust(width)
    if cell_len(text) <= width:
        return text + " " * (width - cell_len(text))
    return set_cell_size(text, max(width - 1, 0)) + (more if width else "")


def cut(text: str, width: int, more: str = "…") -> str:
    """`text`, cut with a sign where it is wider than `width`."""
    return text if cell_len(text) <= width else fit(text, max(width, 0), more)


def length(runs: Runs) -> int:
    """Cells that the runs take."""
    return sum(cell_len(text) for text, _ in runs)


def ends(left: Runs, right: Runs, width: int) -> Runs:
    """Left and right runs at the two ends of a line; the right ones go where there is no room."""
    gap = width - length(left) - length(right)
    if gap < 1:
        return left
    return [*left, (" " * gap, "text"), *right]


HOT = 90.0


def bar(percent: float | None, width: int, glyphs: Glyphs, *, high: float = HOT) -> list[Run]:
    """A horizontal bar of `width` cells; nothing known is an empty one, not a zero."""
    if percent is None:
        return [(" " * width, "dim")]
    cells = min(max(percent, 0.0), 100.0) / 100 * width
    whole = int(cells)
    steps = len(glyphs.parts) + 1
    part = int((cells - whole) * steps)
    text = glyphs.full * whole + (glyphs.parts[part - 1] if part and whole < width else "")
    role = "warn" if percent >= high else "ok"
    return [(text, role), (glyphs.empty * (width - len(text)), "border")]


def sparkline(values: Sequence[float | None], width: int, glyphs: Glyphs, top: float = 0.0) -> str:
    """The newest `width` values, one cell each; a gap where nothing was read."""
    return chart(values, width, 1, glyphs, top)[0]


def chart(
    values: Sequence[float | None], width: int, rows: int, glyphs: Glyphs, top: float = 0.0
) -> list[str]:
    """The newest `width` values as columns, `rows` lines high, the highest line first.

    `top` is the end of the scale, unless a value is higher. A gap where nothing was read.
    """
    shown = list(values[-width:])
    scale = max(top, max((v for v in shown if v is not None), default=0.0)) or 1.0
    steps = len(glyphs.spark)
    most = rows * steps - 1
    filled = [0 if v is None else 1 + round(max(v, 0.0) / scale * most) for v in shown]
    signs = f" {glyphs.spark}"
    return [
        "".join(signs[min(max(cells - below, 0), steps)] for cells in filled).rjust(width)
        for below in range((rows - 1) * steps, -1, -steps)
    ]
