"""The orders in which ranks are shown: unusual first, by number, by node, slowest first."""

import re
from collections.abc import Callable, Mapping, Sequence

from rankdeck.logs.search import TROUBLE
from rankdeck.model.job import RankState, State
from rankdeck.rules.rank_status import WORST, RankStatus

ORDERS = ("unusual", "rank", "node", "slowest")
QUIET = 30.0
"""Seconds behind the newest word of all ranks after which a running rank is unusual."""
_STEP = re.compile(r"\b(?:step|iter(?:ation)?|batch)\b\D{0,3}(\d+)", re.IGNORECASE)
NO_STANDING: Mapping[int, RankStatus] = {}
_USUAL = len(WORST) + 2
_LOST, _ODD = _USUAL - 2, _USUAL - 1


def ordered(
    ranks: Sequence[RankState],
    order: str,
    lines: Callable[[int], int],
    known: Mapping[int, RankStatus] = NO_STANDING,
) -> tuple[RankState, ...]:
    """The ranks in this order; `lines` gives how many lines a rank has written."""
    if order == "node":
        return tuple(sorted(ranks, key=lambda one: (one.node, one.rank)))
    if order == "unusual":
        latest = max((one.heard or 0.0 for one in ranks), default=0.0)
        return tuple(
            sorted(
                ranks,
                key=lambda o: (oddness(o, latest, known.get(o.rank)), o.rank),
            )
        )
    if order == "slowest":
        return tuple(sorted(ranks, key=lambda o: (_step(o), lines(o.rank), o.rank)))
    return tuple(sorted(ranks, key=lambda one: one.rank))


def oddness(one: RankState, latest: float, standing: RankStatus | None = None) -> int:
    """The smaller, the more a rank wants to be looked at; all that are well are alike."""
    if standing is RankStatus.VICTIM:
        return _USUAL
    if standing is not None:
        return WORST.index(standing)
    if one.state is State.LOST:
        return _LOST
    running = one.state is State.RUNNING
    odd = running and (silence(one, latest) > QUIET or TROUBLE.search(one.last_line) is not None)
    return _ODD if odd else _USUAL


def silence(one: RankState, latest: float) -> float:
    """Seconds that this rank has been quiet while another was not."""
    begun = one.heard if one.heard is not None else one.started
    return 0.0 if begun is None else max(latest - begun, 0.0)


def _step(one: RankState) -> int:
    found = _STEP.search(one.last_line)
    return int(found[1][:15]) if found else 1 << 60
