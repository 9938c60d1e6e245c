"""`health`: judge this node, or a recorded tree, by the console's own rules and without a broker."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from rankdeck_agent.files import Tree, clean
from rankdeck_agent.rules.coverage import cover
from rankdeck_agent.rules.derive import derive
from rankdeck_agent.rules.explain import Finding, coverage_words, explain
from rankdeck_agent.rules.facts import Facts
from rankdeck_agent.rules.judge import LASTING, assess
from rankdeck_agent.rules.levels import Health, Level, Reason
from rankdeck_agent.sample import Reading, take
from rankdeck_agent.wire import Sample

NAGIOS = {
    Level.OK: (0, "OK"),
    Level.WARN: (1, "WARNING"),
    Level.BAD: (2, "CRITICAL"),
    Level.UNKNOWN: (3, "UNKNOWN"),
}


def health(root: str, *, as_json: bool) -> int:
    """Print the judgement; 0 ok, 1 warn, 2 bad, 3 unknown or no machine there."""
    if not Tree(root).exists(""):
        print(f"RANKDECK UNKNOWN: {clean(root, 200)}: no such folder")
        return NAGIOS[Level.UNKNOWN][0]
    reading = take(root)
    judged, findings = judge(reading, _uptime(Tree(root)))
    node = reading.node or "this node"
    if as_json:
        print(json.dumps(_object(node, judged, findings)))
    else:
        print("\n".join(_lines(node, judged)))
    return NAGIOS[judged.level][0]


def judge(reading: Reading, uptime: Optional[float]) -> tuple[Health, tuple[Finding, ...]]:
    """Health, and each of the 25 checks with its evidence."""
    now = reading.sample.at
    before = _facts(reading, replace(reading.first, at=now - LASTING), uptime)
    facts = _facts(reading, reading.sample, uptime)
    _, memory = assess(before)
    # A moment is too short to say that nothing grows: those checks are not called judged.
    memory = replace(memory, settled=False)
    covered = cover(facts, settled=False)
    judged, memory = assess(replace(facts, events=reading.events), memory)
    found = explain(facts, derive(facts), memory, covered, judged.reasons)
    return judged, found


def _facts(reading: Reading, sample: Sample, uptime: Optional[float]) -> Facts:
    # Nothing beats here: a lag of 0 must not make a machine that cannot be read look fine.
    values = {m: d for m, d in sample.values.items() if m != "agent.lag"}
    return Facts(
        now=sample.at,
        at=sample.at,
        values=values,
        absent=frozenset(sample.absent),
        failed=sample.failed,
        inventory=reading.inventory,
        uptime=uptime,
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


def _object(node: str, judged: Health, findings: Sequence[Finding]) -> dict[str, object]:
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
