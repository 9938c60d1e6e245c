"""Text from a node, made safe to show."""

import re

_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def clean(text: object, limit: int = 200) -> str:
    """`text` on one line, at most `limit` long, with `·` for control and direction characters."""
    words = (
        text
        if isinstance(text, str)
        else str(text)[: limit + 1]
        if isinstance(text, int | float)
        else ""
    )
    safe = _CONTROL.sub("·", words[: limit + 1])
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"
