"""Base classes of our widgets: a canvas that paints lines of runs,
and a page of lines that scrolls.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, ClassVar, cast

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual import events
from textual._styles_cache import StylesCache
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from rankdeck.ui import movement
from rankdeck.ui.themes import EDGE, LINUX, Glyphs, Palette

if TYPE_CHECKING:
    from rankdeck.ui.protocols import Theme

# pyright: reportPrivateUsage=false

Run = tuple[str, str]
"""A text and the role (see `ui/themes.py`) in which it is painted."""
Runs = Sequence[Run]


class OptionalRun(tuple[str, str]):
    """A run that is left out if there is no room, together with all
    runs up to the next optional one.
    """


def optional_run(text: str, role: str) -> Run:
    """An optional run that begins with two blanks."""
    return OptionalRun((f"  {text}", role))


PLAIN = {
    "–": "-", "…": "~", "°": "C", "·": "-", "’": "'", "±": "~", "━": "#", "─": "-",
    "×": "x", "→": ">", "←": "<", "↑": "^", "↓": "v", "−": "-", "≥": ">", "≤": "<", "µ": "u", "▏": "|",
}  # fmt: skip
"""Signs that we draw with -> ASCII."""


LEAST_MIDDLE = 12
"""Names in fewer cells are cut at their end."""


class LineCache(StylesCache):
    """Cache of painted lines; a line is painted again after it was refreshed.

    Textual's own cache handles border, padding and opacity; a canvas has none of them, and
    checking for them costs more than painting the line.
    """

    def render_widget(self, widget: Widget, crop: Region) -> list[Strip]:
        """The lines of a canvas, cut at the left and right edge of `crop`."""
        width = widget.size.width
        if width != self._width:
            self.clear()
            self._width = width
        lines = crop.line_range
        for y in lines:
            if y not in self._cache or y in self._dirty_lines:
                self._cache[y] = cast("Canvas", widget).painted(y, width)
        self._dirty_lines.difference_update(lines)
        strips = [self._cache[y] for y in lines]
        for one in widget.get_line_filters():
            strips = [strip.apply_filter(one, widget.background_colors[1]) for strip in strips]
        if crop.column_span != (0, width):
            strips = [strip.crop(*crop.column_span) for strip in strips]
        return strips


class Canvas(Widget, inherit_bindings=False):
    """A widget that paints each of its lines on demand, up to its
    edges: it has no border and no padding.
    """

    surface = "background"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._styles_cache = LineCache()

    @property
    def theme(self) -> "Theme":
        """Colours and glyphs to draw with."""
        return cast("Theme", self.app)  # pyright: ignore[reportUnknownMemberType]

    @property
    def palette(self) -> Palette:
        return self.theme.palette

    @property
    def glyphs(self) -> Glyphs:
        return self.theme.glyphs

    def line(self, y: int, width: int) -> Runs:
        """What line `y` (from 0) shows in `width` cells; subclasses override it."""
        del y, width
        return ()

    def surface_of(self, y: int) -> str:
        """The surface (background) of line `y`."""
        del y
        return self.surface

    def render_line(self, y: int) -> Strip:
        return self.painted(y, self.size.width)

    def painted(self, y: int, width: int) -> Strip:
        """Line `y` in exactly `width` cells.

        A role `name@surface` overrides the surface of the line.
        """
        runs, surface = self.line(y, width), self.surface_of(y)
        if self.theme.ascii:
            runs = [(in_ascii(text), role) for text, role in runs]
        elif self.glyphs is LINUX:
            runs = [(in_console_font(text), role) for text, role in runs]
        style, cells = self.palette.style, 0
        segments: list[Segment] = []
        for text, role in runs:
            if text:
                segments.append(Segment(text, style(role, surface)))
                cells += len(text) if text.isascii() else cell_len(text)
        # The length is passed, so that Textual does not count again.
        return Strip(segments, cells).adjust_cell_length(width, style("text", surface))


def in_ascii(text: str) -> str:
    """`text` in ASCII with the same width."""
    if text.isascii():
        return text
    # A degree sign alone becomes a C; before a C it becomes a blank: `61C`, `95 C`.
    text = text.replace("°C", " C")
    signs = (c if c.isascii() else PLAIN.get(c, "?") * cell_len(c) for c in text)
    return "".join(signs)


def _is_in_console_font(sign: str) -> bool:
    try:
        sign.encode("cp437")
    except UnicodeEncodeError:
        return sign in _ALSO_THERE
    return True


_ALSO_THERE = "→←↑↓"
"""Signs of the font that are no letters of its code page."""
_CONSOLE_FONT = {ord(c): twin for c, twin in PLAIN.items() if not _is_in_console_font(c)}


def in_console_font(text: str) -> str:
    """`text` with the signs that we draw with as the Linux console's own font has them."""
    return text if text.isascii() else text.translate(_CONSOLE_FONT)


