"""The status of ranks that need attention: failed first, stalled, or ended by others' failure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from rankdeck.model.states import State

if TYPE_CHECKING:
    from rankdeck.model.job import Job


class RankStatus(StrEnum):
    """The status of a rank in addition to its state; the worst first."""

    FIRST = "failed first"
    FAILED = "failed"
    STALLED = "stalled"
    VICTIM = "pulled down"


WORST = tuple(RankStatus)


def standings(job: "Job") -> Mapping[int, RankStatus]:
    """Rank -> status, for ranks that have one."""
    found = {one.rank: RankStatus.FAILED for one in job.ranks if one.state is State.FAILED}
    for stall in job.stalled:
        if stall.kind == "slow":
            continue  # it does not stand still
        stuck = (stall.odd or stall.first) if stall.kind == "all" else stall.ranks
        found |= dict.fromkeys(stuck, RankStatus.STALLED)
    if failure := job.first_failure:
        first = () if failure.rank is None else (failure.rank,)
        found |= dict.fromkeys(failure.victims, RankStatus.VICTIM)
        found |= dict.fromkeys((*first, *failure.tied), RankStatus.FIRST)
    return found
