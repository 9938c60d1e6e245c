"""Alert rules for Prometheus, one for each row of the health checks, in the checks' own words.

`python -m tests.support.alert_rules FILE` writes them.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rankdeck_agent.rules.events import KINDS
from rankdeck_agent.rules.levels import Level, Sentence
from rankdeck_agent.rules.table import CHECKS, RULES, Rule

SEVERITY = {Level.UNKNOWN: "warning", Level.WARN: "warning", Level.BAD: "critical"}
HEAD = """\
# Alerts for the series of `rankdeck export`, one for each row of Rankdeck's health checks, in its own words.
# Written by `make man`; docs/prometheus.md says how it is used. How long a problem must last is already in the check.
# A number in a sentence is the threshold; `rankdeck health NODE` shows the reading.
groups:
  - name: rankdeck
    rules:
"""
_RULE = """\
      - alert: {name}
        expr: {expression}
        labels: {{severity: {severity}, check: {check}}}
        annotations:
          summary: {summary}
          description: {description}
          action: {action}
"""
_NODE = "{{ $labels.instance }}"
_DEVICE = "{{ $labels.device }}"


class Alert(NamedTuple):
    """One alert."""

    check: str
    level: Level
    expression: str
    words: Sentence


_ALONE: tuple[tuple[str, Level, str], ...] = (
    ("node.silent", Level.UNKNOWN, "its agent is not heard · the node, its network or its agent may be down · try to log in"),
    ("node.coverage", Level.UNKNOWN, "no check could be judged · the node sends no number that is known · look at its agent"),
    ("agent.reads", Level.UNKNOWN, "something cannot be read · its checks are not judged · look at what `rankdeck health` names"),
    ("agent.expect", Level.UNKNOWN, "its agent judges by another `expect:` than the cluster file · what the file expects is not checked there · `rankdeck agent install` again"),
    ("drift", Level.WARN, "{device} differs from its peers · the node is not like the others · make it like them, or acknowledge it"),
)  # fmt: skip
"""Checks without a row of their own."""


_BESIDE = {"agent": ',check!~"agent[.](?:lag|reads|expect)"'}
"""Kind of event -> what leaves out other checks whose names begin so."""
_TITLES = {check.number: check.title for check in CHECKS}


def alerts() -> Iterator[Alert]:
    """All alerts, those of one check together."""
    told: set[tuple[str, Level]] = set()
    for rule in RULES:
        if (rule.check, rule.level) not in told:
            told.add((rule.check, rule.level))
            yield _alert(rule.check, rule.level, Sentence.of(_with_threshold(rule)))
    for check, level, text in _ALONE:
        yield _alert(check, level, Sentence.of(text.replace("{device}", _DEVICE)))
    for check, kind in KINDS.items():
        below = f'rankdeck_check{{check=~"{check.replace(".", "[.]")}([.].*)?"{_BESIDE.get(check, "")}}}'
        seen = Sentence(f"{_DEVICE}: {kind.means}", kind.means, kind.do)
        for level in (Level.WARN, Level.BAD):
            yield Alert(check, level, f"{below} == {int(level)}", seen)


def _alert(check: str, level: Level, words: Sentence) -> Alert:
    return Alert(check, level, f'rankdeck_check{{check="{check}"}} == {int(level)}', words)


def _with_threshold(rule: Rule) -> str:
    """The sentence of a rule for any reading: with its threshold, and
    "…" for what only the reading tells.
    """
    side = "at most" if rule.below else "at least"
    share = f"{rule.enter * 100:.3g}% of {rule.over}" if rule.over else rule.write(rule.enter)
    said = rule.text.format(
        device="\0", value=f"{side} {share}", span=rule.span, note=f"… ({side} {share})" if rule.over else "…"
    )  # fmt: skip
    if said.startswith("…"):
        said = f"not so: {_TITLES[rule.part_of]}{said[1:]}"
    return said.replace("\0", _DEVICE)


def document() -> str:
    """The rules as a file for `rule_files`."""
    return HEAD + "".join(map(_rule, alerts()))


def _rule(alert: Alert) -> str:
    name = "Rankdeck" + "".join(part.capitalize() for part in re.split(r"[._]", alert.check))
    return _RULE.format(
        name=name,
        expression=_quoted(alert.expression),
        severity=SEVERITY[alert.level],
        check=alert.check,
        summary=_quoted(f"{_NODE}: {alert.words.seen}"),
        description=_quoted(alert.words.means),
        action=_quoted(alert.words.action.replace("NODE", _NODE)),
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document(), encoding="utf-8")
