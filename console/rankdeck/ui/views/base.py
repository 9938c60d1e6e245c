"""What the views of a job's output have in common."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from textual.widget import Widget

from rankdeck.logs.rank_choice import choose_ranks
from rankdeck.logs.rank_order import ORDERS, order_ranks, output_silence, rank_statuses
from rankdeck.model.job import Job, RankState
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.rank import RankStatus, State
from rankdeck.model.safe_text import printable_line
from rankdeck.rules.rank_signs import QUIET, quiet_for
from rankdeck.state.jobs import Jobs
from rankdeck.state.lines import RankLog
from rankdeck.ui import formatting
from rankdeck.ui.movement import next_choice
from rankdeck.ui.themes import Glyphs, Mark
from rankdeck.ui.widgets.canvas import Run, optional_run
from rankdeck.ui.widgets.vtable import FoldList

if TYPE_CHECKING:
    from rankdeck.ui.protocols import Console


class RankChoice:
    """Which ranks are shown and in what order; shared by all views of one job screen."""

    def __init__(self) -> None:
        self.text = ""
        """The set of ranks as typed; "": all."""
        self.order = ORDERS[0]
        self.pins: tuple[int, ...] = ()
        self.page = 0
        self.only: tuple[int, ...] = ()
        """The ranks that another view asked for; (): no such limit."""
        self._ordered: tuple[RankState, ...] = ()
        self._key: object = None

    def set(self, text: str, job: Job) -> None:
        """Show only the ranks in `text`; raises ValueError if that is not a set of ranks."""
        choose_ranks(text, job.ranks)
        self.text, self.only, self.page = text.strip(), (), 0

    def limit(self, ranks: tuple[int, ...]) -> None:
        """Show exactly these ranks; (): all again."""
        self.only, self.text, self.page = ranks, "", 0

    def next_order(self) -> str:
        """Change to the next order; returns its name."""
        self.order = next_choice(ORDERS, self.order)
        self.page, self._key = 0, None
        return self.order

    def reorder(self) -> None:
        """Sort again at the next call of `ranks`."""
        self._key = None

    def pin(self, rank: int) -> bool:
        """Pin this rank to every page, or unpin it; returns whether it is pinned now."""
        pinned = rank not in self.pins
        others = tuple(one for one in self.pins if one != rank)
        self.pins = (*others, rank) if pinned else others
        return pinned

    def ranks(self, job: Job, lines: Callable[[int], int]) -> tuple[RankState, ...]:
        """The chosen ranks in order.

        The order changes only when a state or status does, so that tiles keep their places.
        """
        states: tuple[State, ...] = tuple(one.state for one in job.ranks)
        known = rank_statuses(job)
        key = (self.text, self.only, self.order, states, known)
        if key != self._key:
            self._key = key
            wanted = set(self.only or choose_ranks(self.text, job.ranks))
            chosen = [one for one in job.ranks if one.rank in wanted]
            self._ordered = order_ranks(chosen, self.order, lines, known)
        now = {one.rank: one for one in job.ranks}
        return tuple(now[one.rank] for one in self._ordered)

    def pages(self, count: int, size: int) -> int:
        """How many pages there are with `size` ranks on each."""
        free = max(size - len(self.pins), 1)
        return max(-(-max(count - len(self.pins), 1) // free), 1)

    def on_page(self, ranks: tuple[RankState, ...], size: int) -> tuple[RankState, ...]:
        """The pinned ranks and those of this page."""
        pinned = tuple(one for one in ranks if one.rank in self.pins)[: max(size - 1, 1)]
        others = tuple(one for one in ranks if one not in pinned)
        free = max(size - len(pinned), 1)
        self.page = min(self.page, max(-(-len(others) // free), 1) - 1)
        return (*pinned, *others[self.page * free : (self.page + 1) * free])

    def place(self, ranks: tuple[RankState, ...], size: int, rank: int) -> int | None:
        """The page that shows this rank; None if the rank is not chosen."""
        others = [one.rank for one in ranks if one.rank not in self.pins]
        if rank in self.pins:
            return self.page
        free = max(size - len(self.pins), 1)
        return others.index(rank) // free if rank in others else None

    @property
    def words(self) -> str:
        """What is chosen, in words; "" for all ranks in their order."""
        parts = [f"ranks {fold_ranks(self.only)}"] if self.only else []
        parts += [self.text] if self.text else []
        parts += [f"by {self.order}"] if self.order != ORDERS[0] else []
        return " ".join(parts)


BACKLOG = 1 << 20
ALL_BACKLOG = 16 << 20
"""Bytes of earlier output to fetch: at most for one rank, and for all ranks of a view together."""
TURN = 0.01
"""Seconds of work at a time, between which keys and painting are handled."""
BEHIND = 10.0
"""A title says how long a rank has been silent if that is so many seconds
longer than the others; see also QUIET.
"""

LATE = 3.0
"""A title says how old the lines shown are if the node has so many seconds of later ones."""

EDGES: dict[RankStatus, str] = {
    RankStatus.FIRST: "bad",
    RankStatus.FAILED: "bad",
    RankStatus.STALLED: "warn",
}
"""Status -> role of the frame, for ranks to look at first."""


@dataclass(slots=True)
class Scene:
    """What a view needs from the screen it is on."""

    console: "Console"
    job_id: str
    choice: RankChoice = field(default_factory=RankChoice)
    stamps: str = "off"
    _watched: tuple[int, ...] = ()
    _judged: tuple[Job, Mapping[int, RankStatus]] | None = None

    @property
    def jobs(self) -> Jobs:
        return self.console.need_session().jobs

    @property
    def glyphs(self) -> Glyphs:
        return self.console.glyphs

    def log(self, rank: int) -> RankLog:
        """Output of a rank; raises UnknownJobError."""
        return self.jobs.log(self.job_id, rank)

    def lines(self, rank: int) -> int:
        """How many lines this rank has written, as far as known."""
        return sum(self.log(rank).counts.values())

    def ranks(self, job: Job) -> tuple[RankState, ...]:
        """The chosen ranks in their order."""
        return self.choice.ranks(job, self.lines)

    def numbers(self, job: Job) -> tuple[int, ...]:
        """The chosen ranks sorted by number, for views that do not depend on the order."""
        return tuple(sorted(one.rank for one in self.ranks(job)))

    def watch(self, ranks: Sequence[int]) -> None:
        """Fetch the full output of these ranks from now on, and of no others."""
        wanted = tuple(ranks)
        if wanted != self._watched:
            self._watched = wanted
            backlog = min(BACKLOG, ALL_BACKLOG // max(len(wanted), 1))
            self.console.need_session().following.watch(self.job_id, wanted, backlog)

    def forget_watch(self) -> None:
        """Make the next `watch` ask the session, even for the same ranks."""
        self._watched = ()

    def statuses(self, job: Job) -> Mapping[int, RankStatus]:
        """Rank -> status, for ranks that need attention; computed
        once for each state of the job.
        """
        if self._judged is None or self._judged[0] is not job:
            self._judged = job, rank_statuses(job)
        return self._judged[1]

    def mark(self, job: Job, one: RankState) -> Mark:
        """The sign of a rank: of its status, else of its state."""
        status = self.statuses(job).get(one.rank)
        if status is None:
            return self.glyphs.state(one.state)
        return self.glyphs.status(status)

    def edge(self, job: Job, one: RankState) -> str:
        """The role of the frame around a rank; "" for the usual one."""
        return EDGES.get(self.statuses(job).get(one.rank, RankStatus.VICTIM), "")

    def title(self, job: Job, one: RankState) -> list[Run]:
        """A rank in a few words: state, number, node, how it ended
        or how long it has been silent.
        """
        mark = self.mark(job, one)
        title = [
            (f"{mark.glyph} ", mark.role),
            (f"{one.rank}", "title"),
            (f" {printable_line(one.node)} ", "text"),
            *self._status_words(job, one, mark.role),
        ]
        if one.rank in self.choice.pins:
            title.append(optional_run("pinned", "key"))
        log = self.log(one.rank)
        more = bool(log.gaps)
        title += self.late_words((one.rank,))
        return [
            *title,
            optional_run(formatting.format_many(self.lines(one.rank), "line", more), "dim"),
        ]

    def late_words(self, ranks: Sequence[int]) -> list[Run]:
        """How far what is shown of these ranks is behind their nodes; nothing if it is not."""
        late = {rank: seconds for rank in ranks if (seconds := self.log(rank).late_by) >= LATE}
        if not late:
            return []
        many = f"{len(late)} ranks up to " if len(late) > 1 else ""
        which = f"rank {next(iter(late))} is " if len(ranks) > 1 and len(late) == 1 else ""
        return [(f"  {which}{many}{max(late.values()):.0f} s behind", "warn")]

    def _status_words(self, job: Job, one: RankState, role: str) -> list[Run]:
        """How the rank ended, how long it has been silent, or else its state."""
        status = self.statuses(job).get(one.rank)
        ending = formatting.describe_ending(one.exit_code, one.signal)
        if ending and one.state is not State.DONE:
            more = status in (RankStatus.FIRST, RankStatus.VICTIM)
            return [(ending, role), *([optional_run(str(status), role)] if more else [])]
        if one.state is not State.RUNNING:
            return [(str(one.state), role)]
        stuck = status is RankStatus.STALLED
        reported = self.jobs.reported(job.id) if job.clock is None else None
        latest = max((other.heard or 0.0 for other in job.ranks), default=0.0)
        behind = output_silence(one, latest)
        quiet = max(quiet_for(job, one, self.now(job), reported), behind)
        if quiet >= QUIET or behind >= BEHIND:
            word = [optional_run("stalled", "warn")] if stuck else []
            return [(f"silent {formatting.format_age(quiet)}", "warn"), *word, *_doing(one)]
        return [(str(status), "warn") if stuck else (str(one.state), role)]

    def now(self, job: Job) -> float:
        """The time that is shown, in epoch seconds: now, or that of a replay."""
        return self.console.fleet.wall() if job.clock is None else job.clock


def _doing(one: RankState) -> list[Run]:
    """What a silent rank is doing."""
    does = formatting.describe_activity(one.activity)
    return [optional_run(printable_line(does), "dim")] if does else []


class JobView(Protocol):
    """One way to show a job's output on the job screen."""

    @property
    def name(self) -> str:
        """The name of the view in the table of actions, `ui/actions.py`."""
        ...

    @property
    def widget(self) -> Widget:
        """The widget to show while this is the current view."""
        ...

    @property
    def rank(self) -> int | None:
        """The rank under the cursor."""
        ...

    @property
    def busy(self) -> bool:
        """Whether `show` has work left and must be called again soon."""
        ...

    def enter(self, job: Job) -> None:
        """Called each time the view becomes the current one."""
        ...

    def show(self, job: Job) -> None:
        """Paint what is new; called ten times a second while this is the current view."""
        ...

    def note(self, job: Job) -> str:
        """A few words for the right end of the first line."""
        ...

    def texts(self) -> tuple[list[str], str]:
        """The plain lines to copy or save, and words for what they are."""
        ...


class Rows:
    """A view that is a list; `rank` and `wanted` belong to the entry under the cursor."""

    def __init__(self, scene: Scene, table: FoldList) -> None:
        self._scene, self._table = scene, table

    @property
    def widget(self) -> Widget:
        return self._table

    @property
    def rank(self) -> int | None:
        entry = self._table.entry
        return entry.ranks[0] if entry else None

    def wanted(self) -> tuple[int, ...]:
        """The ranks of the entry under the cursor."""
        return self._table.entry.ranks if self._table.entry else ()

    def note(self, job: Job) -> str:
        del job
        return self._scene.choice.words

    def texts(self) -> tuple[list[str], str]:
        return self._table.texts(), "rows"
