"""The heat map of an acceptance run: a coloured cell for each pair, with its
number where the cell allows, and its legend.
"""

from collections.abc import Collection

from textual import events
from textual.geometry import Region
from textual.message import Message

from rankdeck.acceptance.heatmap import HeatMap, cell_kind, cell_mark
from rankdeck.acceptance.population import Population
from rankdeck.acceptance.run import AcceptanceRun, Cell
from rankdeck.model.safe_text import printable_line
from rankdeck.model.text import significant_figures
from rankdeck.ui import movement
from rankdeck.ui.themes import CELL
from rankdeck.ui.widgets.canvas import Canvas, Run, Runs, fit_text, merge_runs
from rankdeck.values import Value

ROLES = {
    "good": "ok", "fair": "accent", "slow": "warn", "bad": "bad", "unknown": "unknown", "run": "key",
    "none": "dim", "alt": "dim",
}  # fmt: skip
"""Kind of a cell -> role of the theme for text about it."""
_FILLED = {"slow": f"{CELL}warn", "bad": f"{CELL}bad", "fair": f"{CELL}hot1"}
"""Kind of a cell -> role of the cell; those of good cells go by their share of
the median, all others are not filled.
"""
_SHARE_STEP = 0.02
"""Good cells change their colour with each such step from the median."""
MOST_NAME = 24
"""Most cells of a node's name; of a longer name the end is shown, which differs between nodes."""
_SHORT_NAME = 4
"""Names of at most so many letters are written downwards although the map then scrolls."""
_FORMS = ((9, 4), (7, 3), (6, 2), (5, 2), (3, 1), (2, 1))
"""Widths of a cell, the largest first, and how many lines it has at most."""
_NUMBERED = 5
"""Cells of at least this width have their number in them, and a gap beside them."""
LEAST_BESIDE, LEAST_ROOMY = 34, 45
"""Columns that sentences beside the map need; and beside a map with numbers."""


class MapForm(Value):
    """How a map is laid out: size of a cell, of the names beside and
    above, how the names above are written.
    """

    wide: int
    tall: int
    label: int
    head: int
    names: str
    """`across`, `down`, or `numbers` that stand before the names beside."""


