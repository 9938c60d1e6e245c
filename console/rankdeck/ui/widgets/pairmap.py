"""The heat map: a cell for each sender and receiver, what it says as letters and colour."""

from collections.abc import Collection

from textual import events
from textual.geometry import Region
from textual.message import Message

from rankdeck.acceptance.heatmap import HeatMap, kind, mark
from rankdeck.acceptance.run import Cell
from rankdeck.model.text import printable
from rankdeck.ui import actions
from rankdeck.ui.widgets.canvas import Canvas, Run, Runs, fit, merge

ROLES = {
    "good": "ok", "fair": "accent", "slow": "warn", "bad": "bad", "unknown": "unknown", "run": "key",
    "none": "dim", "alt": "dim",
}  # fmt: skip
"""Kind of a cell -> role of the theme."""
MOST_NAME = 12
"""Cells of a node's name; of a longer one the end is shown, which tells it from the others."""
HEAD = 2
"""Lines above the cells."""


class PairMap(Canvas, can_focus=True):
    """Rows send, columns receive; leaves are blocks. A cursor goes from cell to cell, the map follows it.

    Cells are three columns wide, two or one where the map would not fit otherwise.
    """

    class Moved(Message):
        """The cursor went to another cell."""

    class Opened(Message):
        """A second click on a cell."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._map: HeatMap | None = None
        self.row = self.column = 0
        """Where the cursor is: places in the senders and receivers of the map."""
        self._top = self._left = 0

    def show(self, heat: HeatMap | None) -> None:
        """This map; the cursor stays on its pair where there still is one."""
        before, self._map = self._map, heat
        if heat is None:
            return
        if before is None or (before.senders, before.receivers) != (heat.senders, heat.receivers):
            self.row, self.column = self._first(heat)
            self._follow()
        self.refresh()

    @staticmethod
    def _first(heat: HeatMap) -> tuple[int, int]:
        """The first cell of a pair: the corner is a node with itself."""
        pairs = (
            (row, column)
            for row in range(len(heat.senders))
            for column in range(len(heat.receivers))
            if heat.senders[row] != heat.receivers[column]
        )
        return next(pairs, (0, 0))

    @property
    def pair(self) -> tuple[str, str] | None:
        """Sender and receiver under the cursor."""
        heat = self._map
        if heat is None or not heat.senders or not heat.receivers:
            return None
        return heat.senders[self.row], heat.receivers[self.column]

    @property
    def cell(self) -> Cell | None:
        """What is known of them."""
        return self._map.cells.get(self.pair) if self._map and self.pair else None

    def wanted(self, width: int) -> tuple[int, int]:
        """Columns and lines that show the whole map, in at most `width` columns."""
        if self._map is None:
            return 0, 0
        gaps = len(self._map.breaks)
        wide = self._label() + self._cell_width(width) * len(self._map.receivers) + gaps
        return min(wide, width), HEAD + len(self._map.senders) + gaps

    @property
    def is_wide(self) -> bool:
        """Whether a cell has room for two letters."""
        return self._cell_width(self.size.width) > 1

    # ---- where things are

    def _label(self) -> int:
        names = self._map.senders if self._map else ()
        return min(max((len(name) for name in names), default=0), MOST_NAME) + 1

    def _cell_width(self, width: int) -> int:
        """The widest cells of which all receivers fit."""
        if self._map is None:
            return 1
        room = width - self._label() - len(self._map.breaks)
        count = len(self._map.receivers)
        return next((wide for wide in (3, 2) if wide * count <= room), 1)

    def _places(self, count: int) -> list[int | None]:
        """Places in reading order, None if a gap stands between two leaves."""
        breaks = self._map.breaks if self._map else frozenset[int]()
        square = self._map is not None and self._map.senders == self._map.receivers
        found: list[int | None] = []
        for place in range(count):
            if square and place in breaks:
                found.append(None)
            found.append(place)
        return found

    def _rows(self) -> list[int | None]:
        return self._places(len(self._map.senders) if self._map else 0)

    def _columns(self) -> list[int | None]:
        """Those in view."""
        places = self._places(len(self._map.receivers) if self._map else 0)[self._left :]
        room = self.size.width - self._label()
        kept: list[int | None] = []
        for place in places:
            room -= 1 if place is None else self._cell_width(self.size.width)
            if room < 0:
                break
            kept.append(place)
        return kept

    def _follow(self) -> None:
        """Scroll so far that the cursor is in view."""
        if self._map is None or not self._map.senders or not self.size.width:
            self._top = self._left = 0
            return
        line, height = self._rows().index(self.row), max(self.size.height - HEAD, 1)
        self._top = max(min(self._top, line), line - height + 1, 0)
        self._top = min(self._top, max(len(self._rows()) - height, 0))
        at = self._places(len(self._map.receivers)).index(self.column)
        self._left = min(self._left, at)
        while self.column not in self._columns() and self._left < at:
            self._left += 1

    def on_resize(self) -> None:
        self._left = 0
        self._follow()

    # ---- painting

    def line(self, y: int, width: int) -> Runs:
        heat = self._map
        if heat is None or not heat.senders:
            return [(" nobody is suspected", "dim")] if heat is not None and y == HEAD else []
        if y < HEAD:
            return self._heading(heat, y)
        rows = self._rows()
        at = self._top + y - HEAD
        if at >= len(rows):
            return []
        row = rows[at]
        return [] if row is None else self._row(heat, row)

    def _heading(self, heat: HeatMap, y: int) -> Runs:
        """The last letters of each receiver's name, one above the other."""
        label = self._label()
        head = fit(("sends \\ to", "")[y], label) if label > 9 else " " * label
        runs: list[Run] = [(head, "dim")]
        cell = self._cell_width(self.size.width)
        for column in self._columns():
            if column is None:
                runs.append((" ", "text"))
                continue
            name = printable(heat.receivers[column])[-2:].rjust(2)
            role = "key" if column == self.column else "dim"
            runs.append((name[y].rjust(cell), role))
        return merge(runs)

    def _row(self, heat: HeatMap, row: int) -> Runs:
        name = printable(heat.senders[row])
        label = self._label()
        text = name if len(name) < label else f"{self.glyphs.more}{name[2 - label :]}"
        runs: list[Run] = [(text.rjust(label - 1) + " ", "key" if row == self.row else "text")]
        width = self._cell_width(self.size.width)
        for column in self._columns():
            if column is None:
                runs.append((self.glyphs.vertical, "border"))
                continue
            runs.append(self._cell(heat, row, column, width))
        return merge(runs)

    def _cell(self, heat: HeatMap, row: int, column: int, width: int) -> Run:
        cell = heat.cell(row, column)
        own = heat.senders[row] == heat.receivers[column]
        good = "." if self.theme.ascii else self.glyphs.dot
        marked = mark(cell, min(width, 2)).replace(".", good)
        text = ("\\" if own else marked).rjust(width)
        role = "border" if own else ROLES[kind(cell)]
        here = (row, column) == (self.row, self.column)
        return text, f"{role}@selection" if here else role

    # ---- moving

    def go(self, row: int, column: int) -> None:
        """Put the cursor there, as near as there is a cell."""
        if self._map is None or not self._map.senders:
            return
        before = (self.row, self.column)
        self.row = min(max(row, 0), len(self._map.senders) - 1)
        self.column = min(max(column, 0), len(self._map.receivers) - 1)
        if (self.row, self.column) != before:
            self._follow()
            self.refresh(Region(0, 0, self.size.width, self.size.height))
            self.post_message(self.Moved())

    @property
    def has_bad(self) -> bool:
        """Whether some cell is not good."""
        cells = self._map.cells.values() if self._map else ()
        return any(kind(cell) in NOT_GOOD for cell in cells)

    def next_bad(self) -> bool:
        """Go to the next cell that is not good, in reading order; False if there is none."""
        heat = self._map
        if heat is None:
            return False
        wide = len(heat.receivers)
        start = self.row * wide + self.column + 1
        total = len(heat.senders) * wide
        for step in range(total):
            row, column = divmod((start + step) % total, wide)
            if kind(heat.cell(row, column)) in NOT_GOOD:
                self.go(row, column)
                return True
        return False

    def on_key(self, event: events.Key) -> None:
        beside = actions.beside(event.key)
        steps = actions.steps(event.key, max(self.size.height - HEAD, 1))
        if beside is not None:
            event.stop()
            self.go(self.row + beside[1], self.column + beside[0])
        elif steps is not None:
            event.stop()
            self.go(self.row + steps, self.column)

    def on_click(self, event: events.Click) -> None:
        rows, x = self._rows(), event.x - self._label()
        at = self._top + event.y - HEAD
        row = rows[at] if event.y >= HEAD and at < len(rows) else None
        column = self._column_at(x)
        if row is None or column is None:
            return
        if (row, column) == (self.row, self.column):
            self.post_message(self.Opened())
        else:
            self.go(row, column)

    def _column_at(self, x: int) -> int | None:
        for column in self._columns():
            x -= 1 if column is None else self._cell_width(self.size.width)
            if x < 0:
                return column
        return None


NOT_GOOD = ("slow", "bad", "unknown")
"""Kinds of cells that one looks for."""
LEGEND = (
    (".", "good", "good"), ("+", "fair", "fair"), ("62", "slow", "slow, % of the median"), ("U", "slow", "unsteady"),
    ("W", "bad", "wrong values"), ("F", "bad", "failed"), ("?", "unknown", "not measured"), ("R", "unknown", "refused"),
    ("x", "none", "left out"), ("*", "run", "running"),
)  # fmt: skip
"""(letters of a cell, its kind, what it means)."""


def legend(dot: str, seen: Collection[str], wide: bool) -> list[Runs]:
    """What the letters mean, a sign each, of those that are to be seen; `dot` is that of a good cell.

    Cells that are not `wide` say tenths of the median.
    """
    parts: list[Runs] = []
    for letter, kind_, words in LEGEND:
        if words.partition(",")[0] in seen:
            tenths = letter == "62" and not wide
            shown, said = ("6", "slow, tenths of the median") if tenths else (letter, words)
            parts.append([(f" {shown.replace('.', dot)} ", ROLES[kind_]), (f"{said} ", "dim")])
    return parts
