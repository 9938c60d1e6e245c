"""What is known of a node at one time, and what a judge remembers of it from before."""

from collections.abc import Mapping
from typing import Optional, Union

from rankdeck_agent.rules.levels import Expected, Level, Reason
from rankdeck_agent.values import Value, field
from rankdeck_agent.wire import Event

Number = Union[int, float]
Table = Mapping[str, Mapping[str, Number]]


class Facts(Value):
    """Everything that a node is judged by."""

    now: float
    """When it is judged: seconds on the judge's clock."""
    at: float = 0.0
    """Time of the newest sample, on the node's clock."""
    up: bool = True
    heard_s: Optional[float] = 0.0
    """Seconds since the last sample; None: never."""
    patience: float = 3.0
    """Seconds of silence after which the node counts as silent."""
    attach: str = ""
    """What is wrong with the SSH connection or the agent's start; "" if nothing."""
    values: Table = field(default_factory=dict[str, dict[str, Number]])
    """Metric -> device -> number, as in wire.Sample."""
    absent: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    blind: frozenset[str] = frozenset()
    """See wire.Sample."""
    inventory: Mapping[str, str] = field(default_factory=dict[str, str])
    boot: str = ""
    uptime: Optional[float] = None
    """Seconds since boot; None if not known."""
    events: tuple[Event, ...] = ()
    """Events since the last judgement."""
    seen_up: frozenset[tuple[str, str]] = frozenset()
    """(metric, device) of links that were up in any sample so far."""
    skew: Optional[float] = None
    """Seconds that the node's clock is ahead of the judge's; negative: behind; None: not known."""
    seen: frozenset[tuple[str, str]] = frozenset()
    """(metric of KEPT, device) of what was there in any sample of this
    boot; without it nothing can be gone.
    """
    most: Mapping[str, Number] = field(default_factory=dict[str, Number])
    """Metric of SIZES, or METRIC/DEVICE of a link that was up (PACES) -> its largest
    number in this boot.
    """
    expected: Expected = field(default_factory=Expected)
    busy: bool = False
    """A job of ours runs there, so memory in use is not a leftover of an earlier job."""
    driver_limit: float = 30.0
    """Seconds without an answer after which the GPU driver counts as hanging."""
    drift: Optional[tuple[Reason, ...]] = None
    """How the node differs from its peers; None if there are none to compare with."""


class RuleMark(Value):
    """The state of one rule for one device."""

    began: float
    held: float
    """When the condition last held."""
    fired: bool
    text: str = ""


class ActiveEvent(Value):
    """An event that still counts."""

    reason: Reason
    at: float
    """On the node's clock."""
    until: float
    """On the judge's clock."""
    count: int = 1


EventKey = tuple[str, str, Level]
"""(check, device with the Xid number if there is one, level)."""
Key = tuple[int, str]
"""(row in RULES, device)."""
Growth = tuple[tuple[float, Number], ...]
"""(when, by how much) a counter grew, oldest first."""


class Memory(Value):
    """What the next judgement needs from earlier ones. Immutable."""

    boot: str = ""
    marks: Mapping[Key, RuleMark] = field(default_factory=dict[Key, RuleMark])
    last: Table = field(default_factory=dict[str, dict[str, Number]])
    """The newest readings of counters."""
    grown: Mapping[Key, Growth] = field(default_factory=dict[Key, Growth])
    happened: Mapping[EventKey, ActiveEvent] = field(default_factory=dict[EventKey, ActiveEvent])
    calm: Table = field(default_factory=dict[str, dict[str, Number]])
    """Readings for which no rule can hold; not checked again while they are the same objects."""
    settled: bool = False
    """A sample was judged before, so the growth of counters is known."""


MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
