"""The one sentence for ranks that all wait for each other. No I/O."""

from collections.abc import Sequence

from rankdeck.model.stall import Explained

OF_DEADLOCK = Explained(
    "a deadlock: operations or messages that do not match, or a message that was lost",
    "compare what the named ranks call, and in which order; `rankdeck inspect` shows where each waits",
)
OF_A_GUESS = Explained(
    "most likely the named rank alone calls this operation; else one of the others left it out",
    "look for a condition around the two calls that is not the same on all ranks",
)
"""Beside OF_DEADLOCK, where the others may also have left the named rank behind."""
_MOST_NAMED = 4


def describe_deadlock(who: str, parts: Sequence[str]) -> str:
    """`a deadlock, ranks 0-1 wait for each other: rank 0 is in …; rank 1 is in …`."""
    more = len(parts) - _MOST_NAMED
    named = [*parts[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])]
    return f"a deadlock, {who} wait for each other: {'; '.join(named)}"
