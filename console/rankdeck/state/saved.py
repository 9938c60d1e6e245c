"""Frozen values out of saved JSON: what a newer version added is left out, what an older one lacks has its default."""

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
    # JSON knows one kind of number: a whole one comes back as int, and is equal.
    float: (int, float),
}


def read(make: type[T], raw: object) -> T:
    """The value of this dataclass that `dataclasses.asdict` and JSON made `raw` of; raises ValueError or TypeError."""
    return cast("T", _reader(make)(raw))


@cache
def _reader(hint: Any) -> Read:  # noqa: ANN401 - a type hint may be anything
    """What reads a value of this type hint."""
    if hint is Any:
        return lambda raw: raw
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _optional(get_args(hint))
    if origin is tuple:
        return _tuple(get_args(hint))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _table(*get_args(hint))
    return _dataclass(hint) if is_dataclass(hint) else _simple(hint)


def _simple(hint: Any) -> Read:  # noqa: ANN401 - a type hint may be anything
    kinds = _PLAIN.get(hint)
    if kinds is None and issubclass(hint, Enum):
        return hint
    if kinds is None:
        raise TypeError(f"{hint} cannot be read from JSON")

    def simple(raw: object) -> object:
        # Not isinstance: True is an int to Python, not to whoever wrote the number.
        if type(raw) not in kinds:
            raise TypeError(f"{raw!r:.60} is no {hint.__name__}")
        return raw

    return simple


def _optional(hints: tuple[Any, ...]) -> Read:
    """None, or the first of the others that fits."""
    readers = [_reader(hint) for hint in hints if hint is not type(None)]
    may_lack = type(None) in hints
    if may_lack and len(readers) == 1:
        (only,) = readers
        return lambda raw: None if raw is None else only(raw)

    def optional(raw: object) -> object:
        if raw is None and may_lack:
            return None
        for one in readers[:-1]:
            try:
                return one(raw)
            except (ValueError, TypeError):
                continue
        return readers[-1](raw)

    return optional


def _tuple(hints: tuple[Any, ...]) -> Read:
    """`tuple[X, ...]`, or one of a fixed length."""
    readers = [_reader(hint) for hint in hints if hint is not Ellipsis]
    open_ended = Ellipsis in hints

    def several(raw: object) -> tuple[Any, ...]:
        if not isinstance(raw, list | tuple):
            raise TypeError(f"{raw!r:.60} is no list")
        values = cast("list[Any]", raw)
        if open_ended:
            return tuple(map(readers[0], values))
        return tuple(one(value) for one, value in zip(readers, values, strict=True))

    return several


def _table(key: Any, hint: Any) -> Read:  # noqa: ANN401 - a type hint may be anything
    one, name = _reader(hint), (int if key is int else _reader(key))

    def table(raw: object) -> dict[Any, Any]:
        if not isinstance(raw, dict):
            raise TypeError(f"{raw!r:.60} is no table")
        pairs = cast("dict[Any, Any]", raw).items()
        return {name(key): one(value) for key, value in pairs}

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
