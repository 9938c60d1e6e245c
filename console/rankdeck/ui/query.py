"""The filter language: words, and conditions on metrics, joined by `&`."""

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from rankdeck_agent.wire import METRICS

SHORT = {
    "cpu": "cpu.used",
    "mem": "mem.used",
    "gpu": "gpu.used",
    "temp": "gpu.temp",
    "load": "cpu.load1",
}
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "==": operator.eq,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
CONDITION = re.compile(r"^\s*([\w.]+)\s*(<=|>=|!=|==|=|<|>)\s*(\S+)\s*$")
LEVELS = ("ok", "unknown", "warn", "bad")


class QueryError(ValueError):
    """A filter that cannot be understood; the text says what to write."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a filter looks at: one line of a list."""

    text: str
    state: str
    number: Callable[[str], float | None]


Query = Callable[[Subject], bool]


def parse(text: str) -> Query:
    """The filter that `text` means; raises QueryError."""
    parts = [_part(part.strip()) for part in text.split("&") if part.strip()]
    return lambda subject: all(part(subject) for part in parts)


def _part(text: str) -> Query:
    found = CONDITION.match(text)
    if not found:
        if any(sign in text for sign in "<>="):
            raise QueryError(
                f"cannot read `{text}`; write metric>number, for example gpu.temp>80"
            )
        word = text.lower()
        return lambda subject: word in subject.text.lower()
    name, sign, value = found.groups()
    return (
        _state(sign, value.lower()) if name == "state" else _metric(name, sign, value)
    )


def _state(sign: str, value: str) -> Query:
    if sign not in ("=", "==", "!="):
        raise QueryError("state takes = or !=")
    equal = sign != "!="
    return lambda subject: (subject.state == value) is equal


def _metric(name: str, sign: str, value: str) -> Query:
    metric = SHORT.get(name, name)
    if metric not in METRICS:
        near = get_close_matches(name, [*METRICS, *SHORT], 1)
        raise QueryError(
            f"no metric `{name}`" + (f"; did you mean {near[0]}?" if near else "")
        )
    try:
        limit = float(value.rstrip("%"))
    except ValueError:
        raise QueryError(f"`{value}` is not a number") from None
    compare = OPERATORS[sign]

    def judge(subject: Subject) -> bool:
        number = subject.number(metric)
        return number is not None and compare(number, limit)

    return judge
