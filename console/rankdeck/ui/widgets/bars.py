"""The lines around a screen: the top bar (cluster, screens, counts of nodes), the key bar
below, and lines for typing: prompt, filter, form.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from rankdeck.model.safe_text import printable_line
from rankdeck.ui import actions, formatting
from rankdeck.ui.tour import STEPS
from rankdeck.ui.widgets.canvas import (
    Canvas,
    Run,
    Runs,
    break_runs,
    cut_text,
    fit_runs,
    line_ends,
    measure_runs,
    merge_runs,
)
from rankdeck_agent.rules.levels import Level

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
_ILL = (Level.BAD, Level.WARN, Level.UNKNOWN)
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
"""Shapes of the top bar, the longest first: own name, number of tabs with a
title, counts with words, with their sum.
"""
LEAST_NAME, MOST_NAME = 12, 24
"""Least and most cells of the cluster's name."""
TAB_OF = {
    "node": "fleet",
    "sh": "fleet",
    "job": "jobs",
    "inspect": "jobs",
    "pair": "acceptance",
    "scaling": "acceptance",
}


Parts = tuple[Runs, Runs, Runs, int]
"""The own name, the tabs and the counts of the top bar in one shape, and the
cells that are left for the cluster's name.
"""


class TopBar(Canvas):
    """The top bar: cluster, screens, and how many nodes are in each state."""

    surface = "bar"

    def __init__(self, screen_name: str) -> None:
        super().__init__()
        self._tab = ""
        self.choose(screen_name)
        self._shown: tuple[object, ...] = ()

    def choose(self, screen_name: str) -> None:
        """Show the tab of this screen as the one that is open."""
        self._tab = TAB_OF.get(screen_name, screen_name)

    @property
    def console(self) -> "Console":
        return cast("Console", self.app)  # pyright: ignore[reportUnknownMemberType]

    def tick(self) -> None:
        """Read the state of the cluster; repaint if it changed."""
        session = self.console.session
        reached = session and (
            session.fleet.trouble,
            session.fleet.clock_trouble,
            session.history.state.trouble,
            session.hearing.connecting,
        )
        console = self.console
        ends = console.unseen_ends.counts
        seen = (console.summary, console.acknowledged, console.trouble, ends, reached)
        if seen != self._shown:
            self._shown = seen
            self.refresh()

    def line(self, y: int, width: int) -> Runs:
        """Name and tabs on the left, counts on the right, in the first shape that fits."""
        del y
        name = printable_line(self.console.cluster.name)
        parts = (self._parts(shape, width) for shape in SHAPES)
        fits = (one for one in parts if one[-1] >= min(cell_len(name), LEAST_NAME))
        own, tabs, counts, room = next(fits, None) or self._parts(SHAPES[-1], width)
        named = f" {cut_text(name, max(min(room, MOST_NAME), 0))} "
        return line_ends([*own, (named, "accent@bar"), *tabs], counts, width)

    def _parts(self, shape: Shape, width: int) -> Parts:
        own: list[Run] = [(" rankdeck", "title@bar")] if shape[0] else []
        tabs, counts = self._tabs(shape), self._counts(shape)
        room = width - measure_runs(own) - measure_runs(tabs) - measure_runs(counts) - 3
        return own, tabs, counts, room

    def _tabs(self, shape: Shape) -> list[Run]:
        tabs: list[Run] = []
        for place, (key, title) in enumerate(TABS):
            chosen = key == self._tab
            text = f" {title if place < shape[1] or chosen else title[0]} "
            tabs.append((text, "title@selection" if chosen else "dim@bar"))
            if key == "jobs":
                tabs += self._unseen_ends()
        return tabs

    def _unseen_ends(self) -> list[Run]:
        counts = self.console.unseen_ends.counts
        marks = [(self.glyphs.state(state), count) for state, count in counts]
        return [(f"{mark.glyph}{count} ", f"{mark.role}@bar") for mark, count in marks]

    def _counts(self, shape: Shape) -> list[Run]:
        own, titles, words, summed = shape
        bad = self.glyphs.level(Level.BAD).glyph
        if self.console.trouble:
            room = 50 if own else 24 if titles else 12
            return [(f"{bad} {cut_text(self.console.trouble, room)} ", "bad@bar")]
        session = self.console.session
        if session is None:
            return [("opening… ", "dim@bar")]
        everything = formatting.format_many(sum(self.console.summary.values()), "node")
        runs: list[Run] = [(f"{everything}  ", "text@bar")] if summed else []
        troubles = (
            (session.history.state.trouble, "history not written"),
            (session.fleet.clock_trouble, "clock here is wrong"),
            (session.fleet.trouble, "no broker"),
        )
        runs[:0] = [(f"{bad} {short}  ", "bad@bar") for trouble, short in troubles if trouble]
        done, of = session.hearing.connecting
        if done < of:
            text = f"connecting {done:,} of {of:,}  " if words else f"connecting {done:,}/{of:,}  "
            runs.insert(0, (text, "dim@bar"))
        acknowledged = len(self.console.acknowledged)
        well = self.console.summary.get(Level.OK, 0) - acknowledged
        counted = [(level, self.console.summary.get(level, 0)) for level in _ILL]
        marks = [(self.glyphs.level(level), number, level.word) for level, number in counted]
        marks.append((self.glyphs.node(Level.OK, acknowledged=True), acknowledged, "acknowledged"))
        marks.append((self.glyphs.level(Level.OK), well, Level.OK.word))
        for mark, number, word in marks:
            text = f"{mark.glyph} {number} {word}  " if words else f"{mark.glyph}{number} "
            runs += [(text, f"{mark.role}@bar")] if number else []
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
    """A line with the filter of a list, while there is one."""

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
        runs: Runs = [(" filter ", "dim@bar"), (printable_line(self.text), "key@bar")]
        return [*fit_runs(runs, max(width - measure_runs(ways), 0), self.glyphs.more), *ways]


