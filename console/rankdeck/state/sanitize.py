"""Limits and cleans what a node sends before it is kept."""

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from math import hypot
from typing import Any, cast

from rankdeck.model.text import clean
from rankdeck_agent.wire import Event, Hello

Number = int | float
METRICS = 512
DEVICES = 1024
NUMBERS = 4096
ENTRIES = 256
"""Most entries of the inventory, and of absent and failed metrics."""
NAME = 64
TEXT = 200
LARGEST = 1 << 64
PERIOD = (0.1, 60.0)
LEVELS = ("ok", "info", "warn", "bad")


def number(raw: object, otherwise: float = 0.0) -> float:
    """A finite number, or `otherwise`."""
    if type(raw) is int and abs(raw) <= LARGEST:
        return float(raw)
    return raw if type(raw) is float and math.isfinite(raw) else otherwise


def number_in(text: str) -> float:
    """The number in a text; 0 if it is none."""
    return float(text) if text.replace(".", "", 1).isdecimal() else 0.0


def numbers(raw: Mapping[str, Number]) -> dict[str, Number]:
    """The finite numbers of at most DEVICES devices, under clean names."""
    kept: dict[str, Number] = {}
    for device, value in raw.items():
        if len(kept) >= DEVICES:
            break
        if math.isfinite(value) if type(value) is float else abs(value) <= LARGEST:
            kept[clean(device, NAME)] = value
    return kept


def sane(values: Mapping[str, Mapping[str, Number]]) -> bool:
    """Whether all numbers are finite and of sane size; False where that is not certain."""
    try:
        # One call for all of them: the root of the sum of squares is no less than any.
        return (
            hypot(*chain.from_iterable(by_device.values() for by_device in values.values()))
            <= LARGEST
        )
    except OverflowError:
        return False


def texts(raw: object) -> dict[str, str]:
    """A table of words."""
    if not isinstance(raw, Mapping):
        return {}
    table = cast("Mapping[Any, Any]", raw)  # JSON: anything may be in it
    return {clean(key, NAME): clean(value, TEXT) for key, value in list(table.items())[:ENTRIES]}


def names(raw: object) -> frozenset[str]:
    """A set of words."""
    if not isinstance(raw, list | tuple):
        return frozenset()
    many = cast("Sequence[Any]", raw)  # JSON: anything may be in it
    return frozenset(clean(name, NAME) for name in many[:ENTRIES])


def hello(raw: Hello, name: str) -> Hello:
    """A Hello with every field checked, for the node that the topic names."""
    period = min(max(number(raw.period, 1.0), PERIOD[0]), PERIOD[1])
    return Hello(
        node=name,
        up=raw.up is True,
        at=number(raw.at),
        boot=clean(raw.boot, NAME),
        agent=clean(raw.agent, NAME),
        period=period,
        inventory=texts(raw.inventory),
        simulated=tuple(sorted(names(raw.simulated))),
        installed=raw.installed is True,
    )


def event(raw: Event) -> Event:
    """An Event with every field checked."""
    level = raw.level if raw.level in LEVELS else "warn"
    return Event(
        number(raw.at),
        level,
        clean(raw.check, NAME),
        clean(raw.text, TEXT),
        clean(raw.device, NAME),
    )
