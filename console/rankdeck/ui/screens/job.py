"""One job: its ranks in a strip, their output on a wall, one of them on the whole screen."""

from collections.abc import Callable, Iterable
from typing import ClassVar

from textual.widget import Widget

from rankdeck.errors import UnknownJobError
from rankdeck.logs.merge import MergedLog
from rankdeck.model.job import Job, RankState, State
from rankdeck.model.nodeset import fold_ranks
from rankdeck.rules.phases import last_run
from rankdeck.state.lines import Line
from rankdeck.ui import panes, words
from rankdeck.ui.clean import clean
from rankdeck.ui.screens.base import DeckScreen
from rankdeck.ui.screens.jobhead import JobHead, head_lines
from rankdeck.ui.widgets.canvas import Run
from rankdeck.ui.widgets.logview import LogView
from rankdeck.ui.widgets.logwall import LogWall, Pane
from rankdeck.ui.widgets.nodemap import CellMap
from rankdeck_agent.wire import LAUNCHER

PAINT = 0.1
STAMPS = ("off", "clock", "since")
STATE_RANK = {
    State.FAILED: 5,
    State.LOST: 4,
    State.CANCELLED: 3,
    State.PENDING: 2,
    State.RUNNING: 1,
    State.DONE: 0,
}


class JobScreen(DeckScreen):
    """Wall, zoom and merged view of a job."""

    deck_name: ClassVar[str] = "job"
    paint_period: ClassVar[float] = PAINT

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id
        self._page, self._panes_wanted = 0, 0
        self._watched: tuple[int, ...] = ()
        self._stamps = "off"
        self._zoomed: int | None = None
        self._merged: MergedLog | None = None
        self._job: Job | None = None
        self.head = JobHead(id="head")
        self.strip = CellMap(lambda marks: marks[0], id="strip")
        self.wall = LogWall(id="wall")
        self.view = LogView(id="view")
        self.view.display = False

    def body(self) -> Iterable[Widget]:
        return self.head, self.strip, self.wall, self.view

    @property
    def main(self) -> Widget:
        return self.view if self.view.display else self.wall

    # ---- painting

    def tick(self) -> None:
        try:
            job = self.deck.session.jobs.job(self.job_id)
        except UnknownJobError as error:
            self.head.show([[(f" {error}", "warn")]])
            return
        self._job = job
        mark = self.deck.glyphs.state(job.state)
        before = last_run(job, self.deck.session.jobs.all())
        lines = head_lines(job, mark, self.size.height, before)
        self.head.show(lines, self._page_text(job))
        self._show_strip(job)
        if self._zoomed is None and self._merged is None:
            self._show_wall(job)
        else:
            self._show_view(job)

    def on_resize(self) -> None:
        self._watched = ()

    def _panes_per_page(self, job: Job) -> int:
        width, height = (
            self.wall.size
            if self.wall.size.height
            else (self.size.width, self.size.height - 6)
        )
        return self._panes_wanted or panes.fitting(len(job.ranks), width, height)

    def _pages(self, job: Job) -> int:
        return max(-(-len(job.ranks) // self._panes_per_page(job)), 1)

    def _on_page(self, job: Job) -> tuple[RankState, ...]:
        size = self._panes_per_page(job)
        self._page = min(self._page, self._pages(job) - 1)
        return job.ranks[self._page * size : (self._page + 1) * size]

    def _page_text(self, job: Job) -> str:
        pages = self._pages(job)
        return f"page {self._page + 1}/{pages}  [ ]" if pages > 1 else ""

    def _show_strip(self, job: Job) -> None:
        marks = [self.deck.glyphs.state(rank.state) for rank in job.ranks]
        chosen = self._zoomed if self._zoomed is not None else self.wall.rank
        places = {rank.rank: place for place, rank in enumerate(job.ranks)}
        lines = min(
            self.strip.lines_for(len(marks), self.size.width),
            3 if self.size.height >= 20 else 1,
        )
        if self.strip.styles.height is None or self.strip.styles.height.value != lines:
            self.strip.styles.height = lines
        self.strip.show(marks, places.get(chosen, -1) if chosen is not None else -1)

    def _show_wall(self, job: Job) -> None:
        shown = self._on_page(job)
        self._watch(rank.rank for rank in shown)
        jobs = self.deck.session.jobs
        self.wall.show(
            [
                Pane(rank.rank, self._title(rank), jobs.log(job.id, rank.rank))
                for rank in shown
            ]
        )

    def _show_view(self, job: Job) -> None:
        if self._merged is not None:
            self._merged.update()
            shown = [rank.rank for rank in self._on_page(job)]
            self.view.tick([(f"ranks {fold_ranks(shown)} by time", "title")])
        elif self._zoomed == LAUNCHER:
            self.view.tick(
                [
                    ("launcher", "title"),
                    (f"  {clean(job.nodes[0]) if job.nodes else ''}", "dim"),
                ]
            )
        else:
            titles = (self._title(r) for r in job.ranks if r.rank == self._zoomed)
            nothing: list[Run] = []
            self.view.tick(next(titles, nothing))

    def _title(self, rank: RankState) -> list[Run]:
        mark = self.deck.glyphs.state(rank.state)
        ending = words.ending(rank.exit_code, rank.signal)
        lines = sum(self.deck.session.jobs.log(self.job_id, rank.rank).counts.values())
        return [
            (f"{mark.glyph} ", mark.role),
            (f"{rank.rank}", "title"),
            (f" {clean(rank.node)} ", "text"),
            (
                ending if ending and rank.state is not State.DONE else str(rank.state),
                mark.role,
            ),
            (f"  {words.many(lines, 'line')}", "dim"),
        ]

    def _watch(self, ranks: Iterable[int]) -> None:
        wanted = tuple(ranks)
        if wanted != self._watched:
            self._watched = wanted
            self.deck.session.watch(self.job_id, wanted)

    # ---- wall and view

    def on_log_wall_chosen(self, message: LogWall.Chosen) -> None:
        if message.opened:
            self.zoom(message.rank)

    def on_cell_map_chosen(self, message: CellMap.Chosen) -> None:
        if self._job is not None:
            self.show_rank(self._job.ranks[message.place].rank)

    def show_rank(self, rank: int) -> None:
        """Put the cursor on this rank, on whatever page it is."""
        job = self._job
        if job is None:
            return
        if self._zoomed is not None:
            self.zoom(rank)
            return
        for place, one in enumerate(job.ranks):
            if one.rank == rank:
                self._page = place // self._panes_per_page(job)
                self.refresh_now()
                self.wall.focus_rank(rank)

    def zoom(self, rank: int) -> None:
        """This rank's log on the whole screen."""
        try:
            log = self.deck.session.jobs.log(self.job_id, rank)
        except UnknownJobError as error:
            self.say(str(error), "warn")
            return
        self._zoomed, self._merged = rank, None
        self._watch((rank,))
        self.view.open(log)
        self._swap(zoomed=True)

    def _swap(self, *, zoomed: bool) -> None:
        self.view.display, self.wall.display = zoomed, not zoomed
        self.main.focus()
        self.call_after_refresh(self._repaint)

    def _repaint(self) -> None:
        self.refresh_now()
        self.view.repaint()
        self.wall.repaint()

    def action_zoom(self) -> None:
        if self.view.display:
            self.action_back()
        elif self.wall.rank is not None:
            self.zoom(self.wall.rank)

    def action_launcher(self) -> None:
        self.zoom(LAUNCHER)

    def action_failure(self) -> None:
        failure = self._job.first_failure if self._job else None
        if failure is None:
            self.say("no rank has failed")
        else:
            self.zoom(LAUNCHER if failure.rank is None else failure.rank)

    def action_merged(self) -> None:
        if self._job is None:
            return
        if self._merged is not None:
            self.action_back()
            return
        jobs = self.deck.session.jobs
        shown = self._on_page(self._job)
        self._watch(rank.rank for rank in shown)
        self._zoomed, self._merged = (
            None,
            MergedLog({r.rank: jobs.log(self.job_id, r.rank) for r in shown}),
        )
        digits = len(str(max((rank.rank for rank in shown), default=0)))
        self.view.open(self._merged, _prefix(digits))
        self._swap(zoomed=True)

    def action_back(self) -> None:
        self.say("")
        if self.view.search is not None and self.view.display:
            self.view.find("")
        elif self.view.display:
            self._zoomed = self._merged = None
            self._watched = ()
            self._swap(zoomed=False)
        else:
            super().action_back()

    def action_leave(self) -> None:
        if self.view.display:
            self.view.search = None
            self.action_back()
        else:
            super().action_leave()

    def action_next_page(self) -> None:
        self._turn(1)

    def action_previous_page(self) -> None:
        self._turn(-1)

    def _turn(self, pages: int) -> None:
        if self._job is None:
            return
        if self._zoomed is not None:
            self._turn_rank(pages)
            return
        self._page = (self._page + pages) % self._pages(self._job)
        if self._merged is not None:
            self._merged = None
            self.action_merged()
        self.refresh_now()
        self.wall.repaint()

    def _turn_rank(self, steps: int) -> None:
        assert self._job is not None
        ranks = [rank.rank for rank in self._job.ranks]
        at = ranks.index(self._zoomed) if self._zoomed in ranks else -steps
        if ranks:
            self.zoom(ranks[(at + steps) % len(ranks)])

    def action_more_panes(self) -> None:
        self._resize_page(1)

    def action_fewer_panes(self) -> None:
        self._resize_page(-1)

    def _resize_page(self, step: int) -> None:
        if self._job is None:
            return
        size = self._panes_per_page(self._job)
        fitting = [n for n in panes.SIZES if (n > size if step > 0 else n < size)]
        if fitting:
            first = self._page * size
            self._panes_wanted = min(
                fitting[0] if step > 0 else fitting[-1], max(len(self._job.ranks), 1)
            )
            self._page = first // self._panes_wanted
            self.refresh_now()
            self.wall.repaint()

    # ---- reading

    def action_follow(self) -> None:
        self.view.start_following()

    def action_wrap(self) -> None:
        self.view.wrap = not self.view.wrap
        self.view.repaint()

    def action_stamps(self) -> None:
        self._stamps = STAMPS[(STAMPS.index(self._stamps) + 1) % len(STAMPS)]
        start = self._job.created if self._job else 0.0
        stamps: dict[str, Callable[[float], str]] = {
            "off": lambda at: "",
            "clock": lambda at: words.clock(at, millis=True) + " ",
            "since": lambda at: f"{at - start:9.3f} ",
        }
        self.view.stamp = self.wall.stamp = stamps[self._stamps]
        self._repaint()

    def action_search(self) -> None:
        if not self.view.display:
            self.action_zoom()
        self.prompt.ask(
            "/",
            self.view.search.text if self.view.search else "",
            "text; capitals make it exact",
        )

    def typed(self, text: str) -> None:
        self.view.find(text)

    def answered(self, text: str | None) -> None:
        self.view.find(text or "")
        if text:
            self.action_previous_match()

    def action_next_match(self) -> None:
        self._jump(back=False)

    def action_previous_match(self) -> None:
        self._jump(back=True)

    def _jump(self, *, back: bool) -> None:
        if not self.view.jump(back=back):
            self.say(
                "no match" if self.view.search else "nothing searched yet; press /",
                "dim",
            )

    # ---- doing

    def action_cancel(self) -> None:
        self.deck.ask_cancel(self.job_id)

    def action_keep(self) -> None:
        if self._job is not None and self._job.countdown is not None:
            self.deck.session.hold(self.job_id)
            self.say("the other ranks keep running", "ok")
        elif self.view.display:
            self.view.scroll_lines(-1)

    def action_copy(self) -> None:
        rank = self._zoomed if self._zoomed is not None else self.wall.rank
        if rank is not None:
            log = self.deck.session.jobs.log(self.job_id, rank)
            lines = [clean(line.text) for line in log.lines[-1000:]]
            self.deck.copy("\n".join(lines), f"{len(lines)} lines of rank {rank}")


def _prefix(digits: int) -> Callable[[Line], Run]:
    return lambda line: (f"{line.rank:>{digits}} ", "accent")