def merge_runs(runs: Sequence[Run]) -> list[Run]:
    """Join neighbouring runs of the same role."""
    merged: list[Run] = []
    for text, role in runs:
        if merged and merged[-1][1] == role:
            merged[-1] = (merged[-1][0] + text, role)
        else:
            merged.append((text, role))
    return merged


def fit_text(text: str, width: int, more: str = "…") -> str:
    """`text` in exactly `width` cells; if it is cut, it ends with `more`."""
    if text.isascii() and len(text) <= width:
        return text.ljust(width)
    if cell_len(text) <= width:
        return text + " " * (width - cell_len(text))
    return set_cell_size(text, max(width - 1, 0)) + (more if width else "")


def cut_text(text: str, width: int, more: str = "…") -> str:
    """`text` in at most `width` cells; if it is cut, it ends with `more`."""
    return text if cell_len(text) <= width else fit_text(text, max(width, 0), more)


def cut_middle(text: str, width: int, more: str = "…") -> str:
    """The same, cut in the middle: what tells names apart is often at their end."""
    if cell_len(text) <= width or width < LEAST_MIDDLE or cell_len(text) != len(text):
        return cut_text(text, width, more)
    end = width // 3
    return f"{text[: width - end - 1]}{more}{text[-end:]}"


def measure_runs(runs: Runs) -> int:
    """Width of the runs in cells."""
    return sum(cell_len(text) for text, _ in runs)


def line_ends(left: Runs, right: Runs, width: int) -> Runs:
    """Left and right runs at the two ends of a line; the right ones
    are left out if there is no room.
    """
    gap = width - measure_runs(left) - measure_runs(right)
    if gap < 1:
        return left
    return [*left, (" " * gap, "text"), *right]


HOT = 90.0


def draw_bar(percent: float | None, width: int, glyphs: Glyphs, *, high: float = HOT) -> list[Run]:
    """A horizontal bar of `width` cells; an unknown value is blank, unlike zero."""
    if percent is None:
        return [(" " * width, "dim")]
    cells = min(max(percent, 0.0), 100.0) / 100 * width
    whole = int(cells)
    steps = len(glyphs.parts) + 1
    part = int((cells - whole) * steps)
    text = glyphs.full * whole + (glyphs.parts[part - 1] if part and whole < width else "")
    role = "warn" if percent >= high else "ok"
    return [(text, role), (glyphs.empty * (width - len(text)), "border")]


NEVER_HIGH = 200.0
"""`high` of a bar that is never too full: a percentage that it does not reach."""


def draw_share(share: float, width: int, glyphs: Glyphs) -> list[Run]:
    """How far something is (0 to 1), as a bar of `width` cells and in percent."""
    percent = 100 * share
    return [*draw_bar(percent, width, glyphs, high=NEVER_HIGH), (f" {percent:3.0f}%", "text")]


