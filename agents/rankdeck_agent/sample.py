"""`sample` and `health`: one complete reading of this machine or of a recorded tree, and its judgement."""

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from rankdeck_agent.collectors import collectors
from rankdeck_agent.config import ExpectError, read
from rankdeck_agent.files import Tree, clean
from rankdeck_agent.machine import machine, name
from rankdeck_agent.rules.explain import CheckResult, cover, coverage_words, explain
from rankdeck_agent.rules.facts import Facts, derive
from rankdeck_agent.rules.judge import LASTING, assess
from rankdeck_agent.rules.levels import Expected, Health, Level, Reason
from rankdeck_agent.sampler import Sampler
from rankdeck_agent.wire import Event, Sample

_BETWEEN = 0.2
"""Seconds between two readings: enough for a share of the CPU's time."""
_LIMIT = 6.0
"""Seconds for collectors and network mounts to answer."""


@dataclass(frozen=True)
class NodeReading:
    """All that a machine says of itself at one moment."""

    node: str
    first: Sample
    """The reading before; of a recording the same one."""
    sample: Sample
    pending: tuple[str, ...]
    """Metrics for which one reading is not enough."""
    inventory: Mapping[str, str]
    events: tuple[Event, ...]
    """What the kernel log tells of the recent past, and of GPUs since boot."""


def take(root: str) -> NodeReading:
    """Read the machine under `root`: twice where it lives, once where it is a recording."""
    sampler = Sampler(collectors(root), patience=_LIMIT - _BETWEEN)
    deadline = time.monotonic() + _LIMIT
    first = collected = sampler.take(limit=_LIMIT)
    events, values = collected.events, dict(collected.sample.values)
    # A recording stands still: nothing more would be known the second time.
    while root == "/" and collected.pending - set(values) and time.monotonic() < deadline:
        time.sleep(_BETWEEN)
        collected = sampler.take(limit=max(_BETWEEN, deadline - time.monotonic()))
        events = events + collected.events
        values.update(collected.sample.values)
    tree = Tree(root)
    inventory = {**machine(tree), **collected.inventory}
    pending = tuple(sorted(collected.pending - set(values)))
    taken = replace(collected.sample, values=values)
    return NodeReading(name(tree), first.sample, taken, pending, inventory, tuple(events))


def sample(root: str, *, as_json: bool) -> int:
    """Print what the machine under `root` says of itself now."""
    if not Tree(root).exists(""):
        print(f"rankdeck-agent: {clean(root, 200)}: no such folder", file=sys.stderr)
        return 2
    reading = take(root)
    print(json.dumps(_object(reading)) if as_json else "\n".join(_table(reading)))
    return 0


def _object(reading: NodeReading) -> dict[str, object]:
    taken = reading.sample
    return {
        "node": reading.node,
        "at": taken.at,
        "values": taken.values,
        "absent": taken.absent,
        "failed": taken.failed,
        "pending": reading.pending,
        "inventory": reading.inventory,
        "events": [vars(event) for event in reading.events],
    }


def _table(reading: NodeReading) -> list[str]:
    taken = reading.sample
    lines = [f"{key:<40} {value}" for key, value in reading.inventory.items()]
    for metric in sorted(taken.values):
        for device, value in sorted(taken.values[metric].items()):
            lines.append(f"{metric:<40} {device:<16} {value}")
    failed = taken.failed.items()
    lines += [f"{key:<40} could not be read: {why}" for key, why in failed]
    lines += [f"{metric:<40} needs a second reading" for metric in reading.pending]
    lines += [f"{metric:<40} not here" for metric in taken.absent]
    lines += [f"{e.check:<40} {e.level:<4} {e.device} {e.text}" for e in reading.events]
    return lines


NAGIOS = {
    Level.OK: (0, "OK"),
    Level.WARN: (1, "WARNING"),
    Level.BAD: (2, "CRITICAL"),
    Level.UNKNOWN: (3, "UNKNOWN"),
}


def health(root: str, *, as_json: bool, expect: str = "") -> int:
    """Print the judgement; 0 ok, 1 warn, 2 bad, 3 unknown, no machine there, or a wrong `expect` file."""
    if not Tree(root).exists(""):
        print(f"RANKDECK UNKNOWN: {clean(root, 200)}: no such folder")
        return NAGIOS[Level.UNKNOWN][0]
    try:
        expected = Expected(other=read(expect) if expect else {})
    except ExpectError as error:
        print(f"RANKDECK UNKNOWN: {clean(str(error), 300)}")
        return NAGIOS[Level.UNKNOWN][0]
    reading = take(root)
    judged, findings = judge(reading, _uptime(Tree(root)), expected)
    node = reading.node or "this node"
    if as_json:
        print(json.dumps(_health_object(node, judged, findings)))
    else:
        print("\n".join(_lines(node, judged)))
    return NAGIOS[judged.level][0]


def judge(
    reading: NodeReading, uptime: Optional[float], expected: Expected
) -> tuple[Health, tuple[CheckResult, ...]]:
    """Health, and each of the 25 checks with its evidence."""
    now = reading.sample.at
    before = _facts(reading, replace(reading.first, at=now - LASTING), uptime, expected)
    facts = _facts(reading, reading.sample, uptime, expected)
    _, memory = assess(before)
    # A moment is too short to say that nothing grows: those checks are not called judged.
    memory = replace(memory, settled=False)
    covered = cover(facts, settled=False)
    judged, memory = assess(replace(facts, events=reading.events), memory)
    found = explain(facts, derive(facts), memory, covered, judged.reasons)
    return judged, found


def _facts(
    reading: NodeReading, sample: Sample, uptime: Optional[float], expected: Expected
) -> Facts:
    # Samples are not periodic here: a lag of 0 must not make a machine that cannot be read look fine.
    values = {m: d for m, d in sample.values.items() if m != "agent.lag"}
    return Facts(
        now=sample.at,
        at=sample.at,
        values=values,
        absent=frozenset(sample.absent),
        failed=sample.failed,
        inventory=reading.inventory,
        uptime=uptime,
        expected=expected,
        # Whether a job runs here is not known: what it holds is not called left over.
        busy=True,
    )


def _uptime(tree: Tree) -> Optional[float]:
    """Seconds since boot; None where nobody knows."""
    try:
        return float(tree.read("proc/uptime").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _lines(node: str, judged: Health) -> list[str]:
    """One line as monitoring wants it, then every reason."""
    counted = Counter(reason.level for reason in judged.reasons)
    parts = [f"{counted[level]} {level.word}" for level in sorted(counted, reverse=True)]
    parts.append(coverage_words(judged))
    word = NAGIOS[judged.level][1]
    return [
        f"RANKDECK {word}: {node}: {', '.join(parts)}",
        *(f"  {_line(reason)}" for reason in judged.reasons),
    ]


def _line(reason: Reason) -> str:
    device = f" {reason.device}" if reason.device else ""
    return f"{reason.level.word:<7} {reason.check}{device}: {reason.text}"


def _health_object(node: str, judged: Health, findings: Sequence[CheckResult]) -> dict[str, object]:
    return {
        "name": node,
        "level": judged.level.word,
        "code": NAGIOS[judged.level][0],
        "evaluated": judged.evaluated,
        "checks": judged.checks,
        "limits": judged.limits,
        "reasons": [
            {
                "check": reason.check,
                "level": reason.level.word,
                "device": reason.device,
                "text": reason.text,
            }
            for reason in judged.reasons
        ],
        "findings": [
            {
                "number": one.number,
                "name": one.name,
                "title": one.title,
                "state": one.state,
                "evidence": one.evidence,
            }
            for one in findings
        ],
    }
