"""The fleet or one node at one time, now or in the past, as the fleet and node screens draw it."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from rankdeck.model.safe_text import printable_line
from rankdeck.rules.query import Subject
from rankdeck.state.fleet import Fleet, NodeState
from rankdeck.state.fleet_history import PICTURED, FleetPicture
from rankdeck.ui import actions, formatting
from rankdeck.ui.fleet_views import NUMBERS, NodeColumn, find_column
from rankdeck.ui.node_devices import draw_gpu_bars
from rankdeck.ui.themes import Glyphs
from rankdeck.ui.widgets.canvas import Runs, draw_bar, wrap_rows
from rankdeck.ui.widgets.grid import section_head
from rankdeck.ui.widgets.plots import Scale, draw_spark, round_up
from rankdeck_agent.rules.levels import Level, Reason

Order = tuple[Any, ...]
Key = Callable[[str], Order]
MANY = 50
"""If more than one row in this many moved, sorting all rows is cheaper than moving each."""


class Snapshot(Protocol):
    """What is known about every node, by name, at one time."""

    def level(self, name: str) -> Level: ...
    def acknowledged(self, name: str) -> bool:
        """Whether the node is well only because what is wrong was acknowledged."""
        ...

    def number(self, column: NodeColumn, name: str) -> float | None: ...
    def cell(self, column: NodeColumn, name: str, width: int, glyphs: Glyphs) -> Runs:
        """What the table shows for a number."""
        ...

    def why(self, name: str) -> str: ...
    def action(self, name: str) -> str:
        """What to do about it; "" if nothing is known."""
        ...

    def subject(self, name: str) -> Subject: ...


class PresentFleet:
    """The nodes as they are now."""

    def __init__(self, nodes: Mapping[str, NodeState]) -> None:
        self._nodes = nodes

    def level(self, name: str) -> Level:
        return self._nodes[name].health.level

    def acknowledged(self, name: str) -> bool:
        return formatting.is_acknowledged(self._nodes[name])

    def number(self, column: NodeColumn, name: str) -> float | None:
        return column.number(self._nodes[name])

    def cell(self, column: NodeColumn, name: str, width: int, glyphs: Glyphs) -> Runs:
        """The number, with a bar if there is room; `ERR` if reading it failed."""
        node = self._nodes[name]
        value = column.number(node)
        if value is None:
            failed = node.lacks(column.metric)
            return [("ERR" if failed else formatting.NOTHING, "warn" if failed else "dim")]
        stale = node.health.level is Level.UNKNOWN
        role = "dim" if stale else "warn" if value >= column.warn else "text"
        if not column.bar or width <= column.width:
            return [(column.say(value), role)]
        gpus = len(node.devices(column.metric)) if column.metric == "gpu.used" else 0
        drawn = (
            draw_gpu_bars(node, column.bar, glyphs)
            if gpus > 1
            else draw_bar(value, column.bar, glyphs, high=column.warn)
        )
        return [*drawn, (f" {column.say(value):>4}", role)]

    def why(self, name: str) -> str:
        return formatting.describe_worst_reason(self._nodes[name])

    def action(self, name: str) -> str:
        return formatting.advise_on_worst_cause(self._nodes[name].health.reasons)

    def subject(self, name: str) -> Subject:
        return formatting.node_subject(self._nodes[name])


class PastFleet:
    """The nodes as they were in one picture of the past."""

    def __init__(self, places: Mapping[str, int], frame: FleetPicture) -> None:
        self.frame = frame
        self._places = places

    def level(self, name: str) -> Level:
        return self.frame.level(self._places[name])

    def acknowledged(self, name: str) -> bool:
        return self.level(name) is Level.OK and bool(self._reasons(name))

    def number(self, column: NodeColumn, name: str) -> float | None:
        if column.metric not in PICTURED:
            return None
        return self.frame.number(self._places[name], column.metric)

    def cell(self, column: NodeColumn, name: str, width: int, glyphs: Glyphs) -> Runs:
        del width, glyphs
        value = self.number(column, name)
        return [(formatting.NOTHING if value is None else column.say(value), "text")]

    def why(self, name: str) -> str:
        reasons = self._reasons(name)
        return formatting.describe_worst_cause(reasons) if reasons else ""

    def action(self, name: str) -> str:
        return formatting.advise_on_worst_cause(self._reasons(name))

    def _reasons(self, name: str) -> tuple[Reason, ...]:
        return self.frame.reasons.get(self._places[name], ())

    def subject(self, name: str) -> Subject:
        word = self.level(name).word
        checks = frozenset(reason.check for reason in self._reasons(name))
        return Subject(
            f"{name} {word} {self.why(name)}",
            word,
            lambda metric: self._of_metric(metric, name),
            name,
            checks,
        )

    def _of_metric(self, metric: str, name: str) -> float | None:
        column = find_column(metric)
        return None if column is None else self.number(column, name)


def name_order(titles: Iterable[str], instant: Snapshot, nodes: Mapping[str, NodeState]) -> Key:
    """The key by which names are sorted: by the first title, then the next, last by name."""
    keys = [_order(title, instant, nodes) for title in titles]
    return lambda name: (*(key(name) for key in keys), name)


def _order(title: str, instant: Snapshot, nodes: Mapping[str, NodeState]) -> Key:
    """The natural order of a column: worst or largest first."""
    if title == "STATE":
        return lambda name: (-int(instant.level(name)),)
    if title == "NODE":
        return lambda name: (name,)
    if title == "SEEN":
        return lambda name: (nodes[name].heard_at,)
    column = find_column(title)

    def key(name: str) -> Order:
        value = instant.number(column, name) if column else None
        return value is None, -(value or 0.0)

    return key


class Arrangement:
    """Names sorted by key, without those that `keeps` rejects; an update
    looks only at the names that changed.
    """

    def __init__(self, names: Iterable[str], keeps: Callable[[str], bool], key: Key) -> None:
        self._keeps, self._key = keeps, key
        self._keys = {name: key(name) for name in names if keeps(name)}
        self.names = sorted(self._keys, key=self._keys.__getitem__)

    def again(self, changed: Iterable[str]) -> None:
        """Compute the keys of these names again, and move them to their places."""
        fresh = {name: self._key(name) if self._keeps(name) else None for name in changed}
        moved = {name: key for name, key in fresh.items() if key != self._keys.get(name)}
        if not moved:
            return
        if MANY * len(moved) > len(self.names):
            self._sort(moved)
            return
        for name, key in moved.items():
            self._put(name, key)

    def _put(self, name: str, key: Order | None) -> None:
        """Move one name to its place; with None as key, remove it."""
        if name in self._keys:
            del self.names[bisect_left(self.names, self._keys[name], key=self._keys.__getitem__)]
            del self._keys[name]
        if key is not None:
            self._keys[name] = key
            insort(self.names, name, key=self._keys.__getitem__)

    def _sort(self, moved: Mapping[str, Order | None]) -> None:
        """The same for many names at once: sorting a list that is
        nearly sorted costs almost nothing.
        """
        for name, key in moved.items():
            if key is None:
                del self._keys[name]
            else:
                self._keys[name] = key
        self.names = [name for name in self.names if name not in moved]
        self.names += [name for name, key in moved.items() if key is not None]
        self.names.sort(key=self._keys.__getitem__)


EVENTS = 30
LIVE = actions.action_key("pause")


def step_moment(fleet: Fleet, moment: float | None, frames: int) -> float | None:
    """The time `frames` pictures after `moment`, in epoch seconds
    (None: now); None if that is now.
    """
    span = fleet.past.span()
    if span is None:
        return None
    begin = span[1] if moment is None else moment
    at = max(begin + frames * fleet.past.period, span[0])
    return None if at > span[1] else at


def past_banner(moment: float, now: float, glyphs: Glyphs) -> Runs:
    """A line that says that the screen shows the past."""
    text = (
        f" PAUSED at {formatting.format_clock(moment)}, {formatting.format_age(now - moment)} ago "
    )
    return [(text, "warn"), (f" {glyphs.dot} {LIVE} live  , . step  < > ten steps", "dim")]


def past_node_page(
    fleet: Fleet, node: NodeState, moment: float, width: int, glyphs: Glyphs
) -> list[Runs]:
    """The lines of the node's page at `moment` in the past (epoch seconds)."""
    frame = fleet.past.frame(moment)
    lines: list[Runs] = [past_banner(moment, fleet.wall(), glyphs), []]
    if frame is None:
        return [*lines, [(" nothing is remembered yet", "dim")]]
    place = fleet.place(node.name)
    level = frame.level(place)
    mark = glyphs.level(level)
    lines.append(
        [(f" {printable_line(node.name)}  ", "title"), (f"{mark.glyph} {level.word}", mark.role)]
    )
    return [
        *lines,
        [],
        *_numbers(fleet, frame, place, width, glyphs),
        *_before(fleet, node, moment, width, glyphs),
    ]


