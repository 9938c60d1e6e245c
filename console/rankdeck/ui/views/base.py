"""What the views of a job's output have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from textual.widget import Widget

from rankdeck.logs.order import silence
from rankdeck.model.job import Job, RankState, State
from rankdeck.model.text import printable
from rankdeck.rules.standing import Standing, standings
from rankdeck.state.jobs import Jobs
from rankdeck.state.lines import RankLog
from rankdeck.ui import words
from rankdeck.ui.glyphs import Glyphs, Mark
from rankdeck.ui.views.choice import Choice
from rankdeck.ui.widgets.canvas import Run

if TYPE_CHECKING:
    from rankdeck.ui.app import RankdeckApp

BACKLOG = 1 << 20
ALL_BACKLOG = 16 << 20
"""Bytes of earlier output that one rank, and that all ranks of a view together, are asked for."""
QUIET = 10.0
"""Seconds behind the others from which on a title says how long a rank has been silent."""

EDGES: dict[Standing, str] = {
    Standing.FIRST: "bad",
    Standing.FAILED: "bad",
    Standing.STALLED: "warn",
}
"""Frames that the eye shall find first."""


@dataclass(slots=True)
class Scene:
    """What a view needs from the screen it is on."""

    deck: "RankdeckApp"
    job_id: str
    choice: Choice = field(default_factory=Choice)
    stamps: str = "off"
    _watched: tuple[int, ...] = ()
    _judged: tuple[Job, Mapping[int, Standing]] | None = None

    @property
    def jobs(self) -> Jobs:
        return self.deck.session.jobs

    @property
    def glyphs(self) -> Glyphs:
        return self.deck.glyphs

    def log(self, rank: int) -> RankLog:
        """Output of a rank; raises UnknownJobError."""
        return self.jobs.log(self.job_id, rank)

    def lines(self, rank: int) -> int:
        """How many lines it has written, as far as known."""
        return sum(self.log(rank).counts.values())

    def ranks(self, job: Job) -> tuple[RankState, ...]:
        """The chosen ranks in their order."""
        return self.choice.ranks(job, self.lines)

    def numbers(self, job: Job) -> tuple[int, ...]:
        """The chosen ranks by number: for views that show no order, and shall not begin anew with it."""
        return tuple(sorted(one.rank for one in self.ranks(job)))

    def watch(self, ranks: Sequence[int]) -> None:
        """Have these ranks' output fetched from now on, and no other."""
        wanted = tuple(ranks)
        if wanted != self._watched:
            self._watched = wanted
            backlog = min(BACKLOG, ALL_BACKLOG // max(len(wanted), 1))
            self.deck.session.watch(self.job_id, wanted, backlog)

    def forget_watch(self) -> None:
        """Ask again, whatever is asked for next."""
        self._watched = ()

    def standings(self, job: Job) -> Mapping[int, Standing]:
        """Who wants to be looked at; found once for each state of the job."""
        if self._judged is None or self._judged[0] is not job:
            self._judged = job, standings(job)
        return self._judged[1]

    def mark(self, job: Job, one: RankState) -> Mark:
        """The sign of a rank: of its standing, else of its state."""
        standing = self.standings(job).get(one.rank)
        if standing is None:
            return self.glyphs.state(one.state)
        return self.glyphs.standing(standing)

    def edge(self, job: Job, one: RankState) -> str:
        """The role of the frame around a rank; "" for the usual one."""
        return EDGES.get(self.standings(job).get(one.rank, Standing.VICTIM), "")

    def title(self, job: Job, one: RankState) -> list[Run]:
        """A rank in a few words: state, number, node, how it ended or how long it is silent."""
        mark = self.mark(job, one)
        title = [
            (f"{mark.glyph} ", mark.role),
            (f"{one.rank}", "title"),
            (f" {printable(one.node)} ", "text"),
            *self._said(job, one, mark.role),
        ]
        if one.rank in self.choice.pins:
            title.append(("  pinned", "key"))
        return [*title, (f"  {words.many(self.lines(one.rank), 'line')}", "dim")]

    def _said(self, job: Job, one: RankState, role: str) -> list[Run]:
        """How it ended, how long it is silent, else its state."""
        standing = self.standings(job).get(one.rank)
        ending = words.ending(one.exit_code, one.signal)
        if ending and one.state is not State.DONE:
            more = standing in (Standing.FIRST, Standing.VICTIM)
            return [(ending, role), *([(f"  {standing}", role)] if more else [])]
        if one.state is not State.RUNNING:
            return [(str(one.state), role)]
        if standing is Standing.STALLED:
            begun = min(s.since for s in job.stalled if one.rank in (*s.ranks, *s.first))
            quiet = max(self.now(job) - begun, 0.0)
            return [(f"stalled {words.age(quiet)}", "warn"), *_doing(one)]
        latest = max((other.heard or 0.0 for other in job.ranks), default=0.0)
        if (quiet := silence(one, latest)) >= QUIET:
            return [(f"silent {words.age(quiet)}", "warn"), *_doing(one)]
        return [(str(one.state), role)]

    def now(self, job: Job) -> float:
        """The moment that is shown: now, or that of a replay."""
        return self.deck.session.fleet.wall() if job.clock is None else job.clock


def _doing(one: RankState) -> list[Run]:
    """What a rank that says nothing does."""
    does = words.doing(one.activity)
    return [(f"  {printable(does)}", "dim")] if does else []


class JobView(Protocol):
    """One way to look at a job's output."""

    @property
    def name(self) -> str: ...

    @property
    def widget(self) -> Widget:
        """What is on the screen while the view is."""
        ...

    @property
    def rank(self) -> int | None:
        """The rank under the cursor."""
        ...

    @property
    def busy(self) -> bool:
        """Whether `show` has more to do than it does in one turn."""
        ...

    def enter(self, job: Job) -> None:
        """It comes on the screen."""
        ...

    def show(self, job: Job) -> None:
        """Look at the model; called ten times a second while on the screen."""
        ...

    def note(self, job: Job) -> str:
        """A few words for the right end of the first line."""
        ...

    def texts(self) -> tuple[list[str], str]:
        """What it shows as plain lines, for copying and saving, and what that is in words."""
        ...
