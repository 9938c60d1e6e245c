"""Numbers as words: the one place where units, ages and signals get their spelling."""

from collections.abc import Sequence
from datetime import datetime

from rankdeck.model.activity import Activity
from rankdeck.model.ending import signal_name

NOTHING = "–"
FAR = 1e11
"""Epoch seconds that no calendar here has."""
BYTES = ("B", "K", "M", "G", "T", "P")


def percent(value: float | None) -> str:
    """`42%`."""
    return "" if value is None else f"{value:.0f}%"


def plain(value: float | None, digits: int = 0) -> str:
    """A bare number."""
    return "" if value is None else f"{value:.{digits}f}"


def celsius(value: float | None) -> str:
    """`61°`."""
    return "" if value is None else f"{value:.0f}°"


def size(value: float | None, step: int = 1024) -> str:
    """`1.5G`: at most three digits and a letter."""
    if value is None:
        return ""
    for unit in BYTES[:-1]:
        if abs(value) < 999.5:
            digits = 1 if abs(value) < 9.95 and unit != "B" else 0
            return f"{value:.{digits}f}{unit}"
        value /= step
    return f"{value:.0f}{BYTES[-1]}"


def count(value: float) -> str:
    """How often: `7`, `1.2K`."""
    return size(value, 1000).removesuffix("B")


def rate(value: float | None) -> str:
    """Bytes per second, `12M/s`."""
    return "" if value is None else f"{size(value, 1000)}/s"


def bits(value: float | None) -> str:
    """A link's speed, `25 Gb/s`."""
    return "" if value is None else f"{value / 1e9:g} Gb/s"


def age(seconds: float | None) -> str:
    """`3s`, `4m`, `2h`, `5d`: how long ago, in one unit."""
    if seconds is None:
        return "never"
    for length, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= length:
            return f"{seconds // length:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


def lasted(seconds: float) -> str:
    """`1:02:03` or `2:03`."""
    whole = max(int(seconds), 0)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def clock(at: float, *, millis: bool = False) -> str:
    """Time of day, here."""
    moment = datetime.fromtimestamp(at)
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03}" if millis else f"{moment:%H:%M:%S}"


def day(at: float) -> str:
    """Day and time of day, here; nothing for a stamp that is none."""
    sane = 0 < at < FAR
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M}" if sane else NOTHING


def many(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def doing(activity: Activity | None) -> str:
    """`in ep_poll`, `computes 0.98 cores`; "" where it is not known."""
    if activity is None:
        return ""
    if activity.computes:
        return f"computes {activity.cores:.2f} cores"
    return f"in {activity.wchan}" if activity.wchan else f"in state {activity.state}"


def ending(code: int | None, number: int | None) -> str:
    """How a process ended: `exit 3`, `SIGKILL`; "" where it has not."""
    if number is not None:
        return signal_name(number)
    if code is None:
        return ""
    return f"exit {code} ({signal_name(code - 128)})" if 128 < code < 160 else f"exit {code}"


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def total(values: Sequence[float | None]) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def highest(values: Sequence[float | None]) -> float | None:
    """The largest of what is known; None where nothing is."""
    return max((value for value in values if value is not None), default=None)
