"""Checks for the fields of a table from a node, one for each type."""

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard, cast

from rankdeck.model.json_tables import Table, is_list
from rankdeck.model.safe_text import LIMIT, clean_line

LATEST = 2.5e11
"""Epoch seconds from this on are not a valid time; calendars still support this year."""
_INTEGER = 1 << 53
Check = Callable[[object], bool]


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
