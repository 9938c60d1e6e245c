"""The ranks of a job in one strip: each with its number and its node while they fit,
else one sign for each, in blocks.
"""

from collections.abc import Sequence
from itertools import groupby

from rich.cells import cell_len
from textual import events

from rankdeck.model.safe_text import printable_line
from rankdeck.ui.themes import Glyphs, Mark
from rankdeck.ui.widgets.canvas import Run, Runs, cut_text, merge_runs
from rankdeck.ui.widgets.vtable import BLOCK, CellMap

HEAD = " rank "
NUMBERS, NODES = 2, 3
"""Lines of a strip with numbers, and of one with nodes too."""
NAMED, LEAST_NODE = 4, 6
"""Cells that a node takes below its ranks beside its name, and in all at least."""
WIDEST = 12
"""Most cells of a rank."""


class RankStrip(CellMap):
    """Signs of ranks; with the numbers above and the nodes below where there is room."""

    _ranks: tuple[tuple[int, str], ...] = ()
    """Number and node of each rank."""

    def show_ranks(
        self, ranks: Sequence[tuple[int, str]], marks: Sequence[Mark], chosen: int
    ) -> None:
        """Show these ranks (number, node) with their marks, the chosen one in reverse video."""
        if tuple(ranks) != self._ranks:
            self._ranks = tuple(ranks)
            self.refresh()
        self.show(marks, chosen)

    def fitting_lines(self, ranks: Sequence[tuple[int, str]], width: int, most: int) -> int:
        """How many of at most `most` lines the ranks take with numbers; 0 if they do not fit."""
        if most < NUMBERS or not _cell(ranks, width):
            return 0
        return min(most, NODES if _node_runs(ranks, _cell(ranks, width)) else NUMBERS)

    @property
    def _numbered(self) -> int:
        """Cells of each rank; 0 if they do not fit, or there is only one line."""
        room = self.size.height >= NUMBERS and len(self._marks) == len(self._ranks)
        return _cell(self._ranks, self.size.width) if room else 0

    def line(self, y: int, width: int) -> Runs:
        cell = self._numbered
        if not cell:
            return super().line(y, width)
        lines = _numbered_lines(self._ranks, self._marks, cell, self.glyphs, self._chosen)
        return lines[y] if y < len(lines) else []

    def _repaint(self, places: object) -> None:
        if self._numbered:
            self.refresh()
        else:
            super()._repaint(places)  # pyright: ignore[reportArgumentType]

    def on_click(self, event: events.Click) -> None:
        cell = self._numbered
        if not cell:
            super().on_click(event)
            return
        place = (event.x - len(HEAD)) // cell
        if 0 <= place < len(self._ranks):
            self.post_message(self.Chosen(self, place))


Ranks = Sequence[tuple[int, str]]


def draw_ranks(
    ranks: Ranks, marks: Sequence[Mark], room: tuple[int, int], glyphs: Glyphs
) -> list[Runs]:
    """The strip as lines in `room` (cells, lines), without a chosen rank: with numbers and nodes if
    they fit, else a sign for each rank in blocks; [] if they do not fit either.
    """
    width, height = room
    if height >= NUMBERS and (cell := _cell(ranks, width)):
        return _numbered_lines(ranks, marks, cell, glyphs)[:height]
    each = max((width - 1) // (BLOCK + 1), 1)
    blocks = [marks[at : at + BLOCK] for at in range(0, len(marks), BLOCK)]
    rows = [blocks[at : at + each] for at in range(0, len(blocks), each)]
    if len(rows) > height:
        return []
    return [
        merge_runs([run for block in row for run in [(" ", "text"), *map(_sign_run, block)]])
        for row in rows
    ]


def _sign_run(mark: Mark) -> Run:
    return mark.glyph, mark.role


def _numbered_lines(
    ranks: Ranks, marks: Sequence[Mark], cell: int, glyphs: Glyphs, chosen: int = -1
) -> list[Runs]:
    """The numbers, the signs and, if they say something, the nodes of the ranks."""
    blank: Run = (" " * len(HEAD), "text")
    signs: list[Run] = [blank]
    for place, mark in enumerate(marks):
        role = f"{mark.role}@selection" if place == chosen else mark.role
        signs += [(" " * (cell - 1), "text"), (mark.glyph, role)]
    numbers = "".join(f"{rank:>{cell}}" for rank, _ in ranks)
    nodes = _node_runs(ranks, cell, glyphs.horizontal)
    lines: list[Runs] = [[(HEAD, "dim"), (numbers, "text")], merge_runs(signs)]
    return [*lines, *([[blank, *nodes]] if nodes else [])]


def _cell(ranks: Ranks, width: int) -> int:
    """Cells for each rank, so that all fit in one line, with the names of their nodes if
    possible; 0 if they do not fit.
    """
    digits = len(str(max((rank for rank, _ in ranks), default=0)))
    named = max((-(-(len(node) + NAMED) // count) for node, count in _groups(ranks)), default=0)
    room = width - len(HEAD) - 1
    tries = (max(digits + 2, min(named, WIDEST)), digits + 2, digits + 1)
    return next((cell for cell in tries if cell * len(ranks) <= room), 0)


def _groups(ranks: Ranks) -> list[tuple[str, int]]:
    """Each node with its number of ranks, in their order; [] if that says nothing: there is
    only one node, or one comes twice.
    """
    groups = [(node, sum(1 for _ in group)) for node, group in groupby(node for _, node in ranks)]
    return groups if 1 < len(groups) == len(dict(groups)) else []


def _node_runs(ranks: Ranks, cell: int, line: str = "-") -> list[Run]:
    """Each node below its ranks; nothing if its name would get too few cells."""
    groups = _groups(ranks)
    if not groups or min(count for _, count in groups) * cell < LEAST_NODE:
        return []
    runs: list[Run] = []
    for node, count in groups:
        name = cut_text(printable_line(node), count * cell - NAMED + 1)
        left = count * cell - cell_len(name) - NAMED + 1
        runs += [(f" {line}", "border"), (f" {name}", "dim")]
        runs.append((f" {line * (left - 1)}" if left > 0 else "", "border"))
    return runs
