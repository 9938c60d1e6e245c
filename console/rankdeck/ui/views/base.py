"""What the views of a job's output have in common."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from textual.widget import Widget

from rankdeck.logs.order import silence
from rankdeck.model.job import Job, RankState, State
from rankdeck.model.text import printable
from rankdeck.state.jobs import Jobs
from rankdeck.state.lines import RankLog
from rankdeck.ui import words
from rankdeck.ui.glyphs import Glyphs
from rankdeck.ui.views.choice import Choice
from rankdeck.ui.widgets.canvas import Run

if TYPE_CHECKING:
    from rankdeck.ui.app import RankdeckApp

BACKLOG = 1 << 20
ALL_BACKLOG = 16 << 20
"""Bytes of earlier output that one rank, and that all ranks of a view together, are asked for."""
QUIET = 10.0
"""Seconds behind the others from which on a title says how long a rank has been silent."""


@dataclass(slots=True)
class Scene:
    """What a view needs from the screen it is on."""

    deck: "RankdeckApp"
    job_id: str
    choice: Choice = field(default_factory=Choice)
    stamps: str = "off"
    _watched: tuple[int, ...] = ()

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

    def title(self, job: Job, one: RankState) -> list[Run]:
        """A rank in a few words: state, number, node, how it ended or how long it is silent."""
        mark = self.glyphs.state(one.state)
        ending = words.ending(one.exit_code, one.signal)
        said = ending if ending and one.state is not State.DONE else str(one.state)
        title = [
            (f"{mark.glyph} ", mark.role),
            (f"{one.rank}", "title"),
            (f" {printable(one.node)} ", "text"),
            (said, mark.role),
        ]
        latest = max((other.heard or 0.0 for other in job.ranks), default=0.0)
        quiet = silence(one, latest) if one.state is State.RUNNING else 0.0
        if quiet >= QUIET:
            title.append((f"  silent {words.age(quiet)}", "warn"))
        if one.rank in self.choice.pins:
            title.append(("  pinned", "key"))
        return [*title, (f"  {words.many(self.lines(one.rank), 'line')}", "dim")]


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
