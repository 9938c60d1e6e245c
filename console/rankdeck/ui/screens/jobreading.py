"""What can be done with the lines of a job: search, filter, mark, stamp, save, copy."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path

from rankdeck.config.private import write_private
from rankdeck.errors import RankdeckError
from rankdeck.logs.filter import Wanted
from rankdeck.logs.merge import EVENT
from rankdeck.logs.search import troubles
from rankdeck.model.job import Job
from rankdeck.model.text import printable
from rankdeck.ui import actions
from rankdeck.ui.screens.base import DeckScreen
from rankdeck.ui.views.base import JobView, Scene
from rankdeck.ui.views.reading import MergedView, OneView
from rankdeck.ui.views.wall import WallView
from rankdeck.ui.widgets.foldlist import FoldList
from rankdeck.ui.widgets.layout import STAMPS, stamp
from rankdeck.ui.widgets.logrows import marked
from rankdeck.ui.widgets.logview import LogView
from rankdeck_agent.wire import LAUNCHER

AROUND = (0, 1, 3, 10)
MOST_SLICES = 1_000
"""Of lines that a key waits for, while the log goes on growing."""
NO_LOG = f"open a rank ({actions.key('zoom')}) or the merged log ({actions.key('merged')}) first"


class Reading(DeckScreen):
    """The half of the job screen that reads; the other half chooses what."""

    job: Job | None
    job_id: str
    scene: Scene
    view: LogView
    table: FoldList
    wall: WallView
    one: OneView
    merged: MergedView
    now: JobView

    def bring(self, view: JobView) -> None:
        """Put this view on the screen."""
        raise NotImplementedError

    def repaint(self) -> None:
        """Lay out and paint anew whatever is shown."""
        raise NotImplementedError

    def choose_ranks(self, text: str) -> None:
        """Show only these ranks."""
        raise NotImplementedError

    def compare_with(self, text: str) -> None:
        """This rank beside another."""
        raise NotImplementedError

    def _has_log(self) -> bool:
        if not self.view.display:
            self.say(NO_LOG, "dim")
        return self.view.display

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
                "!": self._without,
                "r": self.choose_ranks,
                "D": self.compare_with,
                "save to ": self._save,
            }[mode](text)

    # ---- moving in a log

    def action_follow(self) -> None:
        self.view.start_following()

    def action_search(self) -> None:
        if self.now is self.wall and self.wall.rank is not None:
            self.one.rank = self.wall.rank
            self.bring(self.one)
        if self._has_log():
            before = self.view.search.text if self.view.search else ""
            self.prompt.ask("/", before, "text; capitals make it exact")

    def action_next_match(self) -> None:
        self._jump(back=False)

    def action_previous_match(self) -> None:
        self._jump(back=True)

    def _jump(self, *, back: bool) -> None:
        self.when_read(lambda: self._jump_now(back=back))

    def when_read(self, act: Callable[[], None]) -> None:
        """Do this once filter and search have looked at all the lines that are here."""
        if self.view.busy:
            work = self._read_on(act)
            self.run_worker(work, group="reading", exclusive=True)
        else:
            act()

    async def _read_on(self, act: Callable[[], None]) -> None:
        source, now = self.view.log_source, self.now
        for _ in range(MOST_SLICES):
            if not self.view.busy:
                break
            self.view.work()
            await asyncio.sleep(0)
        if self.view.log_source is source and self.now is now:
            act()

    def _jump_now(self, *, back: bool) -> None:
        search = self.view.search
        if search and self.now is self.one and not self.one.whole:
            if not self.view.jump(back=back, around=False):
                self.say("searching on the node…", "dim")
                self._on_node(self._find(search.text, back=back))
            return
        if not self.view.jump(back=back):
            nothing = (
                "no match"
                if self.view.search
                else f"nothing searched yet; press {actions.key('search')}"
            )
            self.say(nothing, "dim")

    def on_log_view_edge(self, message: LogView.Edge) -> None:
        """Fetch what is before or after the lines that are here."""
        if self.now is self.one and self.job is not None:
            self._on_node(self.one.read_on(self.job, back=message.back, far=message.far))

    def _on_node(self, work: Coroutine[None, None, None]) -> None:
        self.run_worker(self._careful(work), group="deep", exclusive=True)

    async def _careful(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except RankdeckError as error:
            self.say(printable(str(error)), "warn")

    async def _find(self, text: str, *, back: bool) -> None:
        async with aclosing(self.one.find(text, back=back)) as found:
            async for said in found:
                self.say(said, "dim")

    def action_previous_error(self) -> None:
        if self._has_log():
            self.view.look_for(troubles())
            self.when_read(lambda: self._go_next("no line speaks of an error", back=True))

    def _go_next(self, nothing: str, *, back: bool) -> None:
        if not self.view.go_next(back=back):
            self.say(nothing, "dim")

    def action_mark(self) -> None:
        if self._has_log():
            marked = self.view.mark()
            said = {
                True: f"marked; {actions.key('next_mark')} goes to it",
                False: "no longer marked",
                None: "no line",
            }
            self.say(said[marked], "dim")

    def action_next_mark(self) -> None:
        if self._has_log():
            nothing = f"no line is marked; {actions.key('mark')} marks one"
            self.view.look_for(marked(self.view.marks))
            self.when_read(lambda: self._go_next(nothing, back=False))

    # ---- which lines

    def action_filter_in(self) -> None:
        if self._has_log():
            self.prompt.ask("&", "", "only lines with this text; empty: all again")

    def action_filter_out(self) -> None:
        if self._has_log():
            self.prompt.ask("!", "", "without lines with this text; empty: all again")

    def _only(self, text: str) -> None:
        wanted = self.view.wanted
        within = (*wanted.within, text) if text else ()
        self.view.want(Wanted(within, wanted.without, wanted.around))

    def _without(self, text: str) -> None:
        wanted = self.view.wanted
        without = (*wanted.without, text) if text else ()
        self.view.want(Wanted(wanted.within, without, wanted.around))

    def surround(self, step: int) -> None:
        """More or fewer lines around each one that the filter keeps."""
        wanted = self.view.wanted
        if not wanted:
            self.say(
                f"choose lines first: {actions.key('filter_in')} keeps some, {actions.key('filter_out')} leaves some out",
                "dim",
            )
            return
        place = AROUND.index(wanted.around) + step
        around = AROUND[min(max(place, 0), len(AROUND) - 1)]
        self.view.want(Wanted(wanted.within, wanted.without, around))
        self.say(f"{around} lines around each one that the filter keeps", "dim")

    def undo(self) -> bool:
        """Take back the last thing that changes which lines are shown; False where there is none."""
        if self.view.plain:
            self.action_lofi()
        elif self.view.search is not None:
            self.view.find("")
        elif self.view.wanted:
            self.view.want(Wanted(around=self.view.wanted.around))
        else:
            return False
        return True

    def action_fold(self) -> None:
        self.merged.fold = not self.merged.fold
        self._again("equal lines are folded" if self.merged.fold else "every line is shown")

    def action_events(self) -> None:
        self.merged.events = not self.merged.events
        self._again("with what nodes said" if self.merged.events else "without node events")

    def _again(self, said: str) -> None:
        self.say(said, "dim")
        if self.now is self.merged:
            self.bring(self.merged)

    # ---- how they look

    def action_wrap(self) -> None:
        self.view.wrap = not self.view.wrap
        self.view.repaint()

    def action_stamps(self) -> None:
        kinds = STAMPS
        self.scene.stamps = kinds[(kinds.index(self.scene.stamps) + 1) % len(kinds)]
        start = self.job.created if self.job else 0.0
        self.view.stamp = self.wall.wall.stamp = stamp(self.scene.stamps, start)
        self.say(f"time stamps: {self.scene.stamps}", "dim")
        self.repaint()

    def action_lofi(self) -> None:
        if not self._has_log():
            return
        plain = not self.view.plain
        self.view.plain = plain
        for widget in (self.top_bar, *self.query("JobHead, CellMap"), self.key_bar):
            widget.display = not plain
        self.deck.use_mouse(on=not plain)
        self.call_after_refresh(self.repaint)

    # ---- taking lines along

    def action_at_node(self) -> None:
        line = self.view.current_line if self.view.display else None
        rank = line.rank if line is not None else self.now.rank
        node = self._node_of(rank)
        if line is not None and line.rank == EVENT:
            node = line.text.partition(":")[0]
        if node:
            self.deck.open_node(node, line.at if line is not None else None)

    def _node_of(self, rank: int | None) -> str:
        if self.job is None or rank is None:
            return ""
        if rank == LAUNCHER:
            return self.job.plan.nodes[0].node
        return next((one.node for one in self.job.ranks if one.rank == rank), "")

    def action_copy(self) -> None:
        lines, what = self.now.texts()
        if lines:
            lines = lines[-1000:]
            self.deck.copy("\n".join(lines), f"{len(lines)} {what}")

    def action_copy_path(self) -> None:
        rank = self.now.rank
        node = self._node_of(rank)
        if node and rank is not None:
            folder = "launcher" if rank == LAUNCHER else f"rank.{rank}"
            state = "${RANKDECK_STATE:-~/.local/state/rankdeck}"
            path = f"{state}/jobs/{self.job_id}/{node}/{folder}"
            self.deck.copy(path, f"{printable(node)}:{path}")

    def action_save(self) -> None:
        rank = self.now.rank
        part = f".{rank}" if self.now is self.one and rank is not None else f".{self.now.name}"
        name = f"{self.job_id}{part}.log".replace("/", "_")
        self.prompt.ask("save to ", name, "a file that does not exist yet")

    def _save(self, text: str) -> None:
        lines, what = self.now.texts()
        if text:
            work = self._write(Path(text).expanduser(), lines, what)
            self.run_worker(work, name="save", group="save", exclusive=True)

    async def _write(self, path: Path, lines: list[str], what: str) -> None:
        try:
            await asyncio.to_thread(_write_new, path, lines)
        except OSError as error:
            self.say(f"not saved: {printable(str(error))}", "warn")
        else:
            self.say(f"saved {len(lines):,} {what} to {printable(str(path))}", "ok")


def _write_new(path: Path, lines: list[str]) -> None:
    path.touch(mode=0o600, exist_ok=False)
    write_private(path, "".join(f"{line}\n" for line in lines))
