"""The collapsed view (equal lines of many ranks folded) and the diff view (where ranks differ)."""

import time
from collections.abc import Sequence

from rankdeck.logs.bars import group_bars
from rankdeck.logs.compare import (
    BEHIND,
    Branch,
    Collapse,
    Comparison,
    Difference,
    Divergence,
    Folded,
    Outlier,
    Steps,
    compare_ranks,
    fold_groups,
    group_branches,
)
from rankdeck.model.job import Job
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.safe_text import printable_line
from rankdeck.state.lines import Line
from rankdeck.ui import formatting
from rankdeck.ui.themes import paint_line
from rankdeck.ui.views.base import TURN, Rows, Scene
from rankdeck.ui.widgets.canvas import Run, Runs, optional_run
from rankdeck.ui.widgets.logview import ERR_MARK
from rankdeck.ui.widgets.vtable import FoldList, ListEntry, column_run

JUDGE = 0.5
"""Seconds between two searches for unusual lines."""
PATIENCE = 15.0
"""Seconds without progress after which ranks are compared although
the output of some has not come.
"""
OUTLIERS = 4
OPEN_ROWS = 64
SHOWN = 500
"""Most entries in the list."""
WIDEST = 24


class CollapsedView(Rows):
    """Each kind of line once, with the ranks that wrote it; lines
    that few ranks wrote come first.
    """

    name = "collapsed"

    def __init__(self, scene: Scene, table: FoldList) -> None:
        super().__init__(scene, table)
        self._collapse = Collapse({})
        self._opened: set[int] = set()
        self.by_time = False
        self._judged = 0.0
        self.busy = self._settled = False
        """`busy`: lines wait to be read; `_settled`: all lines that
        were there at first have been read.
        """
        self._goals: dict[int, dict[str, int]] = {}
        """Rank -> stream -> how much there was on its node when the view was entered."""
        self._unread: int = 0
        self._moved: float = 0.0
        """How many ranks have not arrived here that far, and when that
        number changed last (monotonic).
        """

    def enter(self, job: Job) -> None:
        ranks = self._scene.numbers(job)
        self._scene.watch(ranks)
        if ranks != self._collapse.ranks:
            self._collapse = Collapse({rank: self._scene.log(rank) for rank in ranks})
            self._opened.clear()
            self._settled = False
            self._goals = {rank: self._scene.log(rank).read.ends() for rank in ranks}
        self._moved = time.monotonic()
        self._table.restart()
        self._update()
        self.refresh(job)

    def show(self, job: Job) -> None:
        if self._scene.numbers(job) != self._collapse.ranks:
            self.enter(job)
        self._update()
        if time.monotonic() - self._judged >= JUDGE:
            self.refresh(job)

    def _update(self) -> None:
        self.busy = self._collapse.update()
        if self._settled:
            return
        read = (self._scene.log(rank).read.has(ends) for rank, ends in self._goals.items())
        unread = sum(not one for one in read)
        if unread != self._unread:
            self._unread, self._moved = unread, time.monotonic()
        given_up = time.monotonic() - self._moved > PATIENCE
        self._settled = not self.busy and (not unread or given_up)

    def refresh(self, job: Job) -> None:
        """Make the list again."""
        del job
        self._judged = time.monotonic()
        rows = fold_groups(self._collapse, unusual_first=not self.by_time)
        self._table.show(self._title(rows), self._entries(rows))

    def _title(self, rows: list[Folded]) -> list[Run]:
        collapse = self._collapse
        # Until all lines are read, ranks whose lines come later would seem to be missing.
        odd = sum(row.unusual for row in rows) if self._settled else 0
        return [
            (" collapsed ", "title"),
            ("" if self._settled else f" reading {len(collapse.ranks) - self._unread} of", "accent"),
            (f" {formatting.format_many(len(collapse.ranks), 'rank')}, {formatting.format_many(collapse.total, 'line')}, {formatting.format_many(len(rows), 'kind')}", "text"),
            (f", {odd} unlike the others" if odd else "", "warn"),
            *([optional_run(f"{collapse.skipped:,} lines arrived too fast to be compared", "warn")] if collapse.skipped else []),
            *([optional_run(f"output of {formatting.format_many(self._unread, 'rank')} did not come", "warn")] if self._settled and self._unread else []),
            *([optional_run("in the order of time", "dim")] if self.by_time else []),
        ]  # fmt: skip

    def _entries(self, rows: list[Folded]) -> list[ListEntry]:
        complete = self._settled and self._collapse.total
        silent = self._collapse.silent() if complete else ()
        width = min(max((len(_who(row)) for row in rows[:SHOWN]), default=0), WIDEST)
        entries: list[ListEntry] = []
        if silent:
            sentence: Runs = [(f" nothing yet from {fold_ranks(silent)}", "warn")]
            entries.append(ListEntry("silent", sentence, (), silent))
        entries += self._bars()
        headed = False
        for row in rows[:SHOWN]:
            if not row.unusual and not headed and entries and not self.by_time:
                entries.append(ListEntry("same", [(" all ranks", "dim")]))
            headed = headed or not row.unusual
            entries.append(self._entry(row, width))
        if len(rows) > SHOWN:
            rest = f" {len(rows) - SHOWN:,} further kinds of lines"
            entries.append(ListEntry("rest", [(rest, "dim")]))
        return entries

    def _bars(self) -> list[ListEntry]:
        """Each progress bar that ranks draw now, with how far each
        of them is, the slowest first.
        """
        bars = (bar for rank in self._collapse.ranks for bar in self._scene.log(rank).bars)
        entries: list[ListEntry] = []
        for group in group_bars(bars):
            who = f"{len(group.bars)} of {len(self._collapse.ranks)}"
            label = group.label or "progress"
            head: Runs = [
                (f" {who} ", "ok"), (f" {label}  ", "text"), (group.range_words, "title"), ("  now", "dim"),
            ]  # fmt: skip
            parts = group.by_percent()
            more: list[Runs] = [
                [(f"{said:>8} ", "accent"), (ranks, "text")] for said, ranks in parts[:OPEN_ROWS]
            ]
            entries.append(ListEntry(f"bar {label}", head, tuple(more), group.ranks))
        return entries

    def _entry(self, row: Folded, width: int) -> ListEntry:
        group = row.group
        role = "stderr" if group.stream == "err" else "text"
        wrote = tuple(sorted(group.counts))
        times = group.lines // len(wrote)
        head: list[Run] = [
            (" ", "text"),
            column_run(_who(row), width, "warn" if len(wrote) < row.of else "ok"),
            column_run(_times(times), 7, "dim"),
            *([ERR_MARK] if group.stream == "err" else []),
            (_decoded(group.text()), role),
        ]
        under = " " * (width + 8)
        more: list[Runs] = []
        if row.missing and self._settled:
            text = f"{under}missing: {fold_ranks(row.missing)}"
            more.append([(text, "bad")])
        if row.outliers:
            more += [[(f"{under}{text}", "warn")] for text in _outliers(row.outliers)]
        if group.number in self._opened:
            more += [
                [(f"{under}{rank:>5} ", "accent"), (_decoded(group.line(rank)), role)]
                for rank in wrote[:OPEN_ROWS]
            ]
        return ListEntry(group.number, head, tuple(more), wrote)

    def open(self, entry: ListEntry, job: Job) -> None:
        """Show the newest line of every rank in the entry, or hide these lines again."""
        if isinstance(entry.key, int):
            self._opened ^= {entry.key}
            self.refresh(job)


