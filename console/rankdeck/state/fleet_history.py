"""Since the console began: events of all nodes, pictures of the fleet over
some hours, Rankdeck's log messages.
"""

import logging
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from math import isnan, nan

from rankdeck.model.health import Occurrence, worst_first
from rankdeck.state.node import NodeState
from rankdeck.values import Value
from rankdeck_agent.rules.levels import EVENT_LEVELS, NEVER_OK, NODE_MORE, SUMMARY, Level, Reason
from rankdeck_agent.wire import Event

MOST = 5000
MOST_MESSAGES = 2000
BURST = 500
"""Most events that wait to be saved; if there are more, the oldest are kept in memory only."""
UNRECORDED = frozenset({"node.coverage", "node.remembered", NODE_MORE})
UNSEEN = 512
"""Most reasons of one node that are kept open although they are not listed now."""
MOST_AN_HOUR = 120
"""Most events of one node in an hour; further ones are dropped and
the node is reported as flooding.
"""
HOUR = 3600.0
FLOOD = "node.flood"
FLOOD_TEXT = (
    f"more than {MOST_AN_HOUR} events an hour; the others are left out here · a check flaps, "
    "or its agent sends false data · see its checks, and its agent's log"
)
Key = tuple[str, str, str]


class EventLog:
    """The newest events of all nodes.

    Written by Fleet; front ends read `newest`, the session saves `take`.
    """

    def __init__(self) -> None:
        self.newest: deque[Occurrence] = deque(maxlen=MOST)
        self.total = 0
        """Number of events so far: changes exactly when there is a new one."""
        self._waiting: deque[Occurrence] = deque(maxlen=BURST)
        self._open: dict[Key, Reason] = {}
        """(node, check, device) -> reason that began and has not ended."""
        self._unseen: dict[str, dict[tuple[str, str], Reason]] = {}
        """Node -> reasons that were not listed last and may stand, by check and device."""
        self._stood: dict[str, tuple[Reason, ...]] = {}
        self._seen: dict[tuple[str, str, str, int], None] = {}
        self._hours: dict[str, tuple[float, int]] = {}
        """Node -> when its hour began, and how many events it has had since."""

    def restore(self, occurrences: Iterable[Occurrence]) -> None:
        """Load events that an earlier console saw; they are not saved again."""
        for one in occurrences:
            self.newest.append(one)
            self.total += 1
            key = (one.node, one.check, one.device)
            if one.kind == "event":
                self._seen[*key, round(one.at)] = None
            elif one.kind == "began":
                self._open[key] = Reason(one.check, one.level, one.text, one.device)
            else:
                self._open.pop(key, None)

    def recall(self) -> Mapping[str, tuple[Reason, ...]]:
        """Node -> problems that began in an earlier console and have not ended, worst first."""
        found: dict[str, list[Reason]] = {}
        for (node, _, _), reason in self._open.items():
            found.setdefault(node, []).append(reason)
        self._stood = {node: worst_first(reasons) for node, reasons in found.items()}
        return self._stood

    def stood(self, node: str) -> tuple[Reason, ...]:
        """The problems that `recall` found for this node."""
        return self._stood.get(node, ())

    def event(self, node: str, event: Event, at: float) -> None:
        """Add an event of a node; an event that the node sends again is ignored."""
        key = (node, event.check, event.device, round(at))
        if key in self._seen:
            return
        self._seen[key] = None
        while len(self._seen) > MOST:
            del self._seen[next(iter(self._seen))]
        level = EVENT_LEVELS.get(event.level, Level.WARN)
        self._add(Occurrence(at, node, "event", level, event.check, event.device, event.text))

    def judged(
        self, node: str, before: Sequence[Reason], after: Sequence[Reason], at: float
    ) -> None:
        """Add the reasons that began, ended or changed their level.

        A reason has not ended because the node is silent or its message had no room for it.
        """
        gone = self._unseen.pop(node, {})
        gone.update(((r.check, r.device), r) for r in before)
        for reason in after:
            gone.pop((reason.check, reason.device), None)
            key = (node, reason.check, reason.device)
            known = self._open.get(key)
            if reason.check in UNRECORDED or (known and known.level == reason.level):
                continue
            self._open[key] = reason
            self._add(_line(at, node, "began", reason.level, reason))
        unseen = {key: r for key, r in gone.items() if _may_stand(r, after)}
        if unseen:
            self._unseen[node] = dict(list(unseen.items())[-UNSEEN:])
        for key, reason in gone.items():
            if key in self._unseen.get(node, {}):
                continue
            if self._open.pop((node, reason.check, reason.device), None) is not None:
                self._add(_line(at, node, "ended", Level.OK, reason))

    def between(self, nodes: Collection[str], since: float, until: float) -> tuple[Occurrence, ...]:
        """Events of these nodes between two times (epoch seconds), and
        their problems that began then.
        """
        return tuple(
            one
            for one in self.newest
            if since <= one.at <= until
            and one.node in nodes
            and (one.kind == "event" or (one.kind == "began" and one.level > Level.OK))
        )

    def take(self) -> tuple[Occurrence, ...]:
        """The events to save: those added since the last call."""
        taken = tuple(self._waiting)
        self._waiting.clear()
        return taken

    def _add(self, one: Occurrence) -> None:
        begun, count = self._hours.get(one.node, (one.at, 0))
        if not 0 <= one.at - begun < HOUR:
            begun, count = one.at, 0
        self._hours[one.node] = begun, count + 1
        if count < MOST_AN_HOUR:
            self._append(one)
        elif count == MOST_AN_HOUR:
            self._append(Occurrence(one.at, one.node, "event", Level.WARN, FLOOD, "", FLOOD_TEXT))

    def _append(self, one: Occurrence) -> None:
        self.newest.append(one)
        self._waiting.append(one)
        self.total += 1


