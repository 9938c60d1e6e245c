"""In which order ranks are shown: as numbered, by node, the odd ones first, the slowest first."""

import re
from collections.abc import Callable, Sequence

from rankdeck.logs.filter import TROUBLE
from rankdeck.model.job import RankState, State

ORDERS = ("rank", "unusual", "node", "slowest")
QUIET = 30.0
"""Seconds behind the newest word of all ranks after which a running rank is unusual."""
_STEP = re.compile(r"\b(?:step|iter(?:ation)?|batch)\b\D{0,3}(\d+)", re.IGNORECASE)
_WORST = {
    State.FAILED: 0,
    State.LOST: 1,
    State.CANCELLED: 2,
    State.PENDING: 4,
    State.RUNNING: 5,
    State.DONE: 6,
}


def ordered(
    ranks: Sequence[RankState], order: str, lines: Callable[[int], int]
) -> tuple[RankState, ...]:
    """The ranks in this order; `lines` gives how many lines a rank has written."""
    if order == "node":
        return tuple(sorted(ranks, key=lambda one: (one.node, one.rank)))
    if order == "unusual":
        latest = max((one.heard or 0.0 for one in ranks), default=0.0)
        return tuple(sorted(ranks, key=lambda one: (oddness(one, latest), one.rank)))
    if order == "slowest":
        return tuple(sorted(ranks, key=lambda o: (_step(o), lines(o.rank), o.rank)))
    return tuple(sorted(ranks, key=lambda one: one.rank))


def oddness(one: RankState, latest: float) -> int:
    """The smaller, the more a rank wants to be looked at."""
    worst = _WORST[one.state]
    if worst < 3:
        return worst
    if one.state is State.RUNNING and silence(one, latest) > QUIET:
        return 3
    return 3 if TROUBLE.search(one.last_line) else worst


def silence(one: RankState, latest: float) -> float:
    """Seconds that this rank has been quiet while another was not."""
    begun = one.heard if one.heard is not None else one.started
    return 0.0 if begun is None else max(latest - begun, 0.0)


def _step(one: RankState) -> int:
    found = _STEP.search(one.last_line)
    return int(found[1][:15]) if found else 1 << 60