def _numbers(
    fleet: Fleet, frame: FleetPicture, place: int, width: int, glyphs: Glyphs
) -> list[Runs]:
    wide = max(min(width - 26, 120), 10)
    lines: list[Runs] = []
    for column in NUMBERS:
        value = frame.number(place, column.metric)
        series = fleet.past.series(place, column.metric, frame.at)
        if all(number is None for number in series):
            continue
        text = column.say(value) or formatting.NOTHING
        most = max(number for number in series if number is not None)
        drawn = draw_spark(series, wide, glyphs, Scale(round_up(most)))
        lines.append([(f"   {column.title:<8}", "dim"), (f"{text:>9}  ", "text"), *drawn])
    return lines


def _before(fleet: Fleet, node: NodeState, moment: float, width: int, glyphs: Glyphs) -> list[Runs]:
    """What had happened by then, newest first."""
    lines: list[Runs] = [[], section_head("Until then", "newest first")]
    for one in reversed(fleet.event_log.newest):
        if one.node != node.name or one.at > moment or len(lines) > EVENTS:
            continue
        mark = glyphs.level(one.level)
        text = printable_line(one.seen, 600)
        lines.append(
            [
                (f"   {formatting.format_clock(one.at)}  ", "dim"),
                (f"{mark.glyph} {one.kind:<6} ", mark.role),
                (text, "text"),
            ]
        )
    return wrap_rows(lines, width) if lines[2:] else [*lines, [("   nothing is remembered", "dim")]]
