"""Frozen values as JSON, and back."""

import json
from typing import Any, TypeVar

T = TypeVar("T")


def read_value(raw: object, make: type[T]) -> T:
    """The value of type `make` from its parsed JSON, each type checked; raises ValueError."""
    import msgspec  # loaded by those who read what was stored

    return msgspec.convert(raw, make)


def json_of(value: object) -> str:
    """A value as JSON.

    Not by `asdict`, which copies everything first: too slow for 512 ranks while a user types.
    """
    return json.dumps(value, default=fields_of)


def fields_of(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any of our dataclasses
    """Field -> value, not copied."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
