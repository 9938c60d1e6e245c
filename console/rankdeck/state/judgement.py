"""The health of one node as this console sees it: the agent's
judgement, and what only the console can see.
"""

from collections.abc import Sequence
from operator import attrgetter
from sys import intern
from typing import TYPE_CHECKING

from rankdeck.model.health import REMEMBERED, UNHEARD, Ack, of_reasons
from rankdeck.values import Value, replace
from rankdeck_agent.rules.coverage import CheckResult, Covered, explain_checks, is_event
from rankdeck_agent.rules.derived import derive_numbers
from rankdeck_agent.rules.facts import Facts, Memory
from rankdeck_agent.rules.judge import as_lasting, combine_health
from rankdeck_agent.rules.levels import Expected, Health, Level, Reason, worst_level
from rankdeck_agent.rules.report import (
    covered_by,
    expectations_fingerprint,
    health_of,
    memory_from_report,
)
from rankdeck_agent.rules.table import CHECKS, MINUTE, RULES
from rankdeck_agent.wire import Event, HealthReport

if TYPE_CHECKING:
    from rankdeck.model.scheduler_node import SchedulerNode

JUDGED_AGAIN = Reason(
    "node.remembered",
    Level.UNKNOWN,
    "remembered: its last known state · it is being judged again · wait a minute or two",
)

_NOT_JUDGED = Health(
    Level.UNKNOWN,
    (
        Reason(
            "node.coverage",
            Level.UNKNOWN,
            "no health report · its agent sends numbers and no judgement of them · "
            "look at its agent: another program may publish in its place",
        ),
    ),
    0,
    len(CHECKS),
)
"""The health of a node whose agent has not sent a health report with its newest message."""
_NO_CHECK_JUDGED = Covered(frozenset(check.number for check in CHECKS), frozenset())


def apply_acknowledgements(health: Health, acks: Sequence[Ack], now: float) -> Health:
    """The same reasons, with the acknowledged ones marked and moved to
    the end; `now` is epoch seconds.
    """
    if not acks or not health.reasons:
        return health
    marked = tuple(_marked(reason, acks, now) for reason in health.reasons)
    ordered = tuple(sorted(marked, key=lambda r: r.acknowledged_until is not None))
    return replace(health, level=worst_level(ordered), reasons=ordered)


def _marked(reason: Reason, acks: Sequence[Ack], now: float) -> Reason:
    covering = [ack for ack in acks if ack.covers(reason.check, reason.device, reason.level, now)]
    if not covering:
        return reason
    last = max(covering, key=lambda ack: ack.until)
    return replace(reason, acknowledged_until=last.until, acknowledged_by=last.words)


MORE, LONGEST = 15.0, 5 * MINUTE
"""Seconds added to the time in which a rule fires after an agent's start;
most seconds of its window that count.
"""
_TAKES: dict[str, float] = {}
for rule in RULES:
    takes = rule.hold + min(rule.window, LONGEST) + MORE
    _TAKES[rule.check] = max(takes, _TAKES.get(rule.check, 0.0))
"""Check -> seconds after its start by which an agent would have reported this check."""


def _may_be_recalled(reason: Reason) -> bool:
    """Whether a reason is about the node itself, and not about how the node is reached."""
    return reason.check in _TAKES or is_event(reason.check)


WAITING = 100
"""Most events that wait to be judged; older ones are only listed."""


class NewestReport(Value):
    """The newest report of an agent."""

    report: HealthReport
    remembered: bool = False
    """The broker had stored it: it tells how the node was, and is no sign of life."""
    health: Health = UNHEARD
    """The report as the console shows it."""


_JUDGED = attrgetter("level", "applies", "judged", "reasons", "more", "expect", "limits")
"""The fields of a report that make up the judgement, without time and numbers."""


