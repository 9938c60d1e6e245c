"""The `expect:` block of a cluster file, written without touching anything else in it."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from rankdeck.config.clusters import read_cluster
from rankdeck.errors import ConfigError, Problem

Value = str | int | float


def block(values: Mapping[str, Value], notes: Mapping[str, str]) -> str:
    """The YAML of the block; notes become comments."""
    if not values and not notes:
        return "expect: {}\n"
    lines = ["expect:" if values else "expect: {}"]
    for key, value in values.items():
        text = yaml.safe_dump(value, default_flow_style=True, width=10_000)
        word = text.removesuffix("...\n").strip()
        note = f"   # {notes[key]}" if key in notes else ""
        lines.append(f"  {key}: {word}{note}")
    lines += [f"  # {key}: {note}" for key, note in notes.items() if key not in values]
    return "\n".join(lines) + "\n"


def with_block(text: str, new: str) -> str:
    """The cluster file with this block in place of its own, or at its end."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    lines = text.splitlines(keepends=True)
    if isinstance(root, yaml.MappingNode):
        for key, value in root.value:
            if key.value == "expect":
                first, last = key.start_mark.line, value.end_mark.line
                if value.end_mark.column:
                    last += 1
                last = _without_tail(lines, first, last)
                return "".join((*lines[:first], new, *lines[last:]))
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{end}\n{new}"


def _without_tail(lines: list[str], first: int, last: int) -> int:
    """Empty lines and comments at the margin after a block belong to what follows."""
    while last > first + 1 and (not lines[last - 1].strip() or lines[last - 1].startswith("#")):
        last -= 1
    return last


def write_block(path: Path, values: Mapping[str, Value], notes: Mapping[str, str]) -> None:
    """Put what was learnt into the cluster file, at once or not at all; other entries of the block stay.

    Raises ConfigError where the file cannot be read or written, or would no longer be one.
    """
    path = path.resolve()
    before = read_cluster(path)
    kept = {**before.expect, **values}
    try:
        text = with_block(path.read_text(), block(kept, notes))
        folder = path.parent
        with tempfile.NamedTemporaryFile(
            "w", dir=folder, prefix=f".{path.stem}.", suffix=path.suffix, delete=False
        ) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        made = Path(file.name)
        _replace(made, path)
    except OSError as error:
        why = f"cannot be written: {error.strerror or error}"
        raise ConfigError([Problem(str(path), 1, 1, "file", why)]) from error


def _replace(made: Path, path: Path) -> None:
    """The new file in place of the old, if it can be read; else it is removed."""
    try:
        read_cluster(made)
        made.chmod(path.stat().st_mode & 0o777)
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)
