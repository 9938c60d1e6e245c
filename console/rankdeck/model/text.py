"""JSON from nodes and files, with limited nesting; checks of its
fields; numbers, names and times as text.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeGuard, cast

from rankdeck.model.safe_text import LIMIT, clean_line

LONGEST = 8 << 20
"""Most bytes of one line of JSON."""
DEEPEST = 24
"""Deepest nesting of brackets in JSON."""
LATEST = 2.5e11
"""Epoch seconds from this on are not a valid time; calendars still support this year."""
_MOST_LINES = 1000
_INTEGER = 1 << 53
_DIGITS = 20
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
Table = dict[str, Any]
Check = Callable[[object], bool]


def _never(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > _DIGITS:
        raise ValueError("a number of too many digits")
    return int(digits)


def _decimal(digits: str) -> float:
    number = float(digits)
    if number - number != 0:
        raise ValueError("a number out of range")
    return number


_READ = json.JSONDecoder(parse_int=_whole, parse_float=_decimal, parse_constant=_never).decode


def parse_table(line: bytes, longest: int = LONGEST) -> Table | None:
    """The JSON object in these bytes; None if `read_table` refuses them."""
    try:
        return read_table(line, longest)
    except ValueError:
        return None


def read_table(line: bytes, longest: int = LONGEST) -> Table:
    """The JSON object in these bytes; raises ValueError if there is no valid
    one, or one too long or too deeply nested.

    Numbers are finite, integers have at most 20 digits, and text can be encoded as UTF-8.
    """
    if len(line) > longest:
        raise ValueError(f"larger than {longest >> 10} KiB")
    if line.lstrip()[:1] != b"{":
        raise ValueError("no table: it begins with no {")
    if _deep(line):
        raise ValueError(f"nested too deeply: more than {DEEPEST} levels")
    try:
        found = _READ(line.decode())
        if b"\\u" in line:
            # Half a surrogate pair, as in odd file names, cannot be encoded as UTF-8.
            whole = json.dumps(found, ensure_ascii=False).encode("utf-8", "replace")
            found = json.loads(whole)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return cast("Table", found)


def parse_tables(out: bytes) -> Iterator[Table]:
    """The JSON objects in the last 1000 lines, the last one first.

    The other lines are ignored: start-up files of a login shell may print some.
    """
    return filter(None, map(parse_table, reversed(out[-LONGEST:].splitlines()[-_MOST_LINES:])))


def is_table(found: object) -> TypeGuard[Table]:
    """A JSON object."""
    return isinstance(found, dict)


def is_list(found: object) -> TypeGuard[list[Any]]:
    """A JSON array."""
    return isinstance(found, list)


def as_table(found: object) -> Table:
    """`found` if it is a JSON object, else an empty one."""
    return found if is_table(found) else {}


def as_list(found: object, most: int | None = None) -> list[Any]:
    """The first `most` items of a list (None: all); [] for anything else."""
    return found[:most] if is_list(found) else []


def as_tables(found: object, most: int | None = None) -> list[Table]:
    """The JSON objects among the first `most` items of a list; [] for anything else."""
    return list(filter(is_table, as_list(found, most)))


def _deep(line: bytes) -> bool:
    """Whether brackets are nested more deeply than DEEPEST."""
    if line.count(b"[") + line.count(b"{") <= DEEPEST:
        return False
    depth = 0
    for found in _BRACKETS.finditer(line):
        mark = found.group()
        depth += (mark in b"[{") - (mark in b"]}")
        if depth > DEEPEST:
            return True
    return False


# ---- fields --------------------------------------------------------------------------------


def significant_figures(value: float, digits: int = 4) -> str:
    """A number with `digits` significant digits, or rounded to an integer:
    `9.573`, `12346`, not `1.235e+04`.
    """
    return f"{value:.0f}" if abs(value) >= 10**digits - 0.5 else f"{value:.{digits}g}"


def list_names(names: Sequence[str], most: int = 6) -> str:
    """`n1, n2 and 4 more`: at most `most` of these names."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def day_time(at: float) -> str:
    """Epoch seconds as `2026-11-22 14:03` in this machine's time zone;
    "" if they are not a valid time.
    """
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) if 0 < at < LATEST else ""


def is_integer(value: object) -> TypeGuard[int]:
    """An integer (not a bool) below 2^53 in size: SQLite, and
    programs that use doubles, can hold it.
    """
    return type(value) is int and abs(value) < _INTEGER


def natural_or_zero(value: object) -> int:
    """`value` if it is an integer above 0, else 0."""
    return max(value, 0) if is_integer(value) else 0


def is_number(value: object) -> TypeGuard[int | float]:
    """A number (not a bool) below 1e300 in size, so that calculations do not overflow."""
    return type(value) in (int, float) and abs(cast("float", value)) < 1e300


def is_stamp(value: object) -> TypeGuard[int | float]:
    """Epoch seconds that are a valid time: from 0 to below LATEST."""
    return type(value) in (int, float) and 0 <= cast("float", value) < LATEST


def is_flag(value: object) -> bool:
    """A boolean, not a number."""
    return type(value) is bool


def is_text(longest: int) -> Check:
    """A check for text of at most `longest` characters."""
    return lambda value: isinstance(value, str) and len(value) <= longest


def is_rows(each: Check, most: int) -> Check:
    """A check for a list of at most `most` items that all pass `each`."""

    def check(value: object) -> bool:
        if not isinstance(value, list):
            return False
        found = cast("list[object]", value)
        return len(found) <= most and all(map(each, found))

    return check


def or_null(check: Check) -> Check:
    """A check for None, or what passes `check`."""
    return lambda value: value is None or check(value)


def fitting_fields(found: Mapping[str, Any], shape: Mapping[str, Check]) -> Table:
    """The fields that are in `shape` and valid; the others are left out."""
    return {key: found[key] for key, check in shape.items() if key in found and check(found[key])}


def cleaned_fields(found: Mapping[str, Any], shape: Mapping[str, Check]) -> Table:
    """The fields of `fitting_fields`, with texts made printable and lists made
    tuples; `shape` must limit their length.
    """
    return {key: _cleaned(value) for key, value in fitting_fields(found, shape).items()}


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean_line(value, LIMIT)
    return tuple(map(_cleaned, value)) if is_list(value) else value
