"""What of a text is shown, one rule for agent and console: what is invisible
as its code point; 8 combining marks stay.

Invisible is what draws nothing, by its properties in Unicode, not by a list of names: controls,
formats (zero width, text direction, tags), private use, surrogates, unassigned code points,
separators of lines, and what is drawn only where it is not known (Default_Ignorable_Code_Point).
One is left out instead: the selector that asks for the coloured form of a sign (U+FE0F), because
terminals do not agree how wide that is. No other is excepted, not even where it joins letters or
emoji: `<U+200D>` between them is legible, and the same bytes look the same in every place.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from unicodedata import category, east_asian_width

from rankdeck_agent.older_python import is_ascii

MOST_MARKS = 8
"""Most combining marks in a row that are shown; no language needs as many."""
COLOUR = r"\x1b\[[0-9;:]*m"
"""An SGR colour code, as a regular expression."""
_IGNORED = (
    (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF),
)  # fmt: skip
"""First and last of the default-ignorable code points that are letters or marks by
category: fillers, joiners, variation selectors.
"""
_HANGUL = ((0x1161, 0x11FF), (0xD7B0, 0xD7FB))
"""First and last of the vowels and finals that are drawn into the
syllable before them, as marks are.
"""
_UNMARKED = r"\w\u2100-\u2bff"
"""Signs that are no marks and often stand in rows: letters, digits, and
the signs of progress bars and tables.
"""


def _class_of(ranges: Iterable[tuple[int, int]]) -> str:
    """The ranges as a character class."""
    return "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges) + "]"


_IGNORABLE = re.compile(_class_of(_IGNORED))
_WITH_COLOUR = (
    (0xA9, 0xA9), (0xAE, 0xAE), (0x203C, 0x203C), (0x2049, 0x2049), (0x2100, 0x2BFF), (0x3030, 0x3030), (0x303D, 0x303D),
    (0x3297, 0x3297), (0x3299, 0x3299), (0x1F000, 0x1FAFF),
)  # fmt: skip
"""First and last of the signs that may have a coloured form."""
_COLOURED = re.compile(rf"({_class_of(_WITH_COLOUR)}|[0-9#*](?=\ufe0f\u20e3))\ufe0f")
"""A sign that has a coloured form, and the selector that asks for it."""
_JAMO = re.compile(_class_of(_HANGUL))
_PILE = re.compile(
    rf"(?:(?:[^\x00-\x7f{_UNMARKED}]|{_JAMO.pattern})(?:{COLOUR})*){{{MOST_MARKS + 1},}}"
)
"""What may be too many marks, also with colour codes between them."""
_SIGNS = re.compile(rf"{COLOUR}|.", re.DOTALL)


class _Shown(dict[int, str]):
    """Code point -> what is shown for it, made at first use; all are
    forgotten if there are too many.
    """

    def __missing__(self, code: int) -> str:
        if len(self) >= 1 << 15:
            self.clear()
        sign = chr(code)
        if category(sign) == "Zs":
            shown = " " * _width(sign)
        elif sign.isprintable() and not _IGNORABLE.match(sign):
            shown = sign
        else:
            shown = f"<U+{code:04X}>"
        self[code] = shown
        return shown


_SHOWN = _Shown()


def name_invisible(text: str) -> str:
    """`text` with each invisible character as its code point (`<U+200B>`),
    and other spaces as one or two blanks.
    """
    if text.isprintable() and not _IGNORABLE.search(text):
        return text
    return _COLOURED.sub(r"\1", text).translate(_SHOWN)


def limit_marks(text: str) -> str:
    """`text` with at most MOST_MARKS marks in a row, and the number of the
    others in their place; colour codes stay.
    """
    return text if is_ascii(text) else _PILE.sub(_lowered, text)


def make_visible(text: str, limit: int) -> str:
    """The rule for one text without colours, cut to `limit` characters."""
    if len(text) <= limit and is_ascii(text) and text.isprintable():
        return text
    return limit_marks(name_invisible(text[:limit]))[:limit]


def count_cells(text: str) -> int:
    """The columns that a text takes on a terminal, after the rule."""
    if is_ascii(text):
        return len(text)
    return sum(0 if _is_mark(sign) else _width(sign) for sign in text)


def _lowered(match: re.Match[str]) -> str:
    """The pile with at most MOST_MARKS marks."""
    shown: list[str] = []
    marks = 0
    for sign in _SIGNS.findall(match[0]):
        if sign[0] == "\x1b":
            shown.append(sign)
        elif _is_mark(sign):
            marks += 1
            shown.append(sign if marks <= MOST_MARKS else "")
        else:
            shown += _others(marks), sign
            marks = 0
    return "".join((*shown, _others(marks)))


def _others(marks: int) -> str:
    """How many of so many marks are not shown."""
    return f"<+{marks - MOST_MARKS} marks>" if marks > MOST_MARKS else ""


@lru_cache(maxsize=1 << 12)
def _is_mark(sign: str) -> bool:
    """Whether the sign is drawn on or into the one before it."""
    return category(sign)[0] == "M" or _JAMO.match(sign) is not None


def _width(sign: str) -> int:
    return 2 if east_asian_width(sign) in "WF" else 1
