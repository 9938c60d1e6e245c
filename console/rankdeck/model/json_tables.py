"""JSON from a node or a file, read without trust: bounded in size and depth, tables only."""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn, TypeGuard, cast

LONGEST = 8 << 20
"""Most bytes of one line of JSON."""
DEEPEST = 24
"""Deepest nesting of brackets in JSON."""
_MOST_LINES = 1000
_DIGITS = 20
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
Table = dict[str, Any]


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
