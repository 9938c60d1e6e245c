"""Every check of a node with its evidence: value, threshold, since when."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Optional

from rankdeck_agent.rules.facts import KINDS, OTHER, Derived, Facts, Memory, blind, kind_of, wanted
from rankdeck_agent.rules.levels import Health, Level, Reason
from rankdeck_agent.rules.table import CHECKS, RULES, HealthCheck, Rule

ALWAYS = frozenset({"node.skew", "node.like"})
"""Inputs that the judge always has."""
_GROWTH_ONLY = frozenset(
    check.number
    for check in CHECKS
    if (mine := [r for r in RULES if r.part_of == check.number])
    and all(rule.window for rule in mine)
)


@dataclass(frozen=True)
class Covered:
    """Check numbers: which apply to the node, and which of them could be judged."""

    applicable: frozenset[int]
    judged: frozenset[int]


def cover(facts: Facts, settled: bool) -> Covered:
    """Which checks apply and can be judged with these facts. `settled`: growth is known too."""
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


def by_number(covered: Covered) -> Mapping[int, tuple[HealthCheck, bool, bool]]:
    """Every check with whether it applies and whether it was judged."""
    return {
        check.number: (check, check.number in covered.applicable, check.number in covered.judged)
        for check in CHECKS
    }


_PART_OF = {rule.check: rule.part_of for rule in RULES} | {
    "drift": 25,
    "agent.reads": 1,
    "node.ssh": 1,
    "node.silent": 1,
    "node.coverage": 1,
}


@dataclass(frozen=True)
class CheckResult:
    """The result of one of the 25 checks for a node."""

    number: int
    name: str
    title: str
    state: str
    """ok, warn, bad, unknown (not judged), or "n/a": does not apply to this node."""
    evidence: str = ""
    reasons: tuple[Reason, ...] = ()


def part_of(check: str) -> int:
    """The number of the check that a reason belongs to."""
    return _PART_OF.get(check) or kind_of(check).part_of


def is_event(check: str) -> bool:
    """Whether reasons of this name are events, not states."""
    return check not in _PART_OF and kind_of(check) is not OTHER


def check_names() -> tuple[str, ...]:
    """Possible names of reasons; an event may add to its name."""
    return tuple(dict.fromkeys((*_PART_OF, *KINDS)))


def is_check(name: str) -> bool:
    """Whether a reason can have this name."""
    return name in _PART_OF or kind_of(name) is not OTHER


def explain(
    facts: Facts, derived: Derived, memory: Memory, covered: Covered, reasons: Sequence[Reason]
) -> tuple[CheckResult, ...]:
    """The 25 checks in their order."""
    mine: dict[int, list[Reason]] = {}
    for reason in reasons:
        mine.setdefault(part_of(reason.check), []).append(reason)
    found: list[CheckResult] = []
    for number, (check, applies, judged) in by_number(covered).items():
        why = tuple(mine.get(number, ()))
        state = _state(why, applies, judged)
        parts = (*_evidence(number, facts, derived, memory), blind(facts.failed, number))
        evidence = "; ".join(filter(None, parts))
        found.append(CheckResult(number, check.name, check.title, state, evidence, why))
    return tuple(found)


def _state(why: Sequence[Reason], applies: bool, judged: bool) -> str:
    worst = max((reason.level for reason in why), default=Level.OK)
    if worst > Level.UNKNOWN or (worst is Level.UNKNOWN and applies):
        return worst.word
    if not applies:
        return "n/a"
    return Level.OK.word if judged else Level.UNKNOWN.word


def _evidence(number: int, facts: Facts, derived: Derived, memory: Memory) -> Iterator[str]:
    """For each number that the check reads: the value nearest to its threshold, and the threshold."""
    said: set[str] = set()
    for row, rule in enumerate(RULES):
        if rule.part_of != number or rule.metric in said:
            continue
        worst = _worst(row, rule, facts, derived, memory)
        if worst is None:
            continue
        said.add(rule.metric)
        device, value = worst
        where = f"[{device}]" if device else ""
        sign = "≤" if rule.below else "≥"
        span = f" {rule.span}" if rule.span else ""
        yield (
            f"{rule.metric}{where} {_amount(rule, value)}{span} "
            f"({rule.level.word} {sign} {_amount(rule, rule.enter)}{rule.held})"
        )


def _amount(rule: Rule, number: float) -> str:
    """As the rule writes it; a share in percent, fine enough to tell 99.9 from 100."""
    return f"{number * 100:.3g}% of {rule.over}" if rule.over else rule.write(number)


def _worst(
    row: int, rule: Rule, facts: Facts, derived: Derived, memory: Memory
) -> Optional[tuple[str, float]]:
    numbers = facts.values.get(rule.metric) or derived.values.get(rule.metric)
    if not numbers:
        return None
    if rule.window:
        shown: Mapping[str, float] = {
            device: sum(n for _, n in memory.grown.get((row, device), ())) for device in numbers
        }
    else:
        shown = {d: v for d, n in numbers.items() if (v := _share(rule, facts, d, n)) is not None}
    if not shown:
        return None
    pick = min if rule.below else max
    device = pick(shown, key=lambda name: shown[name])
    return device, shown[device]


def _share(rule: Rule, facts: Facts, device: str, number: float) -> Optional[float]:
    if not rule.over:
        return number
    by = facts.values.get(rule.over, {}).get(device)
    return number / by if by else None


def coverage_words(health: Health) -> str:
    """`19 of 21 checks judged, 4 do not apply`, and what the agent may not read."""
    lacking = len(CHECKS) - health.checks
    verb = "does" if lacking == 1 else "do"
    tail = f", {lacking} {verb} not apply" if lacking else ""
    limits = f"; {health.limits}" if health.limits else ""
    return f"{health.evaluated} of {health.checks} checks judged{tail}{limits}"
