"""Makes text and JSON from other programs safe to keep and to
show; prints the answer of a command.
"""

import errno
import json
import re
import sys
from collections.abc import Mapping
from typing import Any, Optional, cast

from rankdeck_agent.rules.visible import make_visible

NAME_LIMIT = 64
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~]?)"
)
"""Terminal escape sequences."""
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Control characters and line ends."""


def plain_line(text: str, limit: int = 400) -> str:
    """`text` on one line: control characters become blanks, other invisible ones their
    code points; at most `limit` characters.
    """
    return make_visible(_CONTROLS.sub(" ", text[: limit * 2]).strip(), limit)


def clean_text(text: str, limit: int = NAME_LIMIT) -> str:
    """`text` cut to `limit` characters, with code points of invisible ones."""
    return make_visible(text, limit)


def failure_reason(error: BaseException) -> str:
    """A short text of why something could not be read: the system's
    message, with the name of the error.
    """
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        code = errno.errorcode.get(error.errno or 0)
        # TLS errors have a number that is not one of the system's.
        text = (
            error.strerror
            if code is None or hasattr(error, "library")
            else f"{error.strerror} ({code})"
        )
    return clean_text(text, 160) or type(error).__name__


def parse_json_table(text: str) -> Optional[dict[str, Any]]:
    """The JSON object in `text`, or None if it is not one."""
    value = _parsed(text)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def parse_json_array(text: str) -> Optional[list[Any]]:
    """The JSON array in `text`, or None if it is not one."""
    value = _parsed(text)
    return cast("list[Any]", value) if isinstance(value, list) else None


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def print_json_line(row: Mapping[str, Any]) -> int:
    """Print `row` as a line of JSON at once; returns the exit code: 1
    if its `ok` is false, otherwise 0.
    """
    print(json.dumps(row), flush=True)
    return 0 if row.get("ok", True) else 1


def print_complaint(why: str, code: int) -> int:
    """Print a sentence on stderr; returns `code`, the exit code of the command that failed."""
    print(why, file=sys.stderr)
    return code


def shown_line(text: str, limit: int) -> str:
    """One line of `text` as a terminal would show it: without escape
    sequences, with its indentation.
    """
    if not text.isprintable():
        text = _ESCAPES.sub("", text[: limit * 4]).expandtabs(4)
        text = _CONTROLS.sub(" ", text)
    return make_visible(text, limit).rstrip()
