"""Which of the 25 checks apply to a node, and which could be judged."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from rankdeck_agent.names import LOG_CLOSED
from rankdeck_agent.rules.derive import wanted
from rankdeck_agent.rules.facts import Facts
from rankdeck_agent.rules.table import CHECKS, RULES, Check

ALWAYS = frozenset({"node.skew", "node.like"})
"""Needs that the judge meets itself."""
_METRICS = {
    check.number: frozenset(
        name for rule in RULES if rule.part_of == check.number for name in (rule.metric,)
    )
    for check in CHECKS
}
_GROWTH_ONLY = frozenset(
    check.number
    for check in CHECKS
    if (mine := [r for r in RULES if r.part_of == check.number])
    and all(rule.window for rule in mine)
)


def limits(failed: Mapping[str, str]) -> str:
    """What was not read for want of a permission, and what to do; "" where that is nothing.

    One of our own sentences: what else a node says there is an error as any other.
    """
    why = failed.get("kernel.events", "")
    return why if why in LOG_CLOSED.values() else ""


@dataclass(frozen=True)
class Covered:
    """Check numbers: which apply to the node, and which of them could be judged."""

    applicable: frozenset[int]
    judged: frozenset[int]


def cover(facts: Facts, settled: bool) -> Covered:
    """What can be said about a node that sends this. `settled`: growth can be told."""
    there = set[str]()
    if facts.skew is not None:
        there.add("node.skew")
    if facts.drift is not None or facts.expected.other:
        there.add("node.like")
    owed = frozenset(
        number for number, key in ((2, "gpu_count"), (7, "rdma_count")) if wanted(facts, key)
    )
    return _cover(
        frozenset((*facts.values, *there)),
        facts.absent,
        frozenset(key.partition("/")[0] for key in facts.failed),
        owed,
        settled,
    )


@lru_cache(maxsize=256)
def _cover(
    there: frozenset[str],
    absent: frozenset[str],
    failed: frozenset[str],
    owed: frozenset[int],
    settled: bool,
) -> Covered:
    applicable: set[int] = set()
    judged: set[int] = set()
    for check in CHECKS:
        if check.number not in owed and all(need in absent for need in check.needs):
            continue
        applicable.add(check.number)
        seen = any(need in there for need in check.needs) or (
            check.number in owed and all(need in absent for need in check.needs)
        )
        if seen and (settled or check.number not in _GROWTH_ONLY):
            judged.add(check.number)
    if failed & {"kernel.log", "kernel.events"}:
        judged.discard(4)
    return Covered(frozenset(applicable), frozenset(judged))


def by_number(covered: Covered) -> Mapping[int, tuple[Check, bool, bool]]:
    """Every check with whether it applies and whether it was judged."""
    return {
        check.number: (
            check,
            check.number in covered.applicable,
            check.number in covered.judged,
        )
        for check in CHECKS
    }
