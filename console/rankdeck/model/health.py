"""Health of a node (terms shared by console and agent), acknowledgements,
and a node's numbers over hours and days.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import field

from rankdeck.model.safe_text import printable_line
from rankdeck.values import Value, replace
from rankdeck_agent.rules.levels import (
    CAUSES,
    Health,
    Level,
    Reason,
    Sentence,
    same_device,
    worst_level,
)

UNHEARD = Health(
    Level.UNKNOWN,
    (Reason("node.silent", Level.UNKNOWN, "not heard yet · waiting for the agent"),),
    checks=25,
)
"""The health of a node that has not been judged yet."""


REMEMBERED = Reason(
    "node.remembered",
    Level.UNKNOWN,
    "remembered: its last message before this console listened · its present state is not known · wait for its next message",
)


def worst_first(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """These reasons by level, worst first; reasons of the same level keep their order."""
    return tuple(sorted(reasons, key=lambda reason: -reason.level))


def of_reasons(health: Health, reasons: Iterable[Reason]) -> Health:
    """The health with these reasons instead of its own, the worst first."""
    ordered = worst_first(reasons)
    return replace(health, level=worst_level(ordered), reasons=ordered)


class Occurrence(Value):
    """One line of the history of nodes. `at` is epoch seconds on the console's clock."""

    at: float
    node: str
    kind: str
    """"event": the node sent it; "began", "ended": a reason began or ended."""
    level: Level
    check: str
    device: str
    text: str

    @property
    def seen(self) -> str:
        """The first part of the text: what was seen, without what it means and what to do."""
        return Sentence.of(self.text).seen


class NodeMessage(Protocol):
    """Any message about a node: an event, or a note on a job."""

    @property
    def at(self) -> float: ...
    @property
    def node(self) -> str: ...
    @property
    def check(self) -> str: ...
    @property
    def device(self) -> str: ...


T = TypeVar("T", bound=NodeMessage)
TOGETHER = 120.0
"""Most seconds between a cause and the messages that follow from it."""


def leading_events(events: Sequence[T], kind: Callable[[T], str] = lambda _: "") -> list[T]:
    """The messages without those caused by another one of the same node,
    device and `kind` at about the same time.
    """

    def follows(one: T, other: T) -> bool:
        near = one.node == other.node and abs(one.at - other.at) <= TOGETHER
        same = same_device(one.device, other.device) and kind(one) == kind(other)
        return other.check in CAUSES.get(one.check, ()) and near and same

    return [one for one in events if not any(follows(one, other) for other in events)]


class Ack(Value):
    """An acknowledged reason. `check` "": the whole node is silenced."""

    node: str
    check: str
    until: float
    """Epoch seconds. 0 takes back what was acknowledged: see `ends`."""
    who: str
    why: str = ""
    device: str = ""
    """"": every device."""
    level: Level = Level.BAD
    """A worse level is not covered."""

    def covers(self, check: str, device: str, level: Level, now: float) -> bool:
        """Whether this acknowledges a reason; `now` is epoch seconds."""
        named = not self.check or (self.check == check and self.device in ("", device))
        return named and level <= self.level and now < self.until

    def ends(self, other: "Ack") -> bool:
        """Whether this takes back the other: that of its check, and
        without a device of all its devices.
        """
        same = (self.node, self.check) == (other.node, other.check)
        return not self.until and same and self.device in ("", other.device)

    @property
    def words(self) -> str:
        """Who acknowledged it and why, one sentence."""
        return f"{self.who}: {self.why}" if self.why else self.who


_SPAN = re.compile(r"(\d{1,4})\s*(s|m|min|h|d|w)")
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def parse_duration(text: str) -> float:
    """Seconds of a duration such as `90s`, `30m`, `4h`, `2d` or `1w`; raises ValueError."""
    found = _SPAN.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise ValueError(f"`{text[:20]}` is no time from 1s to 9999w; write 30m, 4h or 2d")
    return int(found[1]) * _UNITS[found[2]]


POINTS = 120
"""Points of a chart: more than a terminal can show."""


class Times(Value):
    """`count` evenly spaced times in epoch seconds: `start`, `start + step`, …"""

    start: float
    step: float
    count: int

    @property
    def end(self) -> float:
        """The last time."""
        return self.start + self.step * (self.count - 1)

    def __iter__(self) -> Iterator[float]:
        return (self.start + self.step * place for place in range(self.count))


def times_between(start: float, end: float, most: int = POINTS) -> Times:
    """About `most` times or fewer between `start` and `end`; each is a
    multiple of the step, which is 1 s or more.
    """
    step = max(-(-(end - start) // most), 1.0)
    first = -(-start // step) * step
    return Times(first, step, max(int((end - first) // step) + 1, 1))


class PastSeries(Value):
    """The past of one metric of one node."""

    values: tuple[float | None, ...]
    """One for each time; None: no value."""
    source: str
    """The exporter of the series: `rankdeck`, `dcgm-exporter` or
    `node_exporter`, with the scrape job.
    """
    simulated: bool = False


class PastNumbers(Value):
    """The past of some nodes, as Prometheus returned it."""

    times: Times
    series: Mapping[tuple[str, str], PastSeries] = field(
        default_factory=dict[tuple[str, str], PastSeries]
    )
    """(node, metric of the fleet screen) -> its numbers, in the metric's unit."""
    warning: str = ""
    """A warning that the server gave with its answer, for example
    that some of its data is missing.
    """


class PastView(Value):
    """The past of one node, as far as it can be shown now."""

    hours: float
    """How many hours it covers."""
    server: str
    """The Prometheus server, HOST:PORT."""
    numbers: PastNumbers | None = None
    """None until the server has answered."""
    trouble: str = ""
    """Why there are no new numbers, one sentence; "" if all is well."""


OF_GPUS = ("gpu.", "kernel.xid", "kernel.sxid")
"""How the checks and events begin whose device is a GPU."""


def with_device(device: str, text: str, check: str = "") -> str:
    """What happened, with the device in front if the text does not name it; a GPU is
    called so, known by the check.
    """
    device, text = printable_line(device), printable_line(text, 600)
    of_gpu = check.startswith(OF_GPUS) and device and not device.startswith("GPU")
    name = f"GPU {device}" if of_gpu else device
    return text if device in Sentence.of(text).seen else f"{name}: {text}"
