"""One job: its ranks in a strip, and its output in five views that one key each brings up."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.widget import Widget

from rankdeck.errors import UnknownJobError
from rankdeck.logs.search import troubles
from rankdeck.model.job import Job
from rankdeck.model.rankset import choose
from rankdeck.rules.phases import last_run
from rankdeck.ui import jobdeeds
from rankdeck.ui.glyphs import Mark
from rankdeck.ui.screens.base import DeckScreen
from rankdeck.ui.screens.jobhead import JobHead, head_lines
from rankdeck.ui.screens.jobreading import Reading
from rankdeck.ui.views.base import JobView, Scene
from rankdeck.ui.views.folds import CollapsedView
from rankdeck.ui.views.parting import DiffView
from rankdeck.ui.views.reading import MergedView, OneView
from rankdeck.ui.views.wall import WallView
from rankdeck.ui.widgets.foldlist import FoldList
from rankdeck.ui.widgets.logview import LogView
from rankdeck.ui.widgets.logwall import LogWall
from rankdeck.ui.widgets.nodemap import CellMap
from rankdeck_agent.wire import LAUNCHER

PAINT = 0.1
BETWEEN = 0.02
"""Seconds between two turns of a view that has much to do."""
WIDE_STRIP = 20
"""Lines of the screen from which on the strip may have three."""

ROLES = ("bad", "warn", "unknown", "dim", "ok", "accent")
"""Of marks in the strip, the worst first."""


class JobScreen(Reading, DeckScreen):
    """Wall, merged, collapsed, diff and one rank of a job."""

    deck_name: ClassVar[str] = "job"
    paint_period: ClassVar[float] = PAINT

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id
        self.job: Job | None = None
        self.scene = Scene(self.deck, job_id)
        self.head = JobHead(id="head")
        self.strip = CellMap(_worst, id="strip")
        self.view = LogView(id="view")
        self.table = FoldList(id="table")
        self.wall = WallView(self.scene)
        self.one = OneView(self.scene, self.view)
        self.merged = MergedView(self.scene, self.view)
        self.collapsed = CollapsedView(self.scene, self.table)
        self.diff = DiffView(self.scene, self.table)
        self.now: JobView = self.wall
        self._turning = False
        self.view.display = self.table.display = False

    def body(self) -> Iterable[Widget]:
        return self.head, self.strip, self.wall.widget, self.view, self.table

    @property
    def main(self) -> Widget:
        return self.now.widget

    # ---- painting

    def tick(self) -> None:
        try:
            job = self.deck.session.jobs.job(self.job_id)
        except UnknownJobError as error:
            self.head.show([[(f" {error}", "warn")]])
            return
        self.job = job
        mark = self.deck.glyphs.state(job.state)
        before = last_run(job, self.deck.session.jobs.all())
        lines = head_lines(job, mark, self.size, before)
        self.head.show(lines, self.now.note(job))
        self.key_bar.about(self.now.name)
        self._show_strip(job)
        self.now.show(job)
        self._work_on()

    def _work_on(self) -> None:
        """Give the view further turns, with keys and painting in between."""
        if self.now.busy and not self._turning:
            self._turning = True
            self.set_timer(BETWEEN, self._take_turn)

    def _take_turn(self) -> None:
        self._turning = False
        if self.is_current and self.job is not None:
            self.now.show(self.job)
            self._work_on()

    def on_resize(self) -> None:
        self.scene.forget_watch()

    def _show_strip(self, job: Job) -> None:
        marks = [self.scene.mark(job, rank) for rank in job.ranks]
        places = {rank.rank: place for place, rank in enumerate(job.ranks)}
        lines = min(
            self.strip.lines_for(len(marks), self.size.width),
            3 if self.size.height >= WIDE_STRIP else 1,
        )
        if self.strip.styles.height is None or self.strip.styles.height.value != lines:
            self.strip.styles.height = lines
        chosen = self.now.rank
        self.strip.show(marks, places.get(chosen, -1) if chosen is not None else -1)

    # ---- from view to view

    def bring(self, view: JobView) -> None:
        """Put this view on the screen."""
        if self.job is None:
            return
        self.now = view
        for widget in (self.wall.widget, self.view, self.table):
            widget.display = widget is view.widget
        view.enter(self.job)
        self.main.focus()
        self.call_after_refresh(self.repaint)

    def toggle(self, view: JobView) -> None:
        """Put this view on the screen, or the wall where it is there already."""
        self.bring(self.wall if self.now is view else view)

    def repaint(self) -> None:
        """Lay out and paint anew whatever is shown."""
        self.refresh_now()
        self.view.repaint()
        self.wall.wall.repaint()
        self.table.refresh()

    def on_log_wall_chosen(self, message: LogWall.Chosen) -> None:
        if message.opened:
            self.zoom(message.rank)

    def on_fold_list_opened(self, message: FoldList.Opened) -> None:
        self._open(message.entry)

    def on_cell_map_chosen(self, message: CellMap.Chosen) -> None:
        if self.job is not None:
            self.show_rank(self.job.ranks[message.place].rank)

    def show_rank(self, rank: int) -> None:
        """Put the cursor on this rank, on whatever page it is."""
        if self.job is None:
            return
        if self.now is not self.wall or not self.wall.go(self.job, rank):
            self.zoom(rank)

    def zoom(self, rank: int) -> None:
        """This rank's log on the whole screen."""
        try:
            self.scene.log(rank)
        except UnknownJobError as error:
            self.say(str(error), "warn")
            return
        self.one.rank = rank
        self.bring(self.one)

    def action_wall(self) -> None:
        self.scene.choice.limit(())
        self.bring(self.wall)

    def action_merged(self) -> None:
        self.toggle(self.merged)

    def action_collapsed(self) -> None:
        self.toggle(self.collapsed)

    def action_diff(self) -> None:
        if self.now is self.diff or self.now is not self.one:
            self.diff.pair = None
            self.toggle(self.diff)
        else:
            self.prompt.ask("D", "", "the other rank; empty: all against the majority")

    def action_zoom(self) -> None:
        if self.table.display:
            if self.table.entry is not None:
                self._open(self.table.entry)
        elif self.view.display:
            self.bring(self.wall)
        elif self.wall.rank is not None:
            self.zoom(self.wall.rank)

    def _open(self, entry: object) -> None:
        del entry
        row, job = self.table.entry, self.job
        if row is None or job is None:
            return
        if self.now is self.collapsed:
            self.collapsed.open(row, job)
        else:
            self.zoom(row.ranks[0])

    def action_launcher(self) -> None:
        self.zoom(LAUNCHER)

    def action_failure(self) -> None:
        if self.view.display:
            self.view.look_for(troubles())
            self.when_read(self._next_failure)
        else:
            self._next_failure()

    def _next_failure(self) -> None:
        if self.view.display and self.view.go_next(back=False):
            return
        failure = self.job.first_failure if self.job else None
        if failure is None:
            self.say("no line speaks of an error" if self.view.display else "no rank has failed")
        else:
            self.zoom(LAUNCHER if failure.rank is None else failure.rank)

    def action_back(self) -> None:
        self.say("")
        if self.view.display and self.undo():
            return
        if self.now is not self.wall:
            self.bring(self.wall)
        elif self.scene.choice.only or self.scene.choice.text:
            self.scene.choice.limit(())
            self.repaint()
        else:
            super().action_back()

    def action_leave(self) -> None:
        if self.now is self.wall:
            super().action_leave()
            return
        while self.view.display and self.undo():
            pass
        self.bring(self.wall)

    # ---- which ranks

    def action_ranks(self) -> None:
        if self.table.display and (entry := self.table.entry):
            self.scene.choice.limit(entry.ranks)
            self.bring(self.wall)
        else:
            self.prompt.ask(
                "r",
                self.scene.choice.text,
                "0-7,96,node=gpu12,state=failed; empty: all",
            )

    def choose_ranks(self, text: str) -> None:
        """Show only these; a sentence where that is no set of ranks."""
        if self.job is None:
            return
        try:
            self.scene.choice.set(text, self.job)
        except ValueError as error:
            self.say(str(error), "warn")
            return
        self.bring(self.now if self.now is not self.one else self.wall)

    def compare_with(self, text: str) -> None:
        """This rank beside another, or all beside the majority."""
        if self.job is None or self.one.rank is None:
            return
        self.diff.pair = None
        if text:
            try:
                others = choose(text, self.job.ranks)
            except ValueError as error:
                self.say(str(error), "warn")
                return
            if others:
                self.diff.pair = (self.one.rank, others[0])
        self.bring(self.diff)

    def action_sort(self) -> None:
        if self.now is self.collapsed:
            self.collapsed.by_time = not self.collapsed.by_time
            self.bring(self.collapsed)
            return
        self.say(f"ordered by {self.scene.choice.next_order()}", "dim")
        self.repaint()

    def action_pin(self) -> None:
        rank = self.now.rank
        if rank is not None and rank >= 0:
            pinned = self.scene.choice.pin(rank)
            self.say(f"rank {rank} is {'on every page' if pinned else 'no longer pinned'}")
            self.repaint()

    def action_next_page(self) -> None:
        self._turn(1)

    def action_previous_page(self) -> None:
        self._turn(-1)

    def _turn(self, pages: int) -> None:
        if self.job is None:
            return
        if self.now is self.one:
            rank = self.one.next_rank(self.job, pages)
            if rank is not None:
                self.zoom(rank)
        elif self.now is self.wall:
            self.wall.turn(self.job, pages)
            self.refresh_now()

    def action_more(self) -> None:
        self._change(1)

    def action_fewer(self) -> None:
        self._change(-1)

    def _change(self, step: int) -> None:
        """More or less at once: tiles on the wall, lines around those that a filter keeps."""
        if self.view.display:
            self.surround(step)
        elif self.job is not None and self.now is self.wall:
            self.wall.resize(self.job, step)
            self.refresh_now()

    # ---- doing

    def action_cancel(self) -> None:
        jobdeeds.ask_cancel(self.deck, self.job_id)

    def action_keep(self) -> None:
        if self.job is not None and self.job.countdown is not None:
            self.deck.session.hold(self.job_id)
            self.say("the other ranks keep running", "ok")


def _worst(marks: Sequence[Mark]) -> Mark:
    """Of ranks that share a cell, the one that wants to be looked at."""
    return min(marks, key=lambda mark: ROLES.index(mark.role))
