"""The order of ranks on screen: those that need attention first, by node, the slowest first."""

import re
from collections.abc import Callable, Mapping, Sequence

from rankdeck.logs.search import TROUBLE
from rankdeck.model.job import Job, RankState
from rankdeck.model.rank import WORST, RankStatus, State

ORDERS = ("unusual", "rank", "node", "slowest")
QUIET = 30.0
"""A running rank is unusual if its last output is this many seconds
older than the newest of all ranks.
"""
_STEP = re.compile(r"\b(?:step|iter(?:ation)?|batch)\b\D{0,3}(\d+)", re.IGNORECASE)
NO_STATUS: Mapping[int, RankStatus] = {}
_USUAL = len(WORST) + 2
_LOST, _ODD = _USUAL - 2, _USUAL - 1


def rank_statuses(job: Job) -> Mapping[int, RankStatus]:
    """Rank -> status, for ranks that have one."""
    found = {one.rank: RankStatus.FAILED for one in job.ranks if one.state is State.FAILED}
    for stall in job.stalled:
        if stall.kind == "slow":
            continue  # slow ranks are not stalled
        stuck = stall.accused if stall.kind == "all" else stall.ranks
        found |= dict.fromkeys(stuck, RankStatus.STALLED)
    if failure := job.first_failure:
        first = () if failure.rank is None else (failure.rank,)
        found |= dict.fromkeys(failure.victims, RankStatus.VICTIM)
        found |= dict.fromkeys((*first, *failure.tied), RankStatus.FIRST)
    return found


def order_ranks(
    ranks: Sequence[RankState],
    order: str,
    lines: Callable[[int], int],
    known: Mapping[int, RankStatus] = NO_STATUS,
) -> tuple[RankState, ...]:
    """The ranks in one of ORDERS; `lines` gives how many lines a rank has
    written, `known` are `rank_statuses`.
    """
    if order == "node":
        return tuple(sorted(ranks, key=lambda one: (one.node, one.rank)))
    if order == "unusual":
        latest = max((one.heard or 0.0 for one in ranks), default=0.0)
        return tuple(
            sorted(ranks, key=lambda o: (_attention_order(o, latest, known.get(o.rank)), o.rank))
        )
    if order == "slowest":
        return tuple(sorted(ranks, key=lambda o: (_step(o), lines(o.rank), o.rank)))
    return tuple(sorted(ranks, key=lambda one: one.rank))


def _attention_order(one: RankState, latest: float, status: RankStatus | None = None) -> int:
    """The smaller the number, the more attention a rank needs; the same for all healthy ranks."""
    if status is RankStatus.VICTIM:
        return _USUAL
    if status is not None:
        return WORST.index(status)
    if one.state is State.LOST:
        return _LOST
    running = one.state is State.RUNNING
    odd = running and (
        output_silence(one, latest) > QUIET or TROUBLE.search(one.last_line) is not None
    )
    return _ODD if odd else _USUAL


def output_silence(one: RankState, latest: float) -> float:
    """Seconds from this rank's last output (or start) to `latest`,
    the newest output of all ranks.
    """
    begun = one.heard if one.heard is not None else one.started
    return 0.0 if begun is None else max(latest - begun, 0.0)


def _step(one: RankState) -> int:
    found = _STEP.search(one.last_line)
    return int(found[1][:15]) if found else 1 << 60
