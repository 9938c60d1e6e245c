"""A list of answers with a cursor: each a row, with more rows under it once it is opened."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.message import Message

from rankdeck.ui import actions
from rankdeck.ui.widgets.canvas import Canvas, Run, Runs, fit
from rankdeck.ui.widgets.text import fitted, pressed, shifted


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One answer. Without ranks it is a heading, and the cursor goes past it."""

    key: object
    """The same answer has the same key when the list is made anew."""
    row: Runs
    more: tuple[Runs, ...] = ()
    """Rows that belong to it and are always shown."""
    ranks: tuple[int, ...] = ()


class FoldList(Canvas, can_focus=True):
    """Entries from the first one that is on screen."""

    class Opened(Message):
        """Enter, or a second click, on an entry."""

        def __init__(self, entry: ListEntry) -> None:
            super().__init__()
            self.entry = entry

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._title: Runs = ()
        self._entries: tuple[ListEntry, ...] = ()
        self._rows: list[tuple[int, Runs]] = []
        self._cursor: object = None
        self._top = 0
        self.left = 0

    def show(self, title: Runs, entries: Sequence[ListEntry]) -> None:
        """These entries; the cursor stays on its own."""
        if tuple(entries) == self._entries and tuple(title) == tuple(self._title):
            return
        self._title, self._entries = title, tuple(entries)
        self._rows = [
            (place, row)
            for place, entry in enumerate(self._entries)
            for row in (entry.row, *entry.more)
        ]
        if self.at is None:
            choices = [entry.key for entry in entries if entry.ranks]
            self._cursor = choices[0] if choices else None
        self._into_view()
        self.refresh()

    def retitle(self, title: Runs) -> None:
        """Only the title is new."""
        self.show(title, self._entries)

    def restart(self) -> None:
        """Begin again at the top."""
        self._cursor, self._top, self.left, self._entries = None, 0, 0, ()

    @property
    def at(self) -> int | None:
        """The place of the entry under the cursor."""
        keys = [entry.key for entry in self._entries]
        return keys.index(self._cursor) if self._cursor in keys else None

    @property
    def entry(self) -> ListEntry | None:
        """The entry under the cursor."""
        return None if self.at is None else self._entries[self.at]

    def texts(self) -> list[str]:
        """Everything in the list as plain lines."""
        return ["".join(text for text, _ in row).rstrip() for _, row in self._rows]

    # ---- moving

    @property
    def body(self) -> int:
        return max(self.size.height - 1, 1)

    def move(self, steps: int) -> None:
        """The cursor down by that many entries, as far as there are any."""
        places = [p for p, entry in enumerate(self._entries) if entry.ranks]
        if not places:
            return
        here = places.index(self.at) if self.at in places else 0
        place = places[min(max(here + steps, 0), len(places) - 1)]
        if steps < 0 and place == places[0]:
            self._top = 0
        self._cursor = self._entries[place].key
        self._into_view()
        self.refresh()

    def _into_view(self) -> None:
        rows = [y for y, (place, _) in enumerate(self._rows) if place == self.at]
        if rows:
            self._top = min(max(self._top, rows[-1] - self.body + 1), rows[0])
        self._top = min(self._top, max(len(self._rows) - self.body, 0))

    def on_key(self, event: events.Key) -> None:
        steps = actions.steps(event.key, max(self.body // 2, 1))
        aside = actions.aside(event.key, 8)
        if steps is not None:
            event.stop()
            self.move(steps)
        elif aside is not None:
            event.stop()
            self.left = max(self.left + aside, 0)
            self.refresh()

    def on_mouse_scroll_down(self) -> None:
        self.move(1)

    def on_mouse_scroll_up(self) -> None:
        self.move(-1)

    def on_resize(self) -> None:
        self._into_view()

    def on_click(self, event: events.Click) -> None:
        row = event.y - 1 + self._top
        if event.y < 1 or row >= len(self._rows):
            return
        entry = self._entries[self._rows[row][0]]
        if entry.ranks and entry.key == self._cursor:
            self.post_message(self.Opened(entry))
        elif entry.ranks:
            self._cursor = entry.key
            self.refresh()

    # ---- painting

    def line(self, y: int, width: int) -> Runs:
        if y == 0:
            return pressed(self._title, width, self.glyphs.more)
        at = self._top + y - 1
        if at >= len(self._rows):
            return []
        place, row = self._rows[at]
        if place != self.at:
            return fitted(shifted(row, self.left), width, self.glyphs.more)
        here = fitted(shifted(row, self.left), width, self.glyphs.more)
        return [(t, _on(r)) for t, r in here]


def _on(role: str) -> str:
    return f"{role.partition('@')[0]}@selection"


def column(text: str, width: int, role: str) -> Run:
    """A cell of exactly that width."""
    return fit(text, width), role
