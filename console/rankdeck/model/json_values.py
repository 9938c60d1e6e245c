"""Frozen values as JSON, and back."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast, get_type_hints

from msgspec import convert

from rankdeck.values import field_names
from rankdeck_agent import values as agent_values

T = TypeVar("T")


def read_value(raw: object, make: type[T]) -> T:
    """The value of type `make` from its parsed JSON, each type checked; raises ValueError."""
    return convert(raw, make, dec_hook=_read_agent_value)


def _read_agent_value(make: type[T], raw: object) -> T:
    """The same for a value of the agent, which msgspec does not know."""
    if not issubclass(make, agent_values.Value) or not isinstance(raw, Mapping):
        raise TypeError(f"Expected `{make.__name__}`, got `{type(raw).__name__}`")
    table = cast("Mapping[str, object]", raw)
    hints = _types_of_fields(make)
    fields = {name: read_value(table[name], hints[name]) for name in hints if name in table}
    return make(**fields)


@cache
def _types_of_fields(make: type[agent_values.Value]) -> dict[str, Any]:
    hints = get_type_hints(make)
    return {name: hints[name] for name in agent_values.list_fields(make)}


def json_of(value: object) -> str:
    """A value as JSON.

    Not by `as_table`, which copies everything first: too slow for 512 ranks while a user types.
    """
    return json.dumps(value, default=fields_of)


def fields_of(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any of our values
    """Field -> value, not copied."""
    return {name: getattr(value, name) for name in field_names(value)}
