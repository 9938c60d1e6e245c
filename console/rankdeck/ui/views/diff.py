"""Answers about where ranks part: all against the majority, or two beside each other."""

import time

from rankdeck.logs.diff import (
    Branch,
    Comparison,
    Difference,
    Divergence,
    Steps,
    branches,
    compare,
)
from rankdeck.model.job import Job
from rankdeck.model.nodeset import fold_ranks
from rankdeck.state.lines import Line
from rankdeck.ui import formatting
from rankdeck.ui.sgr import painted
from rankdeck.ui.views.base import Rows, Scene
from rankdeck.ui.widgets.canvas import Run, Runs
from rankdeck.ui.widgets.foldlist import FoldList, ListEntry

JUDGE = 0.5
"""Seconds between two comparisons while lines come."""
TURN = 0.012
"""Seconds of work before keys and painting have their turn."""
SLICE = 500
"""Lines taken in between two looks at the clock."""
SHOWN = 500
"""Entries in the list: more nobody reads."""
Answer = Difference | tuple[int, tuple[Branch, ...]]


class DiffView(Rows):
    """Ranks by where they leave the majority; or two ranks beside each other."""

    name = "diff"

    def __init__(self, scene: Scene, table: FoldList) -> None:
        super().__init__(scene, table)
        self.pair: tuple[int, int] | None = None
        """Two ranks to compare; None: all of them with the majority."""
        self._judged = 0.0
        self._seen = -1
        """Lines that were compared last."""
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
        """Whether there is work that the next turn can go on with."""
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
            self._begin()
        if self._judging is not None:
            self._judge(self._judging, until)

    def _begin(self) -> None:
        """Compare again where something came, now and then."""
        total = self._comparison.total
        if total == self._seen or time.monotonic() - self._judged < JUDGE:
            return
        self._seen = total
        sides = self._comparison.sides
        if self.pair:
            self._judging = compare(sides[self.pair[0]], sides[self.pair[1]])
        else:
            self._judging = branches(sides)

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
            else f" {formatting.many(of, 'rank')} against the majority, numbers aside"
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
            self._show_branches(found[1], len(self._compared))

    def _show_branches(self, found: tuple[Branch, ...], of: int) -> None:
        self._table.show(self._title(), [self._branch(branch, of) for branch in found[:SHOWN]])

    def _branch(self, branch: Branch, of: int) -> ListEntry:
        ranks = fold_ranks(branch.ranks)
        if branch.first is None:
            said: list[Run] = [
                (f" {ranks} ", "ok"),
                (f" {len(branch.ranks)} of {of} like the majority", "dim"),
            ]
            return ListEntry(branch.ranks, said, (), branch.ranks)
        first = branch.first
        head: list[Run] = [
            (f" {ranks} ", "warn"),
            (f" {formatting.many(len(branch.ranks), 'rank')}, {_where(first)}", "dim"),
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
        head: list[Run] = [
            (
                f" they part {_where(first)}",
                "warn",
            )
        ]
        entries = [
            ListEntry(
                "first",
                head,
                (_side(left, first.left), _side(right, first.right)),
                pair,
            )
        ]
        for who, lines, rank in (
            (left, found.only_left, found.left),
            (right, found.only_right, found.right),
        ):
            rows = tuple(_side(who, line) for line in lines[:SHOWN])
            if rows:
                entries.append(
                    ListEntry(
                        who,
                        [
                            (
                                f" only {who}: {formatting.many(len(lines), 'kind')} of lines",
                                "accent",
                            )
                        ],
                        rows,
                        (rank,),
                    )
                )
        self._table.show(title, entries)

    def open(self, entry: ListEntry, job: Job) -> None:
        """Nothing more is folded in here."""


def _where(first: Divergence) -> str:
    """After how many lines they part."""
    if not first.place:
        return f"from the first line of {first.stream} on"
    return f"after {formatting.many(first.place, 'equal line')} of {first.stream}"


def _side(who: str, line: Line | None) -> Runs:
    head: list[Run] = [(f"    {who:>8} ", "dim")]
    if line is None:
        return [*head, ("nothing more", "bad")]
    stamp = formatting.clock(line.at, millis=True)
    return [
        *head,
        (f"{stamp} ", "dim"),
        *painted(line.text, "stderr" if line.stream == "err" else "text"),
    ]