MOST_LINES = 3
"""Most lines that a sentence takes in the place of the keys."""


class KeyBar(Canvas):
    """The keys of this screen, or a sentence that was said, on as many lines
    as it needs, and the most needed keys.
    """

    surface = "bar"

    def __init__(self, screen_name: str) -> None:
        super().__init__()
        self._all = tuple(action for action in actions.for_screen(screen_name) if action.footer)
        self._actions = self._all
        self._note = ""
        self._note_lines = [""]
        """The sentence, by lines of the bar."""
        self._role = "text"
        self._off: frozenset[str] = frozenset()
        self._idle: frozenset[str] = frozenset()

    @property
    def offered(self) -> list[actions.Action]:
        """The actions of this bar that would do something now, or say why they cannot."""
        return [one for one in self._actions if one.id not in self._idle - self._off]

    def offer(self, *, off: Iterable[str], idle: Iterable[str]) -> None:
        """Show the actions `off` as not possible now, which say why when pressed;
        leave out `idle`, which would do nothing.
        """
        before = self._off, self._idle
        self._off, self._idle = frozenset(off), frozenset(idle)
        if (self._off, self._idle) != before:
            self.refresh()

    @property
    def said(self) -> str:
        """The sentence that stands in place of the keys; "" for none."""
        return self._note

    def say(self, text: str, role: str = "text") -> None:
        """Show this sentence instead of the keys, made safe to show; "" brings the keys back."""
        text = printable_line(text.replace("\r", " ").replace("\n", "  "))
        if (text, role) != (self._note, self._role):
            self._note, self._role = text, role
            self.on_resize()

    def on_resize(self) -> None:
        pieces = break_runs([(self._note, "")], max(self.size.width - 2, 20))
        lines = ["".join(text for text, _ in piece) for piece in pieces]
        rest = "".join(lines[MOST_LINES - 1 :])  # cut where it is painted
        self._note_lines = [*lines[: MOST_LINES - 1], *([rest] if rest else [])]
        last = cell_len(self._note_lines[-1]) + 2
        if self._note and last + measure_runs(self._keys_of(self._needed())) > self.size.width:
            self._note_lines.append("")
        self.styles.height = len(self._note_lines)
        self.refresh()

    def about(self, view: str) -> None:
        """Show the keys for this view of the job screen."""
        fitting = tuple(one for one in self._all if not one.views or view in one.views)
        if fitting != self._actions:
            self._actions = fitting
            self.refresh()

    def line(self, y: int, width: int) -> Runs:
        if not self._note:
            return self._keys_of(self._fitting(width))
        text = self._note_lines[y] if y < len(self._note_lines) else ""
        note = (" " + cut_text(text.rstrip(), width - 2), f"{self._role}@bar")
        last = y == len(self._note_lines) - 1
        return line_ends([note], self._keys_of(self._needed()), width) if last else [note]

    def _keys_of(self, shown: Iterable[actions.Action]) -> list[Run]:
        return [run for one in shown for run in _key_of(one, off=one.id in self._off)]

    def _needed(self) -> list[actions.Action]:
        """The actions that have room in any case: those of an emergency,
        and those that lead to all others.
        """
        return [
            one
            for one in self.offered
            if one.screens == actions.EVERYWHERE or one.id in actions.IN_AN_EMERGENCY
        ]

    def _fitting(self, width: int) -> list[actions.Action]:
        """As many actions as fit, always including those that are needed."""
        needed = self._needed()
        room = width - measure_runs(self._keys_of(needed))
        fitting: list[actions.Action] = []
        for action in self.offered:
            room -= 0 if action in needed else measure_runs(_key_of(action))
            if action in needed or room >= 0:
                fitting.append(action)
        return fitting

    def on_click(self, event: events.Click) -> None:
        shown, at = self._fitting(self.size.width), 0
        if self._note:
            shown = self._needed() if event.y == len(self._note_lines) - 1 else []
            at = self.size.width - measure_runs(self._keys_of(shown))
        for action in shown:
            begin, at = at, at + measure_runs(_key_of(action))
            if begin <= event.x < at:
                self.screen.call_later(self.screen.run_action, action.target)
                return