def _may_stand(reason: Reason, listed: Sequence[Reason]) -> bool:
    """Whether a reason that is not `listed` now may be true still."""
    return any(
        (one.check in NEVER_OK and reason.check not in NEVER_OK)
        or (one.check == NODE_MORE and reason.level <= one.level)
        for one in listed
    )


def _line(at: float, node: str, kind: str, level: Level, reason: Reason) -> Occurrence:
    return Occurrence(at, node, kind, level, reason.check, reason.device, reason.text)


SPAN, SHORTEST = 3 * 3600.0, 10.0
"""Seconds of the past that are kept, and between two pictures of it at least."""
RECENT, SECOND = 600.0, 1.0
"""The same for the last minutes, which plots show, of a fleet of at most so many nodes:"""
FEW = 128
HELD = 2.5
"""A picture stands for at most so many periods, if the next ones were late."""
LIMIT = 24 << 20
"""Most bytes of all pictures together."""
LEAST_FRAMES = 60
PICTURED = tuple(SUMMARY)
"""Metrics whose numbers are kept in pictures: those that every node sends for lists."""
_PLACES = {metric: place for place, metric in enumerate(PICTURED)}


class FleetPicture(Value, eq=False):
    """The state of all nodes at one time (epoch seconds on the
    console's clock); compared by identity.
    """

    at: float
    levels: bytes
    numbers: "array[float]"
    reasons: Mapping[int, tuple[Reason, ...]]
    """Place of a node -> reasons for its level; nodes without a problem are left out."""

    def level(self, place: int) -> Level:
        """The level of the node at this place; UNKNOWN if the node was added later."""
        return Level(self.levels[place]) if place < len(self.levels) else Level.UNKNOWN

    def number(self, place: int, metric: str) -> float | None:
        """The number of a metric of PICTURED for the node at this place; None if it had none."""
        at = place * len(PICTURED) + _PLACES[metric]
        found = self.numbers[at] if at < len(self.numbers) else nan
        return None if isnan(found) else found

    def known(self, metric: str) -> list[float]:
        """The numbers of all nodes that have one."""
        every = self.numbers[_PLACES[metric] :: len(PICTURED)]
        return [number for number in every if not isnan(number)]


class Picture:
    """A picture that is being taken: add each node in the order of `Fleet.place`."""

    def __init__(self, at: float) -> None:
        self._at = at
        self._levels = bytearray()
        self._numbers = array("f")
        self._reasons: dict[int, tuple[Reason, ...]] = {}

    def add(self, node: NodeState) -> None:
        health = node.health
        if health.reasons:
            self._reasons[len(self._levels)] = health.reasons
        self._levels.append(health.level)
        for metric in PICTURED:
            value = node.summary(metric)
            self._numbers.append(nan if value is None else value)

    def frame(self, before: FleetPicture | None) -> FleetPicture:
        """The finished picture; to save memory it shares equal reasons with the one `before`."""
        same = before is not None and before.reasons == self._reasons
        reasons = before.reasons if before is not None and same else self._reasons
        return FleetPicture(self._at, bytes(self._levels), self._numbers, reasons)


