"""The map: every node as one cell, its state as shape and colour."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from textual import events
from textual.geometry import Region
from textual.message import Message

from rankdeck.ui.themes import Mark
from rankdeck.ui.widgets.canvas import Canvas, Run, Runs, merge

BLOCK = 10
"""Cells between two gaps, so that positions can be counted."""


INDENT = 1


class CellMap(Canvas):
    """Marks in reading order, in blocks of ten; where there are too many, a cell stands for several."""

    class Chosen(Message):
        """A click on the cell of this item."""

        def __init__(self, sender: "CellMap", place: int) -> None:
            super().__init__()
            self.sender, self.place = sender, place

        @property
        def control(self) -> "CellMap":
            return self.sender

    def __init__(self, worst: Callable[[Sequence[Mark]], Mark], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._worst = worst
        self._marks: list[Mark] = []
        self._summed: dict[int, Mark] = {}
        """First place of a cell that stands for several -> the mark that stands for them."""
        self._summed_by = 1
        self._chosen = -1

    def show(self, marks: Sequence[Mark], chosen: int = -1) -> None:
        """These marks, the chosen one reversed."""
        before, self._marks = self._marks, list(marks)
        self._summed.clear()
        self.choose(chosen)
        if len(before) != len(self._marks):
            self.refresh()
        else:
            pairs = enumerate(zip(before, self._marks, strict=True))
            self._repaint(place for place, (old, new) in pairs if old != new)

    def change(self, marks: Mapping[int, Mark]) -> None:
        """These places have another mark; all others stay as they are."""
        new = {place: one for place, one in marks.items() if self._marks[place] != one}
        for place, one in new.items():
            self._marks[place] = one
            self._summed.pop(place - place % self._summed_by, None)
        self._repaint(new)

    def choose(self, place: int) -> None:
        """Reverse this mark and no other."""
        if place != self._chosen:
            before, self._chosen = self._chosen, place
            self._repaint(at for at in (before, place) if at >= 0)

    def _repaint(self, places: Iterable[int]) -> None:
        """Only the lines in which these marks are."""
        width = self.size.width
        in_line = self._per_line(width) * self.per_cell
        lines = {place // in_line for place in places}
        if lines:
            self.refresh(*(Region(0, y, width, 1) for y in lines))

    def _per_line(self, width: int) -> int:
        blocks = max((width - INDENT) // (BLOCK + 1), 1)
        return min(blocks * BLOCK, max(width - INDENT, 1))

    @property
    def per_cell(self) -> int:
        """How many items a cell stands for."""
        room = max(self._per_line(self.size.width) * self.size.height, 1)
        return max(-(-len(self._marks) // room), 1)

    def lines_for(self, count: int, width: int, most: int = 1000) -> int:
        """Lines that show `count` items, with a cell each where `most` lines are enough."""
        lines = max(-(-count // self._per_line(width)), 1)
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
        return merge(runs)

    def _sum(self, start: int, group: Sequence[Mark]) -> Mark:
        """The mark of a cell that stands for several, computed once until one of them changes."""
        if start not in self._summed:
            self._summed[start] = self._worst(group)
        return self._summed[start]

    def on_click(self, event: events.Click) -> None:
        x = event.x - INDENT
        block, inside = divmod(x, BLOCK + 1)
        if x < 0 or inside == BLOCK:
            return
        cell = event.y * self._per_line(self.size.width) + block * BLOCK + inside
        place = cell * self.per_cell
        if place < len(self._marks):
            self.post_message(self.Chosen(self, place))
