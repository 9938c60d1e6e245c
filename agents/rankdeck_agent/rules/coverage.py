"""The checks of a node: which of them could be judged, each with its result and evidence."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Optional

from rankdeck_agent.rules.derived import Derived, wanted_devices
from rankdeck_agent.rules.events import KINDS, OTHER, event_kind
from rankdeck_agent.rules.facts import Facts, Memory
from rankdeck_agent.rules.levels import Health, Level, Reason
from rankdeck_agent.rules.metric_words import WORDS
from rankdeck_agent.rules.table import CHECKS, RULES, Rule
from rankdeck_agent.rules.thresholds import compared_number
from rankdeck_agent.rules.unread import blind_words
from rankdeck_agent.values import Value

_GROWTH_ONLY = {rule.part_of for rule in RULES if rule.window} - {
    rule.part_of for rule in RULES if not rule.window
}


class Covered(Value):
    """Numbers of the checks that apply to the node, and of those that could be judged."""

    applicable: frozenset[int]
    judged: frozenset[int]


def cover_checks(facts: Facts, settled: bool) -> Covered:
    """Which checks apply and can be judged with these facts; `settled`:
    the growth of counters is known too.
    """
    like = ("node.like",) if facts.expected.other else ()
    owed = frozenset(
        number
        for number, key in ((2, "gpu_count"), (7, "rdma_count"))
        if wanted_devices(facts, key)
    )
    return _cover(
        frozenset((*facts.values, *like)),
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
    if (failed & {"kernel.log", "kernel.events"}) or "kernel.events" in absent:
        judged.discard(4)
    return Covered(frozenset(applicable), frozenset(judged))


_PART_OF = {
    **{rule.check: rule.part_of for rule in RULES},
    "drift": 25,
    "agent.reads": 1,
    "node.ssh": 1,
    "node.silent": 1,
    "node.coverage": 1,
}


class CheckResult(Value):
    """The result of one check for a node."""

    number: int
    name: str
    title: str
    state: str
    """ok, warn, bad, unknown (not judged), or "n/a": does not apply to this node."""
    evidence: str = ""
    reasons: tuple[Reason, ...] = ()


def check_number(check: str) -> int:
    """The number of the check that a reason belongs to."""
    return _PART_OF.get(check) or event_kind(check).part_of


def is_event(check: str) -> bool:
    """Whether reasons of this check come from events, not from the current state."""
    return check not in _PART_OF and event_kind(check) is not OTHER


def check_names() -> tuple[str, ...]:
    """All names of checks that a reason can have; an event may have a
    longer name that begins with one of them.
    """
    return tuple(dict.fromkeys((*_PART_OF, *KINDS)))


def is_check(name: str) -> bool:
    """Whether a reason can have this name."""
    return name in _PART_OF or event_kind(name) is not OTHER


def explain_checks(
    facts: Facts, derived: Derived, memory: Memory, covered: Covered, reasons: Sequence[Reason]
) -> tuple[CheckResult, ...]:
    """The result of each check, in their order."""
    mine: dict[int, list[Reason]] = {}
    for reason in reasons:
        mine.setdefault(check_number(reason.check), []).append(reason)

    found: list[CheckResult] = []
    for check in CHECKS:
        number = check.number
        why = tuple(mine.get(number, ()))
        state = _state(why, number in covered.applicable, number in covered.judged)
        parts = (*_evidence(number, facts, derived, memory), blind_words(facts.blind, number))
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
    """For each metric that the check reads: its device, the metric in
    words, the worst value and the threshold.
    """
    metrics: set[str] = set()
    for row, rule in enumerate(RULES):
        if rule.part_of != number or rule.metric in metrics:
            continue
        worst = _worst(row, rule, facts, derived, memory)
        if worst is None:
            continue
        metrics.add(rule.metric)

        device, value = worst
        name = f"GPU {device}" if rule.metric.startswith("gpu.") and device.isdigit() else device
        where = f"{name}: " if name else ""
        sign = "≤" if rule.below else "≥"
        span = f" {rule.span}" if rule.span else ""
        yield (
            f"{where}{WORDS[rule.metric]} {_amount(rule, value)}{span} "
            f"({rule.level.word} {sign} {_amount(rule, rule.enter)}{rule.held})"
        )


def _amount(rule: Rule, number: float) -> str:
    """The number as the rule writes it; a share in percent, with
    digits enough to tell 99.9 from 100.
    """
    return f"{number * 100:.3g}% of {WORDS[rule.over]}" if rule.over else rule.write(number)


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
        shares = {device: compared_number(rule, facts, device, n) for device, n in numbers.items()}
        shown = {device: share for device, share in shares.items() if share is not None}

    if not shown:
        return None
    pick = min if rule.below else max
    device = pick(shown, key=lambda name: shown[name])
    return device, shown[device]


def coverage_words(health: Health) -> str:
    """`19 of 21 checks judged, 4 do not apply`, and what the agent cannot see."""
    lacking = len(CHECKS) - health.checks
    verb = "does" if lacking == 1 else "do"
    tail = f", {lacking} {verb} not apply" if lacking else ""
    limits = f"; {health.limits}" if health.limits else ""
    return f"{health.evaluated} of {health.checks} checks judged{tail}{limits}"
