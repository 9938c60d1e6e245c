"""The health report of a node: made from a judgement, shortened to fit a
message, and turned back into a `Health`.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache

from rankdeck_agent.rules.coverage import Covered
from rankdeck_agent.rules.events import KINDS, event_kind
from rankdeck_agent.rules.facts import Facts, Growth, Key, Memory
from rankdeck_agent.rules.levels import (
    NODE_MORE,
    SUMMARY,
    Expected,
    Health,
    Level,
    Reason,
    Sentence,
    differs_from_sent,
)
from rankdeck_agent.rules.table import CHECKS, RULES, Rule
from rankdeck_agent.rules.thresholds import RULE_OF
from rankdeck_agent.values import Value, replace
from rankdeck_agent.wire import (
    BARE_LIMIT,
    REPORT_LIMIT,
    HealthReport,
    Number,
    ReasonRow,
    encode_message,
)

_CLOCK, _DRIFT = (
    next(check.number for check in CHECKS if check.needs == needs)
    for needs in (("node.skew",), ("node.like",))
)
_ACTIONS = {(rule.check, rule.level): Sentence.of(rule.text)[1:] for rule in reversed(RULES)}


def expectations_fingerprint(expected: Expected) -> str:
    """Eight hex digits, a checksum of the expectations; "" if nothing is expected."""
    values = [expected.gpus, expected.rdma, expected.interface, sorted(expected.other.items())]
    if not any(values):
        return ""
    return f"{zlib.crc32(json.dumps(values).encode()):08x}"


class JudgedSample(Value):
    """All that an agent knows after it has judged a sample."""

    facts: Facts
    memory: Memory
    health: Health
    covered: Covered
    numbers: Mapping[str, float]


def build_health_report(one: JudgedSample, heartbeat: float) -> HealthReport:
    """The whole judgement, as sent within a sample; `heartbeat` in seconds."""
    failed = {key.partition("/")[0] for key in one.facts.failed}
    return HealthReport(
        at=one.facts.at,
        level=int(one.health.level),
        heartbeat=heartbeat,
        applies=_bits(one.covered.applicable),
        judged=_bits(one.covered.judged),
        reasons=tuple(_row(reason, one.facts.now) for reason in one.health.reasons),
        numbers=one.numbers,
        failed=tuple(m for m in SUMMARY if m in failed and m not in one.numbers),
        expect=expectations_fingerprint(one.facts.expected),
        more=one.health.more,
        limits=one.health.limits,
        grown=_totals(one.memory),
    )


def _bits(numbers: frozenset[int]) -> int:
    return sum(1 << number for number in numbers)


def _row(reason: Reason, now: float) -> ReasonRow:
    held = None if reason.since is None else round(max(0.0, now - reason.since), 1)
    return reason.check, int(reason.level), reason.device, held, reason.text


_TEXT_ROOM = 160
"""Bytes that each listed reason has for its text; longer texts share what is left."""
_HELD_LONGEST = 1e9
"""A duration as long as any, in seconds: takes the room that all have."""


def shorten_report(whole: HealthReport) -> HealthReport:
    """The report in at most REPORT_LIMIT bytes: without its last reasons, which
    are the mildest, or the ends of texts.

    How many reasons are listed does not depend on numbers that change with
    each reading, so that none comes and goes.
    """
    bare = replace(whole, reasons=(), limits="", grown={})
    listed = _fitting(whole.reasons, REPORT_LIMIT - BARE_LIMIT)
    rows = [(*row[:4], _clipped(row[4])) for row in listed]
    room = REPORT_LIMIT - max(BARE_LIMIT, len(encode_message(bare))) - sum(map(_size, rows))

    for cut in (_seen, str):  # what was seen, then all
        for place, row in enumerate(rows):
            longer = (*row[:4], cut(listed[place][4]))
            more = _size(longer) - _size(row)
            if 0 < more <= room:
                rows[place], room = longer, room - more

    unlisted = whole.more + len(whole.reasons) - len(rows)
    return replace(bare, reasons=tuple(rows), more=unlisted)


def _fitting(reasons: Sequence[ReasonRow], room: int) -> Sequence[ReasonRow]:
    """The first of these reasons that fit, each with _TEXT_ROOM bytes for its text."""
    for place, (check, level, device, _, _) in enumerate(reasons):
        room -= _size((check, level, device, _HELD_LONGEST, "")) + _TEXT_ROOM
        if room < 0:
            return reasons[:place]
    return reasons


def _clipped(text: str) -> str:
    """What was seen, in at most _TEXT_ROOM bytes; "…" where its end is missing."""
    seen = _seen(text)
    if _encoded(seen) <= _TEXT_ROOM:
        return seen
    while _encoded(seen) > _TEXT_ROOM - _encoded("…"):
        seen = seen[:-1]
    return f"{seen}…"


def _seen(text: str) -> str:
    return Sentence.of(text).seen


def _encoded(value: object) -> int:
    """Bytes of the value in a message."""
    return len(
        json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    )


def _size(row: ReasonRow) -> int:
    """Bytes of an encoded reason and the comma after it."""
    return _encoded(row) + 1


def is_news(before: HealthReport, now: HealthReport) -> bool:
    """Whether `now` differs from `before`, the last message, in what is shown about the node.

    Texts of reasons are not compared: the numbers in them change with every reading.
    """
    same = ("level", "applies", "judged", "failed", "expect")
    if any(getattr(before, name) != getattr(now, name) for name in same):
        return True
    if [row[:3] for row in before.reasons] != [row[:3] for row in now.reasons]:
        return True
    metrics = {*before.numbers, *now.numbers}
    return any(differs_from_sent(m, before.numbers.get(m), now.numbers.get(m)) for m in metrics)


# ---- and back


_NO_ROOM = "the message of its agent has no room for them · open the node to see them"


def health_of(report: HealthReport, arrived: float) -> Health:
    """The health that a report describes; `arrived` is when it came in, on the reader's clock."""
    level = Level(report.level)
    reasons = [_reason(row, arrived) for row in report.reasons]
    worst = max((reason.level for reason in reasons), default=Level.OK)
    if report.more or worst is not level:
        of = level if worst is not level else reasons[-1].level
        reasons.append(
            Reason(
                NODE_MORE,
                of,
                f"{report.more} more reason{'s' if report.more != 1 else ''} · {_NO_ROOM}",
            )
        )
    reasons.sort(key=lambda reason: -reason.level)
    counted = len(check_numbers_in(report.judged)), len(check_numbers_in(report.applies))
    return Health(level, tuple(reasons), *counted, report.more, report.limits)


