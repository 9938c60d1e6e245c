"""How the console looks: themes (a style for each role), colours in
logs, signs in Unicode and ASCII.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rich.color import Color, ColorParseError
from rich.errors import StyleSyntaxError
from rich.style import Style
from textual.theme import Theme

from rankdeck.config import document
from rankdeck.config.document import Entry
from rankdeck.errors import ConfigError
from rankdeck.model.rank import RankStatus, State
from rankdeck.model.safe_text import LIMIT, TAB, printable_line, show_invisible, strip_codes
from rankdeck.values import Value, replace
from rankdeck_agent.rules.levels import Level

PREFIX = "sgr/"
_CODE = re.compile(r"\x1b\[([0-9;:]*)m")
_ATTRIBUTES = {1: "b", 2: "d", 3: "i", 4: "u", 7: "r", 9: "s"}
_ENDS = {21: "b", 22: "bd", 23: "i", 24: "u", 27: "r", 29: "s"}
BASIC = ("dim", "bad", "ok", "warn", "accent", "key", "accent", "text")
"""The roles that the theme has for the eight basic ANSI colours, so that
they are legible on its background.
"""


class TextStyle(Value):
    """The style that the SGR codes so far have set; colours are `3` or `#00ff00`, "" for none."""

    attributes: str = ""
    fore: str = ""
    back: str = ""

    def role(self, plain: str) -> str:
        """The role of text in this style."""
        if self == _PLAIN:
            return plain
        return f"{PREFIX}{self.attributes}/{self.fore}/{self.back}"


_PLAIN = TextStyle()


def paint_line(text: str, role: str) -> list[tuple[str, str]]:
    """One line of a log as runs; text without a style of its own gets `role`."""
    if "\x1b" not in text:
        return [(printable_line(text), role)]
    runs: list[tuple[str, str]] = []
    pen, column = _PLAIN, 0
    # Marks are counted before the text is split: a colour code between
    # two does not part them on the screen.
    pieces = _CODE.split(show_invisible(strip_codes(text[:LIMIT])))
    for place, piece in enumerate(pieces):
        if place % 2:
            pen = _after(pen, piece)
            continue
        # Tab stops count from the start of the line, not of the piece.
        shown = printable_line(" " * (column % TAB) + piece)[column % TAB :]
        if shown:
            runs.append((shown, pen.role(role)))
            column += len(shown)
    return runs


def _after(pen: TextStyle, codes: str) -> TextStyle:
    numbers = iter([int(code or 0) for code in re.split("[;:]", codes[:60])])
    for number in numbers:
        pen = _with(pen, number, numbers)
    return pen


def _with(pen: TextStyle, number: int, rest: Iterator[int]) -> TextStyle:
    if number == 0:
        return _PLAIN
    if letter := _ATTRIBUTES.get(number):
        return replace(pen, attributes="".join(sorted({*pen.attributes, letter})))
    if letters := _ENDS.get(number):
        kept = "".join(a for a in pen.attributes if a not in letters)
        return replace(pen, attributes=kept)
    if number in (38, 48):
        colour = _sgr_colour(rest)
        return replace(pen, fore=colour) if number == 38 else replace(pen, back=colour)
    base, bright = number % 10, 8 if number >= 90 else 0
    if 30 <= number <= 39 or 90 <= number <= 97:
        return replace(pen, fore=str(base + bright) if base < 8 else "")
    if 40 <= number <= 49 or 100 <= number <= 107:
        return replace(pen, back=str(base + bright) if base < 8 else "")
    return pen


def _sgr_colour(rest: Iterator[int]) -> str:
    kind = next(rest, 0)
    if kind == 5:
        return str(min(next(rest, 0), 255))
    if kind == 2:
        parts = [min(next(rest, 0), 255) for _ in range(3)]
        return "#{:02x}{:02x}{:02x}".format(*parts)
    return ""


def style_of(role: str, named: Callable[[str], Style], *, mono: bool) -> Style:
    """How a role made by `paint_line` looks; `named` gives the style of a role of the theme."""
    attributes, fore, back = role.removeprefix(PREFIX).split("/")
    style = Style(
        bold="b" in attributes or None,
        dim="d" in attributes or None,
        italic="i" in attributes or None,
        underline="u" in attributes or None,
        reverse="r" in attributes or None,
        strike="s" in attributes or None,
    )
    if mono:
        return style
    return style + Style(
        color=_exact(fore, named), bgcolor=_exact(back if back != fore else "", named)
    )


def _exact(colour: str, named: Callable[[str], Style]) -> Color | None:
    if not colour:
        return None
    if colour.startswith("#"):
        return Color.parse(colour)
    number = int(colour)
    return named(BASIC[number % 8]).color if number < 16 else Color.from_ansi(number)


ROLES = (
    "text", "dim", "border", "title", "accent", "key", "ok", "warn", "bad", "unknown", "stderr", "match", "simulated"
)  # fmt: skip
SURFACES = ("background", "bar", "selection")
RAMPS = ("calm", "hot")
"""Colours of plots and maps, from little to much.