def _outliers(found: Sequence[Outlier]) -> list[str]:
    """A row for each rank, with its numbers in the order of the line:
    `rank 6: 300 (median 390), 1.16 (0.98)`.
    """
    numbers: dict[int, list[Outlier]] = {}
    for one in found:
        numbers.setdefault(one.rank, []).append(one)
    texts: list[str] = []
    for rank, mine in sorted(numbers.items())[:OUTLIERS]:
        first, *others = sorted(mine, key=lambda one: one.place)
        parts = [f"rank {rank}: {first.value:g} (median {first.median:g})"]
        parts += [f"{one.value:g} ({one.median:g})" for one in others]
        texts.append(", ".join(parts))
    if (rest := len(numbers) - OUTLIERS) > 0:
        texts.append(f"and {formatting.format_many(rest, 'further rank')}")
    return texts


def _times(times: int) -> str:
    """` x30`; ` x51k` if the number would be too wide."""
    if times < 2:
        return ""
    return f" x{times}" if times < 10_000 else f" x{times // 1000}k"


def _who(row: Folded) -> str:
    if len(row.group.counts) == row.of and row.of > 1:
        return f"all {row.of}"
    ranks = fold_ranks(row.group.counts)
    return ranks if len(ranks) <= WIDEST else f"{len(row.group.counts)} of {row.of} ranks"


def _decoded(raw: bytes) -> str:
    return printable_line(raw.decode("utf-8", "replace"))


SLICE = 500
"""Lines read between two looks at the clock."""
Answer = Difference | tuple[int, tuple[Branch, ...]]


