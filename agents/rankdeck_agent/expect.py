"""Reads the block `expect:` of a cluster file without a YAML library: words, numbers and lists of words."""

import json
import re
from collections.abc import Iterator
from typing import Any, Union

Value = Union[str, int, float]
SIZE_LIMIT = 1 << 16
_HEAD = re.compile(r"expect\s*:(?:\s+(.*))?")
_ENTRY = re.compile(r"(\s*)([A-Za-z_][\w.-]{0,63})\s*:(?:\s+(.*))?")
_ITEM = re.compile(r"\s*-\s+(.*)")
_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*'"""
_BARE = re.compile(rf"""(?:{_QUOTED}|(?<!\s)#|[^#"']|["'])*""")
_PARTS = re.compile(rf"""\s*((?:{_QUOTED}|\[[^\]]*\]|[^,"'\[]|["'\[])+)(?:,|$)""")


class ExpectError(ValueError):
    """A file that cannot be used; the text is one sentence with its place."""


def read(path: str) -> dict[str, Value]:
    """The entries of a file that holds the block, with or without the rest of a cluster file.

    Raises ExpectError.
    """
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  a Path costs an import
            text = file.read(SIZE_LIMIT + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text in UTF-8"
        raise ExpectError(f"{path}: {why}") from error
    if len(text) > SIZE_LIMIT:
        raise ExpectError(f"{path}: larger than {SIZE_LIMIT} bytes: not an expect block")
    return _json(path, text) if text.lstrip().startswith("{") else _entries(path, text)


def _json(path: str, text: str) -> dict[str, Value]:
    try:
        raw: Any = json.loads(text)
        inner: Any = raw.get("expect", raw)
        return {str(key): _plain(value) for key, value in inner.items()}
    except (ValueError, AttributeError, RecursionError) as error:
        raise ExpectError(f"{path}: not a table in JSON: {error}") from error


def _plain(value: object) -> Value:
    if isinstance(value, list):
        return ", ".join(map(str, value))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value if isinstance(value, (int, float)) else str(value)


def _entries(path: str, text: str) -> dict[str, Value]:
    found: dict[str, Value] = {}
    margin, last = "", ""
    for number, line in _block(text):
        item, entry = _ITEM.fullmatch(line), _ENTRY.fullmatch(line)
        if line.strip().startswith("{"):
            found.update(_flow(path, number, line.strip()))
        elif item and last:
            found[last] = ", ".join(filter(None, (str(found[last]), str(_value(item[1])))))
        elif entry and entry[1] == (margin if found else entry[1]):
            margin, last = entry[1], entry[2]
            found[last] = _value(entry[3] or "")
        else:
            raise _wrong(path, number, line)
    return found


def _block(text: str) -> Iterator[tuple[int, str]]:
    """The lines of the block that say something, or all where there is no `expect:` at the margin."""
    lines = [(n, _bare(line)) for n, line in enumerate(text.splitlines(), 1)]
    head = next((n for n, line in lines if _HEAD.fullmatch(line)), 0)
    if head:
        found = _HEAD.fullmatch(lines[head - 1][1])
        rest = [(head, found[1] if found and found[1] else "")]
        for number, line in lines[head:]:
            if line and not line.startswith((" ", "-")):
                break
            rest.append((number, line))
        lines = rest
    return ((n, line) for n, line in lines if line not in ("", "---", "{}"))


def _bare(line: str) -> str:
    """Without a comment."""
    found = None if line.lstrip().startswith("#") else _BARE.match(line)
    return found[0].rstrip() if found else ""


def _flow(path: str, number: int, text: str) -> dict[str, Value]:
    """`{gpu_model: A100, mounts: [/data, /home]}`."""
    entries = [_ENTRY.fullmatch(part.rstrip()) for part in _PARTS.findall(text[1:-1])]
    if not text.endswith("}") or None in entries:
        raise _wrong(path, number, text)
    return {entry[2]: _value(entry[3] or "") for entry in entries if entry}


def _value(text: str) -> Value:
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        return ", ".join(str(_value(part)) for part in _PARTS.findall(text[1:-1]))
    if text[:1] == text[-1:] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if re.fullmatch(r"-?\d{1,18}\.\d{1,18}", text):
        return float(text)
    if text[:1] == text[-1:] == '"' and len(text) > 1:
        try:
            return str(json.loads(text))
        except ValueError:
            return text[1:-1]
    return text


def _wrong(path: str, number: int, text: str) -> ExpectError:
    return ExpectError(f"{path}:{number}: {text.strip()[:60]!r} is not `key: value`")