def _key_of(action: actions.Action, *, off: bool = False) -> Runs:
    """` x cancel `, or `(x cancel)` if it is off, so that colour alone does not say it."""
    key, label = action.shown_key, action.label
    if off:
        return [(f"({key} {label})", "dim@bar")]
    return [(f" {key} ", "key@bar"), (f"{label} ", "dim@bar")]


class TourBar(Canvas):
    """The current step of the tour, above the keys; hidden if the tour is off."""

    surface = "bar"

    def __init__(self) -> None:
        super().__init__()
        self._place: int | None = None
        self.display = False

    def show(self, place: int | None) -> None:
        """Show this step (from 0); None hides the line."""
        if place != self._place:
            self._place, self.display = place, place is not None
            self.refresh()

    def line(self, y: int, width: int) -> Runs:
        if self._place is None:
            return []
        step = STEPS[self._place]
        if y:
            return [(f"   {step.why}", "text@bar")]
        ends = f"   :tour ends it, {actions.action_key('command')} and {actions.action_key('help')} work as ever"
        return [
            (f" tour {self._place + 1} of {len(STEPS)}  ", "title@bar"),
            (step.do, "key@bar"),
            (ends if width > len(ends) + 40 else "   :tour ends it", "dim@bar"),
        ]


FIELD_ROWS = 3
"""Most rows of a field of a form."""


