"""Themes: one YAML file each, as the styles of roles (`bad`, `dim`, …) on surfaces."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from rich.color import Color, ColorParseError
from rich.errors import StyleSyntaxError
from rich.style import Style
from textual.theme import Theme

from rankdeck.ui import sgr

ROLES = (
    "text", "dim", "border", "title", "accent", "key", "ok", "warn", "bad", "unknown", "stderr", "match", "simulated"
)  # fmt: skip
SURFACES = ("background", "bar", "selection")
SIZE_LIMIT = 64_000
NO_STYLE = Style.null()
MOST_MADE = 4096
"""Styles that are kept: a log may bring along any number of colours."""
COLOURLESS_TERMINALS = (
    "vt100",
    "vt102",
    "vt220",
    "linux-m",
    "linux-mono",
    "dumb",
    "ansi-m",
)


class ThemeError(ValueError):
    """A theme file that cannot be used; the text says where and why."""


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
    """Styles that were asked for already."""

    def style(self, role: str, surface: str = "background") -> Style:
        """How text of this role looks on this surface; a role `name@surface` brings its own."""
        style = self.made.get((role, surface))
        if style is None:
            if len(self.made) > MOST_MADE:
                self.made.clear()
            name, _, ground = role.partition("@")
            style = _on(self._plain(name), self._ground(ground or surface))
            self.made[role, surface] = style
        return style

    def _plain(self, role: str) -> Style:
        if not role.startswith(sgr.PREFIX):
            return self.roles.get(role, NO_STYLE)
        own = sgr.style_of(role, self._plain, mono=self.mono)
        return self.roles["text"] + own if own.color is None else own

    def _ground(self, surface: str) -> Style:
        if self.mono:
            return Style(reverse=True) if surface == "selection" else NO_STYLE
        return Style(bgcolor=exact(Color.parse(self.surfaces[surface])))

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
            variables={
                "border": self.colour("border"),
                "border-blurred": self.colour("border"),
            },
        )


def _on(style: Style, ground: Style) -> Style:
    if style.bgcolor is not None and not ground.reverse:
        return ground + style
    if style.reverse and ground.reverse:
        return style + ground + Style(reverse=False, bold=True, underline=True)
    return style + ground


def shipped_folder() -> Path:
    """Where the themes that come with Rankdeck are: in the package, or beside its source."""
    here = Path(__file__).resolve()
    packed = here.parents[1] / "themes"
    return packed if packed.is_dir() else here.parents[3] / "themes"


def load(folders: Iterable[Path]) -> tuple[dict[str, Palette], tuple[str, ...]]:
    """All themes of these folders by name, the later folder winning, and what was wrong."""
    found: dict[str, Palette] = {}
    wrong: list[str] = []
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            try:
                palette = read(path)
            except ThemeError as error:
                wrong.append(str(error))
            else:
                found[palette.name] = palette
    return found, tuple(wrong)


def read(path: Path) -> Palette:
    """The theme in this file; raises ThemeError."""
    try:
        with path.open("rb") as file:
            raw: Any = yaml.safe_load(file.read(SIZE_LIMIT))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ThemeError(f"{path}:{line}: {error.problem}") from error
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ThemeError(f"{path}: {error}") from error
    if not isinstance(raw, dict):
        raise ThemeError(f"{path}:1: a theme is a table with name, surfaces and roles")
    return _palette(path, raw)  # pyright: ignore[reportUnknownArgumentType]


def _palette(path: Path, raw: dict[str, Any]) -> Palette:
    mono = bool(raw.get("mono", False))
    surfaces = {} if mono else {name: _colour(path, raw, name) for name in SURFACES}
    table: Any = raw.get("roles")
    if not isinstance(table, dict):
        raise ThemeError(f"{path}: roles: missing, or not a table")
    roles: dict[str, Style] = {}
    for role in ROLES:
        if role not in table:
            raise ThemeError(f"{path}: roles.{role}: missing")
        roles[role] = _style(path, role, table[role])  # pyright: ignore[reportUnknownArgumentType]
    return Palette(
        str(raw.get("name") or path.stem),
        bool(raw.get("dark", True)),
        mono,
        surfaces,
        roles,
    )


def _colour(path: Path, raw: dict[str, Any], name: str) -> str:
    table: Any = raw.get("surfaces")
    text: Any = table.get(name) if isinstance(table, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    try:
        return Color.parse(str(text)).get_truecolor().hex  # pyright: ignore[reportUnknownArgumentType]
    except ColorParseError as error:
        raise ThemeError(
            f"{path}: surfaces.{name}: not a colour: {text!r}; write #rrggbb"
        ) from error


def exact(colour: Color) -> Color:
    """The same colour by its number in the xterm palette, where it has one.

    Short to send, and equal on every terminal: Rich would round greys when it looks for the nearest.
    """
    number = _NUMBERS.get(colour.get_truecolor().hex)
    return colour if number is None else Color.from_ansi(number)


_NUMBERS = {Color.from_ansi(number).get_truecolor().hex: number for number in range(255, 15, -1)}


def _style(path: Path, role: str, text: object) -> Style:
    try:
        style = Style.parse(str(text or ""))
    except StyleSyntaxError as error:
        raise ThemeError(f"{path}: roles.{role}: {error}") from error
    return style + Style(color=exact(style.color)) if style.color else style


def colourless(environment: Mapping[str, str]) -> bool:
    """True where the user or the terminal wants no colour."""
    return bool(environment.get("NO_COLOR")) or environment.get("TERM", "") in COLOURLESS_TERMINALS
