"""Text from nodes, made safe for a terminal: nothing in it moves a cursor or rings a bell."""

import re

ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and other strings
    r"|\x1b[ -/]*[0-~]?"
)
TAB = 8
LIMIT = 16_384
"""Characters of one line that are ever looked at."""


def clean(text: str, limit: int = LIMIT) -> str:
    """`text` as one printable line: escapes out, tabs as spaces, other controls as `?`."""
    text = text[:limit]
    if text.isprintable():
        return text
    if "\x1b" in text:
        text = ESCAPES.sub("", text)
    text = text.rstrip("\r\n")
    if "\r" in text:
        text = text.rpartition("\r")[2]
    if "\t" in text:
        text = text.expandtabs(TAB)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text)
