"""The wall view: pages of tiles with the newest lines of each rank."""

from textual.widget import Widget

from rankdeck.model.job import Job, RankState
from rankdeck.model.text import printable
from rankdeck.ui import actions
from rankdeck.ui.views.base import Scene
from rankdeck.ui.widgets import logwall
from rankdeck.ui.widgets.canvas import Canvas
from rankdeck.ui.widgets.logwall import LogWall, Pane, tail

HEAD = 6
"""Lines of the screen that are not the wall, until it has been laid out."""


class WallView:
    """Tiles of one page, the pinned ranks on every page."""

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
            f"page {self._scene.choice.page + 1}/{pages}  {actions.key('previous_page')} {actions.key('next_page')}"
            if pages > 1
            else ""
        )
        return "  ".join(part for part in (self._scene.choice.said, page) if part)

    def texts(self) -> tuple[list[str], str]:
        if self.rank is None:
            return [], ""
        lines = tail(self._scene.log(self.rank), 1000)
        return [printable(line.text) for line in lines], f"lines of rank {self.rank}"

    # ---- pages

    def _size(self, count: int) -> int:
        canvas: Canvas = self.wall
        width, height = canvas.size
        if not height:
            width, height = canvas.screen.size.width, canvas.screen.size.height - HEAD
        return self._wanted or logwall.fitting(count, width, height)

    def on_page(self, job: Job) -> tuple[RankState, ...]:
        """The ranks of this page."""
        ranks = self._scene.ranks(job)
        return self._scene.choice.on_page(ranks, self._size(len(ranks)))

    def pages(self, job: Job) -> int:
        """How many pages there are."""
        count = len(self._scene.ranks(job))
        return self._scene.choice.pages(count, self._size(count))

    def turn(self, job: Job, pages: int) -> None:
        """That many pages on, from the first again after the last."""
        choice, count = self._scene.choice, len(self._scene.ranks(job))
        choice.page = (choice.page + pages) % choice.pages(count, self._size(count))
        self.show(job)
        self.wall.repaint()

    def resize(self, job: Job, step: int) -> None:
        """More or fewer tiles on a page; the first rank stays on it."""
        count = len(self._scene.ranks(job))
        size = self._size(count)
        fitting = [n for n in logwall.SIZES if (n > size if step > 0 else n < size)]
        if not fitting:
            return
        first = self._scene.choice.page * size
        self._wanted = min(fitting[0] if step > 0 else fitting[-1], max(count, 1))
        self._scene.choice.page = first // self._wanted
        self.show(job)
        self.wall.repaint()

    def go(self, job: Job, rank: int) -> bool:
        """Put the cursor on this rank, on whatever page it is; False where it is not chosen."""
        ranks = self._scene.ranks(job)
        page = self._scene.choice.place(ranks, self._size(len(ranks)), rank)
        if page is None:
            return False
        self._scene.choice.page = page
        self.show(job)
        self.wall.focus_rank(rank)
        return True
