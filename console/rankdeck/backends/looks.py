"""What a node says its ranks do, checked row by row. No I/O."""

import re
from collections.abc import Collection, Mapping
from typing import Any, cast

from rankdeck.model.activity import Activity

MOST_ROWS = 4096
_STATES = frozenset("RSDTtZXIKWP")
_NAME = re.compile(r"[\w.\-+@]{0,64}\Z", re.ASCII)
_MOST_CORES = 1e5


def looks_of(rows: object, ranks: Collection[int], at: float) -> Mapping[int, Activity]:
    """Rank -> what it did, of the ranks of this node; rows that make no sense are left out."""
    if not isinstance(rows, list):
        return {}
    known = frozenset(ranks)
    found: dict[int, Activity] = {}
    for raw in cast("list[Any]", rows)[:MOST_ROWS]:
        look = _look(raw, known, at)
        if look is not None:
            found[look[0]] = look[1]
    return found


def _look(raw: object, known: frozenset[int], at: float) -> tuple[int, Activity] | None:
    row = cast("list[Any]", raw) if isinstance(raw, list) else []
    if len(row) < 5:
        return None
    rank, state, wchan, cores, share = row[:5]
    if type(rank) is not int or rank not in known:
        return None
    if not isinstance(state, str) or state not in _STATES:
        return None
    if not isinstance(wchan, str) or not _NAME.match(wchan):
        return None
    if not _within(cores, _MOST_CORES) or not (share is None or _within(share, 1.0)):
        return None
    told = None if share is None else float(share)
    return rank, Activity(state, wchan, float(cores), told, at)


def _within(number: object, most: float) -> bool:
    # Written so that NaN and integers beyond any float are refused too.
    return type(number) in (int, float) and 0 <= cast("float", number) <= most
