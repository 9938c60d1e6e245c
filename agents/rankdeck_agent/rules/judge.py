"""Judges the health of a node from what it sent; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Optional

from rankdeck_agent.rules.derive import derive
from rankdeck_agent.rules.engine import step
from rankdeck_agent.rules.explain import cover, is_event
from rankdeck_agent.rules.facts import Facts, Memory, limits, remember, split
from rankdeck_agent.rules.levels import Health, Level, Reason
from rankdeck_agent.rules.table import CHECKS, IDLE_CHECKS
from rankdeck_agent.rules.units import duration

REASONS = 64
AT_MOST_SHOWN = 5
LASTING = 60.0
"""Seconds that two looks shortly after each other stand for, where nobody watches for longer."""
FRESH = Memory()


def assess(facts: Facts, memory: Memory = FRESH) -> tuple[Health, Memory]:
    """Health now, and what must be remembered for the next time. Silence is never OK."""
    happened = remember(facts, memory)
    events = tuple(one.reason for one in happened.values())
    if facts.boot and memory.boot and facts.boot != memory.boot:
        memory = Memory(boot=facts.boot, grown=memory.grown, last=memory.last)
    if silence := _silence(facts):
        reasons = (silence, *sorted(events, key=_worst_first)[: REASONS - 1])
        health = Health(Level.UNKNOWN, reasons, 0, len(CHECKS))
        return health, replace(memory, happened=happened, boot=facts.boot or memory.boot)
    new = step(facts, derive(facts), memory)
    covered = cover(facts, memory.settled)
    unread = split(facts.failed, facts.values)
    others = _besides(facts, unread.trouble, len(covered.judged))
    reasons = _worst_each([*new.reasons, *events, *others])
    boot = facts.boot or memory.boot
    kept = Memory(boot, new.marks, new.last, new.grown, happened, new.calm, settled=True)
    level = reasons[0].level if reasons else Level.OK
    counted = len(covered.judged), len(covered.applicable)
    return Health(level, reasons, *counted, limits(unread.beside)), kept


def combine(told: Health, facts: Facts, memory: Memory) -> tuple[Health, Memory]:
    """The health that an agent tells, with what only its reader can judge; and what to remember.

    Of `facts` counts what the reader knows: silence, clock, peers, SSH, and events that it saw itself.
    """
    happened = remember(facts, memory)
    events = tuple(one.reason for one in happened.values())
    if silence := _silence(facts):
        kept = sorted((*events, *filter(_is_event, told.reasons)), key=_worst_first)
        reasons = (silence, *kept[: REASONS - 1])
        health = Health(Level.UNKNOWN, reasons, 0, told.checks)
        return health, replace(memory, happened=happened, boot=facts.boot or memory.boot)
    clock = Facts(now=facts.now, skew=facts.skew)
    new = step(clock, derive(clock), memory)
    ssh = [Reason("node.ssh", Level.WARN, facts.attach)] if facts.attach else []
    theirs = [r for r in told.reasons if not (facts.busy and r.check in IDLE_CHECKS)]
    reasons = _worst_each([*theirs, *new.reasons, *events, *(facts.drift or ()), *ssh])
    kept = Memory(facts.boot or memory.boot, marks=new.marks, happened=happened, settled=True)
    level = reasons[0].level if reasons else Level.OK
    return replace(told, level=level, reasons=reasons), kept


def _is_event(reason: Reason) -> bool:
    """Whether it tells of something that happened, and so holds of a node that is silent now."""
    return is_event(reason.check)


def as_lasting(memory: Memory) -> Memory:
    """Memory in which what held at two looks has held for LASTING seconds."""
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
        # No running time: the sentence must stay true without being made again.
        text = f"silent for more than {duration(facts.patience)} · {why}"
    else:
        return None
    since = None if facts.heard_s is None else facts.now - facts.heard_s
    return Reason("node.silent", Level.UNKNOWN, text, since=since)


def _besides(facts: Facts, trouble: Mapping[str, str], judged: int) -> list[Reason]:
    """What is not a threshold."""
    found = list(facts.drift or ())
    if trouble:
        found.append(_unread(trouble))
    if facts.attach:
        found.append(Reason("node.ssh", Level.WARN, facts.attach))
    if not facts.values or not judged:
        text = (
            "no check could be judged · the node sends no number that is known · look at its agent"
        )
        found.append(Reason("node.coverage", Level.UNKNOWN, text))
    return found


def _unread(failed: Mapping[str, str]) -> Reason:
    """What should have been read and was not."""
    alike: dict[str, list[str]] = {}
    for key, why in failed.items():
        alike.setdefault(why, []).append(key)
    named = [
        keys[0] + (f" and {len(keys) - 1} more" if keys[1:] else "") + f": {why}"
        for why, keys in list(alike.items())[:AT_MOST_SHOWN]
    ]
    more = len(alike) - len(named)
    text = "cannot read " + "; ".join(named)
    text += f"; and {more} other errors" if more > 0 else ""
    return Reason(
        "agent.reads",
        Level.UNKNOWN,
        f"{text} · its checks are not judged · look at what the error names",
    )


def _worst_each(reasons: Sequence[Reason]) -> tuple[Reason, ...]:
    """One reason for a check and device, the worst; worst first."""
    if not reasons:
        return ()
    kept: dict[tuple[str, str], Reason] = {}
    for reason in reasons:
        key = (reason.check, reason.device)
        other = kept.get(key)
        if other is None or reason.level > other.level:
            kept[key] = reason
    return tuple(sorted(kept.values(), key=_worst_first)[:REASONS])


def _worst_first(reason: Reason) -> tuple[int, str, str]:
    """Sorted so that the order in which metrics came makes no difference."""
    return -reason.level, reason.check, reason.device
