"""Text from nodes, made safe to keep and to show; what is invisible is shown by
one rule (`rankdeck_agent.rules.visible`).
"""

import re

from rankdeck_agent.rules.visible import COLOUR, limit_marks, name_invisible

_ESCAPE = (
    rf"(?P<colour>{COLOUR})"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|\x1b|$)"
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\|\x1b|$)"
    r"|\x1b[ -/]*[0-~]?"
)
_ESCAPES = re.compile(_ESCAPE)
_CODE = _ESCAPE + r"|[\x00-\x08\x0a-\x1a\x1c-\x1f\x7f-\x9f]"
_CODES = re.compile(_CODE)
_STEERING = re.compile(
    _CODE + r"|[\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]",
)
_HARMLESS = re.compile(r"[\t\x20-\x7e]*\Z")
TAB = 8
LIMIT = 16_384
"""Characters of a line that are used; the rest is cut off."""
_KEPT = re.compile(rf"({COLOUR}|\t)")


def clean_line(text: object, limit: int = 200) -> str:
    """`text` on one line, cut to `limit` characters, by the rule; line ends, tabs and the escape
    character are shown as code points too. A number becomes text, anything else "".
    """
    words = (
        text
        if isinstance(text, str)
        else str(text)[: limit + 1]
        if isinstance(text, int | float)
        else ""
    )
    shown = words[: limit + 1]
    if not (shown.isascii() and shown.isprintable()):
        shown = limit_marks(name_invisible(words[:limit]))
    if len(words) <= limit and len(shown) <= limit:
        return shown
    return shown[: limit - 1] + "…"


def strip_controls(text: str, *, colour: bool = False) -> str:
    """`text` for a program that reads it: without escape sequences, control
    characters and marks of text direction.

    Keeps tabs, and SGR colours if `colour`. Other invisible characters stay as they came.
    """
    if text.isprintable() or _HARMLESS.match(text):
        return text
    return _STEERING.sub(_keep_colour if colour else "", text)


def strip_codes(text: str, *, colour: bool = True) -> str:
    """`text` to be kept until it is painted: without escape sequences and
    control characters, which steer a terminal.

    Keeps tabs, invisible characters for `show_invisible`, and SGR colours if `colour`.
    """
    if text.isprintable() or _HARMLESS.match(text):
        return text
    return _CODES.sub(_keep_colour if colour else "", text)


def _keep_colour(match: re.Match[str]) -> str:
    return match["colour"] or ""


def printable_line(text: str, limit: int = LIMIT) -> str:
    """`text` as one line for the screen: no escape sequences, tabs as spaces, the rest by the rule.

    Of a line that was rewritten with carriage returns, only the last version.
    """
    text = text[:limit]
    if text.isascii() and text.isprintable():
        return text
    text = text.rstrip("\r\n").rpartition("\r")[2]
    pieces = _ESCAPES.sub("", text).split("\t")
    return limit_marks("\t".join(map(name_invisible, pieces))).expandtabs(TAB)


def show_invisible(text: str) -> str:
    """`text` with each invisible character as its code point (`<U+200B>`) and
    with the number of marks that are left out.

    SGR colours and tabs stay; a space of another width becomes one or two
    blanks. ASCII without controls stays as it is.
    """
    if text.isascii() and (text.isprintable() or _HARMLESS.match(text)):
        return text
    pieces = [text] if text.isprintable() else _KEPT.split(text)
    pieces[::2] = map(name_invisible, pieces[::2])
    return limit_marks("".join(pieces))
