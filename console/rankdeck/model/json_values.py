"""Frozen values as JSON, and back."""

import json
from typing import Any, TypeVar

from msgspec import convert

from rankdeck.values import field_names

T = TypeVar("T")


def read_value(raw: object, make: type[T]) -> T:
    """The value of type `make` from its parsed JSON, each type checked; raises ValueError."""
    return convert(raw, make)


def json_of(value: object) -> str:
    """A value as JSON.

    Not by `as_table`, which copies everything first: too slow for 512 ranks while a user types.
    """
    return json.dumps(value, default=fields_of)


def fields_of(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any of our values
    """Field -> value, not copied."""
    return {name: getattr(value, name) for name in field_names(value)}
