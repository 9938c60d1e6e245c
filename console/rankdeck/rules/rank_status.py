"""Which ranks want to be looked at, and why: who failed first, who stands still, who was only pulled down."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from rankdeck.model.states import State

if TYPE_CHECKING:
    from rankdeck.model.job import Job


class Standing(StrEnum):
    """What there is to know of a rank beyond its state; the worst first."""

    FIRST = "failed first"
    FAILED = "failed"
    STALLED = "stalled"
    VICTIM = "pulled down"


WORST = tuple(Standing)


def standings(job: "Job") -> Mapping[int, Standing]:
    """Rank -> standing, for those that have one."""
    found = {one.rank: Standing.FAILED for one in job.ranks if one.state is State.FAILED}
    for stall in job.stalled:
        if stall.kind == "slow":
            continue  # it does not stand still
        stuck = (stall.odd or stall.first) if stall.kind == "all" else stall.ranks
        found |= dict.fromkeys(stuck, Standing.STALLED)
    if failure := job.first_failure:
        first = () if failure.rank is None else (failure.rank,)
        found |= dict.fromkeys(failure.victims, Standing.VICTIM)
        found |= dict.fromkeys((*first, *failure.tied), Standing.FIRST)
    return found
