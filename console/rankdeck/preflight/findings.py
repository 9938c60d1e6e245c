"""Findings of preflight: level, sentence, what to do, a change to the job file; the file with these changes."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from rankdeck.model.health import Level

TellFinding = Callable[["Finding"], None]
"""Called with each finding as it is made."""
Step = Callable[[int, int, str], None]
"""Called with how many steps are done, of how many, and what is being done."""


def tell_nobody(_: "Finding") -> None:
    """For who waits for all findings."""


def no_step(_done: int, _of: int, _doing: str) -> None:
    """For who does not show how far it is."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the job file: `mpi.flavour` -> openmpi4; None takes the key out."""

    key: str
    value: str | int | list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check and what came of it. BAD: the job would fail; UNKNOWN: could not be tried."""

    check: str
    level: Level
    text: str
    node: str = ""
    """A node set; "" where it is about the whole job."""
    fix: str = ""
    """What to do, as a sentence."""
    patch: tuple[Change, ...] = ()
    """The same as a change of the job file, where it is one."""


def found(level: Level, check: str, node: str, text: str, fix: str = "", *patch: Change) -> Finding:
    """A finding in one line; the tables of checks are full of them."""
    return Finding(check=check, level=level, text=text, node=node, fix=fix, patch=patch)


def patched(file: Path, findings: Iterable[Finding]) -> str:
    """The text of the file with every change of these findings."""
    text = file.read_text(encoding="utf-8")
    for finding in findings:
        for change in finding.patch:
            text = changed(text, change)
    return text


def changed(text: str, change: Change) -> str:
    """The text with one change; tables and lists on the way are made where they are not."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        return text
    *way, last = change.key.split(".")
    table = root
    for index, key in enumerate(way):
        _, value = _entry(table, key)
        if not isinstance(value, yaml.MappingNode):
            return _built(text, table, [*way[index:], last], change, value)
        table = value
    name, value = _entry(table, last)
    if name is not None and value is not None and change.value is None:
        return _without(text, table, name, value)
    return _built(text, table, [last], change, value)


def _entry(table: yaml.MappingNode, key: str) -> tuple[yaml.Node, yaml.Node] | tuple[None, None]:
    for name, value in table.value:
        if name.value == key:
            return name, value
    return None, None


def _written(change: Change) -> str:
    return (
        yaml.safe_dump(change.value, default_flow_style=True, width=10_000)
        .split("\n...")[0]
        .strip()
    )


def _built(
    text: str,
    table: yaml.MappingNode,
    keys: list[str],
    change: Change,
    value: yaml.Node | None,
) -> str:
    """Put the value in the place of the old one, or as a new entry at the end of the table."""
    if change.value is None:
        return text
    written = _written(change)
    for key in reversed(keys[1:]):
        written = f"{{{key}: {written}}}"
    if value is not None:
        end = _end(text, value)
        return text[: value.start_mark.index] + written + text[end:]
    if table.flow_style:
        end = table.end_mark.index - 1
        comma = ", " if table.value else ""
        return f"{text[:end].rstrip()}{comma}{keys[0]}: {written}{text[end:]}"
    end = _end(text, table)
    indent = " " * table.start_mark.column
    return f"{text[:end]}\n{indent}{keys[0]}: {written}{text[end:]}"


def _without(text: str, table: yaml.MappingNode, name: yaml.Node, value: yaml.Node) -> str:
    start, end = name.start_mark.index, _end(text, value)
    if table.flow_style:
        rest = re.sub(r"\A\s*,\s*", "", text[end:])
        before = text[:start]
        return (before if rest != text[end:] else before.rstrip().removesuffix(",")) + rest
    begin = text.rfind("\n", 0, start) + 1
    after = text.find("\n", end)
    return text[:begin] + (text[after + 1 :] if after >= 0 else "")


def _end(text: str, node: yaml.Node) -> int:
    """Where a node's own text ends: blocks are marked at the next token, behind blank lines."""
    end = node.end_mark.index
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        lines = text[node.start_mark.index : end].split("\n")
        while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
            lines.pop()
        return node.start_mark.index + len("\n".join(lines).rstrip())
    return end