class NodeJudgement:
    """What is needed to judge one node, and its health; written by Fleet through `NodeState`."""

    __slots__ = (
        "_events",
        "_expects",
        "_heard_from",
        "_memory",
        "_recalled",
        "acks",
        "busy",
        "drift",
        "expected",
        "health",
        "newest",
    )

    def __init__(self, expected: Expected) -> None:
        self.health = UNHEARD
        self.acks: tuple[Ack, ...] = ()
        self.drift: tuple[Reason, ...] | None = None
        self.busy = False
        self.newest: NewestReport | None = None
        """The agent's newest report; None before the first, and after a sample without one."""
        self.expected = expected
        self._expects = intern(expectations_fingerprint(expected))
        self._memory = Memory()
        self._events: tuple[Event, ...] = ()
        self._recalled: tuple[Reason, ...] = ()
        """Problems that an earlier console saw; kept until the node has
        been judged again for long enough.
        """
        self._heard_from: float | None = None
        """When this console first judged the node while it was heard."""

    def recall(self, reasons: Sequence[Reason]) -> None:
        """Take the problems from when the node was last seen; () forgets them."""
        self._recalled = tuple(filter(_may_be_recalled, reasons))

    def take_report(self, report: HealthReport, now: float, *, remembered: bool = False) -> bool:
        """Take a report of the agent at `now` (monotonic seconds); returns
        whether its judgement has changed.

        A report with reasons always counts as new, because their durations count from its arrival.
        """
        before = self.newest
        same = before is not None and not (before.remembered or remembered or report.reasons)
        if before is not None and same and _JUDGED(report) == _JUDGED(before.report):
            self.newest = NewestReport(report, health=before.health)
            return False
        self.newest = NewestReport(report, remembered, health_of(report, now))
        return True

    def hear(self, event: Event) -> None:
        """Include this event in the next judgement."""
        self._events = (*self._events[-WAITING + 1 :], event)

    def moves(self, *, silent: bool) -> bool:
        """Whether the health may change with time alone: a condition must
        last, an event or acknowledgement ends.

        A `silent` node has no measurements that could change it.
        """
        known = self._memory
        by_time = (known.marks and not silent) or known.happened
        return bool(by_time or self._recalled or (self.acks and self.health.reasons))

    def judge(
        self,
        facts: Facts,
        view: "SchedulerNode | None",
        wall: float,
        *,
        tried: bool,
    ) -> None:
        """Judge again, with what the scheduler reports; `wall` (epoch seconds): for
        acknowledgements; `tried`: see `SchedulerNode.merge_health`.
        """
        reported = self._reported_health(facts)
        health, self._memory = combine_health(reported, facts, self._memory)
        if self.newest is not None and self.newest.remembered and facts.up:
            health = _with_remembered(reported.reasons, REMEMBERED, health)
        self._events = ()
        heard = facts.up and facts.heard_s is not None and facts.heard_s <= facts.patience
        if self._recalled:
            health = self._with_recalled(health, facts.now, heard=heard)
        # Acknowledged before the scheduler is added: an acknowledged problem is no
        # reason to report that the node still gets jobs.
        health = apply_acknowledgements(health, self.acks, wall)
        if view is not None:
            health = view.merge_health(health, heard=heard, tried=tried)
            health = apply_acknowledgements(health, self.acks, wall)
        self.health = health

    def _with_recalled(self, health: Health, now: float, *, heard: bool) -> Health:
        """The health with the recalled reasons, until an agent that has just
        started has had time to report them.
        """
        if heard and self._heard_from is None:
            self._heard_from = now
        if not heard and self._heard_from is not None:
            return health  # it was heard since, and is silent now: only that counts
        passed = 0.0 if self._heard_from is None else now - self._heard_from
        known = {(reason.check, reason.device) for reason in health.reasons}
        self._recalled = tuple(
            reason
            for reason in self._recalled
            if (reason.check, reason.device) not in known
            and passed < _TAKES.get(reason.check, MORE)
        )
        if not self._recalled:
            return health
        return _with_remembered(self._recalled, JUDGED_AGAIN, health)

    def _reported_health(self, facts: Facts) -> Health:
        """The agent's judgement, with its coverage, and a reason if its
        `expect:` differs from the cluster file's.
        """
        if self.newest is None:
            return _NOT_JUDGED
        counted = covered_by(self.newest.report, facts)
        health = replace(
            self.newest.health, evaluated=len(counted.judged), checks=len(counted.applicable)
        )
        if self.older_expectations() and self._expects:
            health = replace(health, reasons=(*health.reasons, _other_expectations()))
        return health

    def older_expectations(self) -> bool:
        """Whether the agent judges by a different `expect:` than that of the cluster file."""
        return self.newest is not None and self.newest.report.expect != self._expects

    def take_as_lasting(self) -> None:
        """Judge a clock that was wrong in two samples as if it had been wrong for a minute."""
        self._memory = as_lasting(self._memory)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events since the last judgement."""
        return self._events

    def findings(self, facts: Facts, *, silent: bool) -> tuple[CheckResult, ...]:
        """The results of the checks, each with its evidence."""
        covered, memory = _NO_CHECK_JUDGED, Memory()
        if self.newest is not None:
            covered = covered_by(self.newest.report, facts)
            covered = Covered(covered.applicable, frozenset()) if silent else covered
            memory = memory_from_report(self.newest.report, facts.now)
        return explain_checks(facts, derive_numbers(facts), memory, covered, self.health.reasons)


def _with_remembered(remembered: Sequence[Reason], mark: Reason, now: Health) -> Health:
    """`now` with the reasons `remembered` and the reason `mark`; a remembered OK is not trusted."""
    theirs = {(reason.check, reason.device) for reason in remembered}
    ours = (r for r in now.reasons if (r.check, r.device) not in theirs)
    return of_reasons(now, (*remembered, mark, *ours))


def _other_expectations() -> Reason:
    text = (
        "its agent judges by another `expect:` than the cluster file · what the file expects is "
        "not checked there · `rankdeck agent install` again"
    )
    return Reason("agent.expect", Level.UNKNOWN, text)
