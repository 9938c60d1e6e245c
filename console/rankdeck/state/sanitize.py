"""Limits and cleans what a node sends, before it is stored."""

import math
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from math import hypot
from sys import intern
from typing import Any, cast

from rankdeck.model.field_checks import is_integer
from rankdeck.model.safe_text import clean_line
from rankdeck_agent.rules.levels import EVENT_LEVELS, SUMMARY
from rankdeck_agent.wire import Event, HealthReport, Hello, ReasonRow

Number = int | float
METRICS = 512
DEVICES = 1024
NUMBERS = 16384
ENTRIES = 512
"""Most entries of the inventory, and of absent and failed metrics."""
NAME = 64
TEXT = 200
LARGEST = 1 << 64
PERIOD = (0.1, 60.0)
HEARTBEAT = (1.0, 60.0)
LONGEST_TEXT = 600
REASONS = 64
OLDEST = 10 * 365 * 86400.0
"""Most seconds that a reason may have lasted."""
LEVELS = tuple(EVENT_LEVELS)
"""A tuple, searched by comparison: a node may send an unhashable list."""


def finite_number(raw: object, otherwise: float = 0.0) -> float:
    """A finite number, or `otherwise`."""
    if type(raw) is int and abs(raw) <= LARGEST:
        return float(raw)
    return raw if type(raw) is float and math.isfinite(raw) else otherwise


def number_in(text: str) -> float:
    """The number in a text; 0 if the text is not a number without a sign."""
    return float(text) if text.replace(".", "", 1).isdecimal() else 0.0


def device_numbers(raw: Mapping[str, Number]) -> dict[str, Number]:
    """The numbers of at most DEVICES devices under cleaned names,
    without NaN and numbers above LARGEST.
    """
    kept: dict[str, Number] = {}
    for device, value in raw.items():
        if len(kept) >= DEVICES:
            break
        if abs(value) <= LARGEST:  # False for NaN
            kept[clean_line(device, NAME)] = value
    return kept


def are_sane(values: Mapping[str, Mapping[str, Number]]) -> bool:
    """Whether no number is NaN or above LARGEST; may be False although all are valid."""
    try:
        # One call for all numbers: the root of the sum of squares is
        # at least as large as the largest.
        return (
            hypot(*chain.from_iterable(by_device.values() for by_device in values.values()))
            <= LARGEST
        )
    except OverflowError:
        return False


def cleaned_texts(raw: object) -> dict[str, str]:
    """A table of cleaned texts, at most ENTRIES; {} for anything else."""
    if not isinstance(raw, Mapping):
        return {}
    table = cast("Mapping[Any, Any]", raw)  # JSON: anything may be in it
    # Interned, because most nodes of a cluster send the same texts.
    return {
        intern(clean_line(key, NAME)): intern(clean_line(value, TEXT))
        for key, value in islice(table.items(), ENTRIES)
    }


def cleaned_names(raw: object) -> frozenset[str]:
    """A set of cleaned names, at most ENTRIES; empty for anything but a list."""
    if not isinstance(raw, list | tuple):
        return frozenset()
    many = cast("Sequence[Any]", raw)  # JSON: anything may be in it
    return frozenset(intern(clean_line(name, NAME)) for name in many[:ENTRIES])


def checked_hello(raw: Hello, name: str) -> Hello:
    """A Hello with every field checked, for the node that the topic names."""
    period = min(max(finite_number(raw.period, 1.0), PERIOD[0]), PERIOD[1])
    return Hello(
        node=name,
        up=raw.up is True,
        at=finite_number(raw.at),
        boot=clean_line(raw.boot, NAME),
        agent=clean_line(raw.agent, NAME),
        period=period,
        inventory=cleaned_texts(raw.inventory),
        simulated=tuple(sorted(cleaned_names(raw.simulated))),
        installed=raw.installed is True,
        heartbeat=min(max(finite_number(raw.heartbeat), HEARTBEAT[0]), HEARTBEAT[1]),
    )


def checked_report(raw: HealthReport) -> HealthReport:
    """A HealthReport with cleaned texts, finite numbers, and a heartbeat
    within limits, so that silence is noticed.
    """
    return HealthReport(
        at=finite_number(raw.at),
        level=raw.level,
        heartbeat=min(max(raw.heartbeat, HEARTBEAT[0]), HEARTBEAT[1]),
        applies=raw.applies,
        judged=raw.judged,
        reasons=tuple(map(_row, raw.reasons[:REASONS])),
        more=raw.more + len(raw.reasons[REASONS:]),
        # With our own name objects: the names in each message are new copies.
        numbers={
            metric: value
            for metric in SUMMARY
            if (value := raw.numbers.get(metric)) is not None and abs(value) <= LARGEST
        },
        failed=tuple(name for name in raw.failed if name in SUMMARY),
        expect=intern(clean_line(raw.expect, NAME)),
        limits=intern(clean_line(raw.limits, LONGEST_TEXT)),
        grown=_grown(raw.grown),
    )


def _grown(raw: Mapping[str, Mapping[str, Number]]) -> dict[str, Mapping[str, Number]]:
    """The growth numbers, at most NUMBERS in total."""
    kept: dict[str, Mapping[str, Number]] = {}
    room = NUMBERS
    for window, by_device in islice(raw.items(), METRICS):
        kept[clean_line(window, NAME)] = found = dict(
            islice(device_numbers(by_device).items(), room)
        )
        room -= len(found)
    return kept


def _row(row: ReasonRow) -> ReasonRow:
    check, level, device, held, text = row
    since = None if held is None else min(held, OLDEST)
    return (
        clean_line(check, NAME),
        level,
        clean_line(device, NAME),
        since,
        clean_line(text, LONGEST_TEXT),
    )


def checked_event(raw: Event) -> Event:
    """An Event with every field checked."""
    level = raw.level if raw.level in LEVELS else "warn"
    return Event(
        finite_number(raw.at),
        level,
        clean_line(raw.check, NAME),
        clean_line(raw.text, TEXT),
        clean_line(raw.device, NAME),
        raw.number if is_integer(raw.number) else None,
        raw.link if is_integer(raw.link) else None,
    )
