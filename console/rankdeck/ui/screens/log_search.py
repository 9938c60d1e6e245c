"""Moving in the logs of a job: follow, go to a line or a time,
search through all ranks, errors, marks.
"""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import aclosing

from rankdeck.logs.goal import GOALS, Goal, goal_of
from rankdeck.logs.search import pick_troubles
from rankdeck.model.job import Job
from rankdeck.ui import actions
from rankdeck.ui.operations import in_background
from rankdeck.ui.screens.base import BaseScreen
from rankdeck.ui.views.base import JobView, Scene
from rankdeck.ui.views.logs import MergedView, OneView, search_ranks
from rankdeck.ui.widgets.logview import LogView, pick_marked

NO_LOG = f"open a rank ({actions.action_key('zoom')}) or the merged log ({actions.action_key('merged')}) first"


class LogSearchScreen(BaseScreen):
    """A screen with the log of one rank, or of many ranks merged,
    in one widget; what moves in it.
    """

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.job: Job | None = None
        self.scene = scene
        self.view = LogView(id="view")
        self.one = OneView(scene, self.view)
        self.merged = MergedView(scene, self.view)
        self.now: JobView = self.one

    @abstractmethod
    def bring(self, view: JobView) -> None:
        """Show this view."""

    @abstractmethod
    def zoom(self, rank: int) -> None:
        """Show this rank's log on the whole screen."""

    def has_log(self) -> bool:
        """Whether a log is shown; if not, say how to open one."""
        if not self.view.display:
            self.say(NO_LOG, "dim")
        return self.view.display

    def action_goto(self) -> None:
        if self.has_log():
            self.prompt.ask("#", "", GOALS)

    def go_to(self, text: str) -> None:
        """Go to the line, time or place of the log that was typed."""
        if self.job is None or not text:
            return
        now = self.job.clock or self.job.ended or self.console.fleet.wall()
        try:
            goal = goal_of(text, now)
        except ValueError as error:
            self.say(str(error), "warn")
            return
        if self.now is self.one:
            in_background(self, "deep", self._reach(goal), "warn")
        elif not self.has_log() or not self.view.reach(goal):
            self.refuse("no line")

    async def _reach(self, goal: Goal) -> None:
        self.say(await self.one.reach(goal), "dim")

    def action_follow(self) -> None:
        self.view.start_following()

    def action_search(self) -> None:
        if not self.view.display:
            self.bring(self.merged)
        before = self.view.search.text if self.view.search else ""
        where = "this rank" if self.now is self.one else "all ranks shown"
        self.prompt.ask(
            "/", before, f"in {where}: text or regular expression; capitals make it exact"
        )

    def action_next_match(self) -> None:
        self._jump(back=False)

    def action_previous_match(self) -> None:
        self._jump(back=True)

    def _jump(self, *, back: bool) -> None:
        self.when_read(lambda: self._jump_now(back=back))

    def when_read(self, act: Callable[[], None]) -> None:
        """Call `act` once filter and search have seen all lines that are on this machine."""
        if self.view.busy:
            work = self._read_on(act)
            self.run_worker(work, group="reading", exclusive=True)
        else:
            act()

    async def _read_on(self, act: Callable[[], None]) -> None:
        now = self.now
        if await self.view.read_all() and self.now is now:
            act()

    def _jump_now(self, *, back: bool) -> None:
        search = self.view.search
        if search is None:
            self.say(f"nothing searched yet; press {actions.action_key('search')}", "dim")
        elif not self.view.jump(back=back, around=self.now is not self.one):
            whole = self.now is not self.one or self.one.whole
            deep = self._find_in_ranks if whole else self._find
            self.say("searching on the nodes…", "dim")
            in_background(self, "deep", deep(search.text, back=back), "warn")

    def on_log_view_edge(self, message: LogView.Edge) -> None:
        """Fetch the part of the log before or after the lines that are on this machine."""
        if self.now is self.one and self.job is not None:
            part = self.one.read_on(self.job, back=message.back, far=message.far)
            in_background(self, "deep", part, "warn")

    async def _find(self, text: str, *, back: bool) -> None:
        async with aclosing(self.one.find(text, back=back)) as found:
            async for sentence in found:
                self.say(sentence, "dim")
        if self.one.exhausted:
            await self._find_in_ranks(text, back=back)

    async def _find_in_ranks(self, text: str, *, back: bool) -> None:
        """Search the whole output of the ranks shown, or of those after this
        one, and show the line that is found.
        """
        if self.job is None:
            return
        ranks = [*self.scene.numbers(self.job)][:: -1 if back else 1]
        if self.now is self.one and self.one.rank in ranks:
            at = ranks.index(self.one.rank)
            ranks = [*ranks[at + 1 :], *ranks[:at]]
        async with aclosing(search_ranks(self.scene, text, ranks, back=back)) as found:
            async for one in found:
                self.say(one.words(text), "dim")
                if one.hit is not None:
                    self.zoom(one.hit.rank)
                    await self.one.show_line(one.hit)
                    return
        self.view.jump(back=back)

    def action_previous_error(self) -> None:
        if self.has_log():
            self.view.look_for(pick_troubles())
            self.when_read(lambda: self._go_next("no line reports an error", back=True))

    def _go_next(self, nothing: str, *, back: bool) -> None:
        if not self.view.go_next(back=back):
            self.say(nothing, "dim")

    def action_mark(self) -> None:
        if self.has_log():
            marked = self.view.mark()
            sentences = {
                True: f"marked; {actions.action_key('next_mark')} goes to it",
                False: "no longer marked",
                None: "no line",
            }
            self.say(sentences[marked], "dim")

    def action_next_mark(self) -> None:
        if self.has_log():
            nothing = f"no line is marked; {actions.action_key('mark')} marks one"
            self.view.look_for(pick_marked(self.view.marks))
            self.when_read(lambda: self._go_next(nothing, back=False))
