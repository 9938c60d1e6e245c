"""Judges the health of a node from its numbers and events, by the table of rules. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Optional

from rankdeck_agent.rules.coverage import cover_checks, is_event
from rankdeck_agent.rules.derived import derive_numbers
from rankdeck_agent.rules.device_names import name_device, name_first_device
from rankdeck_agent.rules.events import event_reasons, remember_events
from rankdeck_agent.rules.facts import Facts, Memory
from rankdeck_agent.rules.levels import Health, Level, Reason
from rankdeck_agent.rules.table import IDLE_CHECKS
from rankdeck_agent.rules.thresholds import apply_rules
from rankdeck_agent.rules.units import write_duration
from rankdeck_agent.rules.unread import describe_limits, split_unread
from rankdeck_agent.values import replace

REASONS = 64
"""Most reasons that a report lists; it counts the others."""
AT_MOST_SHOWN = 5
LASTING = 60.0
"""For a judge that takes only two samples: the seconds that count as passed between them."""
FRESH = Memory()


def assess_node(facts: Facts, memory: Memory = FRESH) -> tuple[Health, Memory]:
    """The health of the node on which this runs, and the memory for the next judgement."""
    happened = remember_events(facts, memory)
    events = event_reasons(happened)
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
    events = event_reasons(happened)

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