class DiffView(Rows):
    """Ranks by the line where they leave the majority, or two ranks side by side."""

    name = "diff"

    def __init__(self, scene: Scene, table: FoldList) -> None:
        super().__init__(scene, table)
        self.pair: tuple[int, int] | None = None
        """Two ranks to compare; None: compare all ranks with the majority."""
        self._judged = 0.0
        self._seen, self._came = -1, 0.0
        """How many lines the last comparison had, and when the newest of them came (monotonic)."""
        self._compared: tuple[int, ...] = ()
        self._comparison = Comparison(())
        self._judging: Steps[Answer] | None = None

    def enter(self, job: Job) -> None:
        self._table.restart()
        ranks = self._ranks(job)
        self._scene.watch(ranks)
        logs = {rank: self._scene.log(rank) for rank in ranks}
        self._comparison, self._compared = Comparison(ranks, logs), ranks
        self._judging, self._seen = None, -1
        self._table.show(self._title(), [])
        self.show(job)

    def _ranks(self, job: Job) -> tuple[int, ...]:
        return self.pair or self._scene.numbers(job)

    @property
    def busy(self) -> bool:
        """Whether `show` has work left."""
        return self._judging is not None or self._comparison.waiting > 0

    def show(self, job: Job) -> None:
        if self._ranks(job) != self._compared:
            self.enter(job)
            return
        until = time.monotonic() + TURN
        if self._judging is None:
            while self._comparison.update(SLICE):
                if time.monotonic() > until:
                    self._table.retitle(self._title())
                    return
            self._begin(job)
        if self._judging is not None:
            self._judge(self._judging, until)

    def _begin(self, job: Job) -> None:
        """Start a new comparison, at most every JUDGE seconds, if
        lines came or may be missing by now.
        """
        total, now = self._comparison.total, time.monotonic()
        if total != self._seen:
            self._seen, self._came = total, now
        if now - self._judged < JUDGE or self._judged > self._came + 2 * BEHIND:
            return
        sides = self._comparison.sides
        ended = {rank.rank for rank in job.ranks if rank.state.final}
        for rank, side in sides.items():
            for kept in side:
                kept.running = 0.0 if rank in ended else time.time()
        if self.pair:
            self._judging = compare_ranks(sides[self.pair[0]], sides[self.pair[1]])
        else:
            self._judging = group_branches(sides)

    def _judge(self, steps: Steps[Answer], until: float) -> None:
        try:
            while time.monotonic() < until:
                next(steps)
        except StopIteration as end:
            self._judging, self._judged = None, time.monotonic()
            self._show_answer(end.value)

    def _title(self) -> list[Run]:
        comparison, of = self._comparison, len(self._compared)
        what = (
            f" rank {self.pair[0]} against rank {self.pair[1]}, numbers aside"
            if self.pair
            else f" {formatting.format_many(of, 'rank')} against the majority, numbers aside"
        )
        left = comparison.waiting
        share = 100 * comparison.total // max(comparison.total + left, 1)
        return [
            (" diff ", "title"),
            (f" reading, {share}% " if left > SLICE else "", "accent"),
            (what, "text"),
            (f", at most the first {comparison.most:,} lines of each" if comparison.full else "", "warn"),
        ]  # fmt: skip

    def _show_answer(self, found: Answer) -> None:
        if isinstance(found, Difference):
            self._show_pair(found)
        else:
            self._table.show(
                self._title(),
                [self._branch(branch, len(self._compared)) for branch in found[1][:SHOWN]],
            )

    def _branch(self, branch: Branch, of: int) -> ListEntry:
        ranks = fold_ranks(branch.ranks)
        if branch.first is None:
            line: list[Run] = [
                (f" {ranks} ", "ok"),
                (f" {len(branch.ranks)} of {of} like the majority", "dim"),
            ]
            return ListEntry(branch.ranks, line, (), branch.ranks)
        first = branch.first
        head: list[Run] = [
            (f" {ranks} ", "warn"),
            (f" {formatting.format_many(len(branch.ranks), 'rank')}, {_where(first)}", "dim"),
        ]
        more = (_side("these", first.left), _side(" most", first.right))
        return ListEntry(branch.ranks, head, more, branch.ranks)

    def _show_pair(self, found: Difference) -> None:
        left, right = f"rank {found.left}", f"rank {found.right}"
        title = self._title()
        pair = (found.left, found.right)
        if found.first is None:
            self._table.show(title, [ListEntry("same", [(" no difference", "ok")], (), pair)])
            return
        first = found.first
        head: list[Run] = [(f" they part {_where(first)}", "warn")]
        entries = [
            ListEntry("first", head, (_side(left, first.left), _side(right, first.right)), pair)
        ]
        for who, lines, rank in (
            (left, found.only_left, found.left),
            (right, found.only_right, found.right),
        ):
            rows = tuple(_side(who, line) for line in lines[:SHOWN])
            heading = f" only {who}: {formatting.format_many(len(lines), 'kind')} of lines"
            if rows:
                entries.append(ListEntry(who, [(heading, "accent")], rows, (rank,)))
        self._table.show(title, entries)

    def open(self, entry: ListEntry, job: Job) -> None:
        """Do nothing: entries of this view do not fold."""


def _where(first: Divergence) -> str:
    """After how many lines the ranks differ."""
    if not first.place:
        return f"from the first line of {first.stream} on"
    return f"after {formatting.format_many(first.place, 'equal line')} of {first.stream}"


def _side(who: str, line: Line | None) -> Runs:
    head: list[Run] = [(f"    {who:>8} ", "dim")]
    if line is None:
        return [*head, ("nothing more", "bad")]
    stamp = formatting.format_clock(line.at, millis=True)
    return [
        *head,
        (f"{stamp} ", "dim"),
        *([ERR_MARK] if line.stream == "err" else []),
        *paint_line(line.text, "stderr" if line.stream == "err" else "text"),
    ]
