"""Bars and sparklines as text."""

from collections.abc import Sequence

from rankdeck.ui.glyphs import Glyphs
from rankdeck.ui.widgets.canvas import Run

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
    shown = list(values[-width:])
    highest = max((v for v in shown if v is not None), default=0.0)
    scale = max(top, highest)
    steps = len(glyphs.spark) - 1
    cells = [
        " " if value is None else glyphs.spark[round(value / scale * steps) if scale > 0 else 0]
        for value in (max(v, 0.0) if v is not None else None for v in shown)
    ]
    return "".join(cells).rjust(width)