class Form(Canvas, can_focus=True):
    """A heading and text fields, one below the other; a long text is on several rows. Up and down
    choose a field, other keys edit it.
    """

    class Changed(Message):
        """The text of a field changed."""

    def __init__(self, head: Runs, labels: Sequence[tuple[str, str]], *, id: str) -> None:
        super().__init__(id=id)
        self.head, self._labels = head, tuple(labels)
        """The heading; () for none."""
        self._width = max(len(label) for _, label in labels) + 2
        self.values: dict[str, str] = {key: "" for key, _ in labels}
        self._field = 0
        self._cursor = 0
        self._rows: list[Runs] = []
        self._places: list[int] = []
        """The field of each row."""
        self.styles.height = len(labels) + 1

    def fill(self, values: Mapping[str, str]) -> None:
        """Set the texts of all fields."""
        self.values = {key: values.get(key, "") for key, _ in self._labels}
        self._cursor = len(self._text)
        self._lay_out()

    @property
    def _key(self) -> str:
        return self._labels[self._field][0]

    @property
    def _text(self) -> str:
        return self.values[self._key]

    def on_focus(self) -> None:
        self._lay_out()

    def on_blur(self) -> None:
        self._lay_out()

    def on_resize(self) -> None:
        self._lay_out()

    def on_key(self, event: events.Key) -> None:
        if event.key in ("up", "down"):
            self._choose(1 if event.key == "down" else -1)
        elif event.key in ("left", "right", "home", "end"):
            ends = {"home": 0, "end": len(self._text)}
            step = {"left": -1, "right": 1}.get(event.key, 0)
            at = ends.get(event.key, self._cursor + step)
            self._cursor = min(max(at, 0), len(self._text))
        elif not self._edit(event):
            return
        event.stop()
        event.prevent_default()
        self._lay_out()

    def _choose(self, steps: int) -> None:
        self._field = (self._field + steps) % len(self._labels)
        self._cursor = len(self._text)

    def _edit(self, event: events.Key) -> bool:
        """Edit the text with this key; False if the key does not edit."""
        before, after = self._text[: self._cursor], self._text[self._cursor :]
        if event.key == "backspace":
            before = before[:-1]
        elif event.key == "delete":
            after = after[1:]
        elif event.key == "ctrl+u":
            before = ""
        elif event.character and event.is_printable:
            before += event.character
        else:
            return False
        self._cursor = len(before)
        if before + after != self._text:
            self.values[self._key] = before + after
            self.post_message(self.Changed())
        return True

    def on_click(self, event: events.Click) -> None:
        at = event.y - bool(self.head)
        if 0 <= at < len(self._places):
            self._field = self._places[at]
            self._cursor = len(self._text)
            self._lay_out()

    def _lay_out(self) -> None:
        """Put the texts on rows, and take as many as they need."""
        self._rows, self._places = [], []
        for place, (_, label) in enumerate(self._labels):
            here = self.has_focus and place == self._field
            for at, row in enumerate(self._rows_of(place, here=here)):
                named: Run = (f"   {'' if at else label:<{self._width}}", "key" if here else "dim")
                self._rows.append([named, *row])
                self._places.append(place)
        self.styles.height = len(self._rows) + bool(self.head)
        self.refresh()

    def _rows_of(self, place: int, *, here: bool) -> list[Runs]:
        """The text of a field on at most FIELD_ROWS rows; the one with the cursor is among them."""
        text, room = self.values[self._labels[place][0]], max(self.size.width - self._width - 4, 8)
        role = "title" if here else "text"
        rows: list[list[Run]] = [[]]
        seen = 0
        for at, sign in enumerate(f"{text} " if here else text):
            if measure_runs(rows[-1]) + cell_len(sign) > room:
                rows.append([])
            chosen = here and at == self._cursor
            rows[-1].append((sign, "title@selection" if chosen else role))
            seen = len(rows) - 1 if chosen else seen
        first = max(seen - FIELD_ROWS + 1, 0)
        shown = rows[first : first + FIELD_ROWS]
        if first:
            shown[0][:1] = [(self.glyphs.more, "dim")]
        if first + FIELD_ROWS < len(rows):
            shown[-1][-1:] = [(self.glyphs.more, "dim")]
        return [merge_runs(row) for row in shown]

    def line(self, y: int, width: int) -> Runs:
        del width
        at = y - bool(self.head)
        if at < 0:
            return self.head
        return self._rows[at] if at < len(self._rows) else []


REMEMBERED = 50
REPLACED = ("/", "&", "V", "r")
"""Modes that begin with the previous text selected: typing replaces
it, an arrow key keeps it for editing.
"""
Complete = Callable[[str], Sequence[str]]


