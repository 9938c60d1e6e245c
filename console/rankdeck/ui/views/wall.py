"""The wall view: pages of up to 64 tiles, each with the newest lines
of a rank; one widget paints all.
"""

from collections.abc import Sequence

from textual import events
from textual.message import Message
from textual.widget import Widget

from rankdeck.model.job import Job, RankState
from rankdeck.model.safe_text import printable_line
from rankdeck.state.lines import Line, RankLog
from rankdeck.ui import actions, movement
from rankdeck.ui.themes import EDGE, paint_line
from rankdeck.ui.views.base import Scene
from rankdeck.ui.widgets.canvas import Canvas, Run, Runs, break_runs, fit_runs, pane_title
from rankdeck.ui.widgets.logview import ERR_MARK, ROLES, Stamp, time_stamper
from rankdeck.values import Value

MOST = 16
LEAST_WIDTH, LEAST_HEIGHT = 36, 4
SIZES = (1, 2, 3, 4, 6, 8, 9, 12, 16, 20, 25, 30, 36, 49, 64)


class Box(Value):
    """A rectangle of cells."""

    x: int
    y: int
    width: int
    height: int

    def contains(self, x: int, y: int) -> bool:
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height


def pane_grid(count: int, width: int, height: int) -> tuple[int, int]:
    """Columns and rows of a grid for `count` panes, with lines as long as possible."""
    best, best_score = (1, count), -100.0
    for columns in range(1, count + 1):
        rows = -(-count // columns)
        w, h = width // columns, height // rows
        waste = columns * rows - count
        tight = w < LEAST_WIDTH or h < LEAST_HEIGHT
        score = (0.0 if not tight else -10.0) + min(w / 76, 1.2) * min(h / 8, 1.6) - 0.15 * waste
        if score > best_score:
            best, best_score = (columns, rows), score
    return best


def pane_boxes(count: int, width: int, height: int) -> tuple[Box, ...]:
    """A box per pane, filling the wall."""
    if not count or width < 1 or height < 1:
        return ()
    columns, rows = pane_grid(count, width, height)
    made: list[Box] = []
    for index in range(count):
        row, column = divmod(index, columns)
        in_row = min(columns, count - row * columns)
        x, right = width * column // in_row, width * (column + 1) // in_row
        y, below = height * row // rows, height * (row + 1) // rows
        made.append(Box(x, y, right - x, below - y))
    return tuple(made)


def fitting_panes(ranks: int, width: int, height: int) -> int:
    """How many panes to put on a page of this size."""
    room = max(width // LEAST_WIDTH, 1) * max(height // LEAST_HEIGHT, 1)
    return max(min(ranks, MOST, room), 1)


class Pane(Value):
    """One rank on the wall."""

    rank: int
    title: Runs
    log: RankLog
    edge: str = ""
    """The role of the frame; "": the usual one."""

    @property
    def version(self) -> tuple[object, ...]:
        """A value that changes exactly when the pane must be painted again."""
        return self.title and tuple(self.title), self.log.total, *self.log.begun


class LogWall(Canvas, can_focus=True):
    """Panes in a grid, with a cursor on one of them."""

    class Chosen(Message):
        """The cursor went to another pane, or the pane was opened."""

        def __init__(self, rank: int, *, opened: bool) -> None:
            super().__init__()
            self.rank, self.opened = rank, opened

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._panes: tuple[Pane, ...] = ()
        self._boxes: tuple[Box, ...] = ()
        self._versions: list[tuple[object, ...]] | None = None
        """The versions of the panes when they were laid out; None: lay them out again."""
        self._tails: tuple[list[Line], ...] = ()
        """The lines of each pane."""
        self._wrapped: dict[int, list[Runs]] = {}
        """Place of a pane with fewer lines than it has room for -> its rows, long lines wrapped."""
        self.at = 0
        self.stamp: Stamp = time_stamper("off", 0.0)

    def show(self, panes: Sequence[Pane]) -> None:
        """Show these panes; repaints if something is new."""
        versions = [pane.version for pane in panes]
        if versions == self._versions:
            return
        if len(panes) != len(self._panes):
            self.at = min(self.at, max(len(panes) - 1, 0))
        self._panes, self._versions = tuple(panes), versions
        self._boxes = pane_boxes(len(self._panes), *self.size)
        # One line more than fits: its time is needed to show the time since the line before.
        shown = zip(self._panes, self._boxes, strict=False)
        self._tails = tuple(newest_lines(pane.log, box.height) for pane, box in shown)
        self._wrapped.clear()
        self.refresh()

    def repaint(self) -> None:
        """Lay out and paint all again."""
        self._versions = None
        self.show(self._panes)

    @property
    def rank(self) -> int | None:
        """The rank under the cursor."""
        return self._panes[self.at].rank if self._panes else None

    def focus_rank(self, rank: int) -> None:
        """Put the cursor on this rank if it is shown."""
        for place, pane in enumerate(self._panes):
            if pane.rank == rank:
                self._go(place)

    # ---- moving

    def on_resize(self) -> None:
        self.repaint()

    def on_key(self, event: events.Key) -> None:
        beside = movement.key_grid_step(event.key)
        if beside is not None:
            event.stop()
            self._neighbour(*beside)
        elif event.key in ("tab", "shift+tab") and self._panes:
            event.stop()
            event.prevent_default()
            self._go((self.at + (1 if event.key == "tab" else -1)) % len(self._panes))

    def _neighbour(self, dx: int, dy: int) -> None:
        if not self._boxes:
            return
        box = self._boxes[self.at]
        x = box.x + box.width // 2 if not dx else (box.x - 1 if dx < 0 else box.x + box.width)
        y = box.y + box.height // 2 if not dy else (box.y - 1 if dy < 0 else box.y + box.height)
        self._go_to(x, y)

    def _go_to(self, x: int, y: int) -> bool:
        for place, box in enumerate(self._boxes):
            if box.contains(x, y):
                self._go(place)
                return True
        return False

    def _go(self, place: int) -> None:
        if place != self.at and place < len(self._panes):
            self.at = place
            self.refresh()
            self.post_message(self.Chosen(self._panes[place].rank, opened=False))

    def on_click(self, event: events.Click) -> None:
        before = self.at
        if self._go_to(event.x, event.y) and self.at == before and self._panes:
            self.post_message(self.Chosen(self._panes[self.at].rank, opened=True))

    # ---- painting

    def line(self, y: int, width: int) -> Runs:
        runs: list[Run] = []
        for place, box in enumerate(self._boxes):
            if box.y <= y < box.y + box.height:
                runs += self._pane_line(place, box, y - box.y)
        return runs

    def _pane_line(self, place: int, box: Box, y: int) -> list[Run]:
        pane, chosen = self._panes[place], place == self.at
        if y == 0:
            return pane_title(pane.title, box.width, self.glyphs, chosen=chosen, edge=pane.edge)
        edge = f"{EDGE}{pane.edge or ('key' if chosen else 'border')}"
        runs: list[Run] = [(self.glyphs.vertical, edge), (" ", "text")]
        lines, room = self._tails[place], box.width - 3
        if len(lines) < box.height - 1:
            row = self._rows(place, lines, (room, box.height - 1))[y - 1 : y]
            return [*runs, *fit_runs(row[0] if row else [], room, self.glyphs.more), (" ", "text")]
        at = y - 1 + max(len(lines) - (box.height - 1), 0)
        return [
            *runs,
            *fit_runs(self._line_runs(lines, at, room), room, self.glyphs.more),
            (" ", "text"),
        ]

    def _rows(self, place: int, lines: list[Line], size: tuple[int, int]) -> list[Runs]:
        """The rows of a pane that is not full: long lines are wrapped, the newest first."""
        room, height = size
        if place not in self._wrapped:
            spare, rows = height - len(lines), list[Runs]()
            for at in reversed(range(len(lines))):
                pieces = break_runs(self._line_runs(lines, at, room), room)
                if len(pieces) - 1 > spare:
                    last = [run for piece in pieces[spare:] for run in piece]
                    pieces = [*pieces[:spare], last]
                spare -= len(pieces) - 1
                rows[:0] = pieces
            self._wrapped[place] = rows
        return self._wrapped[place]

    def _line_runs(self, lines: list[Line], at: int, room: int) -> Runs:
        """A line with its time, and a mark if it went to stderr."""
        one = lines[at]
        head = self.stamp(one, lines[at - 1] if at else None)[:room]
        mark = [ERR_MARK] if one.stream == "err" else []
        return [(head, "dim"), *mark, *paint_line(one.text, ROLES.get(one.stream, "text"))]


def newest_lines(log: RankLog, count: int) -> list[Line]:
    """The newest lines of a log, the unfinished one included."""
    begun = log.begun
    return [*log.newest(max(count - len(begun), 0)), *begun[-count:]]


HEAD = 6
"""Guess, until the wall is laid out: how many lines of the screen it does not have."""


class WallView:
    """The tiles of one page; pinned ranks are on every page."""

    name = "wall"
    busy = False

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.wall = LogWall(id="wall")
        self._wanted = 0

    @property
    def widget(self) -> Widget:
        return self.wall

    @property
    def rank(self) -> int | None:
        return self.wall.rank

    def enter(self, job: Job) -> None:
        self._scene.choice.reorder()
        self.show(job)

    def show(self, job: Job) -> None:
        shown = self.on_page(job)
        self._scene.watch([one.rank for one in shown])
        self.wall.show(
            [
                Pane(
                    one.rank,
                    self._scene.title(job, one),
                    self._scene.log(one.rank),
                    self._scene.edge(job, one),
                )
                for one in shown
            ]
        )

    def note(self, job: Job) -> str:
        ranks = self._scene.ranks(job)
        pages = self._scene.choice.pages(len(ranks), self._size(len(ranks)))
        page = (
            f"page {self._scene.choice.page + 1}/{pages}  {actions.action_key('previous_page')}"
            f" {actions.action_key('next_page')}"
            if pages > 1
            else ""
        )
        return "  ".join(part for part in (self._scene.choice.words, page) if part)

    def texts(self) -> tuple[list[str], str]:
        if self.rank is None:
            return [], ""
        lines = newest_lines(self._scene.log(self.rank), 1000)
        return [printable_line(line.text) for line in lines], f"lines of rank {self.rank}"

    # ---- pages

    def _size(self, count: int) -> int:
        canvas: Canvas = self.wall
        width, height = canvas.size
        if not height:
            width, height = canvas.screen.size.width, canvas.screen.size.height - HEAD
        return self._wanted or fitting_panes(count, width, height)

    def on_page(self, job: Job) -> tuple[RankState, ...]:
        """The ranks of this page."""
        ranks = self._scene.ranks(job)
        return self._scene.choice.on_page(ranks, self._size(len(ranks)))

    def pages(self, job: Job) -> int:
        """How many pages there are."""
        count = len(self._scene.ranks(job))
        return self._scene.choice.pages(count, self._size(count))

    def turn(self, job: Job, pages: int) -> None:
        """Go that many pages on; after the last page comes the first."""
        choice, count = self._scene.choice, len(self._scene.ranks(job))
        choice.page = (choice.page + pages) % choice.pages(count, self._size(count))
        self.show(job)
        self.wall.repaint()

    def resize(self, job: Job, step: int) -> None:
        """Show more or fewer tiles on a page; the first rank stays on it."""
        count = len(self._scene.ranks(job))
        size = self._size(count)
        sizes = [n for n in SIZES if (n > size if step > 0 else n < size)]
        if not sizes:
            return
        first = self._scene.choice.page * size
        self._wanted = min(sizes[0] if step > 0 else sizes[-1], max(count, 1))
        self._scene.choice.page = first // self._wanted
        self.show(job)
        self.wall.repaint()

    def go(self, job: Job, rank: int) -> bool:
        """Go to the page of this rank and put the cursor on it; False if the rank is not chosen."""
        ranks = self._scene.ranks(job)
        page = self._scene.choice.place(ranks, self._size(len(ranks)), rank)
        if page is None:
            return False
        self._scene.choice.page = page
        self.show(job)
        self.wall.focus_rank(rank)
        return True