class Past:
    """Pictures of the fleet over `span` seconds, oldest first, at least
    `shortest` seconds apart; written by Fleet.

    Of a fleet of more than `most` nodes it keeps none.
    """

    def __init__(
        self, nodes: int, span: float = SPAN, shortest: float = SHORTEST, most: int | None = None
    ) -> None:
        self._span, self._shortest, self._most = span, shortest, most
        self._kept = True
        self._frames: deque[FleetPicture] = deque()
        self.fit(nodes)

    def fit(self, nodes: int) -> None:
        """Set how many pictures are kept, and how often one is
        taken, for a fleet of `nodes` nodes.
        """
        size = max(nodes, 1) * (4 * len(PICTURED) + 1)
        frames = max(min(int(self._span / self._shortest), LIMIT // size), LEAST_FRAMES)
        self.period = self._span / frames
        self._kept = self._most is None or nodes <= self._most
        self._frames = deque(self._frames, maxlen=frames)

    def due(self, at: float) -> bool:
        """Whether it is time for another picture."""
        return self._kept and (not self._frames or not 0 <= at - self._frames[-1].at < self.period)

    def keep(self, picture: "Picture") -> None:
        """Store a picture that has all nodes."""
        self._frames.append(picture.frame(self._frames[-1] if self._frames else None))

    def span(self) -> tuple[float, float] | None:
        """Times of the first and last picture, epoch seconds; None if there is none."""
        return (self._frames[0].at, self._frames[-1].at) if self._frames else None

    def frame(self, at: float) -> FleetPicture | None:
        """The last picture taken at or before `at` (epoch seconds), else
        the oldest; None if there is none.
        """
        if not self._frames:
            return None
        place = bisect_right(self._frames, at, key=lambda frame: frame.at)
        return self._frames[max(place - 1, 0)]

    def newest(self, most: int) -> list[FleetPicture]:
        """The last `most` pictures, oldest first."""
        return list(islice(reversed(self._frames), most))[::-1]

    def series(self, place: int, metric: str, until: float) -> list[float | None]:
        """The numbers of one node in the pictures up to a time, oldest first."""
        return [frame.number(place, metric) for frame in self._frames if frame.at <= until]

    def columns(self, until: float, most: int) -> list[FleetPicture | None]:
        """The picture that stood in each of the last `most` periods up to a time,
        oldest first; None if there was none.
        """
        frames = iter(reversed(self._frames))
        frame = next(frames, None)
        found: list[FleetPicture | None] = []
        for back in range(most):
            at = until - back * self.period
            while frame is not None and frame.at > at:
                frame = next(frames, None)
            stands = frame is not None and at - frame.at < HELD * self.period
            found.append(frame if stands else None)
        return found[::-1]


class FleetPictures:
    """Takes the pictures of the fleet: over some hours, and each second if there are few nodes."""

    def __init__(self, nodes: int) -> None:
        self.past = Past(nodes)
        self.recent = Past(nodes, RECENT, SECOND, FEW)
        self._taken: Picture | None = None
        self._for: tuple[Past, ...] = ()
        """Where the picture goes that is being taken."""

    def begin(self, at: float, nodes: int) -> bool:
        """Begin a picture of so many nodes if one is due; returns whether it is."""
        self._for = tuple(past for past in (self.past, self.recent) if past.due(at))
        for past in (self.past, self.recent):
            past.fit(nodes)
        self._taken = Picture(at) if self._for else None
        return self._taken is not None

    def add(self, node: NodeState) -> None:
        """Add the next node to the picture that is being taken."""
        if self._taken:
            self._taken.add(node)

    def finish(self) -> None:
        """Store the picture: it has all nodes."""
        if self._taken:
            for past in self._for:
                past.keep(self._taken)
            self._taken = None


class LogMessage(Value):
    """One log message. `at` is epoch seconds; `source` is a node, a job or a module of Rankdeck."""

    at: float
    level: str
    source: str
    text: str


class Messages(logging.Handler):
    """A log handler that keeps the last messages of the `rankdeck` loggers."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: deque[LogMessage] = deque(maxlen=MOST_MESSAGES)
        self.total = 0
        """Number of messages so far: changes exactly when there is a new one."""

    def emit(self, record: logging.LogRecord) -> None:
        source = getattr(record, "source", record.name.rpartition(".")[2])
        text = record.getMessage().replace("\n", " · ")
        self.records.append(LogMessage(record.created, record.levelname.lower(), source, text))
        self.total += 1
