"""Text from a node, made safe to show: nothing in it moves a cursor or rings a bell."""

import re

from rankdeck_agent.rules.units import (
    MISSING,
    bits,
    celsius,
    count,
    duration,
    hertz,
    percent,
    size,
    speed,
    written,
)

_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_ESCAPE = (
    r"(?P<colour>\x1b\[[0-9;:]*m)"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|\x1b|$)"
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\|\x1b|$)"
    r"|\x1b[ -/]*[0-~]?"
)
_ESCAPES = re.compile(_ESCAPE)
_STEERING = re.compile(
    _ESCAPE + r"|[\x00-\x08\x0a-\x1a\x1c-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
_HARMLESS = re.compile(r"[\t\x20-\x7e]*\Z")
TAB = 8
LIMIT = 16_384
"""Characters of one line that are ever looked at."""


def clean(text: object, limit: int = 200) -> str:
    """`text` on one line, at most `limit` long, with `·` for control and direction characters."""
    words = (
        text
        if isinstance(text, str)
        else str(text)[: limit + 1]
        if isinstance(text, int | float)
        else ""
    )
    safe = _CONTROL.sub("·", words[: limit + 1])
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def strip_controls(text: str, *, colour: bool = False) -> str:
    """`text` without anything that could steer a terminal; tabs stay, SGR colours if asked."""
    if _HARMLESS.match(text):
        return text
    return _STEERING.sub(_keep_colour if colour else "", text)


def _keep_colour(match: re.Match[str]) -> str:
    return match["colour"] or ""


def printable(text: str, limit: int = LIMIT) -> str:
    """`text` as one line of cells: escapes out, tabs as spaces, other oddities as `?`."""
    text = text[:limit]
    if text.isprintable():
        return text
    text = text.rstrip("\r\n").rpartition("\r")[2]
    text = _ESCAPES.sub("", text).expandtabs(TAB)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text)


__all__ = [
    "MISSING",
    "bits",
    "celsius",
    "count",
    "duration",
    "hertz",
    "percent",
    "size",
    "speed",
    "written",
]
