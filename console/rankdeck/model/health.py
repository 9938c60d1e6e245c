"""Health of a node: a level is never without a sentence."""

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How bad. The worst of many is `max`."""

    OK = 0
    UNKNOWN = 1
    WARN = 2
    BAD = 3

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Reason:
    """One check that fired: seen · means · do."""

    check: str
    level: Level
    text: str
    device: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of a node now, worst reason first."""

    level: Level
    reasons: tuple[Reason, ...] = ()
    evaluated: int = 0
    """Checks that could be judged, of `checks`."""
    checks: int = 0
