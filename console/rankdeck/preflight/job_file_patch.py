"""Changes of a job file: its text with one value set or taken out, comments and order kept."""

import re
from collections.abc import Iterable
from pathlib import Path

import yaml

from rankdeck.config.document import compose_document, parse_document, read_text, write_on_one_line
from rankdeck.preflight.findings import Change, Finding


def patch_job_file(file: Path, findings: Iterable[Finding]) -> str:
    """The text of the job file with all changes of these findings; raises ConfigError."""
    text = read_text(file)
    parse_document(file, text)  # it may have changed since the job was read
    for finding in findings:
        for change in finding.patch:
            text = apply_change(text, change)
    return text


def apply_change(text: str, change: Change) -> str:
    """The text with one change; missing tables and lists on the path are created."""
    root = compose_document(text)
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


def _built(
    text: str, table: yaml.MappingNode, keys: list[str], change: Change, value: yaml.Node | None
) -> str:
    """The text with the value in place of the old one, or as a new
    entry at the end of the table.
    """
    if change.value is None:
        return text
    written = write_on_one_line(change.value)
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
    """Where the text of a YAML node ends: the end mark of a block is at
    the next token, after blank lines.
    """
    end = node.end_mark.index
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        lines = text[node.start_mark.index : end].split("\n")
        while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
            lines.pop()
        return node.start_mark.index + len("\n".join(lines).rstrip())
    return end