`hot` is for temperatures alone: much of all else is good news.
"""
RAMP_STEPS = 6
_KEYS = ("name", "dark", "mono", "surfaces", "roles", "ramps")
_LONGEST_NAME = 40
CELL = "cell/"
"""Before the name of a role: a cell filled with its colour, with text in black or white."""
EDGE = "edge/"
"""Before the name of a role: the frame around something, which is never reversed or underlined."""
NO_STYLE = Style.null()
MOST_MADE = 4096
"""Styles that are cached: a log may have any number of colours."""
COLOURLESS_TERMINALS = ("vt100", "vt102", "vt220", "linux-m", "linux-mono", "dumb", "ansi-m")


@dataclass(frozen=True)
class Palette:
    """One theme, ready to paint with."""

    name: str
    dark: bool
    mono: bool
    surfaces: Mapping[str, str]
    roles: Mapping[str, Style]

    made: dict[tuple[str, str], Style] = field(
        default_factory=dict[tuple[str, str], Style], compare=False, repr=False
    )
    """Styles made so far."""

    def style(self, role: str, surface: str = "background") -> Style:
        """How text of this role looks on this surface; a role
        `name@surface` names its own surface.
        """
        style = self.made.get((role, surface))
        if style is None:
            if len(self.made) > MOST_MADE:
                self.made.clear()
            name, _, ground = role.partition("@")
            style = _on(self._plain(name), self._ground(ground or surface))
            self.made[role, surface] = style
        return style

    def _plain(self, role: str) -> Style:
        if role.startswith(CELL):
            return self._filled(self.roles.get(role.removeprefix(CELL), NO_STYLE))
        if role.startswith(EDGE):
            own = self.roles.get(role.removeprefix(EDGE), NO_STYLE)
            return own + Style(reverse=False, underline=False) if self.mono else own
        if not role.startswith(PREFIX):
            return self.roles.get(role, NO_STYLE)
        own = style_of(role, self._plain, mono=self.mono)
        return self.roles["text"] + own if own.color is None else own

    def _filled(self, style: Style) -> Style:
        """A cell of this colour; without colours, what the role has for them."""
        if self.mono or style.color is None:
            return style
        light = relative_luminance(style.color) > _LIGHT
        text = Color.parse("#000000" if light else "#ffffff")
        return Style(color=exact_colour(text), bgcolor=style.color, bold=style.bold)

    def _ground(self, surface: str) -> Style:
        if self.mono:
            return Style(reverse=True) if surface == "selection" else NO_STYLE
        return Style(bgcolor=exact_colour(Color.parse(self.surfaces[surface])))

    def colour(self, role: str) -> str:
        """The colour of a role as `#rrggbb`."""
        colour = self.roles[role].color
        return "#ffffff" if colour is None else colour.get_truecolor().hex

    def theme(self) -> Theme:
        """The same for Textual's own widgets: inputs, dialogs, the palette."""
        ground = {
            "background": "#000000",
            "bar": "#000000",
            "selection": "#444444",
            **self.surfaces,
        }
        return Theme(
            name=self.name,
            dark=self.dark,
            primary=self.colour("accent"),
            secondary=self.colour("dim"),
            accent=self.colour("accent"),
            foreground=self.colour("text"),
            background=ground["background"],
            surface=ground["bar"],
            panel=ground["selection"],
            boost=ground["bar"],
            success=self.colour("ok"),
            warning=self.colour("warn"),
            error=self.colour("bad"),
            luminosity_spread=0.0,
            text_alpha=1.0,
            variables={"border": self.colour("border"), "border-blurred": self.colour("border")},
        )


_LIGHT = 0.179
"""On colours of more than this luminance black stands out more than
white; the contrast is always 4.5 or more.
"""


def relative_luminance(colour: Color) -> float:
    """The relative luminance of WCAG 2."""
    parts = [part / 255 for part in colour.get_truecolor()]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _on(style: Style, ground: Style) -> Style:
    if style.bgcolor is not None and not ground.reverse:
        return ground + style
    if style.reverse and ground.reverse:
        return style + ground + Style(reverse=False, bold=True, underline=True)
    return style + ground