class Scroller(Canvas, can_focus=True):
    """A canvas that the keys of lists and the mouse wheel scroll."""

    wheel: ClassVar[int] = 3
    """Lines to move for each step of the wheel."""
    aside: ClassVar[int] = 0
    """Cells to move for each key to the side; 0: these keys are not handled."""

    @property
    def page(self) -> int:
        """Lines to move for page up and page down."""
        return max(self.size.height - 1, 1)

    def move(self, steps: int) -> None:
        """Move down by `steps` lines, up if negative, as far as there are any."""
        del steps

    def move_aside(self, cells: int) -> None:
        """Move to the right by so many cells, left if negative."""
        del cells

    def on_key(self, event: events.Key) -> None:
        steps = movement.key_steps(event.key, self.page)
        cells = movement.key_sidestep(event.key, self.aside)
        if steps is not None:
            event.stop()
            self.move(steps)
        elif cells:
            event.stop()
            self.move_aside(cells)

    def on_mouse_scroll_down(self) -> None:
        self.move(self.wheel)

    def on_mouse_scroll_up(self) -> None:
        self.move(-self.wheel)


MARGIN = 1
"""Columns that are free at both ends of a line."""
WORTH = 20
"""A part of a line that would still get this many cells is cut; with fewer cells it is left out."""
HANG = 2
"""Cells by which further rows of a line hang where all lines are wrapped."""


class TextPage(Scroller, can_focus=True):
    """A page of lines; the keys of lists scroll it. Long lines are wrapped while rows are empty."""

    aside = 8

    def __init__(
        self,
        *,
        id: str | None = None,
        can_focus: bool = True,
        wraps: bool = True,
        always: bool = False,
    ) -> None:
        """Without `wraps` long lines are cut: they have columns.

        With `always` they are wrapped even if the page is full, and their further rows hang.
        """
        super().__init__(id=id)
        self.can_focus, self._wraps, self.always = can_focus, wraps, always
        self._given: tuple[Runs, ...] = ()
        self._lines: tuple[Runs, ...] = ()
        """The rows: `_given`, wrapped as far as there is room."""
        self._sources: tuple[int, ...] = ()
        """The place in `_given` of each row."""
        self.top = 0
        self.left = 0

    def show(self, lines: Sequence[Runs], *, restart: bool = False) -> None:
        """Show these lines; with `restart`, scroll to the first."""
        if restart:
            self.top = self.left = 0
        if tuple(lines) != self._given:
            self._given = tuple(lines)
            self._lay_out()
            self.refresh()

    def on_resize(self) -> None:
        self._lay_out()
        self.refresh()

    def _lay_out(self) -> None:
        width, height = self.size
        if not self._wraps or width <= WORTH:
            groups = [[line] for line in self._given]
        elif self.always:
            groups = [break_runs(line, width - MARGIN, HANG) for line in self._given]
        else:
            groups = spread_rows(self._given, width - MARGIN, height)
        self._lines = tuple(chain.from_iterable(groups))
        self._sources = tuple(at for at, pieces in enumerate(groups) for _ in pieces)
        self.top = min(self.top, self.last_top)

    @property
    def last_top(self) -> int:
        return max(len(self._lines) - self.size.height, 0)

    @property
    def in_view(self) -> list[str]:
        """The lines on screen as plain text, not cut at the edges, each once and whole."""
        shown = dict.fromkeys(self._sources[self.top : self.top + self.size.height])
        return ["".join(text for text, _ in self._given[at]).rstrip() for at in shown]

    def move(self, steps: int) -> None:
        top = min(max(self.top + steps, 0), self.last_top)
        if top != self.top:
            self.top = top
            self.refresh()

    def move_aside(self, cells: int) -> None:
        widest = max((measure_runs(line) for line in self._lines), default=0)
        self.left = min(max(self.left + cells, 0), max(widest - self.size.width + MARGIN, 0))
        self.refresh()

    def line(self, y: int, width: int) -> Runs:
        at = self.top + y
        if at >= len(self._lines):
            return []
        runs = shift_runs(self._lines[at], self.left)
        left = len(self._lines) - self.top - self.size.height
        if y == self.size.height - 1 and left > 0:
            note = f" {self.glyphs.down} {left:,} more "
            return [*fit_runs(runs, width - len(note), self.glyphs.more), (note, "key@bar")]
        return fit_runs(runs, width, self.glyphs.more)


