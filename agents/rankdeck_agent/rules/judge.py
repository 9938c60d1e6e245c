"""Judges the health of a node from its numbers, by the table of
rules, with evidence for each check. Pure.

A threshold has a value to enter and to clear, a time to hold and to
linger, or a window in which growth counts.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Callable, Optional

from rankdeck_agent.rules.derived import Derived, derive_numbers, wanted_devices
from rankdeck_agent.rules.facts import (
    KINDS,
    OTHER,
    Facts,
    Growth,
    Key,
    Memory,
    Number,
    RuleMark,
    Table,
    blind_words,
    describe_limits,
    event_kind,
    name_device,
    name_first_device,
    remember_events,
    split_unread,
)
from rankdeck_agent.rules.levels import Health, Level, Reason
from rankdeck_agent.rules.metric_words import WORDS
from rankdeck_agent.rules.table import BY_METRIC, CHECKS, IDLE_CHECKS, RULES, Rule
from rankdeck_agent.rules.units import write_duration

_GROWTH_ONLY = {rule.part_of for rule in RULES if rule.window} - {
    rule.part_of for rule in RULES if not rule.window
}


@dataclass(frozen=True)
class Covered:
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
    if failed & {"kernel.log", "kernel.events"}:
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


@dataclass(frozen=True)
class CheckResult:
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
        shares = {device: _share(rule, facts, device, n) for device, n in numbers.items()}
        shown = {device: share for device, share in shares.items() if share is not None}
    if not shown:
        return None
    pick = min if rule.below else max
    device = pick(shown, key=lambda name: shown[name])
    return device, shown[device]


def _share(rule: Rule, facts: Facts, device: str, number: float) -> Optional[float]:
    """The number, or its share of another metric if the rule compares that."""
    if not rule.over:
        return number
    by = facts.values.get(rule.over, {}).get(device)
    return number / by if by else None


def coverage_words(health: Health) -> str:
    """`19 of 21 checks judged, 4 do not apply`, and what the agent cannot see."""
    lacking = len(CHECKS) - health.checks
    verb = "does" if lacking == 1 else "do"
    tail = f", {lacking} {verb} not apply" if lacking else ""
    limits = f"; {health.limits}" if health.limits else ""
    return f"{health.evaluated} of {health.checks} checks judged{tail}{limits}"


REASONS = 64
"""Most reasons that a report lists; it counts the others."""
AT_MOST_SHOWN = 5
LASTING = 60.0
"""For a judge that takes only two samples: the seconds that count as passed between them."""
FRESH = Memory()


def assess_node(facts: Facts, memory: Memory = FRESH) -> tuple[Health, Memory]:
    """The health of the node on which this runs, and the memory for the next judgement."""
    happened = remember_events(facts, memory)
    events = tuple(one.reason for one in happened.values())
    if facts.boot and memory.boot and facts.boot != memory.boot:
        memory = Memory(boot=facts.boot, grown=memory.grown, last=memory.last)
    new = apply_rules(facts, derive_numbers(facts), memory)
    covered = cover_checks(facts, memory.settled)
    unread = split_unread(facts.failed, facts.blind, facts.values)
    others = _besides(facts, unread.trouble, len(covered.judged))
    reasons = _worst_each([*new.reasons, *events, *others])
    boot = facts.boot or memory.boot
    kept = Memory(boot, new.marks, new.last, new.grown, happened, new.calm, settled=True)
    level = reasons[0].level if reasons else Level.OK
    counted = len(covered.judged), len(covered.applicable)
    listed = vary_reasons(reasons)[:REASONS]
    more = len(reasons) - len(listed)
    return Health(level, listed, *counted, more, describe_limits(unread.beside)), kept


def combine_health(reported: Health, facts: Facts, memory: Memory) -> tuple[Health, Memory]:
    """The health that an agent reported, plus what only the reader can judge;
    and the memory for the next judgement.

    Uses from `facts` only what the reader knows: silence, clock, peers, SSH, whether
    a job runs, and events that it saw itself.
    """
    happened = remember_events(facts, memory)
    events = tuple(one.reason for one in happened.values())
    silence = _silence(facts)
    if silence:
        # Events stay true while the node is silent.
        theirs = [reason for reason in reported.reasons if is_event(reason.check)]
        reasons = (silence, *sorted((*events, *theirs), key=_worst_first))
        health = Health(Level.UNKNOWN, reasons, 0, reported.checks)
        return health, replace(memory, happened=happened, boot=facts.boot or memory.boot)
    clock = Facts(now=facts.now, skew=facts.skew)
    new = apply_rules(clock, derive_numbers(clock), memory)
    ssh = [Reason("node.ssh", Level.WARN, facts.attach)] if facts.attach else []
    theirs = [r for r in reported.reasons if not (facts.busy and r.check in IDLE_CHECKS)]
    reasons = _worst_each([*theirs, *new.reasons, *events, *(facts.drift or ()), *ssh])
    kept = Memory(facts.boot or memory.boot, marks=new.marks, happened=happened, settled=True)
    level = reasons[0].level if reasons else Level.OK
    return replace(reported, level=level, reasons=reasons), kept


def as_lasting(memory: Memory) -> Memory:
    """The memory as if conditions that held in both of two samples had held for LASTING seconds."""
    marks = {
        key: replace(mark, began=mark.began - LASTING)
        if mark.held > mark.began and not mark.fired
        else mark
        for key, mark in memory.marks.items()
    }
    return replace(memory, marks=marks)


def _silence(facts: Facts) -> Optional[Reason]:
    why = facts.attach or "the node, its network or its agent may be down · try to log in"
    if not facts.up:
        text = f"the agent has gone · {why}"
    elif facts.heard_s is None:
        text = facts.attach or "not heard yet · waiting for the agent"
    elif facts.heard_s > facts.patience:
        # The time is not counted up in the sentence: it must stay true without being written again.
        text = f"silent for more than {write_duration(facts.patience)} · {why}"
    else:
        return None
    since = None if facts.heard_s is None else facts.now - facts.heard_s
    return Reason("node.silent", Level.UNKNOWN, text, since=since)


def _besides(facts: Facts, trouble: Mapping[str, str], judged: int) -> list[Reason]:
    """Reasons that come from no threshold."""
    found = [_unread(trouble)] if trouble else []
    if not facts.values or not judged:
        text = (
            "no check could be judged · the node sends no number that is known · look at its agent"
        )
        found.append(Reason("node.coverage", Level.UNKNOWN, text))
    return found


def _unread(failed: Mapping[str, str]) -> Reason:
    """One reason for all that should have been read and was not."""
    alike: dict[str, list[str]] = {}
    for key, why in failed.items():
        alike.setdefault(why, []).append(key)
    shown = list(alike.items())[:AT_MOST_SHOWN]
    named = [f"{name_device(keys[0])} ({name_first_device(keys)}): {why}" for why, keys in shown]
    more = len(alike) - len(named)
    text = "cannot read " + "; ".join(named)
    text += f"; and {more} other errors" if more > 0 else ""
    return Reason(
        "agent.reads",
        Level.UNKNOWN,
        f"{text} · its checks are not judged · look at what the error names",
    )


def _worst_each(reasons: Sequence[Reason]) -> tuple[Reason, ...]:
    """The worst reason of each check and device, worst first."""
    if not reasons:
        return ()
    kept: dict[tuple[str, str], Reason] = {}
    for reason in reasons:
        key = (reason.check, reason.device)
        other = kept.get(key)
        if other is None or reason.level > other.level:
            kept[key] = reason
    return tuple(sorted(kept.values(), key=_worst_first))


def vary_reasons(reasons: Sequence[Reason]) -> tuple[Reason, ...]:
    """Worst first; within a level, the first reason of each check,
    then the second of each, and so on.

    Whoever cuts this list at its end loses the mildest: twelve full disks do not hide a lost GPU.
    """
    nth: Counter[tuple[Level, str]] = Counter()
    ranked: list[tuple[int, int, Reason]] = []
    for reason in reasons:
        nth[reason.level, reason.check] += 1
        ranked.append((-reason.level, nth[reason.level, reason.check], reason))
    return tuple(reason for *_, reason in sorted(ranked, key=lambda one: one[:2]))


def _worst_first(reason: Reason) -> tuple[int, str, str]:
    """A sort key that does not depend on the order in which metrics came."""
    return -reason.level, reason.check, reason.device


# ---- thresholds


BUCKETS = 24
"""Parts of a window in which growth is kept; the oldest part is dropped as a whole."""

_COUNTED = tuple(
    (metric, tuple(each for each in rows if each[1].window))
    for metric, rows in BY_METRIC.items()
    if any(rule.window for _, rule in rows)
)


@dataclass(frozen=True)
class _Gauge:
    """The rules that compare a metric's value (not its growth), and the
    range in which none of them can hold.
    """

    rows: tuple[tuple[int, Rule], ...]
    floor: float
    """No row with an upper threshold holds below this."""
    ceiling: float
    """No row with a lower threshold holds above this."""
    shared: Optional[Rule] = None
    """The first row that judges a share of another metric; None if there is none."""


def _gauge(rows: tuple[tuple[int, Rule], ...]) -> _Gauge:
    up = [min(rule.enter, rule.clear) for _, rule in rows if not rule.below]
    down = [max(rule.enter, rule.clear) for _, rule in rows if rule.below]
    return _Gauge(
        rows,
        min(up, default=float("inf")),
        max(down, default=float("-inf")),
        next((rule for _, rule in rows if rule.over), None),
    )


_PLAIN = {
    metric: tuple(each for each in rows if not each[1].window) for metric, rows in BY_METRIC.items()
}
_GAUGES: Mapping[str, _Gauge] = {metric: _gauge(rows) for metric, rows in _PLAIN.items() if rows}


@dataclass(frozen=True)
class StepResult:
    """The result of `apply_rules`: the reasons of the rules, and what to remember."""

    reasons: Sequence[Reason]
    marks: Mapping[Key, RuleMark]
    last: Table
    grown: Mapping[Key, Growth]
    calm: Table


def apply_rules(facts: Facts, derived: Derived, memory: Memory) -> StepResult:
    """Apply all rules: the reasons, and the marks, newest readings and growth to remember."""
    last, grown = _grown(facts, memory)
    marks, calm = _gauged(facts, derived, memory)
    if grown or memory.marks:
        totals = {key: sum(n for _, n in growth) for key, growth in grown.items()}
        marks.update(_counted(totals, memory.marks, facts.now))
    reasons = [_reason(key, mark) for key, mark in marks.items() if mark.fired]
    return StepResult(reasons, marks, last, grown, calm)


def _gauged(facts: Facts, derived: Derived, memory: Memory) -> tuple[dict[Key, RuleMark], Table]:
    """Marks of the rules that compare a value (not its growth), and the
    metrics for which no row can hold.
    """
    marks: dict[Key, RuleMark] = {}
    calm: dict[str, Mapping[str, Number]] = {}
    before = memory.marks
    marked = {RULE_OF[row].metric for row, _ in before}
    for metric in dict.fromkeys((*facts.values, *derived.values)):
        gauge = _GAUGES.get(metric)
        numbers = facts.values.get(metric) or derived.values.get(metric)
        if gauge is None or not numbers:
            continue
        # The same object as the last time: nothing has changed.
        quiet = memory.calm.get(metric) is numbers or _quiet(gauge, numbers, facts)
        if quiet and not gauge.shared:
            calm[metric] = numbers
        if quiet:
            # If nothing can hold, only devices that were marked before must be looked at.
            numbers = _among(gauge, numbers, before) if metric in marked else None
        if numbers:
            marks.update(_marked(gauge, numbers, facts, derived, before))
    if before:
        marks.update(_lingering(facts, derived, before, marks))
    return marks, calm


def _marked(
    gauge: _Gauge,
    numbers: Mapping[str, Number],
    facts: Facts,
    derived: Derived,
    before: Mapping[Key, RuleMark],
) -> Iterator[tuple[Key, RuleMark]]:
    """Marks of the rows of one metric."""
    for row, rule in gauge.rows:
        for device, number in numbers.items():
            shown = _shown(rule, facts, device, number)
            tell = partial(_tell, rule, facts, derived, device)
            mark = _next(rule, shown, tell, before.get((row, device)), facts.now)
            if mark:
                yield (row, device), mark


def _quiet(gauge: _Gauge, numbers: Mapping[str, Number], facts: Facts) -> bool:
    """Whether no row can hold for any device; cheaper than checking each of them."""
    low, high = min(numbers.values()), max(numbers.values())
    if gauge.shared is None:
        return high < gauge.floor and low > gauge.ceiling
    by = facts.values.get(gauge.shared.over)
    if not by or (gauge.shared.only and _excluded(gauge.shared.only, facts)):
        return True
    least = min(by.values())
    if low < 0 or least <= 0:
        return False
    return high / least < gauge.floor and low / max(by.values()) > gauge.ceiling


def _excluded(only: tuple[str, float, float], facts: Facts) -> bool:
    """Whether no device fulfils the condition `only` of a rule."""
    metric, least, most = only
    others = facts.values.get(metric)
    if not others:
        return True
    return max(others.values()) < least or min(others.values()) > most


def _counted(
    totals: Mapping[Key, Number], before: Mapping[Key, RuleMark], now: float
) -> dict[Key, RuleMark]:
    """Marks of the rules that compare growth within a window."""
    marks: dict[Key, RuleMark] = {}
    for key in (*totals, *(k for k in before if RULE_OF[k[0]].window and k not in totals)):
        rule = RULE_OF[key[0]]
        tell = partial(rule.say, key[1])
        mark = _next(rule, totals.get(key, 0), tell, before.get(key), now)
        if mark:
            marks[key] = mark
    return marks


def _among(
    gauge: _Gauge, numbers: Mapping[str, Number], before: Mapping[Key, RuleMark]
) -> Mapping[str, Number]:
    """The numbers of devices that some row has marked."""
    rows = {row for row, _ in gauge.rows}
    marked = {device for row, device in before if row in rows}
    return {device: n for device, n in numbers.items() if device in marked}


def _lingering(
    facts: Facts, derived: Derived, before: Mapping[Key, RuleMark], marks: Mapping[Key, RuleMark]
) -> dict[Key, RuleMark]:
    """Fired marks of devices that are no longer reported, kept while their rule lingers."""
    kept: dict[Key, RuleMark] = {}
    for (row, device), mark in before.items():
        rule = RULE_OF[row]
        if rule.window or not mark.fired or (row, device) in marks:
            continue
        numbers = facts.values.get(rule.metric) or derived.values.get(rule.metric) or {}
        if device not in numbers and facts.now - mark.held < rule.linger:
            kept[row, device] = mark
    return kept


RULE_OF = {row: rule for rows in BY_METRIC.values() for row, rule in rows}
"""Row in RULES -> rule."""


def _reason(key: Key, mark: RuleMark) -> Reason:
    rule = RULE_OF[key[0]]
    return Reason(rule.check, rule.level, mark.text, key[1], mark.began)


def _shown(rule: Rule, facts: Facts, device: str, number: Number) -> Optional[float]:
    """What to compare: the number, or its share of another metric;
    None if it must not be judged now.
    """
    if rule.unless and facts.values.get(rule.unless, {}).get(device, 0) > 0:
        return None
    if rule.only is not None:
        metric, least, most = rule.only
        other = facts.values.get(metric, {}).get(device)
        if other is None or not least <= other <= most:
            return None
    return _share(rule, facts, device, number)


def _tell(rule: Rule, facts: Facts, derived: Derived, device: str, shown: Number) -> str:
    """The sentence of a rule; its {note} is the derived one, or `17 of 18` for a share."""
    if not rule.over:
        note = derived.notes.get((rule.metric, device), "")
    else:
        part, whole = (
            facts.values.get(name, {}).get(device, 0) for name in (rule.metric, rule.over)
        )
        note = f"{part:g} of {whole:g}"
    return rule.say(device, shown, note)


def _next(
    rule: Rule,
    number: Optional[float],
    tell: Callable[[Number], str],
    mark: Optional[RuleMark],
    now: float,
) -> Optional[RuleMark]:
    """The mark of one rule and device after this reading; None if nothing holds or lingers."""
    before = mark is not None and mark.fired
    if number is not None and rule.holds(number, before):
        began = mark.began if mark else now
        on = before or now - began >= rule.hold
        return RuleMark(began, now, on, tell(number) if on else "")
    if mark and before and now - mark.held < rule.linger:
        return mark
    return None


# ---- windows


def _grown(facts: Facts, memory: Memory) -> tuple[Table, Mapping[Key, Growth]]:
    """The newest readings of counters, and how much they grew within their windows."""
    last: dict[str, Mapping[str, Number]] = {}
    grown = dict(memory.grown) if memory.grown else {}
    for metric, rows in _COUNTED:
        before = memory.last.get(metric)
        numbers = facts.values.get(metric, before)
        if numbers is None:
            continue
        last[metric] = numbers
        # Readings are mostly equal: this is one comparison for all devices.
        if before is not None and before is not numbers and before != numbers:
            for each in rows:
                _count(each, before, numbers, facts, grown)
    return last, _fresh(grown, facts.now) if grown else grown


def _fresh(grown: Mapping[Key, Growth], now: float) -> dict[Key, Growth]:
    """The growth, without what is older than its window."""
    kept: dict[Key, Growth] = {}
    for key, growth in grown.items():
        window = RULE_OF[key[0]].window
        fresh = tuple(one for one in growth if now - one[0] <= window)
        if fresh:
            kept[key] = fresh
    return kept


def _count(
    each: tuple[int, Rule],
    before: Mapping[str, Number],
    numbers: Mapping[str, Number],
    facts: Facts,
    grown: dict[Key, Growth],
) -> None:
    """Add what grew since the last reading to `grown`, unless the
    rule's grace after boot has not passed.
    """
    row, rule = each
    if rule.grace and facts.uptime is not None and facts.uptime < rule.grace:
        return
    for device, number in numbers.items():
        old = before.get(device)
        if old is None:
            continue
        more = old - number if rule.falls else number - old
        if more > 0:
            grown[row, device] = _bucketed(
                grown.get((row, device), ()), facts.now, more, rule.window / BUCKETS
            )


def _bucketed(growth: Growth, now: float, more: Number, width: float) -> Growth:
    if growth and now - growth[-1][0] < width:
        at, number = growth[-1]
        return (*growth[:-1], (at, number + more))
    return (*growth, (now, more))