def shipped_folder() -> Path:
    """The folder of the themes that come with Rankdeck: in the package, or beside its source."""
    here = Path(__file__).resolve()
    packed = here.parents[1] / "themes"
    return packed if packed.is_dir() else here.parents[3] / "themes"


def load_themes(folders: Iterable[Path]) -> tuple[dict[str, Palette], tuple[str, ...]]:
    """All themes of these folders by name (later folders win), and a
    sentence for each file that cannot be used.
    """
    found: dict[str, Palette] = {}
    wrong: list[str] = []
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            try:
                palette = read_theme(path)
            except ConfigError as error:
                more = len(error.problems) - 1
                wrong.append(f"{error.problems[0]}" + (f" (and {more} more)" if more else ""))
            else:
                found[palette.name] = palette
    return found, tuple(wrong)


def read_theme(path: Path) -> Palette:
    """The theme in this file; raises ConfigError with every mistake."""
    root = document.load_document(path)
    table = root.section(_KEYS, ("roles",))
    mono = table["mono"].truth() if "mono" in table else False
    if table and not mono and "surfaces" not in table:
        root.report("`surfaces` is missing")
    roles = _each(table["roles"], ROLES, _style) if "roles" in table else {}
    palette = Palette(
        name=_name(table["name"]) if "name" in table else path.stem,
        dark=table["dark"].truth() if "dark" in table else True,
        mono=mono,
        surfaces={}
        if mono or "surfaces" not in table
        else _each(table["surfaces"], SURFACES, _colour),
        roles={**_plain_ramps(roles), **roles, **_ramps(table)},
    )
    document.finish_document(root)
    return palette


Read = TypeVar("Read")


def _each(entry: Entry, names: Sequence[str], read_one: Callable[[Entry], Read]) -> dict[str, Read]:
    """Name -> value of a table that must have exactly these names."""
    return {name: read_one(one) for name, one in entry.section(names, names).items()}


def _plain_ramps(roles: Mapping[str, Style]) -> dict[str, Style]:
    """For a theme without ramps: plots have the colour of what is active."""
    plain = roles.get("accent", NO_STYLE)
    return {f"{ramp}{step}": plain for ramp in RAMPS for step in range(RAMP_STEPS)}


def _ramps(table: Mapping[str, Entry]) -> dict[str, Style]:
    """`calm0` to `calm5`, and the same of each other ramp that the theme gives."""
    given = table["ramps"].section(RAMPS) if "ramps" in table else {}
    roles: dict[str, Style] = {}
    for ramp, entry in given.items():
        styles = [_style(one) for one in entry.items()]
        if len(styles) != RAMP_STEPS:
            entry.report(f"a ramp has {RAMP_STEPS} colours, from little to much")
        roles |= {f"{ramp}{step}": style for step, style in enumerate(styles)}
    return roles


def _name(entry: Entry) -> str:
    text = entry.text()
    if not 0 < len(text) <= _LONGEST_NAME or not text.isprintable():
        entry.report(f"a theme has a name of at most {_LONGEST_NAME} letters")
    return text


def _colour(entry: Entry) -> str:
    text = entry.text("default")
    try:
        return Color.parse(text).get_truecolor().hex
    except (ColorParseError, ValueError):  # ValueError: rgb() with something else than numbers
        entry.report(f"not a colour: `{text[:60]}`; write #rrggbb")
        return ""


def exact_colour(colour: Color) -> Color:
    """The same colour by its number in the xterm palette, if it has one.

    A number is short to send and looks the same on every terminal; Rich
    would round greys to the nearest colour.
    """
    number = _NUMBERS.get(colour.get_truecolor().hex)
    return colour if number is None else Color.from_ansi(number)


_NUMBERS = {Color.from_ansi(number).get_truecolor().hex: number for number in range(255, 15, -1)}


def _style(entry: Entry) -> Style:
    text = entry.text()
    try:
        style = Style.parse(text)
    except (StyleSyntaxError, ValueError) as error:  # ValueError: as in `_colour`
        entry.report(f"not a style: {str(error)[:120]}")
        return NO_STYLE
    if style.link:
        # It would go to the terminal as it is.
        entry.report("a style has no link")
    return style + Style(color=exact_colour(style.color)) if style.color else style


def terminal_glyphs(environment: Mapping[str, str], *, ascii_only: bool) -> "Glyphs":
    """The signs that this terminal can show."""
    if ascii_only:
        return ASCII
    return LINUX if environment.get("TERM") == "linux" else UNICODE


def wants_no_colour(environment: Mapping[str, str]) -> bool:
    """Whether the user or the terminal wants no colour."""
    return bool(environment.get("NO_COLOR")) or environment.get("TERM", "") in COLOURLESS_TERMINALS


