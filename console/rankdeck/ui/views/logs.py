"""The log views: one rank's or the launcher's log, and many ranks merged by time."""

import math
import time
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from textual.widget import Widget

from rankdeck.errors import RankdeckError
from rankdeck.logs.goal import Goal
from rankdeck.logs.merged_log import EVENT, MergedLine, MergedLog
from rankdeck.model.health import Occurrence
from rankdeck.model.job import Job
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.rank_output import FoundLine, LogPart, LogPlace
from rankdeck.model.safe_text import printable_line
from rankdeck.state.lines import Line, RankLog
from rankdeck.ui import formatting
from rankdeck.ui.views.base import TURN, Scene
from rankdeck.ui.widgets.canvas import Run, optional_run
from rankdeck.ui.widgets.logview import LogView
from rankdeck.values import Value, replace
from rankdeck_agent.wire import LAUNCHER

if TYPE_CHECKING:
    from rankdeck.backends.remote_log import Ranges

PART = 1 << 18
"""Bytes to fetch at once; splitting them into lines takes about 10 ms."""
_ALL = 1 << 40


class FetchedLog(Value):
    """A part of one stream that was fetched from the node, as a log."""

    log: RankLog
    part: LogPart

    @property
    def words(self) -> str:
        """Where in the stream the part is: `out, 12% of 1.0G`."""
        share = 100 * self.part.start / max(self.part.end, 1)
        return f"{self.part.stream}, {share:.0f}% of {formatting.format_size(self.part.end)}"


async def fetch_log_lines(output: "Ranges", place: LogPlace, size: int = PART) -> FetchedLog:
    """Fetch whole lines from about `place` on; `size` is in bytes. Raises NodeError."""
    part = await output.read(place, size)
    log = RankLog(place.rank, keep=_ALL, keep_bytes=_ALL)
    for chunk in part.chunks:
        log.add(chunk)
    return FetchedLog(log, part)


def place_before(rank: int, stream: str, offset: int) -> tuple[LogPlace, int]:
    """The place and size in bytes of the part that ends at this offset."""
    begin = max(offset - PART, 0)
    return LogPlace(rank, stream, begin), offset - begin


NODE_ROLES = ("text", "accent", "ok", "key", "simulated")
"""Colours of the prefixes in the merged view: ranks of one node have the same."""
PREFIX = 18


