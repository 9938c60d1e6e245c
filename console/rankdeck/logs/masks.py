"""Lines with their numbers taken out: what makes two lines the same but for their values."""

import re

_NUMBER = re.compile(rb"((?:(?<= ) +)?(?:0[xX][0-9a-fA-F]+|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?))")
"""With the spaces that set it right in a column: `step   9` and `step  10` are one kind of line."""
_COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")

Numbers = tuple[bytes, ...]


def mask(raw: bytes) -> tuple[bytes, Numbers]:
    """The line with a NUL in the place of each number, and the numbers; colours are left out."""
    if b"\x1b" in raw:
        raw = _COLOUR.sub(b"", raw)
    parts = _NUMBER.split(raw)
    if len(parts) == 1:
        return raw, ()
    return b"\0".join(parts[::2]), tuple(parts[1::2])


def filled(template: bytes, numbers: Numbers) -> bytes:
    """The line again."""
    pieces = template.split(b"\0")
    whole = [pieces[0]]
    for piece, number in zip(pieces[1:], numbers, strict=False):
        whole += [number, piece]
    return b"".join(whole)


def value(number: bytes) -> float | None:
    """What a number is worth; None for a name in hexadecimal."""
    try:
        return float(number)
    except ValueError:
        return None
