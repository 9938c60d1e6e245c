"""What the values of the console are: frozen, compared by their fields, and cheap to define.

By msgspec, not `dataclass`: a session has 150 of them, which were half of the start of a command.
"""

import dataclasses
from typing import Any, TypeVar, cast, dataclass_transform

from msgspec import Struct, field, structs, to_builtins

from rankdeck_agent import values as agent_values

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Value(Struct, frozen=True):
    """The base of a frozen value. Its fields are written as those of a dataclass."""


def replace(value: T, /, **changes: Any) -> T:  # noqa: ANN401 - of any field
    """A copy of a value of the console or of the agent, or of a dataclass, with these fields
    changed.

    The same as `copy.replace` of Python 3.13.
    """
    if isinstance(value, Struct):
        return structs.replace(value, **changes)
    if isinstance(value, agent_values.Value):
        return agent_values.replace(value, **changes)
    return dataclasses.replace(cast("Any", value), **changes)


def field_names(made: type | object) -> tuple[str, ...]:
    """The fields of a value of the console or of the agent, or of its class."""
    named: Any = made
    if hasattr(named, "__struct_fields__"):
        return named.__struct_fields__
    return tuple(agent_values.list_fields(named))


def value_table(value: object) -> dict[str, Any]:
    """A value of the console or of the agent as what JSON knows, down to the last field."""
    return to_builtins(value, enc_hook=vars)