class Mark(Value):
    """How one state shows: a sign, and a role of the theme for its colour."""

    glyph: str
    role: str


_URGENCY = {"bad": 5, "warn": 4, "unknown": 3, "dim": 1, "ok": 0, "accent": -1}
"""Role of a mark -> its urgency; steps of a ramp (`calm3`) are between unknown and dim."""


def most_urgent_mark(marks: Sequence[Mark]) -> Mark:
    """The most urgent of the marks that share a cell; of numbers, the highest."""
    return max(marks, key=lambda mark: (_URGENCY.get(mark.role, 2), mark.role))


class Glyphs(Value):
    """The signs of one alphabet."""

    levels: dict[Level, str]
    acknowledged: str
    """A node that is well but for what was acknowledged."""
    states: dict[State, str]
    braille: bool
    """Whether plots are drawn with the dots of braille; else with `steps` and `fill`."""
    steps: str
    """Columns of a plot, from nothing to full."""
    fill: str
    """Fills a column below its end, in a plot of several lines."""
    full: str
    parts: str
    """Fractions of a full cell, smallest first."""
    empty: str
    horizontal: str
    vertical: str
    corners: str
    """Top left, top right, bottom left, bottom right."""
    heavy: str
    """A horizontal line of the focused pane."""
    more: str
    dot: str
    up: str
    down: str
    cursor: str

    def node(self, level: Level, *, acknowledged: bool) -> Mark:
        """How a node at this level shows."""
        return Mark(self.acknowledged, "accent") if acknowledged else self.level(level)

    def level(self, level: Level) -> Mark:
        return Mark(self.levels[level], LEVEL_ROLES[level])

    def state(self, state: State) -> Mark:
        return Mark(self.states[state], STATE_ROLES[state])

    def status(self, status: RankStatus) -> Mark:
        """How a rank with this status shows."""
        glyph = {RankStatus.STALLED: self.levels[Level.WARN], RankStatus.VICTIM: self.down}.get(
            status, self.states[State.FAILED]
        )
        return Mark(glyph, STATUS_ROLES[status])


LEVEL_ROLES = {Level.OK: "ok", Level.UNKNOWN: "unknown", Level.WARN: "warn", Level.BAD: "bad"}
STATE_ROLES = {
    State.PENDING: "dim",
    State.RUNNING: "ok",
    State.DONE: "accent",
    State.FAILED: "bad",
    State.CANCELLED: "warn",
    State.LOST: "unknown",
}

STATUS_ROLES = {
    RankStatus.FIRST: "bad",
    RankStatus.FAILED: "bad",
    RankStatus.STALLED: "warn",
    RankStatus.VICTIM: "unknown",
}

UNICODE = Glyphs(
    levels={Level.OK: "●", Level.UNKNOWN: "◌", Level.WARN: "▲", Level.BAD: "✗"},
    acknowledged="◐",
    states={
        State.PENDING: "·",
        State.RUNNING: "●",
        State.DONE: "✓",
        State.FAILED: "✗",
        State.CANCELLED: "■",
        State.LOST: "◌",
    },
    braille=True,
    steps="▁▂▃▄▅▆▇█",
    fill="█",
    full="━",
    parts="╸",
    empty="─",
    horizontal="─",
    vertical="│",
    corners="╭╮╰╯",
    heavy="━",
    more="…",
    dot="·",
    up="↑",
    down="↓",
    cursor="▸",
)
LINUX = replace(
    UNICODE,
    levels={Level.OK: "•", Level.UNKNOWN: "○", Level.WARN: "▲", Level.BAD: "X"},
    acknowledged="◘",
    states={
        State.PENDING: "·",
        State.RUNNING: "•",
        State.DONE: "√",
        State.FAILED: "X",
        State.CANCELLED: "■",
        State.LOST: "○",
    },
    braille=False,
    steps="▄█",
    full="═",
    parts="",
    corners="┌┐└┘",
    heavy="═",
    more="»",
    cursor="►",
)
"""The signs that the font of the Linux console has, that of VGA: of blocks it has only halves."""
ASCII = Glyphs(
    levels={Level.OK: "o", Level.UNKNOWN: "?", Level.WARN: "^", Level.BAD: "X"},
    acknowledged="a",
    states={
        State.PENDING: ".",
        State.RUNNING: "o",
        State.DONE: "=",
        State.FAILED: "X",
        State.CANCELLED: "#",
        State.LOST: "?",
    },
    braille=False,
    steps="_.-^",
    fill=":",
    full="#",
    parts="",
    empty=".",
    horizontal="-",
    vertical="|",
    corners="++++",
    heavy="=",
    more="~",
    dot="-",
    up="^",
    down="v",
    cursor=">",
)
