"""The fleet at an instant, as lists show it: now, or a remembered picture."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from rankdeck.model.health import Level
from rankdeck.model.notice import Occurrence
from rankdeck.model.text import printable
from rankdeck.state.fleet import NodeState
from rankdeck.state.past import SUMMARY, Frame
from rankdeck.ui import readings
from rankdeck.ui.columns import NodeColumn, find
from rankdeck.ui.query import Subject

Key = Callable[[str], tuple[object, ...]]


class Instant(Protocol):
    """What is known of every node, by name."""

    def level(self, name: str) -> Level: ...
    def number(self, column: NodeColumn, name: str) -> float | None: ...
    def why(self, name: str) -> str: ...
    def subject(self, name: str) -> Subject: ...


class Now:
    """The nodes as they are; `levels` are those judged last."""

    def __init__(self, nodes: Mapping[str, NodeState], levels: Mapping[str, Level]) -> None:
        self._nodes, self._levels = nodes, levels

    def level(self, name: str) -> Level:
        return self._levels.get(name, Level.UNKNOWN)

    def number(self, column: NodeColumn, name: str) -> float | None:
        return column.number(self._nodes[name])

    def why(self, name: str) -> str:
        return readings.why(self._nodes[name])

    def subject(self, name: str) -> Subject:
        return readings.subject(self._nodes[name])


class Then:
    """The nodes as they were in a picture, and what the journal had told by then."""

    def __init__(self, places: Mapping[str, int], frame: Frame, told: Iterable[Occurrence]) -> None:
        self.frame = frame
        self._places = places
        self._wrong = wrong_then(told, frame.at)

    def level(self, name: str) -> Level:
        return self.frame.level(self._places[name])

    def number(self, column: NodeColumn, name: str) -> float | None:
        if column.metric not in SUMMARY:
            return None
        return self.frame.number(self._places[name], column.metric)

    def why(self, name: str) -> str:
        wrong = self._wrong.get(name, ())
        if not wrong:
            return ""
        more = f" (+{len(wrong) - 1})" if len(wrong) > 1 else ""
        return printable(wrong[0].text, 600).split(" · ")[0] + more

    def subject(self, name: str) -> Subject:
        word = self.level(name).word
        checks = frozenset(one.check for one in self._wrong.get(name, ()))
        return Subject(
            f"{name} {word} {self.why(name)}",
            word,
            lambda metric: self._of_metric(metric, name),
            name,
            checks,
        )

    def _of_metric(self, metric: str, name: str) -> float | None:
        column = find(metric)
        return None if column is None else self.number(column, name)


def wrong_then(told: Iterable[Occurrence], at: float) -> dict[str, list[Occurrence]]:
    """Node -> what had begun by then and not ended, the worst first."""
    there: dict[tuple[str, str, str], Occurrence] = {}
    for one in told:
        key = (one.node, one.check, one.device)
        if one.at > at or one.kind == "event":
            continue
        if one.kind == "began":
            there[key] = one
        else:
            there.pop(key, None)
    wrong: dict[str, list[Occurrence]] = {}
    for one in sorted(there.values(), key=lambda one: -int(one.level)):
        wrong.setdefault(one.node, []).append(one)
    return wrong


def order(titles: Iterable[str], instant: Instant, nodes: Mapping[str, NodeState]) -> Key:
    """The key by which names are sorted: by the first title, then the next, last by name."""
    keys = [_order(title, instant, nodes) for title in titles]
    return lambda name: (*(key(name) for key in keys), name)


def _order(title: str, instant: Instant, nodes: Mapping[str, NodeState]) -> Key:
    """The natural order of a column: worst or largest first."""
    if title == "STATE":
        return lambda name: (-int(instant.level(name)),)
    if title == "NODE":
        return lambda name: (name,)
    if title == "SEEN":
        return lambda name: (-(nodes[name].heard_s() or 1e18),)
    column = find(title)

    def key(name: str) -> tuple[object, ...]:
        value = instant.number(column, name) if column else None
        return value is None, -(value or 0.0)

    return key
