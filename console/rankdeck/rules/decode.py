"""What the last lines and the exit status of a rank or launcher mean, and what to try. No I/O."""

import re
from collections.abc import Iterable
from functools import lru_cache

from rankdeck.model.insight import Explained
from rankdeck.rules.messages import (
    HARMLESS,
    MESSAGES,
    OF_OTHERS,
    STATUSES,
    STATUSES_OF_OTHERS,
    Message,
)

MOST = 4
"""Explanations of one failure: more would hide the first."""
_LONGEST = 500
_COMPILED = tuple((re.compile(row.pattern), row) for row in MESSAGES)
_HARMLESS = re.compile(HARMLESS)


def explain(lines: Iterable[str], status: int | None = None) -> tuple[Explained, ...]:
    """What these last lines and the exit status mean, the newest message first.

    What only says that others failed, or that it was told to end, comes last.
    """
    own: dict[str, Explained] = {}
    others: dict[str, Explained] = {}
    for row, line in _known(lines):
        found = others if row.kind in OF_OTHERS else own
        found.setdefault(row.means, Explained(row.means, row.remedy, line))
    if status in STATUSES:
        means, remedy = STATUSES[status]
        found = others if status in STATUSES_OF_OTHERS else own
        found.setdefault(means, Explained(means, remedy))
    return (*own.values(), *others.values())[:MOST]


def kinds_of(lines: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """What each known line tells of who failed: (a value of `Kind`, the line), newest first."""
    return tuple((row.kind.value, line) for row, line in _known(lines))


def _known(lines: Iterable[str]) -> Iterable[tuple[Message, str]]:
    """The lines that the table knows, newest first, each with its row."""
    for line in reversed([line[:_LONGEST].strip() for line in lines]):
        row = _row(line)
        if row is not None:
            yield row, line


@lru_cache(maxsize=4096)
def _row(line: str) -> Message | None:
    """The first row of the table that fits a line; ranks say the same, so answers are kept."""
    if not line or _HARMLESS.search(line):
        return None
    return next((row for pattern, row in _COMPILED if pattern.search(line)), None)
