"""The checks of a node as lines of its page: why it is in its state, and the evidence of all 25."""

import time
from dataclasses import replace

from rankdeck.model.health import Level, Reason
from rankdeck.model.text import printable
from rankdeck.state.node import NodeState
from rankdeck.ui import words
from rankdeck.ui.glyphs import Glyphs, Mark
from rankdeck.ui.widgets.canvas import Run, Runs, cut, fit
from rankdeck_agent.rules.explain import Finding, coverage_words

LEVELS = {level.word: level for level in Level}


def reasons(node: NodeState, width: int, glyphs: Glyphs) -> list[Runs]:
    """What fired: seen, means, do, since when, and what somebody knows of already."""
    lines: list[Runs] = []
    for reason in node.health.reasons:
        lines += _reason(node, reason, width, glyphs)
    return [[], *lines] if lines else []


def _reason(node: NodeState, reason: Reason, width: int, glyphs: Glyphs) -> list[Runs]:
    mark = glyphs.level(reason.level)
    known = reason.acknowledged_until is not None
    pieces = [piece.strip() for piece in printable(reason.text, 600).split(" · ")]
    age = node.held_s(reason)
    since = f"  {words.age(age)}" if age is not None else ""
    seen = cut(pieces[0], width - 12 - len(since), glyphs.more)
    role = "dim" if known else mark.role
    lines: list[Runs] = [
        [(f" {mark.glyph} {reason.level.word:<8}", role), (seen, "dim" if known else "text"), (since, "dim")]
    ]  # fmt: skip
    for label, piece in zip(("means", "do"), pieces[1:], strict=False):
        lines += [
            [
                (f"           {label if not at else '':<6}", "dim"),
                (line, "text" if label == "do" and not known else "dim"),
            ]
            for at, line in enumerate(_wrapped(piece, width - 18))
        ]
    if reason.acknowledged_until is not None:
        left = words.age(reason.acknowledged_until - time.time())
        said = cut(printable(reason.acknowledged_by), width - 34, glyphs.more)
        lines.append([("           known  ", "dim"), (f"for {left} more, {said}", "accent")])
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    lines: list[str] = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > max(width, 20):
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def findings(node: NodeState, width: int, glyphs: Glyphs) -> list[Runs]:
    """The 25 checks, each with its value and threshold; what does not apply is dim, never green."""
    health = node.health
    covered = coverage_words(replace(health, limits=""))
    head: list[Run] = [(" Checks", "title"), (f"  {covered}", "dim")]
    limits: list[Runs] = [
        [(f"   {line}", "dim")] for line in _wrapped(health.limits, width - 4) if line
    ]
    return [
        [],
        head,
        *limits,
        *(_finding(one, width, glyphs) for one in node.findings()),
    ]


def _finding(one: Finding, width: int, glyphs: Glyphs) -> Runs:
    mark = _mark(one, glyphs)
    role = "dim" if one.state == "n/a" else "text"
    room = width - 62
    evidence = cut(printable(one.evidence, 600), room, glyphs.more) if room > 10 else ""
    return [
        (f"   {mark.glyph} {one.state:<8}", mark.role),
        (f"{one.number:>3}  {fit(one.title, 46, glyphs.more)}", role),
        (evidence, "dim"),
    ]


def _mark(one: Finding, glyphs: Glyphs) -> Mark:
    level = LEVELS.get(one.state)
    return Mark(glyphs.dot, "dim") if level is None else glyphs.level(level)
