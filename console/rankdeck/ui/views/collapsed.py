"""The collapsed view: equal lines of many ranks folded, and ranks that differ."""

import time
from collections.abc import Sequence

from rankdeck.logs.collapse import Collapse, Folded, Outlier, folded
from rankdeck.model.job import Job
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.text import printable
from rankdeck.ui import formatting
from rankdeck.ui.views.base import Rows, Scene
from rankdeck.ui.widgets.canvas import Run, Runs, optional
from rankdeck.ui.widgets.foldlist import FoldList, ListEntry, column

JUDGE = 0.5
"""Seconds between two looks at which lines are unusual."""
OUTLIERS = 4
OPEN_ROWS = 64
SHOWN = 500
"""Entries in the list: more nobody reads."""
WIDEST = 24


class CollapsedView(Rows):
    """Each kind of line once, with the ranks that wrote it; what few ranks wrote comes first."""

    name = "collapsed"

    def __init__(self, scene: Scene, table: FoldList) -> None:
        super().__init__(scene, table)
        self._collapse = Collapse({})
        self._opened: set[int] = set()
        self.by_time = False
        self._judged = 0.0
        self.busy = self._settled = False
        """Whether lines wait to be read; whether all that there were at first have been."""

    def enter(self, job: Job) -> None:
        ranks = self._scene.numbers(job)
        self._scene.watch(ranks)
        if ranks != self._collapse.ranks:
            self._collapse = Collapse({rank: self._scene.log(rank) for rank in ranks})
            self._opened.clear()
            self._settled = False
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
        self._settled = self._settled or not self.busy

    def refresh(self, job: Job) -> None:
        """Make the list anew."""
        del job
        self._judged = time.monotonic()
        rows = folded(self._collapse, unusual_first=not self.by_time)
        self._table.show(self._title(rows), self._entries(rows))

    def _title(self, rows: list[Folded]) -> list[Run]:
        collapse = self._collapse
        # Before all is read, ranks that come later would seem to be missing.
        odd = sum(row.unusual for row in rows) if self._settled else 0
        return [
            (" collapsed ", "title"),
            ("" if self._settled else " reading … ", "accent"),
            (f" {formatting.many(len(collapse.ranks), 'rank')}, {formatting.many(collapse.total, 'line')}, {formatting.many(len(rows), 'kind')}", "text"),
            (f", {odd} unlike the others" if odd else "", "warn"),
            *([optional(f"{collapse.skipped:,} lines arrived too fast to be compared", "warn")] if collapse.skipped else []),
            *([optional("in the order of time", "dim")] if self.by_time else []),
        ]  # fmt: skip

    def _entries(self, rows: list[Folded]) -> list[ListEntry]:
        told = self._settled and self._collapse.total
        silent = self._collapse.silent() if told else ()
        width = min(max((len(_who(row)) for row in rows[:SHOWN]), default=0), WIDEST)
        entries: list[ListEntry] = []
        if silent:
            said: Runs = [(f" nothing yet from {fold_ranks(silent)}", "warn")]
            entries.append(ListEntry("silent", said, (), silent))
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

    def _entry(self, row: Folded, width: int) -> ListEntry:
        group = row.group
        role = "stderr" if group.stream == "err" else "text"
        wrote = tuple(sorted(group.counts))
        times = group.lines // len(wrote)
        head: list[Run] = [
            (" ", "text"),
            column(_who(row), width, "warn" if len(wrote) < row.of else "ok"),
            column(_times(times), 7, "dim"),
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
        """Show the newest line of every rank in it, or hide them again."""
        if isinstance(entry.key, int):
            self._opened ^= {entry.key}
            self.refresh(job)


def _outliers(found: Sequence[Outlier]) -> list[str]:
    """`rank 6: 300 (median 390), 1.16 (0.98)`: a row for each rank, as the line has them."""
    numbers: dict[int, list[Outlier]] = {}
    for one in found:
        numbers.setdefault(one.rank, []).append(one)
    texts: list[str] = []
    for rank, mine in sorted(numbers.items())[:OUTLIERS]:
        first, *others = sorted(mine, key=lambda one: one.place)
        told = [f"rank {rank}: {first.value:g} (median {first.median:g})"]
        told += [f"{one.value:g} ({one.median:g})" for one in others]
        texts.append(", ".join(told))
    if (rest := len(numbers) - OUTLIERS) > 0:
        texts.append(f"and {formatting.many(rest, 'further rank')}")
    return texts


def _times(times: int) -> str:
    """` x30`; ` x51k` where that would be too wide."""
    if times < 2:
        return ""
    return f" x{times}" if times < 10_000 else f" x{times // 1000}k"


def _who(row: Folded) -> str:
    if len(row.group.counts) == row.of and row.of > 1:
        return f"all {row.of}"
    told = fold_ranks(row.group.counts)
    return told if len(told) <= WIDEST else f"{len(row.group.counts)} of {row.of} ranks"


def _decoded(raw: bytes) -> str:
    return printable(raw.decode("utf-8", "replace"))
