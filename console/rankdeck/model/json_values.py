"""Frozen values as JSON. They are read back by `msgspec.convert`, which checks every type."""

import json
from typing import Any


def json_of(value: object) -> str:
    """A value as JSON.

    Not by `asdict`, which copies everything first: too slow for 512 ranks while a user types.
    """
    return json.dumps(value, default=fields_of)


def fields_of(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any of our dataclasses
    """Field -> value, not copied."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
