"""Applies the rules to the numbers of a node. Pure.

A threshold has a value to enter and to clear, a time to hold and to linger, or a window in which
growth counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Callable, Optional

from rankdeck_agent.rules.derived import Derived
from rankdeck_agent.rules.facts import Facts, Growth, Key, Memory, Number, RuleMark, Table
from rankdeck_agent.rules.levels import Reason
from rankdeck_agent.rules.table import BY_METRIC, Rule
from rankdeck_agent.values import Value


def compared_number(rule: Rule, facts: Facts, device: str, number: float) -> Optional[float]:
    """The number, or its share of another metric if the rule compares that."""
    if not rule.over:
        return number
    by = facts.values.get(rule.over, {}).get(device)
    return number / by if by and by >= rule.at_least else None


RULE_OF = {row: rule for rows in BY_METRIC.values() for row, rule in rows}
"""Row in RULES -> rule."""
BUCKETS = 24
"""Parts of a window in which growth is kept; the oldest part is dropped as a whole."""
_COUNTED = tuple(
    (metric, tuple(each for each in rows if each[1].window))
    for metric, rows in BY_METRIC.items()
    if any(rule.window for _, rule in rows)
)


class _Gauge(Value):
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


class StepResult(Value):
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

    fired = ((RULE_OF[row], device, m) for (row, device), m in marks.items() if m.fired)
    reasons = [Reason(rule.check, rule.level, m.text, device, m.began) for rule, device, m in fired]
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
    return compared_number(rule, facts, device, number)


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
        if more <= 0:
            continue
        growth, part = grown.get((row, device), ()), (facts.now, more)
        if growth and facts.now - growth[-1][0] < rule.window / BUCKETS:
            at, so_far = growth[-1]
            growth, part = growth[:-1], (at, so_far + more)
        grown[row, device] = (*growth, part)
