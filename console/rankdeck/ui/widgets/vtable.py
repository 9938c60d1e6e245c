"""Tables, lists with rows that open, and the map of nodes with a cell
each; only what is on screen is painted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

from rich.cells import cell_len
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive

from rankdeck.ui.themes import Mark, most_urgent_mark
from rankdeck.ui.widgets.canvas import (
    Canvas,
    Run,
    Runs,
    Scroller,
    fit_runs,
    fit_text,
    measure_runs,
    merge_runs,
    shift_runs,
    squeeze_runs,
)
from rankdeck.values import Value

GAP = 2
ENDLESS = 1000
"""Cells in which a column cuts nothing."""
MARKED = "*"


class Column(Value):
    """A column. On a narrow screen, the columns with the lowest `keep` are left out first."""

    title: str
    width: int
    paint: Callable[[str, int], Runs]
    """Called with the name of a row and the width in cells; returns the runs of the cell."""
    right: bool = False
    keep: int = 5
    grow: bool = False
    """The column takes the space that is left."""
    least: int = 0
    """Other columns are left out until this one has so many cells, up
    to a third of the line; 0: `width`.
    """
    most: int = 0
    """Where a line has room to spare, the column takes so many cells; 0: `width`."""


Layout = Sequence[tuple[Column, int]]
"""The columns that fit, and the width of each in cells."""


class VTable(Scroller, can_focus=True):
    """A table of rows with names; the cursor stays on its row when the order changes."""

    cursor = reactive("", repaint=False)

    class Opened(Message):
        """Enter was pressed on a row, or it was clicked a second time."""

        def __init__(self, row: str) -> None:
            super().__init__()
            self.row = row

    class Moved(Message):
        """The cursor went to another row."""

        def __init__(self, row: str) -> None:
            super().__init__()
            self.row = row

    class Heading(Message):
        """A click on the heading of a column."""

        def __init__(self, title: str) -> None:
            super().__init__()
            self.title = title

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        empty: str = "",
        on_top: bool = False,
        id: str | None = None,
    ) -> None:
        """`empty` is shown if there are no rows; with `on_top` the cursor stays on the first line
        until the user moves it, even if the rows change."""
        super().__init__(id=id)
        self._on_top = on_top
        self.columns = tuple(columns)
        self.rows: tuple[str, ...] = ()
        self.empty = empty
        self.sorted_by: tuple[str, ...] = ()
        """Titles of the columns by which the rows are sorted, the most important first."""
        self.turned = False
        """Whether the order is reversed."""
        self.marked: frozenset[str] = frozenset()
        """The marked rows; a sign is before them."""
        self.top = 0
        self._layout: tuple[object, Layout] = (None, ())
        """The columns and width for which the layout was computed, and the layout."""
        self._cells: dict[str, list[Run]] = {}
        """Row -> its cells as painted last, in this layout."""
        self._fresh: dict[str, list[Run]] = {}
        """Row -> its cells, to be painted next."""

    # ---- contents

    def show(self, rows: Sequence[str]) -> None:
        """Show these rows in this order; the cursor follows its row."""
        if tuple(rows) == self.rows:
            return
        at = self.index
        self.rows = tuple(rows)
        if self._on_top:
            self.cursor = self.rows[0] if self.rows else ""
        elif self.cursor not in self.rows:
            self.cursor = self.rows[min(at, len(self.rows) - 1)] if self.rows else ""
        self._keep_in_view()
        self.refresh()

    def touch(self, changed: frozenset[str]) -> None:
        """Repaint the changed rows that are on screen and look different now."""
        if changed.isdisjoint(shown := self.rows_in_view):
            return
        width = self.size.width
        layout, before = self._fitting(width), self._cells
        self._cells = {row: before[row] for row in shown if row in before}
        other: list[Region] = []
        for y, row in enumerate(shown, 1):
            if row in changed and (cells := self._row(row, layout)) != before.get(row):
                self._fresh[row] = cells
                other.append(Region(0, y, width, 1))
        if other:
            self.refresh(*other)

    def refresh(
        self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False
    ) -> Self:
        """As in Textual; without a region, every cell is computed again."""
        if not regions:
            self._fresh.clear()
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def refresh_line(self, y: int) -> None:
        self.refresh(Region(0, y, self.size.width, 1))

    @property
    def rows_in_view(self) -> tuple[str, ...]:
        """The rows in view."""
        return self.rows[self.top : self.top + self.page]

    @property
    def index(self) -> int:
        # Searched on demand: a table of all places would have to be made again with each new order.
        return self.rows.index(self.cursor) if self.cursor in self.rows else 0

    # ---- moving

    def move(self, steps: int) -> None:
        """Move the cursor down by so many rows, up if negative."""
        if self.rows:
            self.go(min(max(self.index + steps, 0), len(self.rows) - 1))

    def go(self, place: int) -> None:
        """Put the cursor on this row."""
        self._on_top = False
        if not self.rows or self.rows[place] == self.cursor:
            return
        before, top = self.index, self.top
        self.cursor = self.rows[place]
        self._keep_in_view()
        if self.top == top:
            self.refresh_line(before - top + 1)
            self.refresh_line(place - top + 1)
        else:
            self.refresh()
        self.post_message(self.Moved(self.cursor))

    def _keep_in_view(self) -> None:
        at, height = self.index, self.page
        if not self.top <= at < self.top + height:
            self.top = at if at < self.top else at - height + 1
        self.top = max(min(self.top, len(self.rows) - height), 0)

    def on_click(self, event: events.Click) -> None:
        place = self.top + event.y - 1
        if event.y < 1:
            if title := self._title_at(event.x):
                self.post_message(self.Heading(title))
            return
        if place >= len(self.rows):
            return
        if place == self.index:
            self.post_message(self.Opened(self.cursor))
        else:
            self.go(place)

    def _title_at(self, x: int) -> str:
        begin = 1
        for column, cells in self._fitting(self.size.width):
            if begin <= x < begin + cells:
                return column.title
            begin += cells + GAP
        return ""

    def on_resize(self) -> None:
        self._keep_in_view()

    # ---- painting

    def surface_of(self, y: int) -> str:
        if y == 0:
            return "bar"
        at = self.top + y - 1
        return "selection" if at < len(self.rows) and self.rows[at] == self.cursor else "background"

    def line(self, y: int, width: int) -> Runs:
        layout = self._fitting(width)
        if y == 0:
            return _with_right(self._heading(layout), self._position(), width)
        at = self.top + y - 1
        if at >= len(self.rows):
            return [(f" {self.empty}", "dim")] if y == 2 and not self.rows else []
        row = self.rows[at]
        sign = self.glyphs.cursor if row == self.cursor else " "
        self._cells[row] = cells = self._fresh.pop(row, None) or self._row(row, layout)
        return [(MARKED if row in self.marked else sign, "key"), *cells]

    def _position(self) -> str:
        """Which rows are in view, of how many; "" if all are in view."""
        if len(self.rows) <= self.page:
            return ""
        return f"{self.top + 1:,}-{self.top + len(self.rows_in_view):,} of {len(self.rows):,}"

    def whole(self, row: str) -> list[tuple[str, str]]:
        """The title and full text of every column in this row,
        including columns that do not fit.
        """
        painted = (
            (one.title, one.paint(row, ENDLESS if one.grow or one.most else one.width))
            for one in self.columns
        )
        return [(title, "".join(text for text, _ in runs).strip()) for title, runs in painted]

    def unseen(self, row: str) -> list[tuple[str, str]]:
        """Of `whole`, the columns that are cut in this row or do not fit at all."""
        cells = {column.title: cells for column, cells in self._fitting(self.size.width)}
        return [
            (title, text) for title, text in self.whole(row) if cell_len(text) > cells.get(title, 0)
        ]

    def _row(self, row: str, layout: Layout) -> list[Run]:
        """The cells of a row, without the sign before them."""
        runs: list[Run] = []
        for column, cells in layout:
            painted = column.paint(row, cells)
            runs += align_runs(painted, cells, right=column.right, more=self.glyphs.more)
            runs.append((" " * GAP, "text"))
        # Without the gap after the last column, which would have to be cut off again.
        return merge_runs(runs[:-1])

    def _fitting(self, width: int) -> Layout:
        """The layout at this width, computed once."""
        key = (self.columns, width)
        if self._layout[0] != key:
            self._layout = (key, fitting_columns(self.columns, width))
            self._cells.clear()
            self._fresh.clear()
        return self._layout[1]

    def _heading(self, layout: Layout) -> list[Run]:
        runs: list[Run] = [(" ", "dim")]
        for column, cells in layout:
            chosen = column.title in self.sorted_by
            arrow = (self.glyphs.up if self.turned else self.glyphs.down) if chosen else ""
            # An arrow that has no room goes into the gap, so that the title is whole.
            title = column.title[:cells] + arrow
            text = title.rjust(cells) if column.right else title.ljust(cells)
            runs.append((text.ljust(cells + GAP), "key" if chosen else "dim"))
        return runs


def _with_right(runs: list[Run], text: str, width: int) -> list[Run]:
    """The runs with a text at the right end of the line, if there is room for it."""
    line = "".join(part for part, _ in runs)
    if not text or len(line.rstrip()) + GAP + len(text) > width:
        return runs
    kept: list[Run] = []
    room = width - len(text)
    for part, role in runs:
        kept.append((part[:room], role))
        room -= len(kept[-1][0])
    return [*kept, (" " * room + text, "dim")]


def fitting_columns(columns: Sequence[Column], width: int) -> list[tuple[Column, int]]:
    """The columns that fit and the width of each; a column that grows takes the rest."""
    shown = list(columns)
    # The last column needs no gap after it.
    room = width - 1 + GAP
    most = width // 3
    while len(shown) > 1 and sum(max(c.width, min(c.least, most)) + GAP for c in shown) > room:
        shown.remove(min(reversed(shown), key=lambda column: column.keep))
    spare = max(room - sum(column.width + GAP for column in shown), 0)
    # Half of it is for names that would be cut, the rest for the column that grows.
    names, widths = spare // 2, [column.width for column in shown]
    for at, column in enumerate(shown):
        more = min(max(column.most - column.width, 0), names)
        names, spare, widths[at] = names - more, spare - more, widths[at] + more
    return [
        (column, cells + spare if column.grow else cells)
        for column, cells in zip(shown, widths, strict=True)
    ]


def align_runs(runs: Runs, width: int, *, right: bool, more: str) -> list[Run]:
    """The runs in exactly `width` cells."""
    if len(runs) == 1:
        text, role = runs[0]
        return [
            (
                text.rjust(width) if right and len(text) <= width else fit_text(text, width, more),
                role,
            )
        ]
    left = width
    kept: list[Run] = []
    for text, role in runs:
        piece = fit_text(text, min(left, max(len(text), 0)), more) if len(text) > left else text
        kept.append((piece, role))
        left -= len(piece)
        if left <= 0:
            break
    pad = (" " * max(left, 0), "text")
    return [pad, *kept] if right else [*kept, pad]


class ListEntry(Value):
    """An entry of a FoldList. Without ranks it is a heading, which the cursor skips."""

    key: object
    """Identifies the entry when the list is made again."""
    row: Runs
    more: tuple[Runs, ...] = ()
    """Further rows of the entry, always shown."""
    ranks: tuple[int, ...] = ()


class FoldList(Scroller, can_focus=True):
    """A list of entries of one or more rows, with a cursor on an entry."""

    wheel, aside = 1, 8

    class Opened(Message):
        """Enter was pressed on an entry, or it was clicked a second time."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._title: Runs = ()
        self._entries: tuple[ListEntry, ...] = ()
        self._rows: list[tuple[int, Runs]] = []
        self._cursor: object = None
        self._top = 0
        self.left = 0

    def show(self, title: Runs, entries: Sequence[ListEntry]) -> None:
        """Show these entries; the cursor stays on its entry."""
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
        """Change only the title."""
        self.show(title, self._entries)

    def restart(self) -> None:
        """Begin again at the top."""
        self._cursor, self._top, self.left, self._entries = None, 0, 0, ()

    @property
    def at(self) -> int | None:
        """The index of the entry under the cursor; None if there is none."""
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
        """Move the cursor down by so many entries, up if negative, as far as there are any."""
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

    @property
    def page(self) -> int:
        return max(self.body // 2, 1)

    def move_aside(self, cells: int) -> None:
        self.left = max(self.left + cells, 0)
        self.refresh()

    def on_resize(self) -> None:
        self._into_view()

    def on_click(self, event: events.Click) -> None:
        row = event.y - 1 + self._top
        if event.y < 1 or row >= len(self._rows):
            return
        entry = self._entries[self._rows[row][0]]
        if entry.ranks and entry.key == self._cursor:
            self.post_message(self.Opened())
        elif entry.ranks:
            self._cursor = entry.key
            self.refresh()

    # ---- painting

    def line(self, y: int, width: int) -> Runs:
        if y == 0:
            title = squeeze_runs(self._title, width, self.glyphs.more)
            return _with_right(list(title), self._position(), width)
        at = self._top + y - 1
        if at >= len(self._rows):
            return []
        place, row = self._rows[at]
        runs = fit_runs(shift_runs(row, self.left), width, self.glyphs.more)
        return (
            [(t, f"{r.partition('@')[0]}@selection") for t, r in runs] if place == self.at else runs
        )

    def _position(self) -> str:
        """Which rows are in view, of how many; "" if all are in view."""
        if len(self._rows) <= self.body:
            return ""
        last = min(self._top + self.body, len(self._rows))
        return f"{self._top + 1:,}-{last:,} of {len(self._rows):,}"


def column_run(text: str, width: int, role: str) -> Run:
    """A run of exactly that width."""
    return fit_text(text, width), role


BLOCK = 10
BESIDE, LEAST_WORDS = 30, 100
"""Cells of what stands beside a line of the map, and the least width of a screen that has it."""
"""Cells between two gaps, which make it easy to count positions."""


INDENT = 1


class CellMap(Canvas):
    """Marks in reading order, in blocks of ten; if there are too many,
    a cell stands for several marks.
    """

    class Chosen(Message):
        """The cell of item `place` was clicked."""

        def __init__(self, sender: "CellMap", place: int) -> None:
            super().__init__()
            self.sender, self.place = sender, place

        @property
        def control(self) -> "CellMap":
            return self.sender

    def __init__(
        self,
        beside: Callable[[int, int], Runs] | None = None,
        *,
        id: str | None = None,
    ) -> None:
        """`beside` gives what stands beside the items from one place to
        another, if there are several lines.
        """
        super().__init__(id=id)
        self._beside = beside
        self._marks: list[Mark] = []
        self._summed: dict[int, Mark] = {}
        """First place of a cell that stands for several marks -> the mark to show."""
        self._summed_by = 1
        self._chosen = -1

    def show(self, marks: Sequence[Mark], chosen: int = -1) -> None:
        """Show these marks, the chosen one in reverse video."""
        before, self._marks = self._marks, list(marks)
        self._summed.clear()
        self.choose(chosen)
        if len(before) != len(self._marks):
            self.refresh()
        else:
            pairs = enumerate(zip(before, self._marks, strict=True))
            self._repaint(place for place, (old, new) in pairs if old != new)

    def change(self, marks: Mapping[int, Mark]) -> None:
        """Change the marks at these places; all others stay."""
        new = {place: one for place, one in marks.items() if self._marks[place] != one}
        for place, one in new.items():
            self._marks[place] = one
            self._summed.pop(place - place % self._summed_by, None)
        self._repaint(new)

    def choose(self, place: int) -> None:
        """Show the mark at `place` in reverse video, and no other."""
        if place != self._chosen:
            before, self._chosen = self._chosen, place
            self._repaint(at for at in (before, place) if at >= 0)

    def _repaint(self, places: Iterable[int]) -> None:
        """Repaint only the lines with these marks."""
        width = self.size.width
        in_line = self._per_line(width) * self.per_cell
        lines = {place // in_line for place in places}
        if lines:
            self.refresh(*(Region(0, y, width, 1) for y in lines))

    def _per_line(self, width: int, count: int | None = None) -> int:
        """How many marks a line shows; `count` if there are not as many as there will be."""
        aside = BESIDE if self._has_words(width, count) else 0
        blocks = max((width - INDENT - aside) // (BLOCK + 1), 1)
        return min(blocks * BLOCK, max(width - INDENT, 1))

    def _has_words(self, width: int, count: int | None = None) -> bool:
        """Whether there is something beside the lines."""
        marks = len(self._marks) if count is None else count
        return self._beside is not None and width >= LEAST_WORDS and marks > width

    @property
    def per_cell(self) -> int:
        """How many marks a cell stands for."""
        room = max(self._per_line(self.size.width) * self.size.height, 1)
        return max(-(-len(self._marks) // room), 1)

    def lines_for(self, count: int, width: int, most: int = 1000) -> int:
        """How many lines show `count` marks: one cell for each mark, if
        that takes at most `most` lines.
        """
        lines = max(-(-count // self._per_line(width, count)), 1)
        per_cell = -(-lines // most)
        return -(-lines // per_cell)

    def line(self, y: int, width: int) -> Runs:
        per_line, per_cell = self._per_line(width), self.per_cell
        if per_cell != self._summed_by:
            self._summed_by = per_cell
            self._summed.clear()
        runs: list[Run] = [(" " * INDENT, "text")]
        for column in range(per_line):
            start = (y * per_line + column) * per_cell
            group = self._marks[start : start + per_cell]
            if not group:
                break
            mark = group[0] if per_cell == 1 else self._sum(start, group)
            here = start <= self._chosen < start + per_cell
            runs.append((mark.glyph, f"{mark.role}@selection" if here else mark.role))
            if column % BLOCK == BLOCK - 1:
                runs.append((" ", "text"))
        start = y * per_line * per_cell
        if self._beside and self._has_words(width) and start < len(self._marks):
            end = min(start + per_line * per_cell, len(self._marks))
            blank = per_line + per_line // BLOCK + INDENT - measure_runs(runs)
            runs += [(" " * max(blank, 0), "text"), *self._beside(start, end)]
        return merge_runs(runs)

    def _sum(self, start: int, group: Sequence[Mark]) -> Mark:
        """The mark to show for a cell that stands for several, computed
        again only when one of them changes.
        """
        if start not in self._summed:
            self._summed[start] = most_urgent_mark(group)
        return self._summed[start]

    def on_click(self, event: events.Click) -> None:
        x = event.x - INDENT
        block, inside = divmod(x, BLOCK + 1)
        if x < 0 or inside == BLOCK or block * BLOCK + inside >= self._per_line(self.size.width):
            return
        cell = event.y * self._per_line(self.size.width) + block * BLOCK + inside
        place = cell * self.per_cell
        if place < len(self._marks):
            self.post_message(self.Chosen(self, place))
