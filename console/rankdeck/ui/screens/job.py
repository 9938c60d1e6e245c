"""The job screen: a strip of ranks, and the job's output in five
views to search, filter, mark and save.
"""

import time
from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.widget import Widget

from rankdeck.config.files import expand_path
from rankdeck.errors import UnknownJobError
from rankdeck.logs.merged_log import EVENT
from rankdeck.logs.rank_choice import choose_ranks
from rankdeck.logs.search import pick_troubles
from rankdeck.model.job import Job
from rankdeck.model.plan import UNTAGGED_WAIT
from rankdeck.model.safe_text import printable_line
from rankdeck.rules.progress import last_run
from rankdeck.ui import formatting
from rankdeck.ui.job_figures import JobFigures
from rankdeck.ui.movement import next_choice
from rankdeck.ui.operations import ask_cancel, errors_shown, log_folder, page_rank_log, rank_shell
from rankdeck.ui.screens.job_head import (
    LARGE,
    WIDE,
    JobHead,
    head_lines,
    instrument_lines,
    job_description,
    went_wrong,
)
from rankdeck.ui.screens.log_search import NO_LOG, LogSearchScreen
from rankdeck.ui.tour import OnScreen
from rankdeck.ui.views.base import JobView, Scene
from rankdeck.ui.views.collapsed import CollapsedView
from rankdeck.ui.views.diff import DiffView
from rankdeck.ui.views.wall import LogWall, WallView
from rankdeck.ui.widgets.canvas import Runs
from rankdeck.ui.widgets.logview import STAMPS, time_stamper
from rankdeck.ui.widgets.rank_strip import RankStrip
from rankdeck.ui.widgets.vtable import CellMap, FoldList
from rankdeck.values import replace
from rankdeck_agent.wire import LAUNCHER

STREAMS = {"": "stdout and stderr", "err": "only stderr", "out": "only stdout"}
"""Stream of a filter -> what is shown then, in the order of the key."""
REPLAY_STEP = 10.0
"""One step in a replay, in seconds of the job."""
PAINT = 0.1
BETWEEN = 0.02
"""Seconds between two calls of `show` while the view is busy."""
WIDE_STRIP = 20
"""On screens of at least this many lines the blocks of ranks may have three lines."""
NUMBERED, TALL_STRIP = 34, 40
"""On screens of at least so many lines each rank has its number, and its node below it."""