class PairMap(Canvas, can_focus=True):
    """Heat map of pairs: rows send, columns receive, leaves are blocks.

    The map scrolls with a cursor on one cell.
    """

    class Moved(Message):
        """The cursor went to another cell."""

    class Opened(Message):
        """A second click on a cell."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._map: HeatMap | None = None
        self.row = self.column = 0
        """The cursor, as indices into the senders and receivers of the map."""
        self._top = self._left = 0
        self._decimals = 0

    def show(self, heat: HeatMap) -> None:
        """Show this map; the cursor stays on its pair if the map still has it."""
        before, self._map = self._map, heat
        self._decimals = heat.decimals
        if before is None or (before.senders, before.receivers) != (heat.senders, heat.receivers):
            self.row, self.column = self._first(heat)
            self._follow()
        self.refresh()

    @staticmethod
    def _first(heat: HeatMap) -> tuple[int, int]:
        """Row and column of the first cell that is a pair: the corner is a node with itself."""
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
        """What is known about the pair under the cursor."""
        return self._map.cells.get(self.pair) if self._map and self.pair else None

    def wanted(self, width: int, height: int) -> tuple[int, int]:
        """Columns and lines that show the whole map, in at most so many."""
        if self._map is None:
            return 0, 0
        form, gaps = self.form(width, height), len(self._map.breaks)
        wide = form.label + form.wide * len(self._map.receivers) + gaps
        return min(wide, width), form.head + form.tall * len(self._map.senders) + gaps

    @property
    def cell_width(self) -> int:
        """The width of a cell."""
        return self._form().wide

    # ---- layout

    def form(self, width: int, height: int) -> MapForm:
        """How the map is laid out in so many columns and lines."""
        return _form(self._map, width, height) if self._map else MapForm(1, 1, 1, 1, "across")

    def _form(self) -> MapForm:
        return self.form(*self.size)

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

    def _lines(self, form: MapForm) -> list[tuple[int, int] | None]:
        """The lines below the names: (row, line of its cells); None for a gap."""
        rows = self._places(len(self._map.senders) if self._map else 0)
        return [
            one
            for row in rows
            for one in ([None] if row is None else [(row, at) for at in range(form.tall)])
        ]

    def _columns(self, form: MapForm) -> list[int | None]:
        """Places of the receivers in view; None for a gap."""
        places = self._places(len(self._map.receivers) if self._map else 0)[self._left :]
        room = self.size.width - form.label
        kept: list[int | None] = []
        for place in places:
            room -= 1 if place is None else form.wide
            if room < 0:
                break
            kept.append(place)
        return kept

    def _follow(self) -> None:
        """Scroll until the cursor is in view."""
        if self._map is None or not self._map.senders or not self.size.width:
            self._top = self._left = 0
            return
        form = self._form()
        lines, height = self._lines(form), max(self.size.height - form.head, 1)
        first = lines.index((self.row, 0))
        self._top = max(min(self._top, first), first + form.tall - height, 0)
        self._top = min(self._top, max(len(lines) - height, 0))
        at = self._places(len(self._map.receivers)).index(self.column)
        self._left = min(self._left, at)
        while self.column not in self._columns(form) and self._left < at:
            self._left += 1

    def on_resize(self) -> None:
        self._left = 0
        self._follow()

    # ---- painting

    def line(self, y: int, width: int) -> Runs:
        heat, form = self._map, self._form()
        if heat is None or not heat.senders:
            return [(" nobody is suspected", "dim")] if heat is not None and y == 1 else []
        if y < form.head:
            return self._heading(heat, form, y)
        lines = self._lines(form)
        at = self._top + y - form.head
        here = lines[at] if at < len(lines) else None
        return [] if here is None else self._row(heat, form, *here)

    def _heading(self, heat: HeatMap, form: MapForm, y: int) -> Runs:
        """The receivers' names, or a line of them."""
        head = "sends, to" if y == form.head - 1 and form.label > 9 else ""
        runs: list[Run] = [(fit_text(head, form.label), "dim")]
        for column in self._columns(form):
            if column is None:
                runs.append((" ", "text"))
                continue
            role = "key" if column == self.column else "dim"
            runs.append((_name_above(heat, form, column, y), role))
        return merge_runs(runs)

    def _row(self, heat: HeatMap, form: MapForm, row: int, at: int) -> Runs:
        name = self._name_beside(heat, form, row) if at == (form.tall - 1) // 2 else ""
        runs: list[Run] = [(name.rjust(form.label - 1) + " ", "key" if row == self.row else "text")]
        for column in self._columns(form):
            if column is None:
                runs.append((self.glyphs.vertical, "border"))
                continue
            runs += self._cell(heat, form, (row, column), at)
        return merge_runs(runs)

    def _name_beside(self, heat: HeatMap, form: MapForm, row: int) -> str:
        name = printable_line(heat.senders[row])
        number = ""
        if form.names == "numbers" and heat.senders[row] in heat.receivers:
            number = f"{heat.receivers.index(heat.senders[row]) + 1} "
        room = form.label - 1 - len(number)
        return number + (name if len(name) <= room else f"{self.glyphs.more}{name[1 - room :]}")

    def _cell(self, heat: HeatMap, form: MapForm, place: tuple[int, int], at: int) -> list[Run]:
        """One line of a cell: its number in the middle, below it the share
        of the median if it is not good.
        """
        cell = heat.cell(*place)
        own = heat.senders[place[0]] == heat.receivers[place[1]]
        gap = 1 if form.wide >= _NUMBERED else 0
        middle = (form.tall - 1) // 2
        inside = form.wide - gap
        text = ""
        if at == middle:
            text = "–" if own else self._said(cell, inside, numbered=bool(gap))
        elif at == middle + 1 and cell is not None and cell.share and cell_kind(cell) in NOT_GOOD:
            text = f"{cell.share:.0%}"
        role = "border" if own else role_of(cell)
        if place == (self.row, self.column):
            role = f"{ROLES[cell_kind(cell)]}@selection"
        shown = f"{text:^{inside}}" if gap else text.rjust(inside)
        return [(shown, role), (" " * gap, "text")]

    def _said(self, cell: Cell | None, width: int, *, numbered: bool) -> str:
        """The number of a cell, or else its letter."""
        if numbered and cell is not None and cell.value is not None and cell.answer is not None:
            shorter = (significant_figures(cell.value, digits) for digits in (4, 3, 2, 1))
            texts = (f"{cell.value:.{self._decimals}f}", *shorter)
            # A number that is cut says nothing: `0.09…`.
            return next((text for text in texts if len(text) <= width), self.glyphs.more)
        good = "." if self.theme.ascii else self.glyphs.dot
        return cell_mark(cell, min(width, 2)).replace(".", good).strip()

    # ---- moving

    def go(self, row: int, column: int) -> None:
        """Put the cursor on this cell, or on the nearest that exists."""
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
        return any(cell_kind(cell) in NOT_GOOD for cell in cells)

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
            if cell_kind(heat.cell(row, column)) in NOT_GOOD:
                self.go(row, column)
                return True
        return False

    def on_key(self, event: events.Key) -> None:
        beside = movement.key_grid_step(event.key)
        form = self._form()
        steps = movement.key_steps(event.key, max((self.size.height - form.head) // form.tall, 1))
        if beside is not None:
            event.stop()
            self.go(self.row + beside[1], self.column + beside[0])
        elif steps is not None:
            event.stop()
            self.go(self.row + steps, self.column)

    def on_click(self, event: events.Click) -> None:
        form = self._form()
        lines, x = self._lines(form), event.x - form.label
        at = self._top + event.y - form.head
        line = lines[at] if event.y >= form.head and at < len(lines) else None
        column = self._column_at(form, x)
        if line is None or column is None:
            return
        if (line[0], column) == (self.row, self.column):
            self.post_message(self.Opened())
        else:
            self.go(line[0], column)

    def _column_at(self, form: MapForm, x: int) -> int | None:
        for column in self._columns(form):
            x -= 1 if column is None else form.wide
            if x < 0:
                return column
        return None


NOT_GOOD = ("slow", "bad", "unknown")
"""Kinds of cells that `next_bad` finds."""


def _form(heat: HeatMap, width: int, height: int) -> MapForm:
    """The largest cells with which all receivers fit; whole names above them if there is room."""
    rows, count, gaps = len(heat.senders), len(heat.receivers), len(heat.breaks)
    own = min(max(map(len, heat.senders), default=0), MOST_NAME, max(width // 3, 2))
    above = max(map(len, heat.receivers), default=0)
    digits = len(str(count))
    fits_down = above <= _SHORT_NAME or (above <= MOST_NAME and above + rows + gaps <= height)
    label = own + 2 if fits_down else own + digits + 3
    room = width - label - gaps
    wide, most = next((one for one in _FORMS if one[0] * count <= room), (1, 1))
    names, head = ("down", above) if fits_down else ("numbers", digits)
    if above <= wide - (wide >= _NUMBERED):
        names, head, label = "across", 1, own + 2
    tall = min((height - head - gaps) // max(rows, 1), most)
    return MapForm(wide, max(tall, 1), label, head, names)


def _name_above(heat: HeatMap, form: MapForm, column: int, y: int) -> str:
    """What stands above a column in line `y` of the names."""
    name = printable_line(heat.receivers[column])
    gap = 1 if form.wide >= _NUMBERED else 0
    inside = form.wide - gap
    if form.names == "across":
        return (f"{name:^{inside}}" if gap else name.rjust(inside)) + " " * gap
    written = str(column + 1) if form.names == "numbers" else name
    letter = written.rjust(form.head)[y : y + 1]
    return (f"{letter:^{inside}}" if gap else letter.rjust(inside)) + " " * gap


def role_of(cell: Cell | None) -> str:
    """The role of a cell: filled if it was measured, the good ones by their share of the median."""
    word = cell_kind(cell)
    if word == "good":
        share = cell.share if cell is not None and cell.share is not None else 1.0
        step = 1 + round((share - 1.0) / _SHARE_STEP)
        return f"{CELL}calm{min(max(step, 0), 2)}"
    return _FILLED.get(word, f"{ROLES[word]}@bar")


_LEGEND = (
    ("·", "good", "good"), ("+", "fair", "fair"), ("62", "slow", "slow"), ("U", "slow", "unsteady"),
    ("W", "bad", "wrong values"), ("F", "bad", "failed"), ("?", "unknown", "not measured"), ("R", "unknown", "refused"),
    ("x", "none", "left out"), ("*", "run", "running"),
)  # fmt: skip
"""(letters of a cell, its kind, what it means)."""
_COLOURS = {"good": f"{CELL}calm1", **_FILLED}


def heat_legend(
    run: AcceptanceRun, heat: HeatMap, seen: Collection[str], cell_width: int
) -> list[Runs]:
    """What colours and letters of the cells mean, and from which number on, one entry each.

    Cells too narrow for their number show the share of the median, those of one letter in tenths.
    """
    limits = _limits(run, heat)
    of_median = ("6", "tenths of the median") if cell_width < 2 else ("62", "% of the median")
    measured: dict[str, tuple[str, str]] = {"62": of_median}
    if cell_width >= _NUMBERED:
        measured = {"62": (" ", ""), "·": (" ", ""), "+": (" ", "")}
    parts: list[Runs] = []
    for letter, word, meaning in _LEGEND:
        if meaning not in seen:
            continue
        shown, share = measured.get(letter, (letter, ""))
        words = ", ".join(filter(None, (limits.get(meaning, meaning), share)))
        parts.append(
            [(f" {shown} ", _COLOURS.get(word, f"{ROLES[word]}@bar")), (f" {words}  ", "dim")]
        )
    return parts


_MOST_KINDS = 2
"""Most kinds of pairs whose limits are written out."""


def _limits(run: AcceptanceRun, heat: HeatMap) -> dict[str, str]:
    """`good`, `fair`, `slow` with the numbers that part them; pairs of several
    kinds, as inside a leaf, have their own.
    """
    judgement = run.judgements.get(heat.recipe)
    kinds: list[Population] = [*judgement.populations.values()] if judgement else []
    if not 0 < len(kinds) <= _MOST_KINDS:
        return {}
    unit = next((cell.unit for cell in heat.cells.values() if cell.unit), "")
    good, limit = (
        f"{' or '.join(dict.fromkeys(map(significant_figures, numbers)))} {unit}".rstrip()
        for numbers in ([one.good for one in kinds], [one.limit for one in kinds])
    )
    return {"good": f"good ≥ {good}", "fair": f"fair ≥ {limit}", "slow": f"slow < {limit}"}
