"""The verdict of a scheduler on a job that is over: what ended it, as a
value that agent and console share. No I/O.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Optional

from rankdeck_agent.values import Value

_LONGEST, _LONGEST_NAME = 1000, 253
_LAST_RANK = 1 << 20


class VerdictKind(str, Enum):
    """What ended a job."""

    WELL = "well"
    """It succeeded."""
    GONE = "gone"
    """Somebody removed the job's object: while it ran, or before it was known how it had ended."""
    CANCELLED = "cancelled"
    """Rankdeck was asked to end it."""
    REFUSED = "refused"
    """The scheduler did not take it."""
    TIME_LIMIT = "time_limit"
    TAKEN_AWAY = "taken_away"
    """Something outside the job ended a part of it: an eviction, the
    loss of a node, somebody's `delete`.
    """
    NO_MEMORY = "no_memory"
    """A part of it was killed because it used more memory than it may."""
    CANNOT_START = "cannot_start"
    """No rank can ever start in a part of it."""
    RANK = "rank"
    """A rank of its failed by itself."""
    PART = "part"
    """A part of it (a pod, the launcher) failed by itself."""
    UNKNOWN = "unknown"
    """The scheduler does not say why."""


OUTSIDE = frozenset(
    {
        VerdictKind.GONE,
        VerdictKind.TIME_LIMIT,
        VerdictKind.TAKEN_AWAY,
        VerdictKind.NO_MEMORY,
        VerdictKind.CANNOT_START,
    }
)
"""Kinds of which the ranks know nothing: the scheduler's word counts, not their signals."""


class SchedulerVerdict(Value):
    """How a job ended, in the scheduler's view."""

    kind: VerdictKind
    text: str
    """Why, one sentence without a full stop."""
    node: str = ""
    """The node where it happened; "" if there is none, or it is not known."""
    pod: str = ""
    """The pod to which it happened, on Kubernetes; else ""."""
    rank: Optional[int] = None
    """The rank that failed, if the scheduler knows it."""
    ours: bool = True
    """Whether Rankdeck created the job."""


def verdict_row(verdict: SchedulerVerdict) -> "dict[str, Any]":
    """The verdict as a row of JSON."""
    return {
        "kind": verdict.kind.value,
        "text": verdict.text,
        "node": verdict.node,
        "pod": verdict.pod,
        "rank": verdict.rank,
        "ours": verdict.ours,
    }


def parse_scheduler_verdict(row: Mapping[str, Any]) -> Optional[SchedulerVerdict]:
    """The verdict in a row of JSON that may be anything; None if it is none.

    A kind that is not known is UNKNOWN.
    """
    kind, rank = row.get("kind"), row.get("rank")
    if not isinstance(kind, str) or not isinstance(row.get("text"), str):
        return None
    return SchedulerVerdict(
        kind=VerdictKind(kind) if kind in _KINDS else VerdictKind.UNKNOWN,
        text=_text(row, "text", _LONGEST),
        node=_text(row, "node", _LONGEST_NAME),
        pod=_text(row, "pod", _LONGEST_NAME),
        rank=rank if type(rank) is int and 0 <= rank < _LAST_RANK else None,
        ours=row.get("ours") is not False,
    )


_KINDS = frozenset(kind.value for kind in VerdictKind)


def _text(row: Mapping[str, Any], key: str, longest: int) -> str:
    """The printable part of a text; "" if it is none."""
    raw = row.get(key)
    return "".join(c for c in raw[:longest] if c.isprintable()) if isinstance(raw, str) else ""