class JobScreen(LogSearchScreen):
    """The job screen, with its views: wall, merged, collapsed, diff and one rank."""

    screen_name: ClassVar[str] = "job"
    paint_period: ClassVar[float] = PAINT

    def __init__(self, job_id: str) -> None:
        super().__init__(Scene(self.console, job_id))
        self.job_id = job_id
        self.head = JobHead(id="head")
        self.figures = JobFigures()
        self.strip = RankStrip(id="strip")
        self.table = FoldList(id="table")
        self.wall = WallView(self.scene)
        self.collapsed = CollapsedView(self.scene, self.table)
        self.diff = DiffView(self.scene, self.table)
        self.now = self.wall
        self.main = self.wall.widget
        self._turning = False
        self._untagged_since: float | None = None
        """Since when a rank is waited for whose output is marked (monotonic); inf: no longer."""
        self.view.display = self.table.display = False

    def body(self) -> Iterable[Widget]:
        return self.head, self.strip, self.wall.widget, self.view, self.table

    # ---- painting

    def sight(self) -> OnScreen:
        job = self.job
        failed = job is not None and job.state.final and job.first_failure is not None
        return OnScreen(self.screen_name, view=self.now.name, failed=failed)

    def wanted_nodes(self) -> frozenset[str] | None:
        return frozenset(self.job.nodes) if self.job else frozenset()

    def tick(self) -> None:
        try:
            job = self.console.need_session().jobs.job(self.job_id)
        except UnknownJobError as error:
            self.head.show([[(f" {error}", "warn")]])
            return
        self.job = job
        before = last_run(job, self.console.need_session().jobs.all())
        self.head.show(self._head_lines(job, before), self.now.note(job))
        self.key_bar.about(self.now.name)
        self._show_strip(job)
        self._show_launcher_of_untagged(job)
        self.now.show(job)
        self._work_on()

    def _head_lines(self, job: Job, before: Job | None) -> list[Runs]:
        """The lines of the head: on a large wall with frames and plots."""
        glyphs, size = self.console.glyphs, self.size
        if self.now is not self.wall or size.height < LARGE or size.width < WIDE:
            return head_lines(job, glyphs, size, before)
        fleet = self.console.fleet
        return instrument_lines(
            job, glyphs, size, before, lambda room: self.figures.lines(job, fleet, room, glyphs)
        )

    def _show_launcher_of_untagged(self, job: Job) -> None:
        """Show the launcher's output, once, if no rank of the job can be
        told apart: its mpirun marks none.
        """
        if self._untagged_since is None:
            self._untagged_since = time.monotonic() if job.plan.untagged else float("inf")
        late = time.monotonic() - self._untagged_since > UNTAGGED_WAIT
        if late and self.now is self.wall and not any(rank.lines for rank in job.ranks):
            self._untagged_since = float("inf")
            self.say("its ranks cannot be told apart (mpirun without --tag-output)", "dim")
            self.zoom(LAUNCHER)

    def _work_on(self) -> None:
        """While the view is busy, call its `show` again soon, with keys and painting in between."""
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
        ranks = [(rank.rank, rank.node) for rank in job.ranks]
        marks = [self.scene.mark(job, rank) for rank in job.ranks]
        places = {rank: place for place, (rank, _) in enumerate(ranks)}
        width, height = self.size
        most = 3 if height >= TALL_STRIP else 2 if height >= NUMBERED else 1
        blocks = min(self.strip.lines_for(len(marks), width), 3 if height >= WIDE_STRIP else 1)
        lines = self.strip.fitting_lines(ranks, width, most) or blocks
        if self.strip.styles.height is None or self.strip.styles.height.value != lines:
            self.strip.styles.height = lines
        chosen = self.now.rank
        self.strip.show_ranks(ranks, marks, places.get(chosen, -1) if chosen is not None else -1)

    # ---- changing the view

    def bring(self, view: JobView) -> None:
        """Show this view."""
        if self.job is None:
            return
        self.now, self.main = view, view.widget
        for widget in (self.wall.widget, self.view, self.table):
            widget.display = widget is view.widget
        view.enter(self.job)
        self.main.focus()
        self.call_after_refresh(self.repaint)

    def toggle(self, view: JobView) -> None:
        """Show this view, or the wall if this view is shown already."""
        self.bring(self.wall if self.now is view else view)

    def repaint(self) -> None:
        """Lay out and paint the current view again."""
        self.refresh_now()
        self.view.repaint()
        self.wall.wall.repaint()
        self.table.refresh()

    def on_log_wall_chosen(self, message: LogWall.Chosen) -> None:
        if message.opened:
            self.zoom(message.rank)

    def on_fold_list_opened(self) -> None:
        self._open()

    def on_cell_map_chosen(self, message: CellMap.Chosen) -> None:
        if self.job is not None:
            self.show_rank(self.job.ranks[message.place].rank)

    def show_rank(self, rank: int) -> None:
        """Go to the page of this rank and put the cursor on it."""
        if self.job is None:
            return
        if self.now is not self.wall or not self.wall.go(self.job, rank):
            self.zoom(rank)

    def zoom(self, rank: int) -> None:
        """Show this rank's log on the whole screen."""
        with errors_shown(self):
            self.scene.log(rank)
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
            self._open()
        elif self.view.display:
            self.bring(self.wall)
        elif self.wall.rank is not None:
            self.zoom(self.wall.rank)

    def _open(self) -> None:
        row, job = self.table.entry, self.job
        if row is None or job is None:
            return
        if self.now is self.collapsed:
            self.collapsed.open(row, job)
        else:
            self.zoom(row.ranks[0])

    def read_logs(self, ranks: str = "") -> None:
        """Show the merged log, of these ranks only; "": of the ranks chosen before."""
        if self.job is None:
            self.call_after_refresh(self.read_logs, ranks)
            return
        if ranks:
            self.choose_ranks(ranks)
        self.bring(self.merged)

    def action_failure(self) -> None:
        if self.view.display:
            self.view.look_for(pick_troubles())
            self.when_read(self._next_failure)
        else:
            self._next_failure()

    def _next_failure(self) -> None:
        if self.view.display and self.view.go_next(back=False):
            return
        failure = self.job.first_failure if self.job else None
        # Where it is undecided who failed first, the likeliest is shown.
        ranks = [one.rank for one in (failure, *failure.between)] if failure else []
        rank = next((one for one in ranks if one is not None), LAUNCHER)
        if failure is None:
            self.refuse("no line reports an error" if self.view.display else "no rank has failed")
        elif self.now is self.one and rank == self.one.rank:
            self.say(
                "this is the rank that failed first; none of its lines reports an error", "dim"
            )
        else:
            self.zoom(rank)

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

    # ---- what is under the cursor

    def without_effect(self) -> Iterable[str]:
        job = self.job
        if job is None:
            return ()
        able = {
            "cancel": not job.state.final and job.clock is None,
            "inspect": not job.state.final or bool(job.unproven),
            "clone": job.state.final and job.plan.spec is not None,
            "replay": job.state.final and job.clock is None,
            "swap": went_wrong(job),
            "pause": job.clock is not None,
            "step(-1)": job.clock is not None,
            "step(1)": job.clock is not None,
            "shell": bool(self.targets),
            "at_node": bool(self.targets),
            "next_match": self.view.search is not None,
            "follow": not self.view.follow,
            "next_page": self.now is not self.wall or self.wall.pages(job) > 1,
            "failure": job.first_failure is not None,
            "zoom": not self.table.display or self.table.entry is not None,
        }
        return [name for name, can in able.items() if not can]

    def whole(self) -> tuple[str, Sequence[Runs]]:
        if self.job is None:
            return "", ()
        if self.table.display:
            entry = self.table.entry
            return "Row", (entry.row, *entry.more) if entry else ()
        line = self.view.current_line if self.view.display else None
        if line is None:
            return self.job_id, job_description(self.console, self.job, self.size.width - 12)
        who = "launcher" if line.rank == LAUNCHER else f"rank {line.rank}"
        title = f"{who}, {line.stream}, {formatting.format_clock(line.at, millis=True)}"
        return title, [[(printable_line(line.text, 1 << 16), "text")]]

    # ---- which ranks

    def action_ranks(self) -> None:
        if self.table.display and (entry := self.table.entry):
            self.scene.choice.limit(entry.ranks)
            self.bring(self.wall)
        else:
            self.prompt.ask(
                "r", self.scene.choice.text, "0-7,96,node=gpu12,state=failed; empty: all"
            )

    def choose_ranks(self, text: str) -> None:
        """Show only the ranks in `text`, or say why that is not a set of ranks."""
        if self.job is None:
            return
        try:
            self.scene.choice.set(text, self.job)
        except ValueError as error:
            self.say(str(error), "warn")
            return
        self.bring(self.now if self.now is not self.one else self.wall)

    def compare_with(self, text: str) -> None:
        """Compare the current rank with the one that was typed, or all ranks with the majority."""
        if self.job is None or self.one.rank is None:
            return
        self.diff.pair = None
        if text:
            try:
                others = choose_ranks(text, self.job.ranks)
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
        """Show more or fewer tiles on the wall, or lines around those that a filter keeps."""
        if self.view.display:
            self.say(self.view.surround(step), "dim")
        elif self.job is not None and self.now is self.wall:
            self.wall.resize(self.job, step)
            self.refresh_now()

    # ---- the prompt

    def typed(self, text: str) -> None:
        if self.prompt.mode == "/":
            self.view.find(text)

    def answered(self, text: str | None) -> None:
        mode = self.prompt.mode
        if mode == "/":
            self.view.find(text or "")
            if text:
                self.action_previous_match()
        elif text is not None:
            {
                "&": self._only,
                "V": self._without,
                "r": self.choose_ranks,
                "D": self.compare_with,
                "#": self.go_to,
                "save to ": self._save,
            }[mode](text)

    # ---- which lines

    def action_filter_in(self) -> None:
        if self.has_log():
            before = " ".join(self.view.wanted.within)
            self.prompt.ask("&", before, "only lines with this text; empty: all again")

    def action_filter_out(self) -> None:
        if self.has_log():
            before = " ".join(self.view.wanted.without)
            self.prompt.ask("V", before, "without lines with this text; empty: all again")

    def _only(self, text: str) -> None:
        self.view.want(replace(self.view.wanted, within=(text,) if text else ()))

    def _without(self, text: str) -> None:
        self.view.want(replace(self.view.wanted, without=(text,) if text else ()))

    def action_streams(self) -> None:
        """Show the next of only stderr, only stdout and both; on the wall,
        stderr of the rank under the cursor.
        """
        stream = next_choice(tuple(STREAMS), self.view.wanted.stream)
        if self.now is self.wall and self.wall.rank is not None:
            stream = "err"
            self.zoom(self.wall.rank)
        if self.has_log():
            self.view.want(replace(self.view.wanted, stream=stream))
            self.say(STREAMS[stream], "dim")

    def undo(self) -> bool:
        """Undo the last of plain text, search and filter; False if there is none."""
        if self.view.plain:
            self.action_lofi()
        elif self.view.search is not None:
            self.view.find("")
        elif self.view.wanted:
            self.view.want(replace(self.view.wanted, within=(), without=(), stream=""))
        else:
            return False
        return True

    def action_fold(self) -> None:
        self.merged.fold = not self.merged.fold
        self._again("equal lines are folded" if self.merged.fold else "every line is shown")

    def action_events(self) -> None:
        self.merged.events = not self.merged.events
        self._again("with what nodes said" if self.merged.events else "without node events")

    def _again(self, sentence: str) -> None:
        self.say(sentence, "dim")
        if self.now is self.merged:
            self.bring(self.merged)

    # ---- how they look

    def action_wrap(self) -> None:
        self.view.wrap = not self.view.wrap
        self.say("long lines are wrapped" if self.view.wrap else "long lines are cut", "dim")
        self.view.repaint()

    def action_stamps(self) -> None:
        self.scene.stamps = next_choice(STAMPS, self.scene.stamps)
        start = self.job.created if self.job else 0.0
        self.view.stamp = self.wall.wall.stamp = time_stamper(self.scene.stamps, start)
        self.say(f"time stamps: {self.scene.stamps}", "dim")
        self.repaint()

    def action_lofi(self) -> None:
        if not self.has_log():
            return
        plain = not self.view.plain
        self.view.plain = plain
        for widget in (self.top_bar, *self.query("JobHead, CellMap"), self.key_bar):
            widget.display = not plain
        self.console.use_mouse(on=not plain)
        self.call_after_refresh(self.repaint)

    # ---- copying and saving lines

    def action_at_node(self) -> None:
        line = self.view.current_line if self.view.display else None
        rank = line.rank if line is not None else self.now.rank
        node = self._node_of(rank)
        if line is not None and line.rank == EVENT:
            node = line.text.partition(":")[0]
        if node:
            self.console.open_node(node, line.at if line is not None else None)

    @property
    def targets(self) -> tuple[str, ...]:
        """The node of the rank under the cursor."""
        node = self._node_of(self.now.rank)
        return (node,) if node else ()

    @property
    def chosen_jobs(self) -> tuple[str, ...]:
        status = self.job.in_scheduler if self.job else None
        return (status.name,) if status and status.id else ()

    def action_rank_shell(self) -> None:
        rank_shell(self.console, self.job, self.now.rank)

    def _node_of(self, rank: int | None) -> str:
        if self.job is None or rank is None:
            return ""
        if rank == LAUNCHER:
            return self.job.plan.nodes[0].node
        return next((one.node for one in self.job.ranks if one.rank == rank), "")

    def action_copy(self) -> None:
        """Copy the marked lines, or else the line under the cursor;
        saving to a file takes all lines.
        """
        lines = self._meant()
        if lines:
            self.console.copy("\n".join(lines), formatting.format_many(len(lines), "line"))
        else:
            self.refuse("no line here")

    def _meant(self) -> list[str]:
        if self.table.display:
            entry = self.table.entry
            rows = (entry.row, *entry.more) if entry else ()
            return ["".join(text for text, _ in row).strip() for row in rows]
        if self.view.display:
            return self.view.meant()
        ranks = self.job.ranks if self.job else ()
        return [printable_line(one.last_line) for one in ranks if one.rank == self.now.rank]

    def action_copy_path(self) -> None:
        node, path = log_folder(self.job, self.now.rank)
        if node:
            self.console.copy(path, f"{printable_line(node)}:{path}")

    def page(self) -> None:
        """Read the whole log on its node, in a pager there."""
        if not page_rank_log(self.console, self.job, self.now.rank):
            self.refuse(NO_LOG)

    def action_save(self) -> None:
        rank = self.now.rank
        part = f".{rank}" if self.now is self.one and rank is not None else f".{self.now.name}"
        name = f"{self.job_id}{part}.log".replace("/", "_")
        self.prompt.ask("save to ", name, "a file that does not exist yet")

    def _save(self, text: str) -> None:
        lines, what = self.now.texts()
        if text:
            self.save_lines(expand_path(text), lines, f"{len(lines):,} {what}")

    # ---- a replay

    def action_pause(self) -> None:
        """Pause the replay, or let it go on."""
        self._wind(0.0)

    def action_step(self, frames: int) -> None:
        """Move the replay by ten seconds for each step."""
        self._wind(REPLAY_STEP * frames)

    def _wind(self, seconds: float) -> None:
        if self.job is None or self.job.clock is None:
            self.refuse("only a replay can be paused or moved in time: R replays this job")
            return
        held = self.console.need_session().following.wind(self.job_id, seconds)
        self.say("paused" if held else "")
        self.call_after_refresh(self.bring, self.now)

    # ---- cancel

    def turned_off(self) -> Iterable[str]:
        return (
            ("cancel",)
            if self.console.need_session().control.why_not("cancel", self.job_id)
            else ()
        )

    def action_cancel(self) -> None:
        ask_cancel(self.console, self.job_id)

    def action_keep(self) -> None:
        if self.job is not None and self.job.countdown is not None:
            self.console.need_session().following.hold(self.job_id)
            self.say("the other ranks keep running", "ok")
