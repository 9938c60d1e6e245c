"""The diff view: where ranks differ from the majority, or one rank from another."""

import time

from rankdeck.logs.compare import (
    BEHIND,
    Branch,
    Comparison,
    Difference,
    Divergence,
    Steps,
    compare_ranks,
    group_branches,
)
from rankdeck.model.job import Job
from rankdeck.model.nodeset import fold_ranks
from rankdeck.state.lines import Line
from rankdeck.ui import formatting
from rankdeck.ui.themes import paint_line
from rankdeck.ui.views.base import TURN, Rows, Scene
from rankdeck.ui.views.collapsed import JUDGE, SHOWN
from rankdeck.ui.widgets.canvas import Run, Runs
from rankdeck.ui.widgets.logview import ERR_MARK
from rankdeck.ui.widgets.vtable import FoldList, ListEntry

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
