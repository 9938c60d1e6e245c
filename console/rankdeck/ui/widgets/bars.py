"""The line on top (where am I, how is the cluster) and the one below (what can I press)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from rich.cells import cell_len
from textual import events

from rankdeck.model.health import Level
from rankdeck.model.text import printable
from rankdeck.ui import actions, formatting
from rankdeck.ui.actions import STEPS
from rankdeck.ui.widgets.canvas import Canvas, Run, Runs, cut, ends, fitted, length

if TYPE_CHECKING:
    from rankdeck.ui.protocols import Console

TABS = (
    ("fleet", "1 Fleet"),
    ("jobs", "2 Jobs"),
    ("launch", "3 Launch"),
    ("messages", "4 Messages"),
    ("events", "5 Events"),
    ("acceptance", "6 Accept"),
)
Shape = tuple[bool, int, bool, bool]
SHAPES: tuple[Shape, ...] = (
    (True, 6, True, True),
    (True, 6, True, False),
    (False, 6, True, False),
    (False, 5, True, False),
    (False, 5, False, False),
    (False, 0, True, False),
    (False, 0, False, False),
)
"""What the line has, most first: own name, tabs with their titles, words of the counts, their sum."""
LEAST_NAME, MOST_NAME = 12, 24
"""Cells of the cluster's name."""
TAB_OF = {"node": "fleet", "job": "jobs", "pair": "acceptance"}


@dataclass(frozen=True, slots=True)
class Parts:
    """The pieces of the line in one shape, and the cells that are left for the name."""

    own: Sequence[Run]
    tabs: Sequence[Run]
    counts: Sequence[Run]
    room: int


class TopBar(Canvas):
    """Cluster, screens, and how many nodes are in which state."""

    surface = "bar"

    def __init__(self, screen_name: str) -> None:
        super().__init__()
        self._tab = TAB_OF.get(screen_name, screen_name)
        self._shown: tuple[object, ...] = ()

    @property
    def console(self) -> "Console":
        return cast("Console", self.app)  # pyright: ignore[reportUnknownMemberType]

    def tick(self) -> None:
        """Look at the cluster; repaint if a number changed."""
        broken = self.console.session.fleet.trouble
        session = self.console.session
        reached = (session.history_trouble, session.connecting)
        seen = (self.console.summary, self.console.opened, self.console.trouble, broken, reached)
        if seen != self._shown:
            self._shown = seen
            self.refresh()

    def line(self, y: int, width: int) -> Runs:
        """Everything at both ends, in the first shape that fits."""
        del y
        name = printable(self.console.session.cluster.name)
        parts = (self._parts(shape, width) for shape in SHAPES)
        fits = (one for one in parts if one.room >= min(cell_len(name), LEAST_NAME))
        chosen = next(fits, None) or self._parts(SHAPES[-1], width)
        named = f" {cut(name, max(min(chosen.room, MOST_NAME), 0))} "
        left = [*chosen.own, (named, "accent@bar"), *chosen.tabs]
        return ends(left, chosen.counts, width)

    def _parts(self, shape: Shape, width: int) -> Parts:
        own: list[Run] = [(" rankdeck", "title@bar")] if shape[0] else []
        tabs, counts = self._tabs(shape), self._counts(shape)
        room = width - length(own) - length(tabs) - length(counts) - 3
        return Parts(own, tabs, counts, room)

    def _tabs(self, shape: Shape) -> list[Run]:
        tabs: list[Run] = []
        for place, (key, title) in enumerate(TABS):
            chosen = key == self._tab
            text = f" {title if place < shape[1] or chosen else title[0]} "
            tabs.append((text, "title@selection" if chosen else "dim@bar"))
        return tabs

    def _counts(self, shape: Shape) -> list[Run]:
        own, titles, said, summed = shape
        if self.console.trouble:
            bad = self.glyphs.level(Level.BAD).glyph
            room = 50 if own else 24 if titles else 12
            return [(f"{bad} {cut(self.console.trouble, room)} ", "bad@bar")]
        if not self.console.opened:
            return [("opening… ", "dim@bar")]
        everything = formatting.many(sum(self.console.summary.values()), "node")
        runs: list[Run] = [(f"{everything}  ", "text@bar")] if summed else []
        if self.console.session.fleet.trouble:
            bad = self.glyphs.level(Level.BAD).glyph
            runs.insert(0, (f"{bad} no broker  ", "bad@bar"))
        if self.console.session.history_trouble:
            bad = self.glyphs.level(Level.BAD).glyph
            runs.insert(0, (f"{bad} history not written  ", "bad@bar"))
        done, of = self.console.session.connecting
        if done < of:
            text = f"connecting {done:,} of {of:,}  " if said else f"connecting {done:,}/{of:,}  "
            runs.insert(0, (text, "dim@bar"))
        for level in sorted(Level, reverse=True):
            if number := self.console.summary.get(level, 0):
                mark = self.glyphs.level(level)
                text = f"{mark.glyph} {number} {level.word}  " if said else f"{mark.glyph}{number} "
                runs.append((text, f"{mark.role}@bar"))
        return runs

    def on_click(self, event: events.Click) -> None:
        at = 0
        for text, _ in self.line(0, self.size.width):
            for key, title in TABS:
                tab = text in (f" {title} ", f" {title[0]} ")
                if tab and at <= event.x < at + len(text):
                    self.console.goto(key)
            at += len(text)