class OneView:
    """The log of one rank, or of the launcher, on the whole screen."""

    name = "one"

    def __init__(self, scene: Scene, view: LogView) -> None:
        self._scene, self.view = scene, view
        self.rank: int | None = None
        self.fetched: FetchedLog | None = None
        """The part of the log fetched from the node, if that is
        shown instead of the newest lines.
        """
        self.exhausted = False
        """Whether the last `find` has seen the whole log in its direction, without a match."""
        self._opened = False

    @property
    def widget(self) -> Widget:
        return self.view

    @property
    def busy(self) -> bool:
        return self.view.busy

    def enter(self, job: Job) -> None:
        del job
        assert self.rank is not None
        self.fetched = None
        self._opened = False
        self._scene.watch((self.rank,))
        self.view.open(self._scene.log(self.rank))

    def show(self, job: Job) -> None:
        self.view.tick(self._title(job))
        if not self._opened and not self.whole and job.clock is None:
            self._opened = True
            self.view.run_worker(self._open(), group="open", exclusive=True)

    def _title(self, job: Job) -> list[Run]:
        if self.rank == LAUNCHER:
            node = printable_line(job.plan.nodes[0].node)
            late = self._scene.late_words((LAUNCHER,))
            return [("launcher", "title"), *late, optional_run(node, "dim")]
        found = next((one for one in job.ranks if one.rank == self.rank), None)
        title = self._scene.title(job, found) if found else []
        return [*title[:-1], optional_run(self.fetched.words, "accent")] if self.fetched else title

    def note(self, job: Job) -> str:
        del job
        return ""

    def texts(self) -> tuple[list[str], str]:
        who = "the launcher" if self.rank == LAUNCHER else f"rank {self.rank}"
        return self.view.texts(), f"lines of {who}"

    # ---- lines that only the node has

    def _here(self, *, back: bool) -> tuple[str, int] | None:
        """Stream and offset of the upper end of what is shown (`back`), or of the
        lower end; None if there is no line.
        """
        if self.fetched is not None:
            part = self.fetched.part
            return part.stream, part.start if back else part.stop
        source = self.view.log_source
        if source is None or not source.lines:
            return None
        if source.gaps:
            return source.gaps[-1].stream, source.gaps[-1].end
        return source.lines[0].stream, source.lines[0].offset

    def _since(self) -> float:
        """The time from which on every line is on this machine."""
        source = self.view.log_source
        if source is None:
            return math.inf
        number = source.gaps[-1].before if source.gaps else source.first
        newest = source.lines[max(number - source.first, 0) :]
        return newest[0].at if newest else math.inf

    @property
    def whole(self) -> bool:
        """Whether the whole log is on this machine."""
        here = self._here(back=True)
        return self.fetched is None and (here is None or here[1] == 0)

    async def read_on(self, job: Job, *, back: bool, far: bool) -> None:
        """Show the part before what is shown (`back`), or after it; with `far`, go to that end.

        Raises NodeError.
        """
        here = self._here(back=back)
        if here is None or self.rank is None or (back and here[1] == 0):
            return
        if not back:
            if self.fetched is None or far or self.fetched.part.stop >= self.fetched.part.end:
                self.enter(job)
                return
            place, size = LogPlace(self.rank, *here), PART
        elif far:
            place, size = LogPlace(self.rank, here[0], 0), PART
        else:
            place, size = place_before(self.rank, *here)
        await self._fetch(place, size)
        self.view.put(last=back and not far)

    def _output(self, rank: int) -> "Ranges":
        return self._scene.console.need_session().control.read_output(self._scene.job_id, rank)

    async def _fetch(self, place: LogPlace, size: int = PART) -> None:
        self.fetched = await fetch_log_lines(self._output(place.rank), place, size)
        self.view.open(self.fetched.log, live=False)

    async def find(self, text: str, *, back: bool) -> AsyncGenerator[str]:
        """Go to the next line with `text` in the whole log; yields
        sentences on the progress and the match.

        Raises NodeError.
        """
        self.exhausted = False
        line, rank = self.view.current_line, self.rank
        if line is None or rank is None:
            return
        offset = line.offset if back else line.offset + 1
        place = LogPlace(rank, line.stream, offset)
        there = False
        async with aclosing(self._output(rank).find(place, text, back=back)) as found:
            async for one in found:
                if one.at is not None and not there:
                    there = True
                    await self.show_line(LogPlace(rank, line.stream, one.at))
                yield match_words(one, line.stream, back=back)
                if one.at is None and not one.looking:
                    self.exhausted = True

    async def show_line(self, place: LogPlace) -> None:
        """Put the line that begins there on the screen. Raises NodeError."""
        await self._fetch(replace(place, offset=max(place.offset - PART // 2, 0)))
        source = self.view.shown
        if source is not None:
            at = bisect_left(source.lines, place.offset, key=lambda one: one.offset)
            self.view.go(source.first + at)

    async def reach(self, goal: Goal) -> str:
        """Go to this line, time or place of the whole log; returns what to tell the user.

        Raises NodeError.
        """
        here = self._here(back=True)
        near = self.fetched is None and goal.at is not None and self._since() <= goal.at
        if here is None or self.rank is None or self.whole or near:
            return "" if self.view.reach(goal) else "no line"
        seeker = Seeker(self._output(self.rank), LogPlace(self.rank, here[0], 0))
        offset, skip = await seeker.find(goal)
        await self._fetch(replace(seeker.place, offset=offset))
        lines = len(self.view.shown.lines) if self.view.shown else 0
        self.view.reach(
            goal if goal.at is not None else Goal(line=min(skip, max(lines - 1, 0)) + 1)
        )
        return ""

    async def _open(self) -> None:
        """Start the agent on the node in advance.

        Errors are ignored here: the first real request raises them again.
        """
        if self.rank is not None:
            with suppress(RankdeckError):
                await self._output(self.rank).open()

    def next_rank(self, job: Job, steps: int) -> int | None:
        """The rank `steps` further on in the order of the view,
        cyclic; None if no ranks are chosen.
        """
        ranks = [one.rank for one in self._scene.ranks(job)]
        if not ranks:
            return None
        at = ranks.index(self.rank) if self.rank in ranks else -steps
        return ranks[(at + steps) % len(ranks)]


LOOK = 1 << 12
"""Bytes to read to find the time of a place in the log."""
NEAR = 1 << 14
"""The search ends within this many bytes of its goal."""
EVERY_LINE = "^"
"""A pattern that makes the node count lines."""


class Seeker(Value):
    """Finds a line, a time or a place in a log on its node, by binary search."""

    output: "Ranges"
    place: LogPlace

    async def find(self, goal: Goal) -> tuple[int, int]:
        """An offset shortly before the goal, and the number of lines between them.

        Raises NodeError.
        """
        end = (await self.output.read(self.place, 1)).end
        if goal.share is not None:
            return int(goal.share * end), 0
        if goal.line is not None:
            return await self._of_line(goal.line - 1, end)
        return await self._of_time(goal.at or 0.0, end), 0

    async def _of_time(self, at: float, end: int) -> int:
        low, high = 0, end
        while high - low > NEAR:
            middle = (low + high) // 2
            part = await self.output.read(replace(self.place, offset=middle), LOOK)
            early = bool(part.chunks) and part.chunks[0].at < at
            low, high = (middle, high) if early else (low, middle)
        return low

    async def _of_line(self, wanted: int, end: int) -> tuple[int, int]:
        low, high, before = 0, end, 0
        while high - low > NEAR:
            middle = (low + high) // 2
            found = await self._lines_before(middle)
            if found is None or found[1] > wanted or found[0] >= high:
                high = middle
            else:
                low, before = found
        return low, wanted - before

    async def _lines_before(self, offset: int) -> tuple[int, int] | None:
        """Offset of the first line that begins at `offset` or later, and how many
        lines come before it; None at the end.
        """
        place = replace(self.place, offset=offset)
        async with aclosing(self.output.find(place, EVERY_LINE, back=False)) as found:
            async for one in found:
                if one.at is not None and one.before is not None:
                    return one.at, one.before
        return None


def match_words(found: FoundLine, stream: str, *, back: bool) -> str:
    """Which match of how many this is, as far as known, as a sentence."""
    share = f"{100 * found.share:.0f}%"
    if found.looking:
        return f"searching {stream} on the node, {share}"
    so_far = "" if found.whole else f" in the {share} counted so far"
    if found.at is None:
        side = "before" if back else "after"
        return f"no match {side} this in {stream}; {found.count:,} in all{so_far}"
    if found.before is None:
        return f"a match in {stream}; {found.count:,} in all{so_far}"
    where = so_far or f" in all of {stream}"
    return f"match {found.before + 1:,} of {found.count:,}{where}"


def prefix_of_ranks(roles: Mapping[int, str]) -> Callable[[Line], Run]:
    """What stands before a merged line: who wrote it, and how often;
    `roles` has the colour of each rank.
    """
    digits = len(str(max(roles, default=0)))

    def prefix(line: Line) -> Run:
        counts = line.counts if isinstance(line, MergedLine) else {}
        if len(counts) > 1:
            ranks = f"{fold_ranks(counts)} [x{sum(counts.values())}]"
            if len(ranks) > PREFIX:
                ranks = f"{len(counts)} ranks [x{sum(counts.values())}]"
            return ranks + " ", "title"
        if line.rank == EVENT:
            return "node ", "accent"
        times = f" [x{counts[line.rank]}]" if line.rank in counts else ""
        return f"{line.rank:>{digits}}{times} ", roles.get(line.rank, "text")

    return prefix


class RankSearch(Value):
    """How far a search through the whole output of several ranks is."""

    done: int
    """Ranks whose output was searched."""
    of: int
    hit: LogPlace | None = None
    """The line that was found, which ends the search."""
    unread: tuple[int, ...] = ()
    """Ranks whose node did not answer."""

    def words(self, text: str) -> str:
        """The progress, or what was found, as a sentence."""
        text = f"`{printable_line(text, 40)}`"
        if self.hit is not None:
            return f"{text} in {self.hit.stream} of rank {self.hit.rank}"
        if self.done < self.of:
            return f"searching {text} on the nodes: {self.done} of {self.of} ranks have none"
        unread = f"; not searched: ranks {fold_ranks(self.unread)}" if self.unread else ""
        return f"no {text} in all output of {formatting.format_many(self.of, 'rank')}{unread}"


async def search_ranks(
    scene: Scene, text: str, ranks: Sequence[int], *, back: bool
) -> AsyncGenerator[RankSearch]:
    """Search the whole output of these ranks on their nodes, one rank
    after the other, until one has `text`.
    """
    unread: tuple[int, ...] = ()
    for done, rank in enumerate(ranks):
        yield RankSearch(done, len(ranks))
        try:
            hit = await _first_line(scene, text, rank, back=back)
        except RankdeckError:
            unread = (*unread, rank)
            continue
        if hit is not None:
            yield RankSearch(done, len(ranks), hit)
            return
    yield RankSearch(len(ranks), len(ranks), unread=unread)


async def _first_line(scene: Scene, text: str, rank: int, *, back: bool) -> LogPlace | None:
    """The first line of a rank with `text` (with `back`: the last
    one), in stdout or else in stderr.
    """
    output = scene.console.need_session().control.read_output(scene.job_id, rank)
    for stream in ("out", "err"):
        end = LogPlace(rank, stream, _ALL if back else 0)
        async with aclosing(output.find(end, text, back=back)) as found:
            async for one in found:
                if one.at is not None:
                    return LogPlace(rank, stream, one.at)
                if not one.looking:
                    break
    return None


class MergedView:
    """The lines of all chosen ranks by time, with the events of their nodes in between."""

    name = "merged"

    def __init__(self, scene: Scene, view: LogView) -> None:
        self._scene, self.view = scene, view
        self.fold = self.events = True
        self._merged = MergedLog({})
        self._ranks: tuple[int, ...] = ()

    @property
    def widget(self) -> Widget:
        return self.view

    @property
    def busy(self) -> bool:
        return self._merged.waiting > 0 or self.view.busy

    @property
    def rank(self) -> int | None:
        line = self.view.current_line
        return line.rank if line is not None and line.rank >= 0 else None

    def enter(self, job: Job) -> None:
        ranks = sorted(self._scene.ranks(job), key=lambda one: one.rank)
        self._ranks = tuple(one.rank for one in ranks)
        self._scene.watch(self._ranks)
        logs = {rank: self._scene.log(rank) for rank in self._ranks}
        nodes = tuple(dict.fromkeys(one.node for one in ranks))
        self._merged = MergedLog(
            logs,
            LauncherLog(self._scene, nodes if self.events else (), job.created),
            fold=self.fold,
        )
        roles = {one.rank: NODE_ROLES[nodes.index(one.node) % len(NODE_ROLES)] for one in ranks}
        self.view.open(self._merged, prefix_of_ranks(roles))

    def show(self, job: Job) -> None:
        if self._scene.numbers(job) != self._ranks:
            self.enter(job)
        until = time.monotonic() + TURN
        while self._merged.update() and time.monotonic() < until:
            pass
        title: list[Run] = [(f"ranks {fold_ranks(self._ranks)} by time", "title")]
        title += self._scene.late_words(self._ranks)
        if left := self._merged.waiting:
            title.append(optional_run(f"{left:,} lines to come", "accent"))
        elif self._merged.late or self._merged.first:
            title.append(optional_run("the newest lines; a rank has the others", "dim"))
        if not self.fold:
            title.append(optional_run("not folded", "dim"))
        if not self.events:
            title.append(optional_run("without node events", "dim"))
        self.view.tick(title, self._merged.changes)

    def note(self, job: Job) -> str:
        del job
        return self._scene.choice.words

    def texts(self) -> tuple[list[str], str]:
        return self.view.texts(), f"merged lines of ranks {fold_ranks(self._ranks)}"


class LauncherLog:
    """Callable that gives the events of some nodes while a job ran,
    also a past job, to a merged log.
    """

    def __init__(self, scene: Scene, nodes: tuple[str, ...], since: float) -> None:
        self._scene, self._nodes, self._since = scene, frozenset(nodes), since
        self._seen: tuple[int, float] = (-1, 0.0)
        self._found: frozenset[Occurrence] = frozenset()

    def __call__(self) -> frozenset[Occurrence]:
        journal = self._scene.console.fleet.event_log
        seen = (journal.total, self._until())
        if self._nodes and seen != self._seen:
            self._seen = seen
            events = journal.between(self._nodes, self._since, seen[1])
            self._found = frozenset(map(_cleaned, events))
        return self._found

    def _until(self) -> float:
        """The time that a replay shows, else the end of the job."""
        job = self._scene.jobs.job(self._scene.job_id)
        if job.clock is not None:
            return job.clock
        return math.inf if job.ended is None else job.ended


def _cleaned(one: Occurrence) -> Occurrence:
    return replace(
        one,
        node=printable_line(one.node),
        device=printable_line(one.device),
        text=printable_line(one.text),
    )
