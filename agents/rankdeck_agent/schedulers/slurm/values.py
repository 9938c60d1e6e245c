"""Single values as Slurm prints them: counts, times, exit codes, resources, node lists."""

import re
import time
from itertools import islice
from typing import Optional

from rankdeck_agent.user_names import user_name

_NOTHING = frozenset(
    {"", "N/A", "Unknown", "None", "NONE", "(null)", "n/a", "INVALID", "None assigned"}
)
_TIME = "%Y-%m-%dT%H:%M:%S"
_SPAN = re.compile(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})\Z")
LONGEST_NODES = 2000
"""Most characters of a node list that is kept of a job."""
NO_TASK = frozenset({"4294967294", "4294967295"})
"""Slurm's numbers for no value, which some versions print as the number of a task."""
_GPUS = re.compile(
    r"(?:^|,)(?:gres[/:])?gpu(:(?![0-9]+(?:[,(]|$))[^,:=(]+)?(?:[:=]([0-9]{1,7}))?(?=[,(]|$)"
)
"""An entry such as `gres/gpu:a100=2`, `gpu:a100:2`, `gres/gpu=2` or `gpu`, which is one."""
JOB_OR_TASK = re.compile(r"[0-9]{1,11}(?:_[0-9]{1,9})?\Z")
"""A job, or a task of an array: `4711`, `48_3`."""
JOB_OR_TASKS = re.compile(r"[0-9]{1,11}(?:_(?:[0-9]{1,9}|\[[0-9,:-]{1,4096}\]))?\Z")
"""The same, or some tasks of an array that wait: `48_[2-5]`."""
_MEMORY = re.compile(r"(?:^|,)mem=([0-9]{1,15}(?:\.[0-9]+)?)([KMGTP]?)")
_MEGABYTES = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_MOST_NUMBERS = 10_000
"""Most tasks named at once."""


def cut_nodes(text: str) -> str:
    """A node list of at most LONGEST_NODES characters; a longer one
    ends after a whole name, with `…`.
    """
    if len(text) <= LONGEST_NODES:
        return text
    return f"{text[: LONGEST_NODES - 2].rpartition(',')[0]},…"


def known_text(text: str) -> str:
    """`text`, or "" if it is one of Slurm's words for nothing."""
    return "" if text in _NOTHING else text


def parse_count(text: str) -> int:
    """The number in this text; 0 if it is none."""
    return int(text) if text.isdecimal() and len(text) < 12 else 0


def parse_number_ranges(text: str) -> list[int]:
    """The numbers in `0-2,7,10-20:5`, at most 10,000; raises ValueError."""
    steps = (part.partition(":") for part in text.split(",") if part)
    spans = ((span.partition("-"), int(step or 1) or 1) for span, _, step in steps)
    every = (n for (a, _, b), step in spans for n in range(int(a), int(b or a) + 1, step))
    return list(islice(every, _MOST_NUMBERS))


def gpus_of(tres: str) -> int:
    """The number of GPUs in a list of trackable resources, where they may
    stand with their type and without.
    """
    found = [(kind, int(count or 1)) for kind, count in _GPUS.findall(tres)]
    return sum(n for kind, n in found if not kind) or sum(n for _, n in found)


def requested_megabytes(tres: str) -> float:
    """Megabytes of memory in a list of trackable resources such as
    `cpu=4,mem=1800M,node=1`; 0.0 if it has none.
    """
    found = _MEMORY.search(tres)
    return round(float(found[1]) * _MEGABYTES[found[2]], 3) if found else 0.0


def parse_exit_code(text: str) -> tuple[Optional[int], int]:
    """(code, signal) in `7:0`, or in a single number, which is a status as
    from `wait`; (None, 0) for anything else.
    """
    status, colon, signal = text.partition(":")
    if not status.isdecimal() or len(status) > 9 or (colon and not signal.isdecimal()):
        return None, 0
    if colon:
        return int(status), int(signal)
    return int(status) >> 8, int(status) & 0x7F


def parse_moment(text: str) -> Optional[float]:
    """Epoch seconds in `1795358381`, or in local time
    `2026-11-25T13:37:00`; None for anything else.
    """
    if text.isdecimal() and 0 < int(text) < 1 << 34:
        return float(text)
    try:
        return time.mktime(time.strptime(text, _TIME))
    except (ValueError, OverflowError):
        return None


def parse_span(text: str) -> Optional[float]:
    """Seconds in `1-02:03:04`, `2:03:04` or `3:04`; None for anything else, such as UNLIMITED."""
    found = _SPAN.match(text)
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def user_name_of(by: str) -> str:
    """The user's name for a user id; other text is returned as it is."""
    if not by.isdecimal():
        return by
    name = user_name(int(by))
    return f"user {by}" if name == by else name