def shift_runs(runs: Runs, left: int) -> Runs:
    """The runs without their first `left` characters."""
    if not left:
        return runs
    kept: list[tuple[str, str]] = []
    for text, role in runs:
        kept.append((text[left:], role))
        left = max(left - len(text), 0)
    return kept


def spread_rows(lines: Sequence[Runs], width: int, height: int) -> list[list[Runs]]:
    """The rows of each line: those too long for `width` are on several while some of the
    `height` rows are empty.
    """
    spare = height - len(lines)
    groups: list[list[Runs]] = []
    for line in lines:
        pieces = break_runs(line, width) if spare > 0 else [line]
        groups.append(pieces if len(pieces) - 1 <= spare else [line])
        spare -= len(groups[-1]) - 1
    return groups


def wrap_rows(lines: Iterable[Runs], width: int) -> list[Runs]:
    """The lines, each on as many rows as it needs."""
    return [piece for line in lines for piece in break_runs(line, width)]


def break_runs(runs: Runs, width: int, hang: int = 0) -> list[Runs]:
    """The runs on as many lines as they need; further lines are indented to the second run,
    else as the first, and by `hang` cells more.
    """
    if not runs or measure_runs(runs) <= width:
        return [runs]
    first, *others = runs
    indent = cell_len(first[0]) if others and cell_len(first[0]) <= width // 3 else 0
    head, rest = ([first], others) if indent else ([], list(runs))
    text = "".join(text for text, _ in runs)
    further = (indent or min(len(text) - len(text.lstrip()), width // 3)) + hang
    pieces: list[Runs] = []
    while rest:
        piece, rest = _split(rest, max(width - (further if pieces else indent), 1))
        pieces.append([*(head if not pieces else [(" " * further, "text")]), *piece])
    return pieces


def _split(
    runs: list[tuple[str, str]], width: int
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The part of the runs that fits, cut at a blank if there is one, and the rest."""
    text = "".join(text for text, _ in runs)
    cells = at = 0
    while at < len(text) and cells + cell_len(text[at]) <= width:
        cells += cell_len(text[at])
        at += 1
    cuts = (text.rfind(" ", 0, at + 1) + 1, text.rfind("/", 1, at) + 1) if at < len(text) else ()
    at = next((cut for cut in cuts if text[:cut].strip()), max(at, 1))
    rest = shift_runs(runs, at)
    kept: list[tuple[str, str]] = []
    for piece, role in runs:
        kept.append((piece[:at], role))
        at = max(at - len(piece), 0)
    return [one for one in kept if one[0]], [one for one in rest if one[0]]


def squeeze_runs(runs: Runs, width: int, more: str) -> list[tuple[str, str]]:
    """The runs in exactly `width` cells: optional ones are left out, the last first.

    `more` at the end shows that something was left out.
    """
    if measure_runs(runs) <= width:
        return fit_runs(runs, width, more)
    kept: list[tuple[str, str]] = []
    room = width
    for part in _parts(runs):
        cells = measure_runs(part)
        if kept and cells > room - 2:
            if room >= WORTH:
                kept += part
            else:
                kept.append((f" {more}", "dim"))
            break
        kept += part
        room -= cells
    return fit_runs(kept, width, more)


def _parts(runs: Runs) -> list[list[tuple[str, str]]]:
    """The runs in parts; each optional run begins a new part."""
    parts: list[list[tuple[str, str]]] = []
    for run in runs:
        if isinstance(run, OptionalRun) or not parts:
            parts.append([])
        parts[-1].append(run)
    return parts


def break_parts(runs: Runs, width: int) -> list[Runs]:
    """The runs on as many lines as they need: a part that does not fit begins the next line."""
    lines: list[list[Run]] = [[]]
    for part in _parts(runs):
        if lines[-1] and measure_runs([*lines[-1], *part]) > width:
            lines.append([])
            part[0] = (part[0][0].lstrip(), part[0][1])
        lines[-1] += part
    return wrap_rows(lines, width)


def _without_end_blanks(runs: Runs) -> Runs:
    """The runs without blanks at their end."""
    rest = list(runs)
    while rest and not rest[-1][0].strip():
        rest.pop()
    if rest:
        rest[-1] = (rest[-1][0].rstrip(), rest[-1][1])
    return rest


def pane_title(
    title: Runs, width: int, glyphs: Glyphs, *, chosen: bool, edge: str = ""
) -> list[Run]:
    """The upper edge of a pane, with its title in it."""
    edge = f"{EDGE}{edge or ('key' if chosen else 'border')}"
    bar = glyphs.heavy if chosen else glyphs.horizontal
    runs: list[Run] = [(glyphs.corners[0] + bar, edge), (" ", "text")]
    left = width - 5
    for run in title:
        text, role = run
        left_out = isinstance(run, OptionalRun) and cell_len(text) > left
        piece = "" if left_out else cut_text(text, left, glyphs.more)
        runs.append((piece, role))
        left -= cell_len(piece)
    runs += [(" ", "text"), (bar * max(left, 0), edge), (" ", "text")]
    return runs


def box_edge(title: str, note: str, width: int, glyphs: Glyphs, roles: tuple[str, str]) -> Runs:
    """The upper edge of a closed box with its title, and a note at its right end.

    `roles` are those of the edge and of the title.
    """
    edge, named = f"{EDGE}{roles[0]}", roles[1]
    said = f" {note} " if note else ""
    title = cut_text(title, max(width - cell_len(said) - 6, 0), glyphs.more)
    runs: list[Run] = [(glyphs.corners[0] + glyphs.horizontal, edge), (f" {title} ", named)]
    left = width - measure_runs(runs) - cell_len(said) - 2
    return [
        *runs,
        (glyphs.horizontal * left, edge),
        (said, "text"),
        (glyphs.horizontal + glyphs.corners[1], edge),
    ]


def draw_box(
    upper: Runs, body: Sequence[Runs], width: int, glyphs: Glyphs, edge: str = "border"
) -> list[Runs]:
    """A closed box around lines, `width` cells wide; `upper` is its upper edge."""
    side, inner = (glyphs.vertical, f"{EDGE}{edge}"), width - 4
    lower = glyphs.corners[2] + glyphs.horizontal * (width - 2) + glyphs.corners[3]
    return [
        upper,
        *(
            [side, (" ", "text"), *squeeze_runs(one, inner, glyphs.more), (" ", "text"), side]
            for one in body
        ),
        [(lower, side[1])],
    ]


def join_blocks(blocks: Sequence[Sequence[Runs]], width: int, more: str) -> list[Runs]:
    """Blocks of lines side by side, each but the last in exactly `width` cells and a blank."""
    lines: list[Runs] = []
    for parts in zip_longest(*blocks, fillvalue=()):
        fitted = [(*fit_runs(one, width, more), (" ", "text")) for one in parts[:-1]]
        lines.append([*chain.from_iterable(fitted), *parts[-1]])
    return lines


def fit_runs(runs: Runs, width: int, more: str) -> list[tuple[str, str]]:
    """The runs in exactly `width` cells; if they are cut, they end with `more`."""
    kept: list[tuple[str, str]] = []
    for text, role in _without_end_blanks(runs):
        cells = cell_len(text)
        if cells > width:
            return [*kept, (fit_text(text, width, more), role)]
        kept.append((text, role))
        width -= cells
    return [*kept, (" " * width, "text")]
