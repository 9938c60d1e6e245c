"""What ranks for which the others wait cost a job: by the others' waits, and by the counters of CPU
quotas. No I/O.
"""

from collections.abc import Mapping, Sequence
from statistics import median

from rankdeck.model.job import Job
from rankdeck.model.rank import Activity
from rankdeck.model.stall import Price, Stall
from rankdeck.rules.stragglers import LEAST
from rankdeck.values import replace
from rankdeck_agent.rules.units import write_duration

_POLLS = 0.97
"""A rank that wants a core for this share of the time works all of it, or polls: its waits cannot
be seen.
"""
_LITTLE = 0.05
"""Ranks that cost less than this share of the time are not told: the prediction is not better."""
_MOST = 0.98
GpuClock = tuple[float, float, bool]
"""(clock of a rank's GPU, the usual one of the others in Hz, whether the power brake holds it)."""


def price_stalls(
    job: Job,
    stalls: Sequence[Stall],
    looks: Mapping[int, Sequence[Activity]],
    now: float,
    clocks: Mapping[int, GpuClock],
) -> tuple[Stall, ...]:
    """The stalls, those of slow ranks with their price where it can be known, and without those
    that cost next to nothing.

    `looks`: rank -> what it did in the last minute; `clocks`: rank -> its GPU's clock, if low.
    """
    shares = [lost_share(one.ranks, looks) if one.kind == "slow" else None for one in stalls]
    return tuple(
        _priced(job, stall, share, now, clocks) if stall.kind == "slow" else stall
        for stall, share in zip(stalls, shares, strict=True)
        if share is None or share >= _LITTLE
    )


def _priced(
    job: Job,
    stall: Stall,
    share: float | None,
    now: float,
    clocks: Mapping[int, GpuClock],
) -> Stall:
    since = min([stall.since, *(one.since for one in job.stalled if _is_same(one, stall))])
    text, price = stall.text, None
    if share is not None:
        ran = max(now - job.created, 0.0)
        price = Price(share, share / (1 - share), share * min(max(now - since, 0.0), ran))
        makes = "it makes" if len(stall.ranks) == 1 else "they make"
        text += (
            f"; {makes} every step about {100 * price.longer:.0f} % longer: {write_duration(price.seconds)}"
            f" of the {write_duration(ran)} that this job has run"
        )
    held = [clocks[rank] for rank in stall.ranks if rank in clocks]
    if len(stall.ranks) == 1 and held:
        mine, usual, brake = held[0]
        text += f"; its GPU is at {mine / 1e6:,.0f} of {usual / 1e6:,.0f} MHz"
        text += " (power brake)" if brake else ""
    return replace(stall, since=since, text=text, price=price)


def _is_same(one: Stall, other: Stall) -> bool:
    return one.kind == other.kind and one.ranks == other.ranks


def lost_share(ranks: Sequence[int], looks: Mapping[int, Sequence[Activity]]) -> float | None:
    """The share of the time that these ranks cost all others; None if that cannot be known.

    Without what holds them back, a step would be shorter by as much as they work longer than the
    busiest of the others: by the share of the time in which their first threads run or wait for a
    core or, where the kernel counts it, for a disk, if ranks sleep while they wait for each other.
    If they poll, only a CPU quota tells: it takes the time in which it held a rank back. A rank
    that rests (a timer, a disk that nobody counts) while the others wait costs at most all of their
    wait.
    """
    recent = {rank: some[-LEAST:] for rank, some in looks.items() if len(some) >= LEAST}
    slow = [recent[rank] for rank in ranks if rank in recent]
    others = [recent[rank] for rank in recent if rank not in ranks]
    if len(slow) < len(ranks) or not others:
        return None
    quotas = [_median([look.held for look in some]) for some in slow]
    work = [_median(list(map(_own_share, some))) for some in slow]
    by_quota = 0.0 if None in quotas else min(one or 0.0 for one in quotas)
    # The busiest of each moment sets the pace, and that may be another one each time.
    busiest = _median([_busiest(moment) for moment in zip(*others, strict=False)])
    busiest = None if None in work else busiest
    if busiest is None or busiest >= _POLLS:
        return min(by_quota, _MOST) or None
    own = max((one or 0.0) + (held or 0.0) for one, held in zip(work, quotas, strict=True))
    by_waits = (min(own, 1.0) if own > busiest else 1.0) - busiest
    if max(by_quota, by_waits) >= _MOST:  # no step was seen that could be shorter
        return None
    # A quota that hardly holds it is not why the others wait.
    return min(by_quota if 2 * by_quota >= by_waits else by_waits, by_waits, _MOST)


def _busiest(looks: Sequence[Activity]) -> float | None:
    own = [*map(_own_share, looks)]
    return None if None in own else max(one or 0.0 for one in own)


def _own_share(look: Activity) -> float | None:
    """The share of the time in which it waits for no other rank, as far as it is counted."""
    return None if look.wants is None else min(look.wants + (look.blocked or 0.0), 1.0)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if 2 * len(known) > len(values) else None


def low_clocks(gpus: Mapping[int, tuple[float, bool]]) -> dict[int, GpuClock]:
    """Rank -> its GPU's clock, if it is a tenth below the usual one; from rank -> (clock in Hz,
    whether the power brake holds it).
    """
    if len(gpus) < 3:
        return {}
    usual = median(clock for clock, _ in gpus.values())
    return {
        rank: (clock, usual, brake) for rank, (clock, brake) in gpus.items() if clock < 0.9 * usual
    }
