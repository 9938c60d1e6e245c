"""A page of lines that scrolls: plans, nodes, help, messages."""

from collections.abc import Sequence

from rich.cells import cell_len
from textual import events

from rankdeck.ui import actions
from rankdeck.ui.widgets.canvas import Canvas, OptionalRun, Runs, fit, length

MARGIN = 1
WORTH = 20
"""Cells from which on a part of a line is rather cut than left out."""


class TextPage(Canvas, can_focus=True):
    """Lines of runs; the keys of lists scroll it."""

    def __init__(self, *, id: str | None = None, can_focus: bool = True) -> None:
        super().__init__(id=id)
        self.can_focus = can_focus
        self._lines: tuple[Runs, ...] = ()
        self.top = 0
        self.left = 0

    def show(self, lines: Sequence[Runs], *, restart: bool = False) -> None:
        """These lines, from the first one if `restart`."""
        if restart:
            self.top = self.left = 0
        if tuple(lines) != self._lines:
            self._lines = tuple(lines)
            self.top = min(self.top, self.last_top)
            self.refresh()

    def on_resize(self) -> None:
        self.top = min(self.top, self.last_top)

    @property
    def last_top(self) -> int:
        return max(len(self._lines) - self.size.height, 0)

    def scroll_lines(self, steps: int) -> None:
        """Go down that many lines, as far as there are any."""
        top = min(max(self.top + steps, 0), self.last_top)
        if top != self.top:
            self.top = top
            self.refresh()

    def scroll_aside(self, steps: int) -> None:
        widest = max((length(line) for line in self._lines), default=0)
        self.left = min(max(self.left + steps, 0), max(widest - self.size.width + MARGIN, 0))
        self.refresh()

    def line(self, y: int, width: int) -> Runs:
        at = self.top + y
        if at >= len(self._lines):
            return []
        runs = shifted(self._lines[at], self.left)
        left = len(self._lines) - self.top - self.size.height
        if y == self.size.height - 1 and left > 0:
            note = f" {self.glyphs.down} {left:,} more "
            return [
                *fitted(runs, width - len(note), self.glyphs.more),
                (note, "key@bar"),
            ]
        return fitted(runs, width, self.glyphs.more)

    def on_key(self, event: events.Key) -> None:
        steps = actions.steps(event.key, max(self.size.height - 1, 1))
        aside = actions.aside(event.key, 8)
        if steps is not None:
            event.stop()
            self.scroll_lines(steps)
        elif aside is not None:
            event.stop()
            self.scroll_aside(aside)

    def on_mouse_scroll_down(self) -> None:
        self.scroll_lines(3)

    def on_mouse_scroll_up(self) -> None:
        self.scroll_lines(-3)


def shifted(runs: Runs, left: int) -> Runs:
    """The runs without their first `left` characters."""
    if not left:
        return runs
    kept: list[tuple[str, str]] = []
    for text, role in runs:
        kept.append((text[left:], role))
        left = max(left - len(text), 0)
    return kept


def broken(runs: Runs, width: int) -> list[Runs]:
    """The runs on as many lines as they need, each but the first under the second run."""
    if length(runs) <= width:
        return [runs]
    first, *others = runs
    indent = cell_len(first[0]) if others and cell_len(first[0]) <= width // 3 else 0
    head, said = ([first], others) if indent else ([], list(runs))
    pieces: list[Runs] = []
    while said:
        piece, said = _split(said, max(width - indent, 1))
        pieces.append([*(head if not pieces else [(" " * indent, "text")]), *piece])
    return pieces


def _split(
    runs: list[tuple[str, str]], width: int
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The part of the runs that fits, cut at a blank where there is one, and the rest."""
    text = "".join(text for text, _ in runs)
    cells = at = 0
    while at < len(text) and cells + cell_len(text[at]) <= width:
        cells += cell_len(text[at])
        at += 1
    blank = text.rfind(" ", 0, at + 1) + 1 if at < len(text) else 0
    at = blank or max(at, 1)
    rest = shifted(runs, at)
    kept: list[tuple[str, str]] = []
    for piece, role in runs:
        kept.append((piece[:at], role))
        at = max(at - len(piece), 0)
    return [one for one in kept if one[0]], [one for one in rest if one[0]]


def pressed(runs: Runs, width: int, more: str) -> list[tuple[str, str]]:
    """The runs in exactly `width` cells: optional ones go, the last first.

    A sign says that something went.
    """
    if length(runs) <= width:
        return fitted(runs, width, more)
    kept: list[tuple[str, str]] = []
    room = width
    for part in _parts(runs):
        cells = length(part)
        if kept and cells > room - 2:
            if room >= WORTH:
                kept += part
            else:
                kept.append((f" {more}", "dim"))
            break
        kept += part
        room -= cells
    return fitted(kept, width, more)


def _parts(runs: Runs) -> list[list[tuple[str, str]]]:
    """The runs, a new part wherever an optional one begins."""
    parts: list[list[tuple[str, str]]] = []
    for run in runs:
        if isinstance(run, OptionalRun) or not parts:
            parts.append([])
        parts[-1].append(run)
    return parts


def _said(runs: Runs) -> Runs:
    """The runs without the blanks at their end, which nobody misses."""
    said = list(runs)
    while said and not said[-1][0].strip():
        said.pop()
    if said:
        said[-1] = (said[-1][0].rstrip(), said[-1][1])
    return said


def fitted(runs: Runs, width: int, more: str) -> list[tuple[str, str]]:
    """The runs in exactly `width` cells, cut with a sign."""
    kept: list[tuple[str, str]] = []
    for text, role in _said(runs):
        cells = cell_len(text)
        if cells > width:
            return [*kept, (fit(text, width, more), role)]
        kept.append((text, role))
        width -= cells
    return [*kept, (" " * width, "text")]
