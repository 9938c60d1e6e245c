"""Frozen values as JSON, and back: dataclasses of plain values, enums, tuples and tables."""

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
Read = Callable[[Any], Any]
_PLAIN: Mapping[type, tuple[type, ...]] = {
    str: (str,),
    bool: (bool,),
    int: (int,),
    # JSON has one kind of number: 1.0 may come back as the int 1, which is equal.
    float: (int, float),
}


def read_value(make: type[T], raw: object) -> T:
    """The dataclass `make` from `raw`, its parsed JSON; raises ValueError or TypeError."""
    return cast("T", _reader(make)(raw))


@cache
def _reader(hint: Any) -> Read:  # noqa: ANN401 - a type hint may be anything
    """A reader of this type: plain, an enum, a dataclass, `X | None`,
    `tuple[X, ...]` or `Mapping[str, X]`.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (one,) = (_reader(each) for each in inner if each is not types.NoneType)
        return lambda raw: None if raw is None else one(raw)
    if origin is tuple:
        return _tuple(_reader(inner[0]))
    if origin is Mapping:
        return _table(_reader(inner[1]))
    return _dataclass(hint) if is_dataclass(hint) else _simple(hint)


def _simple(hint: Any) -> Read:  # noqa: ANN401 - a type hint may be anything
    kinds = _PLAIN.get(hint)
    if kinds is None and issubclass(hint, Enum):
        return hint
    if kinds is None:
        raise TypeError(f"{hint} cannot be read from JSON")

    def simple(raw: object) -> object:
        # Not isinstance: True is an int in Python, but not in JSON.
        if type(raw) not in kinds:
            raise TypeError(f"{raw!r:.60} is no {hint.__name__}")
        return raw

    return simple


def _tuple(one: Read) -> Read:
    def several(raw: object) -> tuple[Any, ...]:
        if not isinstance(raw, list | tuple):
            raise TypeError(f"{raw!r:.60} is no list")
        return tuple(map(one, cast("list[Any]", raw)))

    return several


def _table(one: Read) -> Read:
    def table(raw: object) -> dict[str, Any]:
        if not isinstance(raw, dict):
            raise TypeError(f"{raw!r:.60} is no table")
        return {name: one(value) for name, value in cast("dict[str, Any]", raw).items()}

    return table


def _dataclass(make: Any) -> Read:  # noqa: ANN401 - the type of a frozen value
    hints = get_type_hints(make)
    wanted = {one.name: _reader(hints[one.name]) for one in fields(make) if one.init}
    needed = {
        one.name
        for one in fields(make)
        if one.init and one.default is MISSING and one.default_factory is MISSING
    }

    def built(raw: object) -> object:
        if not isinstance(raw, dict):
            raise TypeError(f"{raw!r:.60} is no {make.__name__}")
        table = cast("dict[str, Any]", raw)
        if not needed <= table.keys():
            lacks = ", ".join(sorted(needed - table.keys()))
            raise ValueError(f"a {make.__name__} lacks {lacks}")
        return make(**{n: one(table[n]) for n, one in wanted.items() if n in table})

    return built


def json_of(value: object) -> str:
    """A value as JSON.

    Not by `asdict`, which copies everything first: too slow for 512 ranks while a user types.
    """
    return json.dumps(value, default=fields_of)


def fields_of(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any of our dataclasses
    """Field -> value, not copied."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
