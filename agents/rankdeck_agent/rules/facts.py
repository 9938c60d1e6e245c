"""The input of a judgement, and the memory from one judgement to the next."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional, Union

from rankdeck_agent.rules.levels import Level, Reason
from rankdeck_agent.wire import Event

Number = Union[int, float]
Table = Mapping[str, Mapping[str, Number]]


def _nothing() -> dict[str, dict[str, Number]]:
    return {}


@dataclass(frozen=True)
class Expected:
    """What the cluster file says a node has."""

    gpus: int = 0
    rdma: int = 0
    interface: str = ""
    other: Mapping[str, Union[str, int, float]] = field(
        default_factory=dict[str, Union[str, int, float]]
    )


@dataclass(frozen=True)
class Facts:
    """All that a node is judged by, at one time of the clock of whoever judges."""

    now: float
    at: float = 0.0
    """Stamp of the newest sample, on the node's clock."""
    up: bool = True
    heard_s: Optional[float] = 0.0
    """Seconds since the last sample; None: never."""
    patience: float = 3.0
    """Silence longer than this is noticed."""
    attach: str = ""
    """What is wrong with the SSH connection or the agent's start; "" if nothing."""
    values: Table = field(default_factory=_nothing)
    absent: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    inventory: Mapping[str, str] = field(default_factory=dict[str, str])
    boot: str = ""
    uptime: Optional[float] = None
    """Seconds since boot; None where nobody knows."""
    events: tuple[Event, ...] = ()
    """What happened since the last time."""
    seen_up: frozenset[tuple[str, str]] = frozenset()
    """(metric, device) of links that were up while we looked."""
    skew: Optional[float] = None
    expected: Expected = Expected()
    busy: bool = False
    """A job of ours runs there: memory that is held is not left over."""
    drift: Optional[tuple[Reason, ...]] = None
    """In what the node differs from its peers; None where it has none to compare with."""


@dataclass(frozen=True)
class RuleMark:
    """Where one rule stands for one device."""

    began: float
    held: float
    """When the condition last held."""
    fired: bool
    text: str = ""


@dataclass(frozen=True)
class ActiveEvent:
    """An event that still counts."""

    reason: Reason
    at: float
    """On the node's clock."""
    until: float
    count: int = 1


EventKey = tuple[str, str, Level]
"""Check, what it is about, level."""
Key = tuple[int, str]
"""Row in RULES, and device."""
Growth = tuple[tuple[float, Number], ...]
"""(when, by how much) a counter grew, oldest first."""


@dataclass(frozen=True)
class Memory:
    """What the next judgement needs of the ones before; nothing of it is ever changed in place."""

    boot: str = ""
    marks: Mapping[Key, RuleMark] = field(default_factory=dict[Key, RuleMark])
    last: Table = field(default_factory=_nothing)
    """The newest readings of counters."""
    grown: Mapping[Key, Growth] = field(default_factory=dict[Key, Growth])
    happened: Mapping[EventKey, ActiveEvent] = field(default_factory=dict[EventKey, ActiveEvent])
    calm: Table = field(default_factory=_nothing)
    """Readings of which no rule could hold: not looked at again while they are the same tables."""
    settled: bool = False
    """A sample was judged before: growth can be told."""
