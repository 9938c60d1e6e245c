"""The health of one node as this console sees it: what its agent says, or our own judgement of its samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from sys import intern
from typing import TYPE_CHECKING

from rankdeck.model.health import (
    REMEMBERED,
    UNHEARD,
    Ack,
    Health,
    Level,
    Reason,
    worst_first,
    worst_of,
)
from rankdeck.rules.nodes import merged, with_slurm
from rankdeck_agent.rules.facts import Facts, Memory, derive
from rankdeck_agent.rules.judge import (
    CheckResult,
    Covered,
    as_lasting,
    assess,
    combine,
    cover,
    explain,
    is_event,
)
from rankdeck_agent.rules.levels import Expected
from rankdeck_agent.rules.report import covered_by, fingerprint, health_of, memory_of
from rankdeck_agent.rules.table import MINUTE, RULES
from rankdeck_agent.wire import Event, HealthReport

if TYPE_CHECKING:
    from rankdeck.model.schedulers import KubernetesNode, SlurmNode

JUDGED_AGAIN = Reason(
    "node.remembered",
    Level.UNKNOWN,
    "remembered: its last known state · it is being judged again · wait a minute or two",
)


def acknowledged(health: Health, acks: Sequence[Ack], now: float) -> Health:
    """The same reasons, the acknowledged ones marked and last; `now` is epoch seconds."""
    if not acks or not health.reasons:
        return health
    marked = tuple(_marked(reason, acks, now) for reason in health.reasons)
    ordered = tuple(sorted(marked, key=lambda r: r.acknowledged_until is not None))
    return replace(health, level=worst_of(ordered), reasons=ordered)


def _marked(reason: Reason, acks: Sequence[Ack], now: float) -> Reason:
    covering = [ack for ack in acks if ack.covers(reason.check, reason.device, reason.level, now)]
    if not covering:
        return reason
    last = max(covering, key=lambda ack: ack.until)
    return replace(reason, acknowledged_until=last.until, acknowledged_by=last.words)


MORE, LONGEST = 15.0, 5 * MINUTE
"""Seconds added to those that a rule takes to fire, for an agent that has just begun; most seconds of its window."""
_TAKES: dict[str, float] = {}
for rule in RULES:
    takes = rule.hold + min(rule.window, LONGEST) + MORE
    _TAKES[rule.check] = max(takes, _TAKES.get(rule.check, 0.0))
"""Check -> seconds after its start by which an agent reports this check."""


def _may_be_recalled(reason: Reason) -> bool:
    """Whether it is about the node itself, and not about how it is reached."""
    return reason.check in _TAKES or is_event(reason.check)


WAITING = 100
"""Most events that wait to be judged; older ones are only listed."""


@dataclass(frozen=True, slots=True)
class NewestReport:
    """The newest report of an agent."""

    report: HealthReport
    remembered: bool = False
    """The broker had kept it: it says how the node was, and is no sign of life."""
    health: Health = UNHEARD
    """The report as the console shows it."""


_SAID = attrgetter("level", "applies", "judged", "reasons", "more", "expect", "limits")
"""What a judgement of an agent consists of, without its time and its numbers."""


class NodeJudgement:
    """Written by Fleet through the node that it belongs to."""

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
        "told",
    )

    def __init__(self, expected: Expected) -> None:
        self.health = UNHEARD
        self.acks: tuple[Ack, ...] = ()
        self.drift: tuple[Reason, ...] | None = None
        self.busy = False
        self.told: NewestReport | None = None
        """What the agent says; None if it is one that does not judge."""
        self.expected = expected
        self._expects = intern(fingerprint(expected))
        self._memory = Memory()
        self._events: tuple[Event, ...] = ()
        self._recalled: tuple[Reason, ...] = ()
        """Problems that an earlier console saw, until the node was judged again for long enough."""
        self._heard_from: float | None = None
        """When the node was first judged by what it says now."""

    def recall(self, reasons: Sequence[Reason]) -> None:
        """Take what was wrong when the node was seen last; () forgets it."""
        self._recalled = tuple(filter(_may_be_recalled, reasons))

    def take_report(self, report: HealthReport, now: float, *, remembered: bool = False) -> bool:
        """Take what the agent says, at `now` on our clock; returns whether that is another judgement than before.

        A report with reasons is always new: their duration counts from the moment when they came.
        """
        before = self.told
        same = before is not None and not (before.remembered or remembered or report.reasons)
        if before is not None and same and _SAID(report) == _SAID(before.report):
            self.told = NewestReport(report, health=before.health)
            return False
        self.told = NewestReport(report, remembered, health_of(report, now))
        return True

    def hear(self, event: Event) -> None:
        """Include this event in the next judgement."""
        self._events = (*self._events[-WAITING + 1 :], event)

    def moves(self, *, silent: bool) -> bool:
        """Whether time alone may change the health: something holds, ends or is acknowledged.

        A `silent` node has no measurements that could change it.
        """
        known = self._memory
        by_time = self.told is not None and ((known.marks and not silent) or known.happened)
        return bool(by_time or self._recalled or (self.acks and self.health.reasons))

    def judge(
        self,
        facts: Facts,
        kubernetes: "KubernetesNode | None",
        slurm: "SlurmNode | None",
        wall: float,
        *,
        tried: bool,
    ) -> None:
        """Judge again, with what schedulers say; `wall` is the clock of acknowledgements, `tried` as in `merged`."""
        if self.told is None:
            health, self._memory = assess(facts, self._memory)
        else:
            said = self._health_told(self.told, facts)
            health, self._memory = combine(said, facts, self._memory)
            if self.told.remembered and facts.up:
                health = _with_remembered(said.reasons, REMEMBERED, health)
        self._events = ()
        heard = facts.up and facts.heard_s is not None and facts.heard_s <= facts.patience
        if self._recalled:
            health = self._with_recalled(health, facts.now, heard=heard)
        health = merged(health, kubernetes, heard=heard, tried=tried)
        # Before Slurm is asked: what somebody knows of is no reason to say that it is still used.
        health = with_slurm(acknowledged(health, self.acks, wall), slurm, heard=heard)
        self.health = acknowledged(health, self.acks, wall)

    def _with_recalled(self, health: Health, now: float, *, heard: bool) -> Health:
        """With the reasons from before, until an agent that has just started has had time to report them."""
        if heard and self._heard_from is None:
            self._heard_from = now
        if not heard and self._heard_from is not None:
            return health  # it has spoken since, and is silent now: that is what is known
        passed = 0.0 if self._heard_from is None else now - self._heard_from
        known = {(reason.check, reason.device) for reason in health.reasons}
        self._recalled = tuple(
            reason for reason in self._recalled
            if (reason.check, reason.device) not in known
            and passed < _TAKES.get(reason.check, MORE)
        )  # fmt: skip
        if not self._recalled:
            return health
        return _with_remembered(self._recalled, JUDGED_AGAIN, health)

    def _health_told(self, told: NewestReport, facts: Facts) -> Health:
        """What the agent says, with how much of it is judged by other expectations than ours."""
        counted = covered_by(told.report, facts)
        health = replace(told.health, evaluated=len(counted.judged), checks=len(counted.applicable))
        if self.older_expectations() and self._expects:
            health = replace(health, reasons=(*health.reasons, _other_expectations()))
        return health

    def older_expectations(self) -> bool:
        """Whether the agent judges by another `expect:` than the cluster file has."""
        return self.told is not None and self.told.report.expect != self._expects

    def take_as_lasting(self) -> None:
        """A problem seen at two looks is judged as if it had lasted a minute."""
        self._memory = as_lasting(self._memory)

    @property
    def events(self) -> tuple[Event, ...]:
        """What happened since the last judgement."""
        return self._events

    def findings(self, facts: Facts, *, silent: bool) -> tuple[CheckResult, ...]:
        """The 25 checks with their evidence."""
        memory = self._memory
        if self.told is not None:
            covered = covered_by(self.told.report, facts)
            covered = Covered(covered.applicable, frozenset()) if silent else covered
            memory = memory_of(self.told.report, facts.now)
        elif silent:
            covered = cover(Facts(now=facts.now, absent=facts.absent), settled=False)
        else:
            covered = cover(facts, memory.settled)
        return explain(facts, derive(facts), memory, covered, self.health.reasons)


def _with_remembered(said: Sequence[Reason], mark: Reason, now: Health) -> Health:
    """Problems are kept until the agent says otherwise; a remembered OK is not trusted."""
    theirs = {(reason.check, reason.device) for reason in said}
    ours = (r for r in now.reasons if (r.check, r.device) not in theirs)
    ordered = worst_first((*said, mark, *ours))
    return replace(now, level=ordered[0].level, reasons=ordered)


def _other_expectations() -> Reason:
    text = (
        "its agent judges by another `expect:` than the cluster file · what the file expects is "
        "not checked there · `rankdeck agent install` again"
    )
    return Reason("agent.expect", Level.UNKNOWN, text)
