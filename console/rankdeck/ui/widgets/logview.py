"""One log on the whole screen: follow, stop, search, filter, mark; and how a line becomes rows."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Set
from itertools import pairwise

from rich.cells import cell_len, chop_cells
from textual import events
from textual.message import Message

from rankdeck.logs.goal import Goal
from rankdeck.logs.line_filter import Filtered, LineFilter
from rankdeck.logs.search import Picked, Search, TextMatch
from rankdeck.logs.source import Source
from rankdeck.model.safe_text import printable_line
from rankdeck.state.lines import Gap, Line
from rankdeck.ui import actions, formatting, movement
from rankdeck.ui.themes import paint_line
from rankdeck.ui.widgets.canvas import (
    Run,
    Runs,
    Scroller,
    cut_text,
    fit_runs,
    line_ends,
    measure_runs,
    optional_run,
    pane_title,
    shift_runs,
    squeeze_runs,
)
from rankdeck.values import Value, replace

Stamp = Callable[[Line, Line | None], str]
"""Called with a line and the one before it (None for the first); returns the time stamp to show."""
STAMPS = ("off", "clock", "since", "delta")
ROLES = {"err": "stderr", "gap": "warn", "node": "accent"}
ERR_MARK: Run = ("▏", "stderr")
"""Stands before each line of stderr, for those to whom its colour says nothing."""


def time_stamper(kind: str, start: float) -> Stamp:
    """The time stamps of this kind, one of STAMPS; `start` is when
    the job began, in epoch seconds.
    """
    if kind == "clock":
        return lambda line, _: formatting.format_clock(line.at, millis=True) + " "
    if kind == "since":
        return lambda line, _: f"{line.at - start:9.3f} "
    if kind == "delta":
        return lambda line, before: f"{line.at - before.at if before else 0.0:+9.3f} "
    return lambda line, before: ""


class LineLayout(Value):
    """Everything that decides how lines look."""

    width: int
    stamp: Stamp
    prefix: Callable[[Line], Run] | None = None
    wrap: bool = False
    left: int = 0
    search: TextMatch | None = None

    def rows(self, line: Line, before: Line | None, *, chosen: bool, marked: bool) -> list[Runs]:
        """The rows that this line takes."""
        head: list[Run] = [("*", "key")] if marked else []
        head.append((self.stamp(line, before), "dim"))
        if self.prefix:
            head.append(self.prefix(line))
        role = ROLES.get(line.stream, "text")
        if line.stream == "err":
            head.append(ERR_MARK)
        room = max(self.width - sum(cell_len(text) for text, _ in head) - 1, 10)
        runs = self._runs(line, role, chosen=chosen)
        if not self.wrap:
            return [[*head, *shift_runs(runs, self.left)]]
        if sum(cell_len(text) for text, _ in runs) <= room:
            return [[*head, *runs]]
        blank: list[Run] = [(" " * sum(cell_len(text) for text, _ in head), "dim")]
        return [
            [*(blank if at else head), *piece] for at, piece in enumerate(wrap_runs(runs, room))
        ]

    def _runs(self, line: Line, role: str, *, chosen: bool) -> list[Run]:
        if self.search is None:
            runs = paint_line(line.text, role)
        else:
            shown = printable_line(line.text)
            spans = self.search.spans(shown)
            runs = _marked(shown, role, spans) if spans else paint_line(line.text, role)
        if not chosen:
            return runs
        return [(t, r if r == "match" else f"{r}@selection") for t, r in runs]


def _marked(shown: str, role: str, spans: list[tuple[int, int]]) -> list[Run]:
    runs: list[Run] = []
    at = 0
    for start, end in spans:
        runs += [(shown[at:start], role), (shown[start:end], "match")]
        at = end
    runs.append((shown[at:], role))
    return [run for run in runs if run[0]]


def wrap_runs(runs: Runs, room: int) -> list[list[Run]]:
    """The runs cut into rows of at most `room` cells, nothing lost."""
    rows: list[list[Run]] = [[]]
    free = room
    for text, role in runs:
        while cell_len(text) > free:
            piece = chop_cells(text[:free], free)[0] if free else ""
            if cell_len(piece) > free:
                piece = ""  # a wide character does not fit into the last cell
            if piece:
                rows[-1].append((piece, role))
            rows.append([])
            text, free = text[len(piece) :], room
        if text:
            rows[-1].append((text, role))
            free -= cell_len(text)
    return rows


Key = tuple[int, str, int]
"""Rank, stream and offset, which identify a line in every view."""
Row = tuple[int, Runs]
"""The number of a line, and one of its rows."""


class LogRows:
    """The rows of a log as it is now."""

    def __init__(
        self, source: Source, layout: LineLayout, chosen: int | None, marks: Set[Key]
    ) -> None:
        self._source, self._layout = source, layout
        self._chosen, self._marks = chosen, marks
        self._gaps = {gap.before: gap for gap in source.gaps}

    def last(self, height: int) -> tuple[list[Row], int]:
        """The newest rows, at most `height`, and the number of finished lines that they show."""
        rows: list[Row] = []
        count = 0
        for made in self._each(self._backwards(height)):
            rows[:0] = made
            count += made[0][0] < self._source.total
            if len(rows) >= height:
                break
        return rows[-height:], count

    def starting(self, top: int, height: int) -> list[Row]:
        """The rows from line `top` on, at most `height`."""
        rows: list[Row] = []
        for made in self._each(self._forwards(top, height)):
            rows += made
            if len(rows) >= height:
                break
        return rows[:height]

    def _each(self, numbered: Iterable[tuple[int, Line, Line | None]]) -> Iterator[list[Row]]:
        for number, line, before in numbered:
            rows = self._layout.rows(
                line,
                before,
                chosen=number == self._chosen,
                marked=bool(self._marks) and _key_of(line) in self._marks,
            )
            if number in self._gaps:
                rows.insert(0, [(gap_words(self._gaps[number]), "warn")])
            yield [(number, row) for row in rows]

    def _backwards(self, height: int) -> Iterator[tuple[int, Line, Line | None]]:
        source = self._source
        back = list(reversed(source.lines[-height - 1 :]))
        for line in reversed(source.begun):
            yield source.total, line, back[0] if back else None
        for number, (line, before) in enumerate(pairwise(back), 1):
            yield source.total - number, line, before
        if back and len(source.lines) == len(back):
            yield source.first, back[-1], None

    def _forwards(self, top: int, height: int) -> Iterator[tuple[int, Line, Line | None]]:
        source = self._source
        start = top - source.first
        before = source.lines[start - 1] if start > 0 else None
        for number, line in enumerate(source.lines[start : start + height], top):
            yield number, line, before
            before = line
        if start + height >= len(source.lines):
            yield from ((source.total, line, before) for line in source.begun)


def _key_of(line: Line) -> Key:
    """The key that identifies a line in every view."""
    return line.rank, line.stream, line.offset


def pick_marked(marks: Set[Key]) -> Picked:
    """The lines that are marked."""
    return Picked(lambda: lambda line: _key_of(line) in marks)


def gap_words(gap: Gap) -> str:
    """The sentence to show in place of missing lines."""
    much = formatting.format_size(gap.end - gap.start)
    return f"  {much} of {gap.stream} not fetched; the node has it"


LEAST_TITLE = 14
"""Columns that the title gets, however long the status is."""


def filter_status(wanted: LineFilter, left: int, of: int) -> list[Run]:
    """`&loss !nan  12 of 300 lines`."""
    if not wanted:
        return []
    return [optional_run(f"{cut_text(str(wanted), 24)}  {left:,} of {of:,} lines", "key")]


def search_status(search: Search | None, match: int | None) -> list[Run]:
    """`/error 2/15`."""
    if search is None:
        return []
    count = search.count(match)
    found = "no match" if count == "0" else count
    return [optional_run("", "text"), (f" /{cut_text(search.text, 20)} {found} ", "match")]


def follow_status(*, follow: bool, fresh: int) -> list[Run]:
    """Whether the view follows; if not, how many lines came since it stopped."""
    if follow:
        return [optional_run("following ", "ok")]
    new: list[Run] = [optional_run(f"+{fresh:,} new", "warn")] if fresh else []
    return [*new, optional_run(f"stopped, {actions.action_key('follow')} follows ", "dim")]


def _room_for(status: Runs, width: int, more: str) -> Runs:
    """The status without the parts that would leave no room for the
    title; the last parts go first.
    """
    most = max(width - LEAST_TITLE, 0)
    return squeeze_runs(status, most, more) if measure_runs(status) > most else status


AROUND = (0, 1, 3, 10)
MOST_SLICES = 1_000
"""`read_all` stops after so many slices, because the log may keep growing."""
EVERYTHING = movement.FAR


class LogView(Scroller, can_focus=True):
    """A widget for the lines of a Source.

    `follow` concerns only the view: output is received all the time.
    """

    aside = 16

    class Edge(Message):
        """The user wants to see lines before the ones here (`back`) or after
        them; with `far`, the very first or last.
        """

        def __init__(self, *, back: bool, far: bool) -> None:
            super().__init__()
            self.back, self.far = back, far

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.log_source: Source | None = None
        self.title: Runs = ()
        self.follow = True
        self.wrap = False
        self.plain = False
        """Show nothing but the text of the lines, to copy them with
        the terminal's own selection.
        """
        self.left = 0
        self.search: Search | None = None
        self.wanted = LineFilter()
        self.marks: set[Key] = set()
        self.stamp: Stamp = time_stamper("off", 0.0)
        self.prefix: Callable[[Line], Run] | None = None
        """Gives what to show before a line, such as its rank in a merged log."""
        self.live = True
        """Whether the end of this log is the newest output of the rank."""
        self._filtered: Filtered | None = None
        self._picked: Picked | None = None
        """The lines that `go_next` goes to."""
        self._anchor: int | None = None
        """The line of the log that stays on top until the filter has reached it."""
        self._top = 0
        """Number of the first line shown, while not following."""
        self._left_at = 0
        """The number of lines of the log, without the filter, when following stopped."""
        self._match: int | None = None
        self._seen: tuple[object, ...] = ()
        self._rows: list[tuple[int, Runs]] = []
        self._follow_count, self._widest = 1, 0
        """Finished lines in view, and cells of the widest prefix since the log was opened."""

    # ---- contents

    def open(
        self, source: Source, prefix: Callable[[Line], Run] | None = None, *, live: bool = True
    ) -> None:
        """Show this log from its end."""
        self.log_source, self.prefix, self.live = source, prefix, live
        self.follow, self.left, self._match = live, 0, None
        self._picked = None
        self._widest = 0
        self._filter()
        self.find(self.search.text if self.search else "")
        self.repaint()

    @property
    def shown(self) -> Source | None:
        """The log after the filter; None if no log is open."""
        return self._filtered or self.log_source

    def want(self, wanted: LineFilter) -> None:
        """Show only the lines that `wanted` keeps; an empty Wanted keeps all."""
        number = self._in_source(self.current)
        self.wanted = wanted
        self._filter()
        self._match = self._picked = None
        if not self.follow and number is not None:
            self._anchor = self._top = number
            self._settle()
        self.find(self.search.text if self.search else "")

    def _filter(self) -> None:
        self._filtered = self._anchor = None
        if self.wanted and self.log_source is not None:
            self._filtered = Filtered(self.log_source, self.wanted)
            self._filtered.update()

    def _in_source(self, number: int | None) -> int | None:
        if number is None or self._filtered is None:
            return number
        here = self._filtered
        return here.number(number) if here.first <= number < here.total else None

    def _settle(self) -> None:
        """Put the line on top that was on top before the filter."""
        if self._anchor is not None and self._filtered is not None:
            self._top = self._filtered.place(self._anchor)
            if not self._filtered.behind:
                self._anchor = None

    @property
    def busy(self) -> bool:
        """Whether there are lines that filter or search have not seen yet."""
        source = self.shown
        if source is None or (self._filtered is not None and self._filtered.behind):
            return source is not None
        return any(one.behind(source) for one in (self.search, self._picked) if one)

    def work(self) -> bool:
        """Let filter and search see some more lines; returns whether the matches changed."""
        if self._filtered is not None:
            self._filtered.update()
            self._settle()
        source = self.shown
        if source is None:
            return False
        if self._picked is not None:
            self._picked.update(source)
        return self.search is not None and self.search.update(source)

    async def read_all(self) -> bool:
        """Let filter and search see all lines that are here; False if
        another log was opened meanwhile.
        """
        source = self.log_source
        for _ in range(MOST_SLICES):
            if not self.busy:
                break
            self.work()
            await asyncio.sleep(0)
        return self.log_source is source

    def surround(self, step: int) -> str:
        """Show more or fewer lines around each line that the filter
        keeps; returns what to tell the user.
        """
        if not self.wanted:
            keeps, leaves = actions.action_key("filter_in"), actions.action_key("filter_out")
            return f"choose lines first: {keeps} keeps some, {leaves} leaves some out"
        place = AROUND.index(self.wanted.around) + step
        around = AROUND[min(max(place, 0), len(AROUND) - 1)]
        self.want(replace(self.wanted, around=around))
        return f"{around} lines around each one that the filter keeps"

    def tick(self, title: Runs, changes: int = 0) -> None:
        """Repaint if there is anything new; `changes` counts lines that changed."""
        searched = self.work()
        source = self.shown
        if source is None:
            return
        begun = tuple(source.begun) if self.follow else ()
        seen = (tuple(title), source.total, source.first, begun, self.follow, changes)
        if seen != self._seen or searched:
            self._seen, self.title = seen, title
            self.repaint()

    def repaint(self) -> None:
        """Lay out and paint again."""
        source = self.shown
        if source is not None and self.size.height > 1:
            before = self._widest
            self._lay_out(source)
            if self._widest > before:
                self._lay_out(source)  # a wider prefix came into view: all begin behind it
        self.refresh()

    def _lay_out(self, source: Source) -> None:
        rows = self._rows_of(source)
        if self.follow:
            self._rows, self._follow_count = rows.last(self.body)
        else:
            # A log that starts again from an earlier byte has fewer lines at first.
            self._top = max(min(self._top, source.total - 1), source.first)
            self._rows = rows.starting(self._top, self.body)

    # ---- moving

    @property
    def body(self) -> int:
        return max(self.size.height - (not self.plain), 1)

    def start_following(self) -> None:
        """Go to the newest line and stay there."""
        if not self.live:
            self.post_message(self.Edge(back=False, far=True))
            return
        self.follow, self._match = True, None
        self.repaint()

    def put(self, *, last: bool) -> None:
        """Show the beginning of the lines here, or their end, without following."""
        if self.shown is not None:
            end = self.shown.total - self.body if last else self.shown.first
            self.follow, self._top = False, max(end, self.shown.first)
            self.repaint()

    @property
    def page(self) -> int:
        return max(self.body - 1, 1)

    def move(self, steps: int) -> None:
        """Move by lines; moving up stops following, moving to the end starts it again."""
        if steps >= EVERYTHING:
            self.start_following()
            return
        source, self._anchor = self.shown, None
        if source is None:
            return
        if self.follow:
            if steps >= 0:
                return
            self._top = max(source.total - max(self._follow_count, 1), source.first)
            self._stop()
        if steps < 0 and (self._top == source.first or steps <= -EVERYTHING):
            self.post_message(self.Edge(back=True, far=steps <= -EVERYTHING))
        top = min(max(self._top + steps, source.first), max(source.total - 1, source.first))
        if steps > 0 and source.total - top < max(self._follow_count, 1):
            if self.live:
                self.start_following()
                return
            self.post_message(self.Edge(back=False, far=False))
            top = self._top
        self._top = top
        self.repaint()

    def _stop(self) -> None:
        assert self.shown is not None
        if self.follow:
            self.follow = False
            self._left_at = self.log_source.total if self.log_source else 0

    @property
    def new_lines(self) -> int:
        """How many lines that the filter keeps have come since following
        stopped; 0 if this is not the newest output.
        """
        source = self.shown
        if source is None or not self.live:
            return 0
        here = self._filtered
        seen = here.place(self._left_at) if here is not None else self._left_at
        return max(source.total - seen, 0)

    def move_aside(self, cells: int) -> None:
        self.left = max(self.left + cells, 0)
        self.repaint()

    def on_click(self, event: events.Click) -> None:
        row = event.y - (not self.plain)
        if 0 <= row < len(self._rows):
            self._choose(self._rows[row][0])

    def on_resize(self) -> None:
        self.repaint()

    # ---- the current line

    @property
    def current(self) -> int | None:
        """The number of the chosen line, else of the first on
        screen, or the newest if following.
        """
        source = self.shown
        if source is None or source.total == source.first:
            return None
        if self._match is not None and source.first <= self._match < source.total:
            return self._match
        return source.total - 1 if self.follow else min(self._top, source.total - 1)

    @property
    def current_line(self) -> Line | None:
        number, source = self.current, self.shown
        if number is None or source is None:
            return None
        return source.lines[number - source.first]

    def _choose(self, number: int) -> None:
        source = self.shown
        if source is None or not source.first <= number < source.total:
            return
        if self.follow:
            self._top = self._rows[0][0] if self._rows else source.first
            self._stop()
        self._match = number
        self.repaint()

    def go(self, number: int) -> None:
        """Put this line on the screen and choose it."""
        source = self.shown
        if source is None:
            return
        on_screen = [shown for shown, _ in self._rows]
        if not on_screen or not on_screen[0] <= number <= on_screen[-1] - 1:
            self._stop()
            self._top = max(number - self.body // 3, source.first)
        self._choose(number)

    def reach(self, goal: Goal) -> bool:
        """Go to this line, time or place among the lines here; False if there are no lines."""
        source = self.shown
        if source is None or not source.lines:
            return False
        place = goal.row(len(source.lines))
        if goal.at is not None:
            place = bisect_left(source.lines, goal.at, key=lambda one: one.at)
        self.go(source.first + min(place, len(source.lines) - 1))
        return True

    def meant(self) -> list[str]:
        """The marked lines, else the current one, as plain text."""
        source, line = self.shown, self.current_line
        here = source.lines if source is not None else ()
        marked = [one for one in here if self.marks and _key_of(one) in self.marks]
        return [printable_line(one.text) for one in marked or ([line] if line else [])]

    def mark(self) -> bool | None:
        """Mark or unmark the current line; returns whether it is
        marked now, None if there is no line.
        """
        line = self.current_line
        if line is None:
            return None
        self.marks ^= {_key_of(line)}
        self.repaint()
        return _key_of(line) in self.marks

    def look_for(self, picked: Picked) -> None:
        """Set the lines that `go_next` goes to."""
        self._picked = picked
        if self.shown is not None:
            picked.update(self.shown)

    def go_next(self, *, back: bool) -> bool:
        """Go to the next line of `look_for`, wrapping around at the end; False if there is none."""
        here = self.current
        if self._picked is None or here is None:
            return False
        newest = self.follow and self._match is None
        number = self._picked.before(here + newest) if back or newest else self._picked.after(here)
        if number is not None:
            self.go(number)
        return number is not None

    # ---- searching

    def find(self, text: str) -> None:
        """Mark every match of `text`; "" marks nothing."""
        self.search = Search(text) if text else None
        self._match = None
        if self.search and self.shown:
            self.search.update(self.shown)
        self.repaint()

    def jump(self, *, back: bool, around: bool = True) -> bool:
        """Go to the next match, wrapping around if `around`; False if there is none."""
        if self.search is None or self.shown is None:
            return False
        bottom = self.shown.total
        here = (
            self._match if self._match is not None else (bottom if self.follow else self._top - 1)
        )
        number = self.search.before(here) if back else self.search.after(here)
        if number is None:
            return False
        if not around and (number >= here if back else number <= here):
            return False
        self.go(number)
        return True

    # ---- laying out

    def _rows_of(self, source: Source) -> LogRows:
        prefix = None if self.plain or self.prefix is None else self._aligned_prefix
        layout = LineLayout(self.size.width, self.stamp, prefix, self.wrap, self.left, self.search)
        return LogRows(source, layout, self._match, self.marks)

    def _aligned_prefix(self, line: Line) -> Run:
        """What stands before a line, as wide as the widest that was in view."""
        text, role = self.prefix(line) if self.prefix else ("", "")
        self._widest = max(self._widest, len(text))
        return text.ljust(self._widest), role

    def texts(self) -> list[str]:
        """All lines that the filter keeps, as plain text with prefix and time stamp."""
        source = self.shown
        if source is None:
            return []
        made: list[str] = []
        before: Line | None = None
        for line in source.lines:
            head = self.prefix(line)[0] if self.prefix else ""
            made.append(self.stamp(line, before) + head + printable_line(line.text))
            before = line
        return made

    # ---- painting

    def line(self, y: int, width: int) -> Runs:
        row = y - (not self.plain)
        if row < 0:
            return self._heading(width)
        if row >= len(self._rows):
            return []
        return fit_runs(self._rows[row][1], width, self.glyphs.more)

    def _heading(self, width: int) -> Runs:
        status = _room_for(self._status(), width, self.glyphs.more)
        room = width - measure_runs(status) - 1
        bar = pane_title(self.title, max(room, 10), self.glyphs, chosen=True)
        return line_ends(bar, status, width)

    def _status(self) -> list[Run]:
        source = self.shown
        if source is None:
            return []
        of = len(self.log_source.lines if self.log_source else ())
        return [
            *filter_status(self.wanted, len(source.lines), of),
            *search_status(self.search, self._match),
            *follow_status(follow=self.follow, fresh=self.new_lines),
        ]
