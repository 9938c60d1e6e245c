"""The two directions of one pair of an acceptance run: what was measured, the commands, both raw outputs."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual.containers import Container
from textual.events import DescendantFocus
from textual.widget import Widget

from rankdeck.acceptance.heatmap import heat_map, kind, said
from rankdeck.acceptance.run import AcceptanceProtocol, AcceptanceRun, Cell
from rankdeck.model.acceptance import Result
from rankdeck.model.text import figures, printable
from rankdeck.ui.acceptance_page import Choice, RunActions
from rankdeck.ui.screens.base import BaseScreen
from rankdeck.ui.widgets.canvas import Runs, TextPage
from rankdeck.ui.widgets.pairmap import ROLES

BESIDE = 110
"""Columns from which on the two outputs stand side by side."""
MOST_RAW = 256 << 10


class PairScreen(BaseScreen):
    """There on the left, back on the right; one below the other where the screen is narrow."""

    screen_name: ClassVar[str] = "pair"
    paint_period: ClassVar[float] = 1.0

    def __init__(self, run: AcceptanceRun, recipe: str, sender: str, receiver: str) -> None:
        super().__init__()
        self._run, self._recipe = run, recipe
        self._pair = (sender, receiver)
        self._shown: object = None
        self._told: list[list[Runs]] = []
        """What each direction says."""
        self.there = TextPage(id="pair-there")
        self.back = TextPage(id="pair-back")
        self.main = self.there
        """The direction that has the keys, or had them before a question."""
        self._both = Container(self.there, self.back, id="pair")
        self._run_actions = RunActions(self, self._choice, self.refresh_now)

    def body(self) -> Iterable[Widget]:
        return (self._both,)

    @property
    def run_shown(self) -> AcceptanceRun:
        """As it is now, where it is the current one."""
        now = self._run_actions.current
        return now if now is not None and now.id == self._run.id else self._run

    def _choice(self) -> Choice:
        """The pair, first the sender of the direction that has the keys."""
        pair = self._pair[::-1] if self.main is self.back else self._pair
        return Choice(self.run_shown, self._recipe, pair)

    def tick(self) -> None:
        port, run = self._run_actions.port, self.run_shown
        wide = self.size.width >= BESIDE
        self._both.styles.layout = "horizontal" if wide else "vertical"
        if port is None or run is self._shown:
            return
        self._shown = run
        sender, receiver = self._pair
        found = heat_map(run, self._recipe).cells
        there, back = found.get((sender, receiver)), found.get((receiver, sender))
        # A test without direction is one measurement: nothing goes back.
        self.back.display = back is not None and back is not there
        self._told = [pair_lines(run, port, one) for one in (there, back)]
        self.there.show(self._told[0])
        self.back.show(self._told[1])

    def without_effect(self) -> Iterable[str]:
        part = () if self.back.display else ("part",)
        return (*part, *(() if self.run_shown.started else ("again",)))

    def action_copy(self) -> None:
        self.copy_page(self.back if self.main is self.back else self.there)

    def action_save(self) -> None:
        name = "-".join(("pair", *self._pair))
        self.prompt.ask("save", f"{name}.txt", "a file that does not exist yet")

    def answered(self, text: str | None) -> None:
        if not self._run_actions.answered_why(text) and text:
            told = self._told if self.back.display else self._told[:1]
            lines = ["".join(run[0] for run in line).rstrip() for page in told for line in page]
            self.save_lines(Path(text).expanduser(), lines, f"{len(lines):,} lines")

    def action_again(self) -> None:
        self._run_actions.again()

    def action_exclude(self) -> None:
        self._run_actions.exclude()

    def action_part(self) -> None:
        """The other direction has the keys."""
        other = self.back if self.main is self.there and self.back.display else self.there
        other.focus()

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        if event.widget in (self.there, self.back):
            self.main = self.back if event.widget is self.back else self.there


def pair_lines(run: AcceptanceRun, port: AcceptanceProtocol, cell: Cell | None) -> list[Runs]:
    """One direction: the sentence, each repeat, the commands and the output of the last one."""
    if cell is None:
        return [[(" not measured in this direction", "dim")]]
    lines: list[Runs] = [[(f" {printable(said(cell))}", ROLES[kind(cell)])], []]
    lines += [_result_line(one) for one in cell.results]
    last = next((one for one in reversed(cell.results) if one.raw), cell.results[-1])
    lines += [[], [(" Commands", "title")]]
    lines += [[(f"   $ {printable(one)}", "accent")] for one in port.commands(run, last)]
    if last.job:
        lines.append([(f"   job {printable(last.job)}: `rankdeck logs` has all it wrote", "dim")])
    raw = port.raw(last, MOST_RAW)
    lines += [[], [(" Output", "title")]]
    if not raw:
        return [*lines, [("   nothing is kept of it", "dim")]]
    return [*lines, *([(f"   {printable(line)}", "text")] for line in raw.splitlines())]


def _result_line(one: Result) -> Runs:
    value = "" if one.value is None else f"{figures(one.value)} {one.unit}".rstrip()
    where = f"{one.stage.value}, round {one.round + 1}, repeat {one.repeat + 1}"
    port = f", rail {one.rail}" if one.rail else ""
    port += f", port {one.port}" if one.port else ""
    return [
        (f"   {one.outcome.value:13}", "text"),
        (f"{value:14}", "title"),
        (f"{where}{port}  ", "dim"),
        (printable(one.text), "dim"),
    ]
