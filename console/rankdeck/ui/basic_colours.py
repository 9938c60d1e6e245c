"""The sixteen colours of simple terminals: each pair of text and ground
that is painted can be read on them.
"""

from collections.abc import Mapping
from functools import lru_cache
from itertools import product

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.color import Color as Ground
from textual.filter import LineFilter

from rankdeck.ui.themes import relative_luminance

Rgb = tuple[int, int, int]
VGA: tuple[Rgb, ...] = (
    (0, 0, 0), (170, 0, 0), (0, 170, 0), (170, 85, 0), (0, 0, 170), (170, 0, 170), (0, 170, 170), (170, 170, 170),
    (85, 85, 85), (255, 85, 85), (85, 255, 85), (255, 255, 85), (85, 85, 255), (255, 85, 255), (85, 255, 255), (255, 255, 255),
)  # fmt: skip
"""The colours of the Linux console."""
XTERM: tuple[Rgb, ...] = (
    (0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229),
    (127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255), (255, 255, 255),
)  # fmt: skip
LEAST = 4.5
"""Least contrast of text, WCAG 2 AA."""
_BLACK, _WHITE = 0, 7
_GREY = 24
"""A colour whose parts differ by less is a grey."""
_GROUNDS = range(8)


def colour_contrast(one: Rgb, other: Rgb) -> float:
    """The contrast of WCAG 2 between two colours, from 1 to 21."""
    high, low = sorted(
        (relative_luminance(Color.from_rgb(*rgb)) for rgb in (one, other)), reverse=True
    )
    return (high + 0.05) / (low + 0.05)


def _legible() -> Mapping[int, tuple[int, ...]]:
    """Ground -> the colours of text that can be read on it, on both kinds of
    terminals; grounds without any are left out.
    """
    pairs = [
        (ground, text)
        for ground, text in product(_GROUNDS, range(16))
        if all(colour_contrast(kind[ground], kind[text]) >= LEAST for kind in (VGA, XTERM))
    ]
    grounds = dict.fromkeys(ground for ground, _ in pairs)
    return {ground: tuple(t for g, t in pairs if g == ground) for ground in grounds}


LEGIBLE = _legible()


@lru_cache(4096)
def in_sixteen(style: Style) -> Style:
    """The style with the nearest of the sixteen colours with which
    its text can be read on its ground.
    """
    if style.bgcolor is None:
        return style
    ground = _ground(_rgb(style.bgcolor))
    wanted = _rgb(style.color) if style.color else XTERM[_WHITE]
    text = min(LEGIBLE[ground], key=lambda number: _distance(XTERM[number], wanted))
    # Simple terminals show bold text in a brighter colour, which was not meant.
    bold = style.bold if ground == _BLACK else False
    return style + Style(color=Color.from_ansi(text), bgcolor=Color.from_ansi(ground), bold=bold)


class SixteenColours(LineFilter):
    """Paints all widgets, Textual's own too, in colours that a terminal
    of sixteen colours shows legibly.
    """

    def apply(self, segments: list[Segment], background: Ground) -> list[Segment]:
        ground = Style(bgcolor=background.rich_color)
        return [
            Segment(text, in_sixteen(style if style.bgcolor else style + ground), control)
            if style
            else Segment(text, style, control)
            for text, style, control in segments
        ]


def _ground(rgb: Rgb) -> int:
    """The ground that looks most like this colour; what has a colour keeps
    one, so that a chosen row stands out.
    """
    if max(rgb) - min(rgb) < _GREY:
        return _BLACK if max(rgb) < XTERM[_WHITE][0] // 2 else _WHITE
    coloured = [ground for ground in LEGIBLE if ground not in (_BLACK, _WHITE)]
    return min(coloured, key=lambda ground: _distance(_full(XTERM[ground]), _full(rgb)))


def _full(rgb: Rgb) -> Rgb:
    """The same hue at full strength."""
    low, span = min(rgb), max(max(rgb) - min(rgb), 1)
    red, green, blue = (255 * (part - low) // span for part in rgb)
    return red, green, blue


def _rgb(colour: Color) -> Rgb:
    red, green, blue = colour.get_truecolor()
    return red, green, blue


def _distance(one: Rgb, other: Rgb) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
