"""Colours that a log brings along (SGR codes), as roles that a palette can paint."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rich.color import Color
from rich.style import Style

from rankdeck.model.text import LIMIT, TAB, printable

PREFIX = "sgr/"
_CODE = re.compile(r"\x1b\[([0-9;:]*)m")
_ATTRIBUTES = {1: "b", 2: "d", 3: "i", 4: "u", 7: "r", 9: "s"}
_ENDS = {21: "b", 22: "bd", 23: "i", 24: "u", 27: "r", 29: "s"}
BASIC = ("dim", "bad", "ok", "warn", "accent", "key", "accent", "text")
"""The eight old colours as roles of the theme: they are legible on its background."""


@dataclass(frozen=True, slots=True)
class Pen:
    """What the codes up to here have switched on; colours are `3` or `#00ff00`, "" for none."""

    attributes: str = ""
    fore: str = ""
    back: str = ""

    def role(self, plain: str) -> str:
        """The role of text written so."""
        if self == _PLAIN:
            return plain
        return f"{PREFIX}{self.attributes}/{self.fore}/{self.back}"


_PLAIN = Pen()


def painted(text: str, role: str) -> list[tuple[str, str]]:
    """One line of a log as runs; text without a colour of its own has the role given."""
    if "\x1b" not in text:
        return [(printable(text), role)]
    runs: list[tuple[str, str]] = []
    pen, column = _PLAIN, 0
    pieces = _CODE.split(text[:LIMIT])
    for place, piece in enumerate(pieces):
        if place % 2:
            pen = _after(pen, piece)
            continue
        # A tab ends at a column of the line, not of the piece.
        shown = printable(" " * (column % TAB) + piece)[column % TAB :]
        if shown:
            runs.append((shown, pen.role(role)))
            column += len(shown)
    return runs


def _after(pen: Pen, codes: str) -> Pen:
    numbers = iter([int(code or 0) for code in re.split("[;:]", codes[:60])])
    for number in numbers:
        pen = _with(pen, number, numbers)
    return pen


def _with(pen: Pen, number: int, rest: Iterator[int]) -> Pen:
    if number == 0:
        return _PLAIN
    if letter := _ATTRIBUTES.get(number):
        return replace(pen, attributes="".join(sorted({*pen.attributes, letter})))
    if letters := _ENDS.get(number):
        kept = "".join(a for a in pen.attributes if a not in letters)
        return replace(pen, attributes=kept)
    if number in (38, 48):
        colour = _colour(rest)
        return replace(pen, fore=colour) if number == 38 else replace(pen, back=colour)
    base, bright = number % 10, 8 if number >= 90 else 0
    if 30 <= number <= 39 or 90 <= number <= 97:
        return replace(pen, fore=str(base + bright) if base < 8 else "")
    if 40 <= number <= 49 or 100 <= number <= 107:
        return replace(pen, back=str(base + bright) if base < 8 else "")
    return pen


def _colour(rest: Iterator[int]) -> str:
    kind = next(rest, 0)
    if kind == 5:
        return str(min(next(rest, 0), 255))
    if kind == 2:
        parts = [min(next(rest, 0), 255) for _ in range(3)]
        return "#{:02x}{:02x}{:02x}".format(*parts)
    return ""


def style_of(role: str, named: Callable[[str], Style], *, mono: bool) -> Style:
    """How a role made by `painted` looks; `named` gives the style of a role of the theme."""
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
