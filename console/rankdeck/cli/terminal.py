"""Whether the console can be shown here."""

import sys
from collections.abc import Mapping

from rankdeck.cli.codes import UsageError

BARE = frozenset({"dumb", "unknown"})
"""Terminals that only print line after line."""


def require(environment: Mapping[str, str]) -> None:
    """Refuse where the console would be a mess of escapes; says what works instead."""
    kind = environment.get("TERM", "")
    if kind in BARE:
        raise UsageError(
            f"the console needs a terminal that can move its cursor, and TERM is `{kind}`; try TERM=xterm-256color, or `rankdeck status`"
        )
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stdout)):
        raise UsageError(
            "the console needs a terminal, and this is none; for scripts there is `rankdeck status --json`"
        )


def _is_terminal(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)
    return isatty is not None and isatty()
