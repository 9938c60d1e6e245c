"""What happened on all nodes since the console was opened, and shortly before."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence

from rankdeck.model.health import Level, Reason
from rankdeck.model.notice import Occurrence
from rankdeck_agent.wire import Event

MOST = 5000
BURST = 500
"""Occurrences that wait for the disk; of more, the oldest are only in memory."""
LEVELS = {"ok": Level.OK, "info": Level.OK, "warn": Level.WARN, "bad": Level.BAD}
UNTOLD = frozenset({"node.coverage"})
Key = tuple[str, str, str]


class Journal:
    """Written by Fleet; front ends read `newest`, the session takes what is to be kept."""

    def __init__(self) -> None:
        self.newest: deque[Occurrence] = deque(maxlen=MOST)
        self.total = 0
        """Changes exactly when there is something new."""
        self._waiting: deque[Occurrence] = deque(maxlen=BURST)
        self._open: dict[Key, Level] = {}
        self._told: dict[tuple[str, str, str, int], None] = {}

    def restore(self, occurrences: Iterable[Occurrence]) -> None:
        """What an earlier console saw: it is not told twice."""
        for one in occurrences:
            self.newest.append(one)
            self.total += 1
            key = (one.node, one.check, one.device)
            if one.kind == "event":
                self._told[*key, round(one.at)] = None
            elif one.kind == "began":
                self._open[key] = one.level
            else:
                self._open.pop(key, None)

    def event(self, node: str, event: Event, at: float) -> None:
        """A node told something; the past told again is left out."""
        key = (node, event.check, event.device, round(at))
        if key in self._told:
            return
        self._told[key] = None
        while len(self._told) > MOST:
            del self._told[next(iter(self._told))]
        level = LEVELS.get(event.level, Level.WARN)
        self._add(Occurrence(at, node, "event", level, event.check, event.device, event.text))

    def judged(
        self, node: str, before: Sequence[Reason], after: Sequence[Reason], at: float
    ) -> None:
        """Reasons that came, went, or changed their level."""
        gone = {(r.check, r.device): r for r in before}
        for reason in after:
            gone.pop((reason.check, reason.device), None)
            key = (node, reason.check, reason.device)
            if reason.check in UNTOLD or self._open.get(key) == reason.level:
                continue
            self._open[key] = reason.level
            self._add(_line(at, node, "began", reason.level, reason))
        for reason in gone.values():
            if self._open.pop((node, reason.check, reason.device), None) is not None:
                self._add(_line(at, node, "ended", Level.OK, reason))

    def between(self, nodes: Collection[str], since: float, until: float) -> tuple[Occurrence, ...]:
        """What these nodes told in that time, and which warnings began there."""
        return tuple(
            one
            for one in self.newest
            if since <= one.at <= until
            and one.node in nodes
            and (one.kind == "event" or (one.kind == "began" and one.level > Level.OK))
        )

    def take(self) -> tuple[Occurrence, ...]:
        """What is to be written down since the last call."""
        taken = tuple(self._waiting)
        self._waiting.clear()
        return taken

    def _add(self, one: Occurrence) -> None:
        self.newest.append(one)
        self._waiting.append(one)
        self.total += 1


def _line(at: float, node: str, kind: str, level: Level, reason: Reason) -> Occurrence:
    return Occurrence(at, node, kind, level, reason.check, reason.device, reason.text)
