"""What the values of the agent are: fields with names, compared by them, and cheap to define.

They are written as dataclasses are. A dataclass writes and compiles up to six functions for each
class: a hundred of them took a third of the start of an agent, and Python 3.6 has none.
"""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, ClassVar, NamedTuple, Optional, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_options):  # noqa: ANN003, ANN201
        """Tell type checkers what the constructors of the subclasses of a class take."""
        return lambda made: made


T = TypeVar("T")


class _Needed:
    def __repr__(self) -> str:
        return "NEEDED"


NEEDED: Any = _Needed()
"""The default of a field without one."""


class Field(NamedTuple):
    """What is known of a field beside its name and type."""

    default: Any = NEEDED
    make_default: Optional[Callable[[], Any]] = None
    """Called for each value that is made without this field."""
    metadata: Any = None
    """Whatever the module that defines the value needs to know."""


def field(
    *,
    default: Any = NEEDED,  # noqa: ANN401 - of any type
    default_factory: Optional[Callable[[], Any]] = None,
    metadata: Any = None,  # noqa: ANN401 - of any type
) -> Any:  # noqa: ANN401 - stands where the default would
    """A field with more than a plain default; see `Field`."""
    return Field(default, default_factory, metadata)


class _Fields:
    """What values and records have in common."""

    _fields: ClassVar[Mapping[str, Field]] = {}
    """Name -> field, in the order of the constructor."""
    _names: ClassVar["tuple[str, ...]"] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._fields = {**cls._fields, **_own_fields(cls)}
        cls._names = tuple(cls._fields)

    def __init__(self, *args: Any, **given: Any) -> None:  # noqa: ANN401 - see dataclass_transform
        """Take the fields in their order or by name; raises TypeError as any function does."""
        names, put = self._names, object.__setattr__
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__} takes at most {len(names)} fields")
        for name, value in zip(names, args):
            put(self, name, value)
        for name in names[len(args) :]:
            put(self, name, given.pop(name) if name in given else self._default(name))
        if given:
            raise TypeError(
                f"{type(self).__name__} has no field, or has it already: {min(given)!r}"
            )

    def _default(self, name: str) -> Any:  # noqa: ANN401 - of the field
        known = self._fields[name]
        if known.make_default is not None:
            return known.make_default()
        if known.default is NEEDED:
            raise TypeError(f"{type(self).__name__} needs {name!r}")
        return known.default

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__qualname__}({told})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return vars(self) == vars(other)


def _own_fields(made: type) -> "dict[str, Field]":
    """The fields that a class adds to those of its bases; their defaults stay its attributes."""
    # Until Python 3.13, a class without annotations has those of its base.
    own = (
        vars(made).get("__annotations__", {})
        if sys.version_info < (3, 14)
        else made.__annotations__
    )
    found: dict[str, Field] = {}
    for name in own:
        default = vars(made).get(name, NEEDED)
        known = default if isinstance(default, Field) else Field(default)
        found[name] = known
        if default is known and known.default is NEEDED:
            delattr(made, name)
        elif default is known:
            setattr(made, name, known.default)
    return found


@dataclass_transform(field_specifiers=(field,))
class Record(_Fields):
    """The base of a record, whose fields may change."""

    __hash__ = None  # pyright: ignore[reportAssignmentType] - as for a list


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Value(_Fields):
    """The base of a frozen value."""

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __setattr__(self, name: str, _value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} stays as it is")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} stays")


def list_fields(made: Any) -> Mapping[str, Field]:  # noqa: ANN401 - a value or record, or its class
    """Name -> field, in the order of the constructor."""
    return made._fields


def replace(value: T, **changes: Any) -> T:  # noqa: ANN401 - of the fields
    """A copy of a value or record with these fields changed."""
    return type(value)(**{**vars(value), **changes})
