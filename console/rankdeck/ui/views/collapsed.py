"""The collapsed view: each kind of line once, with the ranks that wrote it."""

import time
from collections.abc import Sequence

from rankdeck.logs.bars import group_bars
from rankdeck.logs.collapse import Collapse, Folded, Outlier, fold_groups
from rankdeck.model.job import Job
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.safe_text import printable_line
from rankdeck.ui import formatting
from rankdeck.ui.views.base import Rows, Scene
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
        self.refresh()

    def show(self, job: Job) -> None:
        if self._scene.numbers(job) != self._collapse.ranks:
            self.enter(job)
        self._update()
        if time.monotonic() - self._judged >= JUDGE:
            self.refresh()

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

    def refresh(self) -> None:
        """Make the list again."""
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
            self.refresh()


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
