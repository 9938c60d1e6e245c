"""Health of a node: levels, and the reasons for them."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Optional


class Level(IntEnum):
    """How bad. The worst of many is `max`."""

    OK = 0
    UNKNOWN = 1
    WARN = 2
    BAD = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Sentence(NamedTuple):
    """What a reason or an event says, in three parts; "" for a part that is left out."""

    seen: str
    means: str = ""
    action: str = ""

    @classmethod
    def of(cls, text: str) -> "Sentence":
        """Read `seen · means · action`; what follows a third dot belongs to the action."""
        return cls(*(part.strip() for part in text.split(_BETWEEN, 2)))

    def __str__(self) -> str:
        return _BETWEEN.join(filter(None, self))


_BETWEEN = " · "


@dataclass(frozen=True)
class Reason:
    """One check that fired."""

    check: str
    level: Level
    text: str
    """A whole `Sentence`, as it is sent, kept and printed."""
    device: str = ""
    since: Optional[float] = None
    """When it began, on the clock of `Facts.now`; None where nobody knows."""
    acknowledged_until: Optional[float] = None
    """Epoch seconds; until then it is listed but colours nothing."""
    acknowledged_by: str = ""
    """Who and why, one sentence."""

    @property
    def sentence(self) -> Sentence:
        """The text in its parts."""
        return Sentence.of(self.text)


@dataclass(frozen=True)
class Health:
    """What is known of a node now, worst reason first."""

    level: Level
    reasons: tuple[Reason, ...] = ()
    evaluated: int = 0
    """Checks that could be judged, of `checks`."""
    checks: int = 0
    """Checks that apply to this node; the others of the table are for hardware it lacks."""
    limits: str = ""
    """What is not seen on this node and what to do: a log that may not be read, counters that stick; "" for nothing."""


def worst_of(reasons: tuple[Reason, ...]) -> Level:
    """The level that these reasons give a node: what is acknowledged does not count.

    Silence is never OK: acknowledged, it still leaves the node unknown.
    """
    counted = (
        reason.level
        if reason.acknowledged_until is None
        else min(reason.level, Level.UNKNOWN)
        if reason.check in NEVER_OK
        else Level.OK
        for reason in reasons
    )
    return max(counted, default=Level.OK)


NEVER_OK = frozenset({"node.silent", "node.coverage"})
