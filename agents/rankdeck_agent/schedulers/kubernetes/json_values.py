"""JSON values that the API server sends, each checked for its type."""

from collections.abc import Mapping
from typing import Any, cast

Object = Mapping[str, Any]
"""A JSON object."""


def object_rows(value: object) -> list[Object]:
    """The JSON objects in a list; empty if `value` is no list."""
    rows = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Object", row) for row in rows if isinstance(row, dict)]


def texts_of(value: object) -> list[str]:
    """The texts in a list; empty if `value` is no list."""
    rows = cast("list[object]", value) if isinstance(value, list) else []
    return [row for row in rows if isinstance(row, str)]


def table_of(value: object) -> Object:
    """`value` if it is a JSON object, otherwise an empty one."""
    return cast("Object", value) if isinstance(value, dict) else {}


def whole_or_zero(value: object) -> int:
    """`value` if it is a whole number of 0 or more, otherwise 0."""
    return value if type(value) is int and value >= 0 else 0
