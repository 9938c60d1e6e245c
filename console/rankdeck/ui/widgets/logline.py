"""How one line of a log becomes rows: stamp, prefix, colours, matches, wrapping."""

from collections.abc import Callable
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells

from rankdeck.logs.merge import TextMatch
from rankdeck.model.text import printable
from rankdeck.state.lines import Line
from rankdeck.ui import formatting
from rankdeck.ui.themes import painted
from rankdeck.ui.widgets.canvas import Run, Runs, shifted

Stamp = Callable[[Line, Line | None], str]
"""From a line and the one before it."""
STAMPS = ("off", "clock", "since", "delta")
ROLES = {"err": "stderr", "gap": "warn", "node": "accent"}


def stamp(kind: str, start: float) -> Stamp:
    """A time stamp of this kind; `start` is when the job began."""
    if kind == "clock":
        return lambda line, _: formatting.clock(line.at, millis=True) + " "
    if kind == "since":
        return lambda line, _: f"{line.at - start:9.3f} "
    if kind == "delta":
        return lambda line, before: f"{line.at - before.at if before else 0.0:+9.3f} "
    return lambda line, before: ""


@dataclass(frozen=True, slots=True)
class LineLayout:
    """Everything that decides how lines look."""

    width: int
    stamp: Stamp
    prefix: Callable[[int, Line], Run] | None = None
    wrap: bool = False
    left: int = 0
    search: TextMatch | None = None

    def rows(
        self, number: int, line: Line, before: Line | None, *, chosen: bool, marked: bool
    ) -> list[Runs]:
        """The rows that this line takes."""
        head: list[Run] = [("*", "key")] if marked else []
        head.append((self.stamp(line, before), "dim"))
        if self.prefix:
            head.append(self.prefix(number, line))
        role = ROLES.get(line.stream, "text")
        room = max(self.width - sum(cell_len(text) for text, _ in head) - 1, 10)
        runs = self._runs(line, role, chosen=chosen)
        if not self.wrap:
            return [[*head, *shifted(runs, self.left)]]
        if sum(cell_len(text) for text, _ in runs) <= room:
            return [[*head, *runs]]
        blank: list[Run] = [(" " * sum(cell_len(text) for text, _ in head), "dim")]
        return [[*(blank if at else head), *piece] for at, piece in enumerate(wrapped(runs, room))]

    def _runs(self, line: Line, role: str, *, chosen: bool) -> list[Run]:
        if self.search is None:
            runs = painted(line.text, role)
        else:
            shown = printable(line.text)
            spans = self.search.spans(shown)
            runs = _marked(shown, role, spans) if spans else painted(line.text, role)
        if not chosen:
            return runs
        return [(t, r if r == "match" else f"{r}@selection") for t, r in runs]


def _marked(shown: str, role: str, spans: list[tuple[int, int]]) -> list[Run]:
    runs: list[Run] = []
    at = 0
    for start, end in spans:
        runs += [(shown[at:start], role), (shown[start:end], "match")]
        at = end
    runs.append((shown[at:], role))
    return [run for run in runs if run[0]]


def wrapped(runs: Runs, room: int) -> list[list[Run]]:
    """The runs cut into rows of at most `room` cells, nothing lost."""
    rows: list[list[Run]] = [[]]
    free = room
    for text, role in runs:
        while cell_len(text) > free:
            piece = chop_cells(text[:free], free)[0] if free else ""
            if cell_len(piece) > free:
                piece = ""  # a wide character does not fit into the last cell
            if piece:
                rows[-1].append((piece, role))
            rows.append([])
            text, free = text[len(piece) :], room
        if text:
            rows[-1].append((text, role))
            free -= cell_len(text)
    return rows
