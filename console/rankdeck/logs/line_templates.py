"""Lines that differ only in their numbers have one template."""

import re
from collections.abc import Sequence

_NUMBER = re.compile(
    rb"[\d-](?<![A-Za-z\d_]-)(?:(?<=0)[xX][\da-fA-F]+|(?:(?<!-)|(?=\d))\d*(?:\.\d+)?(?:[eE][+-]?\d+)?)"
)
"""A number. It begins with a class of characters, for which `re` looks without trying the rest.
`-` is a hyphen behind a letter or a digit, as in the names of pods.
"""
_IN_COLUMN = re.compile(rb"(?:(?<= ) +)?" + _NUMBER.pattern)
"""The same, with the spaces before it that align a column: `step   9` and
`step  10` are the same kind of line.
"""
_COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")
Numbers = tuple[bytes, ...]


def mask_numbers(raw: bytes) -> bytes:
    """The template of a line: without colours, with a NUL in place of each number."""
    if b"\x1b" in raw:
        raw = _COLOUR.sub(b"", raw)
    return (_IN_COLUMN if b"  " in raw else _NUMBER).sub(b"\0", raw)


def mask_lines(lines: Sequence[bytes]) -> list[bytes]:
    """The template of each of these lines, of which there is at least one: all are searched at
    once, which takes a third less than one by one.
    """
    return mask_numbers(b"\n".join(lines)).split(b"\n")


def extract_numbers(raw: bytes) -> Numbers:
    """The numbers of a line, in the order of the NULs of its template."""
    raw = _COLOUR.sub(b"", raw)
    return tuple((_IN_COLUMN if b"  " in raw else _NUMBER).findall(raw))


def fill_template(template: bytes, numbers: Numbers) -> bytes:
    """The line of this template with these numbers."""
    pieces = template.split(b"\0")
    whole = [pieces[0]]
    for piece, number in zip(pieces[1:], numbers, strict=False):
        whole += [number, piece]
    return b"".join(whole)


def number_value(number: bytes) -> float | None:
    """The value of a number; None if it is hexadecimal."""
    try:
        return float(number)
    except ValueError:
        return None


MOST_KNOWN = 20_000
_ALL_ZERO = bytes.maketrans(b"123456789", b"000000000")


class TemplateCache:
    """Knows the templates of lines that came before; all are forgotten if there are too many.

    Lines that differ only in their digits have one template, which is searched once: with all
    digits written as 0 they are equal. Only `0x1` and `2x1` differ in more, as one is one number.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}

    def of(self, lines: Sequence[bytes]) -> list[bytes]:
        """The template of each line."""
        if not lines:
            return []
        known = self._known
        if len(known) >= MOST_KNOWN:
            known.clear()
        zeros = b"\n".join(lines).translate(_ALL_ZERO)
        keys = lines if b"0x" in zeros or b"0X" in zeros else zeros.split(b"\n")
        if fresh := [*set(keys).difference(known)]:
            known.update(zip(fresh, mask_lines(fresh), strict=True))
        return [known[key] for key in keys]