@lru_cache(maxsize=512)
def check_numbers_in(bits: int) -> frozenset[int]:
    """The numbers of the checks whose bits are set."""
    return frozenset(check.number for check in CHECKS if bits >> check.number & 1)


def covered_by(report: HealthReport, facts: Facts) -> Covered:
    """Which checks apply and were judged: by the agent, and by the reader
    those that need the fleet (clock, peers).
    """
    ours = {_CLOCK} if facts.skew is not None else set[int]()
    ours |= {_DRIFT} if facts.drift is not None else set()
    applies = check_numbers_in(report.applies)
    return Covered(applies, (check_numbers_in(report.judged) | ours) & applies)


def memory_from_report(report: HealthReport, now: float) -> Memory:
    """The part of the agent's memory that is needed for evidence: the growth of counters."""
    grown: dict[Key, Growth] = {}
    for row, rule in RULE_OF.items():
        for device, total in report.grown.get(_window(rule), {}).items():
            grown[row, device] = ((now, total),)
    return Memory(grown=grown)


def _totals(memory: Memory) -> dict[str, dict[str, Number]]:
    found: dict[str, dict[str, Number]] = {}
    for (row, device), growth in memory.grown.items():
        total = sum(number for _, number in growth)
        found.setdefault(_window(RULE_OF[row]), {})[device] = total
    return found


def _window(rule: Rule) -> str:
    """Metric and window, as a key that does not depend on row
    numbers: those differ between versions.
    """
    return f"{rule.metric}/{rule.window:g}{'/falls' if rule.falls else ''}"


def _reason(row: ReasonRow, arrived: float) -> Reason:
    check, number, device, held, text = row
    level = Level(number)
    since = None if held is None else arrived - held
    return Reason(check, level, _completed(check, level, device, text), device, since)


def _completed(check: str, level: Level, device: str, text: str) -> str:
    """The whole sentence; parts that did not fit into the message are
    taken from this version's tables.
    """
    parts = Sentence.of(text)
    if parts.means or parts.action:
        return text
    seen = parts.seen or (f"{check} of {device}" if device else check)
    kind = event_kind(check)
    known = (kind.means, kind.do) if check in KINDS else ("", "")
    return str(Sentence(seen, *_ACTIONS.get((check, level), known)))