WORDS_OF_KEYS = {"V": "without", "D": "compare with", "r": "ranks", "#": "go to", "&": "only"}
"""Key that opens a prompt -> the word shown there, where the key itself
would look like a part of the text.
"""


class Prompt(Input):
    """A line for typing, hidden until `ask`; tab completes, escape gives up."""

    class Typed(Message):
        """The text changed; sent on each key."""

        def __init__(self, mode: str, text: str) -> None:
            super().__init__()
            self.mode, self.text = mode, text

    class Done(Message):
        """Enter was pressed, or escape (`text` is None)."""

        def __init__(self, mode: str, text: str | None) -> None:
            super().__init__()
            self.mode, self.text = mode, text

    def __init__(self, complete: Complete) -> None:
        super().__init__(compact=True, select_on_focus=False)
        self.cursor_blink = False
        self.display = False
        self.mode = ":"
        self._complete = complete
        self._choices: list[str] = []
        self._typed: dict[str, list[str]] = {}
        self._back = 0
        self._before: Widget | None = None
        """The widget that had the focus before."""

    def ask(self, mode: str, text: str = "", hint: str = "") -> None:
        """Open the prompt with this text; `mode` is a sign or word that is shown in front.

        The answer is sent as Done.
        """
        self.mode, self.placeholder = mode, hint
        self.styles.padding = (0, 1, 0, len(self._label))
        self.value = text
        self.cursor_position = len(text)
        if mode in REPLACED:
            self.select_all()
        self._choices = []
        self._back = 0
        self.display = True
        if not self.has_focus:
            self._before = self.screen.focused
        # At once, before the keys typed right after the one that opened
        # the prompt; and again in the queue,
        # after a view that was opened for it.
        self.screen.set_focus(self)
        self.focus()

    @property
    def _label(self) -> str:
        """What is shown before the text: the sign, or the word with a colon."""
        word = WORDS_OF_KEYS.get(self.mode, self.mode).strip()
        return word if len(word) == 1 else f" {word}: "

    def render_lines(self, crop: Region) -> list[Strip]:
        """The line with its label, in the space of the left padding."""
        strips = super().render_lines(crop)
        label = self._label[crop.x : crop.right]
        if not label or not strips:
            return strips
        before = Strip([Segment(label, self.rich_style)])
        rest = strips[0].crop(len(label), crop.width)
        return [Strip.join([before, rest]), *strips[1:]]

    def end(self) -> None:
        """Hide the prompt and return the focus."""
        self.display = False
        self.screen.set_focus(self._before)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.display:
            self.post_message(self.Typed(self.mode, self.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.end()
        self._remember()
        self.post_message(self.Done(self.mode, self.value))

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape" or (event.key == "backspace" and not self.value):
            event.stop()
            event.prevent_default()
            self.end()
            self.post_message(self.Done(self.mode, None))
        elif event.key == "tab":
            event.stop()
            event.prevent_default()
            self._next_choice()
        elif event.key in ("up", "down"):
            event.stop()
            event.prevent_default()
            self._recall(1 if event.key == "up" else -1)

    def _remember(self) -> None:
        typed = self._typed.setdefault(self.mode, [])
        if self.value.strip() and self.value not in typed[-1:]:
            typed.append(self.value)
            del typed[:-REMEMBERED]

    def _recall(self, steps: int) -> None:
        """Show an earlier text of this mode, `steps` further back."""
        typed = self._typed.get(self.mode, [])
        self._back = min(max(self._back + steps, 0), len(typed))
        self.value = typed[-self._back] if self._back else ""
        self.cursor_position = len(self.value)

    def _next_choice(self) -> None:
        if self.mode != ":":
            return
        if self.value not in self._choices:
            self._choices = list(self._complete(self.value))
            at = 0
        else:
            at = (self._choices.index(self.value) + 1) % len(self._choices)
        if self._choices:
            self.value = self._choices[at]
            self.cursor_position = len(self.value)
