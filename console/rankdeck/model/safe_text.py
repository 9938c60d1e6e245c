"""Text from nodes, made safe to show: no escape sequences, no control characters, a limited length."""

import re

_ESCAPE = (
    r"(?P<colour>\x1b\[[0-9;:]*m)"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|\x1b|$)"
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\|\x1b|$)"
    r"|\x1b[ -/]*[0-~]?"
)
_ESCAPES = re.compile(_ESCAPE)
_STEERING = re.compile(
    _ESCAPE
    + r"|[\x00-\x08\x0a-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
_HARMLESS = re.compile(r"[\t\x20-\x7e]*\Z")
TAB = 8
LIMIT = 16_384
"""Characters of a line that are used; the rest is cut off."""


def clean(text: object, limit: int = 200) -> str:
    """`text` on one line, cut to `limit` characters, with `·` for each unprintable character: controls,
    text direction marks, invisible characters, half surrogate pairs. A number becomes text, anything else ""."""
    words = (
        text
        if isinstance(text, str)
        else str(text)[: limit + 1]
        if isinstance(text, int | float)
        else ""
    )
    safe = words[: limit + 1]
    if not safe.isprintable():
        safe = "".join(c if c.isprintable() else "·" for c in safe)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def strip_controls(text: str, *, colour: bool = False) -> str:
    """`text` without escape sequences and control characters; keeps tabs, and SGR colours if `colour`."""
    if _HARMLESS.match(text):
        return text
    return _STEERING.sub(_keep_colour if colour else "", text)


def _keep_colour(match: re.Match[str]) -> str:
    return match["colour"] or ""


def printable(text: str, limit: int = LIMIT) -> str:
    """`text` as one line for the screen: no escape sequences, tabs as spaces, other unprintable characters as `?`.

    Of a line that was rewritten with carriage returns, only the last version.
    """
    text = text[:limit]
    if text.isprintable():
        return text
    text = text.rstrip("\r\n").rpartition("\r")[2]
    text = _ESCAPES.sub("", text).expandtabs(TAB)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text)
