"""Text that came from outside, made fit to be stored and shown."""

import json
from typing import Any, Optional, cast


def plain(text: str, limit: int = 400) -> str:
    """One line of `text` without control characters, at most `limit` long."""
    line = "".join(c if c.isprintable() else " " for c in text[: limit * 2])
    return line.strip()[:limit]


def table(text: str) -> Optional[dict[str, Any]]:
    """The JSON object in `text`, or None where it is not one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def array(text: str) -> Optional[list[Any]]:
    """The JSON array in `text`, or None where it is not one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("list[Any]", value) if isinstance(value, list) else None