class FilterBar(Canvas):
    """What narrows a list, for as long as it does."""

    surface = "bar"
    text = ""

    def show(self, text: str) -> None:
        """Show this filter; "" for none."""
        self.display = bool(text)
        if text != self.text:
            self.text = text
            self.refresh()

    def line(self, y: int, width: int) -> Runs:
        del y
        ways: Runs = [("/", "key@bar"), (" another  ", "dim@bar"), ("esc", "key@bar"), (" all ", "dim@bar")]  # fmt: skip
        said: Runs = [(" filter ", "dim@bar"), (printable(self.text), "key@bar")]
        return [*fitted(said, max(width - length(ways), 0), self.glyphs.more), *ways]


class KeyBar(Canvas):
    """The keys of this screen; for a while, what there is to say."""

    surface = "bar"

    def __init__(self, screen_name: str) -> None:
        super().__init__()
        self._all = tuple(action for action in actions.for_screen(screen_name) if action.footer)
        self._actions = self._all
        self._note = ""
        self._role = "text"
        self._off: frozenset[str] = frozenset()
        self._idle: frozenset[str] = frozenset()

    @property
    def offered(self) -> list[actions.Action]:
        """The actions that can be done now, as far as this bar has them."""
        return [one for one in self._actions if one.id not in self._idle - self._off]

    def leave_out(self, ids: Iterable[str]) -> None:
        """Do not offer these actions: now they would do nothing."""
        if (idle := frozenset(ids)) != self._idle:
            self._idle = idle
            self.refresh()

    def turn_off(self, ids: Iterable[str]) -> None:
        """Show these actions as those that cannot be done now; pressed, they say why."""
        if (off := frozenset(ids)) != self._off:
            self._off = off
            self.refresh()

    def say(self, text: str, role: str = "text") -> None:
        """Show this sentence instead of the keys, made safe to show; "" brings them back."""
        text = printable(text.replace("\r", " ").replace("\n", "  "))
        if (text, role) != (self._note, self._role):
            self._note, self._role = text, role
            self.refresh()

    def about(self, view: str) -> None:
        """The keys that matter in this view of the job screen."""
        fitting = tuple(one for one in self._all if not one.views or view in one.views)
        if fitting != self._actions:
            self._actions = fitting
            self.refresh()

    def line(self, y: int, width: int) -> Runs:
        del y
        if self._note:
            return [(" " + cut(self._note, width - 2), f"{self._role}@bar")]
        return [
            run
            for action in self._fitting(width)
            for run in _key_of(action, off=action.id in self._off)
        ]

    def _fitting(self, width: int) -> list[actions.Action]:
        """As many as there is room for; the way to all others is always among them."""
        everywhere = [one for one in self._actions if one.screens == actions.EVERYWHERE]
        room = width - sum(length(_key_of(one)) for one in everywhere)
        fitting: list[actions.Action] = []
        for action in self.offered:
            room -= 0 if action in everywhere else length(_key_of(action))
            if action in everywhere or room >= 0:
                fitting.append(action)
        return fitting

    def on_click(self, event: events.Click) -> None:
        at = 0
        for action in self._fitting(self.size.width):
            at += length(_key_of(action))
            if event.x < at and not self._note:
                self.screen.call_later(self.screen.run_action, action.target)
                return


def _key_of(action: actions.Action, *, off: bool = False) -> Runs:
    """` x cancel `, or `(x cancel)` if it is off, so that colour alone does not say it."""
    key, label = action.shown_key, action.label
    if off:
        return [(f"({key} {label})", "dim@bar")]
    return [(f" {key} ", "key@bar"), (f"{label} ", "dim@bar")]


class TourBar(Canvas):
    """The step of the tour, over the keys; nothing if there is none."""

    surface = "bar"

    def __init__(self) -> None:
        super().__init__()
        self._place: int | None = None
        self.display = False

    def show(self, place: int | None) -> None:
        """Show this step."""
        if place != self._place:
            self._place, self.display = place, place is not None
            self.refresh()

    def line(self, y: int, width: int) -> Runs:
        if self._place is None:
            return []
        step = STEPS[self._place]
        if y:
            return [(f"   {step.why}", "text@bar")]
        ends = f"   :tour ends it, {actions.key('command')} and {actions.key('help')} work as ever"
        return [
            (f" tour {self._place + 1} of {len(STEPS)}  ", "title@bar"),
            (step.do, "key@bar"),
            (ends if width > len(ends) + 40 else "   :tour ends it", "dim@bar"),
        ]
