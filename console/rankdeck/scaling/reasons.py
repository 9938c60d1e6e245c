"""Why more ranks stop to pay: what was seen on ranks and nodes, compared with the fewest ranks."""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median

from rankdeck.model.nodeset import fold_nodes
from rankdeck.scaling.study import CurvePoint
from rankdeck.scaling.values import Signs

FULL_CORES = 90.0
"""Percent of its cores from which a node is full."""
FULL_LINK = 0.8
"""Share of the rate of a link from which it is full."""
WAITING, STARVED = 0.25, 0.25
"""Share of the looks in which ranks wait, or lack a core, from which that is a reason."""
MORE = 0.15
"""... if it is so much more than with the fewest ranks."""
COOLED = 0.92
_LEAST_LOOKS = 3


def find_reasons(base: CurvePoint, at: CurvePoint) -> list[str]:
    """Sentences on what was seen at `at` and not at `base`, the surest first; one that says so if
    nothing was.
    """
    before, now = _signs(base), _signs(at)
    found = [*_shared(now, at), *(text for look in _LOOKS for text in look(before, now))]
    if found:
        return found
    if not now or sum(one.looks for one in now) < _LEAST_LOOKS:
        return [
            "the ranks were hardly seen at work (too short, or no telemetry): no reason is known"
        ]
    return [
        "its ranks compute all the time and no node or link is full: memory bandwidth, caches, or MPI that polls"
    ]


def _signs(one: CurvePoint) -> list[Signs]:
    done = [trial.signs for trial in one.trials if trial.numbers]
    return [signs for signs in done if signs != Signs()]


def _mean(several: Sequence[Signs], of: Callable[[Signs], float | None]) -> float | None:
    """The mean over all runs of a point that know it."""
    known = [value for one in several if (value := of(one)) is not None]
    return fmean(known) if known else None


def _held(_: Sequence[Signs], now: Sequence[Signs]) -> Iterator[str]:
    nodes = {node for one in now for node in one.held}
    if nodes:
        yield f"{fold_nodes(nodes)} was held back by heat, power or a CPU quota"


def _slow(_: Sequence[Signs], now: Sequence[Signs]) -> Iterator[str]:
    said = [one.slow for one in now if one.slow]
    if said:
        yield said[0]


def _shared(now: Sequence[Signs], at: CurvePoint) -> Iterator[str]:
    cores = next((one.cores for one in now if one.cores), None)
    if cores and at.point.ranks_per_node > cores:
        yield f"{at.point.ranks_per_node} ranks share the {cores} cores of a node"


def _cores(_: Sequence[Signs], now: Sequence[Signs]) -> Iterator[str]:
    busy, starved = _mean(now, lambda one: one.busy), _mean(now, lambda one: one.starved) or 0.0
    cores = next((one.cores for one in now if one.cores), None)
    if busy is not None and busy >= FULL_CORES:
        of = f"all {cores} cores" if cores else "all cores"
        lacking = (
            f", and ranks lacked one in {starved:.0%} of the looks" if starved >= STARVED else ""
        )
        yield f"{of} of the busiest node are in use ({busy:.0f} %){lacking}"


def _link(_: Sequence[Signs], now: Sequence[Signs]) -> Iterator[str]:
    full = [
        one for one in now if one.traffic and one.link and one.traffic * 8 >= FULL_LINK * one.link
    ]
    if full:
        one = max(full, key=lambda each: each.traffic or 0.0)
        rate, link = (one.traffic or 0.0) * 8 / 1e9, (one.link or 0.0) / 1e9
        yield f"the network is full: {rate:.3g} of {link:.3g} Gb/s on the busiest interface"


def _waits(before: Sequence[Signs], now: Sequence[Signs]) -> Iterator[str]:
    share, usual = _mean(now, lambda one: one.waits), _mean(before, lambda one: one.waits) or 0.0
    if share is not None and share >= WAITING and share >= usual + MORE:
        yield (
            f"its ranks wait in {share:.0%} of the looks ({usual:.0%} with the fewest ranks):"
            " for messages and collectives, or for a rank with more work"
        )


def _clock(before: Sequence[Signs], now: Sequence[Signs]) -> Iterator[str]:
    slow = [one.clock for one in now if one.clock]
    fast = [one.clock for one in before if one.clock]
    if slow and fast and median(slow) < COOLED * median(fast):
        yield f"the cores run at {median(slow) / 1e9:.2f} GHz, at {median(fast) / 1e9:.2f} with the fewest ranks"


_LOOKS = (_held, _slow, _cores, _link, _waits, _clock)
