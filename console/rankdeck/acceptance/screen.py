"""The acceptance screen (plan, heat map, sentences of a run), and the
screen of one pair in both directions.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from textual.containers import Container, Vertical
from textual.events import DescendantFocus
from textual.widget import Widget

from rankdeck.acceptance.heatmap import (
    MOST_CELLWISE,
    HeatMap,
    answer_kind,
    cell_kind,
    cell_words,
    close_up,
    heat_map,
    letter_of,
    node_strip,
    outcome_headline,
)
from rankdeck.acceptance.pair_map import LEAST_BESIDE, LEAST_ROOMY, ROLES, PairMap, heat_legend
from rankdeck.acceptance.run import AcceptanceProtocol, AcceptanceRun, Cell, Request, RunState
from rankdeck.acceptance.screen_page import (
    PROGRESS_ROLES,
    RunActions,
    RunChoice,
    acceptance_plan_lines,
    acceptance_run_line,
    seen_in,
    sentence_lines,
    stage_line,
    start_lines,
)
from rankdeck.acceptance.values import Outcome, Result
from rankdeck.config.files import expand_path
from rankdeck.model.nodeset import expand_nodes
from rankdeck.model.safe_text import printable_line
from rankdeck.model.text import significant_figures
from rankdeck.ui import actions, formatting, movement
from rankdeck.ui.operations import errors_shown, say_stopping
from rankdeck.ui.screens import base
from rankdeck.ui.screens.modals import WIDE, ChangeQuestion, row_lines
from rankdeck.ui.themes import Glyphs, Mark
from rankdeck.ui.widgets.canvas import NEVER_HIGH, Run, Runs, TextPage, break_runs, draw_bar
from rankdeck.ui.widgets.grid import section_head
from rankdeck.ui.widgets.vtable import CellMap, Column, VTable

LEAST_BELOW, MOST_STRIP = 5, 6
NOTHING = "no acceptance run yet: A asks the nodes and shows what would be done"


def _outcome(run: AcceptanceRun) -> str:
    """The outcome of a run in the list; saved runs come without
    their results until they are opened.
    """
    if run.progress is RunState.DONE and not run.answers:
        return f"{formatting.format_many(len(run.plan.nodes), 'node')}; enter shows the outcome"
    return outcome_headline(run)


class AcceptanceScreen(base.BaseScreen):
    """Saved runs, the plan of a run, and its map; tab goes from one to the next."""

    screen_name: ClassVar[str] = "acceptance"
    needs_session: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._opened: AcceptanceRun | None = None
        """The saved run that is shown; None: the run that was planned or started here."""
        self._kept: dict[str, AcceptanceRun] = {}
        self._view = ""
        """`runs`, `plan` or `map`."""
        self._recipe = ""
        self._seen: tuple[object, ...] = ()
        self._kept_alive: AcceptanceRun | None = None
        """The run that was painted; keeping it alive ensures that no
        other object gets its `id()`.
        """
        self._strip_lines = 0
        self._run_actions = RunActions(self, self._choice, self._look_anew)
        self._asked = ""
        """What the prompt asks for: `plan` or `save`."""
        self.head = TextPage(id="accept-head", can_focus=False)
        self.runs = VTable(self._columns(), empty=NOTHING, id="runs")
        self.runs.sorted_by = ("STARTED",)
        self.plan = TextPage(id="accept-plan")
        self.strip = CellMap()
        self.main = self.map = PairMap(id="pairs")
        self.sentences = TextPage(id="sentences")
        self._picture = Container(
            Vertical(self.strip, self.map, id="accept-map"), self.sentences, id="accept"
        )

    def body(self) -> Iterable[Widget]:
        return self.head, self.runs, self.plan, self._picture

    def _columns(self) -> tuple[Column, ...]:
        return (
            Column("RUN", 24, lambda row, _: [(printable_line(row), "title")], keep=9),
            Column("STARTED", 16, lambda row, _: [(formatting.format_day(self._kept[row].started), "dim")], keep=7),
            Column("STATE", 8, lambda row, _: [self._state(self._kept[row])], keep=8),
            Column("OUTCOME", 20, lambda row, _: [(_outcome(self._kept[row]), "text")], grow=True, least=20),
        )  # fmt: skip

    def _state(self, run: AcceptanceRun) -> Run:
        return run.progress.value, PROGRESS_ROLES[run.progress]

    # ---- what is shown

    @property
    def _dot(self) -> str:
        """The sign of a good cell."""
        return "." if self.console.ascii else self.console.glyphs.dot

    @property
    def run_shown(self) -> AcceptanceRun | None:
        """The run on screen. A saved run that is measured again is the current run."""
        now, kept = self._run_actions.current, self._opened
        return now if kept is None or (now is not None and now.id == kept.id) else kept

    def _choice(self) -> RunChoice:
        """The pair or node under the cursor of the map; no nodes if no map is shown."""
        run, pair = self.run_shown, self.map.pair if self._view == "map" else None
        test = self._recipe_of(run) if run else ""
        return RunChoice(run, test, tuple(dict.fromkeys(pair)) if pair else ())

    def tick(self) -> None:
        port, run = self._run_actions.port, self.run_shown
        self.head.show(self._head_lines(run))
        # A run that changed is another object, so comparing ids is enough.
        look = (self._view, self._recipe, self.size, self.map.size, self.console.ascii)
        seen = (id(port), id(run), *look)
        if self._seen == seen:
            return
        first, self._seen, self._kept_alive = not self._seen, seen, run
        if first or self._view == "runs":
            self._kept = {one.id: one for one in port.runs()}
            self.runs.show(list(self._kept))
            self.runs.refresh()
        if not self._view:
            self._show_view(_first_view(run))
        elif run is not None:
            self._show_run(run)

    def _show_run(self, run: AcceptanceRun) -> None:
        if self._view == "plan":
            self.plan.show(acceptance_plan_lines(run, self.size.width - 1))
        elif self._view == "map":
            self._show_map(run)

    def _show_view(self, view: str) -> None:
        self._view = view
        for name, widget in (("runs", self.runs), ("plan", self.plan), ("map", self._picture)):
            widget.display = name == view
        self.main = {"runs": self.runs, "plan": self.plan}.get(view, self.map)
        if self.is_current:
            self.main.focus()
        self.tick()

    def _look_at(self, run: AcceptanceRun | None, view: str = "") -> None:
        """Show a saved run; None: the run that was planned or started here."""
        self._opened, self._recipe = run, ""
        self._show_view(view or _first_view(self.run_shown))

    def _head_lines(self, run: AcceptanceRun | None) -> list[Runs]:
        if run is None:
            return [section_head("Acceptance", "which node or link is not good?")]
        now = self.console.fleet.wall()
        return [acceptance_run_line(run, now), stage_line(run.stages), self._cell_line()]

    def _cell_line(self) -> Runs:
        """A line about the cell under the cursor of the map."""
        if self._view != "map" or self.map.pair is None:
            return []
        cell = self.map.cell
        if cell is None:
            sender, receiver = self.map.pair
            same = sender == receiver
            words = f"{sender}" if same else f"{sender} → {receiver}: not planned yet"
            return [(f" {printable_line(words)}", "dim")]
        tried = f"  {formatting.format_many(len(cell.results), 'measurement')}"
        text = next((one.text for one in reversed(cell.results) if one.text), "")
        return [(f" {printable_line(cell_words(cell))}", "text"), (tried, "dim"), (f"  {printable_line(text)}", "dim")]  # fmt: skip

    def _recipe_of(self, run: AcceptanceRun) -> str:
        """The recipe whose map is shown."""
        return self._recipe if self._recipe in run.recipes else next(iter(run.recipes), "")

    def _show_map(self, run: AcceptanceRun) -> None:
        whole = heat_map(run, self._recipe_of(run))
        large = len(whole.senders) > MOST_CELLWISE
        self.strip.display, self._strip_lines = large, 0
        if large:
            self._show_strip(run, whole)
        shown = close_up(run, whole) if large else whole
        self.map.show(shown)
        room = (self._place(self.size.width, self.size.height - 6), self.console.glyphs)
        signs = heat_legend(run, shown, seen_in(shown), self.map.cell_width)
        self.sentences.show(sentence_lines(run, shown, room, signs, self._run_actions.excluded))
        self.head.show(self._head_lines(run))

    def _show_strip(self, run: AcceptanceRun, whole: HeatMap) -> None:
        dot = self._dot
        answers = node_strip(run, whole).values()
        marks = [Mark(letter_of(one).replace(" ", dot), ROLES[answer_kind(one)]) for one in answers]
        self.strip.show(marks)
        self._strip_lines = self.strip.lines_for(len(marks), self.size.width, MOST_STRIP)
        self.strip.styles.height = self._strip_lines

    def _place(self, width: int, height: int) -> int:
        """Put the sentences beside the map if there is room, else below it; returns their width."""
        rooms = (width - max(LEAST_ROOMY, width // 3), width - LEAST_BESIDE - 3)
        room = next((one for one in rooms if self.map.form(one, height).wide > 2), rooms[-1])
        wide, tall = self.map.wanted(room, height)
        beside = tall > 0 and wide < room and not self._strip_lines
        if not beside:
            wide, tall = self.map.wanted(width, height - self._strip_lines - LEAST_BELOW)
        self._picture.styles.layout = "horizontal" if beside else "vertical"
        pairs = self.query_one("#accept-map")
        pairs.styles.width = wide + 1 if beside else "100%"
        lines = min(tall, max(height - self._strip_lines - LEAST_BELOW, 3)) + self._strip_lines
        pairs.styles.height = "100%" if beside else lines
        return width - wide - 3 if beside else width - 2

    def _look_anew(self) -> None:
        """Repaint although the run has not changed: the excluded nodes did."""
        self._seen = ()

    def without_effect(self) -> Iterable[str]:
        """Actions that would do nothing in this view and this state of the run."""
        run, going = self.run_shown, self._run_actions.is_going
        chosen = bool(self._choice().nodes)
        on_map, cell = self._view == "map", self.map.cell
        able = {
            "open": self._can_open(run),
            "describe": on_map and cell is not None,
            "copy": self._can_copy(),
            "part": run is not None,
            "metric": run is not None and len(run.recipes) > 1,
            "failure": on_map and self.map.has_bad,
            "at_node": on_map and bool(self._sender),
            "save": run is not None,
            "cancel": going,
            "plan": not going,
            "again": chosen and run is not None and run.started > 0,
            "exclude": chosen,
            "resume": not going and self._stopped_run() is not None,
        }
        return [name for name, can in able.items() if not can]

    def _can_open(self, run: AcceptanceRun | None) -> bool:
        if self._view == "runs":
            return self.runs.cursor in self._kept
        if self._view == "plan":
            return run is not None and not self._opened and run.progress is RunState.PENDING
        return self.map.cell is not None

    def _can_copy(self) -> bool:
        if self._view == "runs":
            return self.runs.cursor in self._kept
        return not self.map.has_focus or self.map.cell is not None

    def _stopped_run(self) -> AcceptanceRun | None:
        """The stopped run that `resume` would continue, under the cursor or
        on screen; None if there is none.
        """
        run = self._kept.get(self.runs.cursor) if self._view == "runs" else self.run_shown
        return run if run is not None and run.progress is RunState.STOPPED else None

    def whole(self) -> tuple[str, Sequence[Runs]]:
        cell = self.map.cell if self._view == "map" else None
        if cell is None:
            return "", ()
        texts = [("", one.text) for one in cell.results if one.text]
        return cell_words(cell), [
            [(printable_line(cell_words(cell)), "text")],
            [],
            *row_lines(texts),
        ]

    # ---- keys: changing the view

    def action_copy(self) -> None:
        """Copy the run, the cell with its sentences, or the lines of the page."""
        if self._view == "runs":
            self.console.copy(self.runs.cursor, printable_line(self.runs.cursor))
        elif self._view == "map" and self.map.has_focus:
            _, lines = self.whole()
            text = "\n".join("".join(text for text, _ in runs).strip() for runs in lines)
            self.console.copy(text, "this cell")
        else:
            self.copy_page(self.plan if self._view == "plan" else self.sentences)

    def action_part(self) -> None:
        """Move the focus to the next of map, sentences, plan and runs."""
        if self._view == "map" and self.map.has_focus:
            self.sentences.focus()
            self.say("the keys scroll the sentences now; tab goes on", "dim")
            return
        views = ("map", "plan", "runs") if self.run_shown is not None else ("runs",)
        self._show_view(movement.next_choice(views, self._view))

    def action_metric(self) -> None:
        run = self.run_shown
        if run is None or not run.recipes:
            self.refuse("no pairs are measured")
        elif len(run.recipes) == 1:
            self.refuse("only one test measured pairs")
        else:
            self._recipe = movement.next_choice(run.recipes, self._recipe_of(run))
            self._show_view("map")

    def action_failure(self) -> None:
        if self._view != "map" or not self.map.next_bad():
            self.refuse("all cells are good")

    def take_back(self) -> bool:
        """Go from a saved run back to the list of runs."""
        opened = self._opened is not None
        if opened:
            self._look_at(None, "runs")
        return opened

    def on_pair_map_moved(self) -> None:
        self.head.show(self._head_lines(self.run_shown))

    def on_pair_map_opened(self) -> None:
        self._open_cell()

    def on_vtable_opened(self) -> None:
        self._open_run()

    def action_open(self) -> None:
        {"runs": self._open_run, "plan": self._ask_start}.get(self._view, self._open_cell)()

    def _open_run(self) -> None:
        port, row = self._run_actions.port, self.runs.cursor
        if row not in self._kept:
            return
        if port.current is not None and port.current.id == row:
            self._look_at(None, "map")
            return
        with errors_shown(self, "bad"):
            self._look_at(port.open(row), "map")

    def _open_cell(self) -> None:
        run, pair = self.run_shown, self.map.pair
        if run is None or pair is None or self.map.cell is None:
            self.refuse("nothing was measured here yet")
            return
        self.console.push_screen(base.make_screen("pair", run, self.map.cell.recipe, *pair))

    @property
    def _sender(self) -> str:
        """The node of the row under the cursor; "" if this cluster has no such node."""
        sender = self.map.pair[0] if self.map.pair else ""
        return sender if self.console.fleet.knows(sender) else ""

    def action_at_node(self) -> None:
        if self._view == "map" and self._sender:
            self.console.open_node(self._sender)
        else:
            self.refuse("no node of this cluster is under the cursor")

    def action_again(self) -> None:
        self._run_actions.again()

    def action_exclude(self) -> None:
        self._run_actions.exclude()

    # ---- keys: plan, start, stop, go on

    def action_plan(self) -> None:
        if self._is_free():
            self._asked = "plan"
            self.prompt.ask("plan", "", "nodes such as n[1-8]; empty: all nodes")

    def action_save(self) -> None:
        if self.run_shown is not None:
            self._asked = "save"
            self.prompt.ask("reports", f"acceptance-{self.run_shown.id}", "folder for the reports")

    def answered(self, text: str | None) -> None:
        asked, self._asked = self._asked, ""
        if self._run_actions.answered_why(text) or text is None:
            return
        if asked == "plan":
            self._make_plan(text)
        elif asked == "save" and text.strip():
            self._save(expand_path(text.strip()))

    def _make_plan(self, text: str) -> None:
        try:
            nodes = expand_nodes(text) if text.strip() else ()
        except ValueError as error:
            self.say(str(error), "warn")
            return
        self.say("asking the nodes what they are and have …", "dim")
        self._run_actions.do(self._plan(Request(nodes=nodes)))

    async def _plan(self, request: Request) -> None:
        await self._run_actions.port.plan(request)
        self.say("enter starts it, after you confirm", "dim")
        self._look_at(None, "plan")

    def _ask_start(self) -> None:
        run = self.run_shown
        if run is None or self._opened is not None or run.progress is not RunState.PENDING:
            self.refuse("this run has begun already; A plans another one")
            return
        lines = [piece for line in start_lines(run) for piece in break_runs(line, WIDE)]
        question = ChangeQuestion("Start this acceptance run?", lines, "start", "not yet")
        self.console.ask(question, self._start)

    def _start(self) -> None:
        self._look_at(None, "map")
        self.say("running; x stops it, after you confirm", "dim")
        self._run_actions.do(self._run())

    async def _run(self) -> None:
        self.say(outcome_headline(await self._run_actions.port.start()), "ok")

    def action_cancel(self) -> None:
        run = self._run_actions.current
        if run is None or not self._run_actions.is_going:
            self.refuse("no acceptance run is in progress")
            return
        running = sum(one.outcome is Outcome.RUNNING for one in run.results)
        lines: list[Runs] = [
            [("run      ", "dim"), (printable_line(run.id), "title")],
            [("running  ", "dim"), (formatting.format_many(running, "measurement"), "text")],
            [],
            [("Each is cancelled with proof. What was measured is kept,", "text")],
            [(f"and {actions.action_key('resume')} goes on from there.", "text")],
        ]
        question = ChangeQuestion("Stop this acceptance run?", lines, "stop", "go on")
        self.console.ask(question, self._stop)

    def _stop(self) -> None:
        self._run_actions.do(say_stopping(self, self._run_actions.port.stop()))

    def action_resume(self) -> None:
        run = self._stopped_run()
        if run is None:
            self.refuse("only a stopped run can be continued")
            return
        if not self._is_free():
            return
        with errors_shown(self, "bad"):
            self._run_actions.port.resume(run.id)
            self._start()

    def _is_free(self) -> bool:
        if self._run_actions.is_going:
            self.say("a run is in progress: x stops it", "warn")
        return not self._run_actions.is_going

    def _save(self, folder: Path) -> None:
        from rankdeck.acceptance.report_files import write_reports
        from rankdeck.rules.secrets import Secrets

        run, port = self.run_shown, self._run_actions.port
        if run is None:
            return
        secrets = Secrets([self.console.cluster.environment])
        with errors_shown(self, "bad"):
            made = write_reports(run, port, folder, secrets)
            self.say(f"{len(made)} files in {folder}: open report.html", "ok")


def _first_view(run: AcceptanceRun | None) -> str:
    if run is None:
        return "runs"
    return "plan" if run.progress is RunState.PENDING else "map"


BESIDE = 110
"""On screens of at least this width the two outputs are side by side."""
MOST_RAW = 256 << 10


RESULT_BAR = 8
"""Cells of the bar of a measurement."""


class PairScreen(base.BaseScreen):
    """Both directions of a pair side by side; one below the other on a narrow screen."""

    screen_name: ClassVar[str] = "pair"
    paint_period: ClassVar[float] = 1.0

    def __init__(self, run: AcceptanceRun, recipe: str, sender: str, receiver: str) -> None:
        super().__init__()
        self._run, self._recipe = run, recipe
        self._pair = (sender, receiver)
        self._shown: object = None
        self._pages: list[list[Runs]] = []
        """The page of each direction."""
        self.there = TextPage(id="pair-there")
        self.back = TextPage(id="pair-back")
        self.main = self.there
        """The direction with the focus, or that had it before a question."""
        self._both = Container(self.there, self.back, id="pair")
        self._run_actions = RunActions(self, self._choice, self.refresh_now)

    def body(self) -> Iterable[Widget]:
        return (self._both,)

    @property
    def run_shown(self) -> AcceptanceRun:
        """The run of the pair; if it is the current run, as it is now."""
        now = self._run_actions.current
        return now if now is not None and now.id == self._run.id else self._run

    def _choice(self) -> RunChoice:
        """The pair, with the sender of the direction that has the focus first."""
        pair = self._pair[::-1] if self.main is self.back else self._pair
        return RunChoice(self.run_shown, self._recipe, pair)

    def tick(self) -> None:
        port, run = self._run_actions.port, self.run_shown
        wide = self.size.width >= BESIDE
        self._both.styles.layout = "horizontal" if wide else "vertical"
        if run is self._shown:
            return
        self._shown = run
        sender, receiver = self._pair
        found = heat_map(run, self._recipe).cells
        there, back = found.get((sender, receiver)), found.get((receiver, sender))
        # A test without direction is one measurement, so there is no second page.
        self.back.display = back is not None and back is not there
        glyphs = self.console.glyphs
        self._pages = [pair_lines(run, port, one, glyphs) for one in (there, back)]
        self.there.show(self._pages[0])
        self.back.show(self._pages[1])

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
            pages = self._pages if self.back.display else self._pages[:1]
            lines = ["".join(run[0] for run in line).rstrip() for page in pages for line in page]
            self.save_lines(expand_path(text), lines, f"{len(lines):,} lines")

    def action_again(self) -> None:
        self._run_actions.again()

    def action_exclude(self) -> None:
        self._run_actions.exclude()

    def action_part(self) -> None:
        """Move the focus to the other direction."""
        other = self.back if self.main is self.there and self.back.display else self.there
        other.focus()

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        if event.widget in (self.there, self.back):
            self.main = self.back if event.widget is self.back else self.there


def pair_lines(
    run: AcceptanceRun, port: AcceptanceProtocol, cell: Cell | None, glyphs: Glyphs
) -> list[Runs]:
    """One direction: the sentence, each repeat, the commands and the output of the last repeat."""
    if cell is None:
        return [[(" not measured in this direction", "dim")]]
    lines: list[Runs] = [[(f" {printable_line(cell_words(cell))}", ROLES[cell_kind(cell)])], []]
    usual = cell.value / cell.share if cell.value is not None and cell.share else None
    values = [one.value for one in cell.results if one.value is not None]
    most = max([*values, usual or 0.0], default=0.0)
    lines += [_result_line(one, most, glyphs) for one in cell.results]
    lines += [_usual_line(usual, most, cell.unit, glyphs)] if usual is not None else []
    last = next((one for one in reversed(cell.results) if one.raw), cell.results[-1])
    lines += [[], section_head("Commands")]
    lines += [[(f"   $ {printable_line(one)}", "accent")] for one in port.commands(run, last)]
    if last.job:
        lines.append(
            [(f"   job {printable_line(last.job)}: `rankdeck logs` has all it wrote", "dim")]
        )
    raw = port.raw(last, MOST_RAW)
    lines += [[], section_head("Output")]
    if not raw:
        return [*lines, [("   nothing is kept of it", "dim")]]
    return [*lines, *([(f"   {printable_line(line)}", "text")] for line in raw.splitlines())]


def _result_line(one: Result, most: float, glyphs: Glyphs) -> Runs:
    where = f"{one.stage.value}, round {one.round + 1}, repeat {one.repeat + 1}"
    port = f", rail {one.rail}" if one.rail else ""
    port += f", port {one.port}" if one.port else ""
    return [
        (f"   {one.outcome.value:13}", "text"),
        *_value_runs(one.value, most, one.unit, glyphs),
        (f"{where}{port}  ", "dim"),
        (printable_line(one.text), "dim"),
    ]


def _usual_line(usual: float, most: float, unit: str, glyphs: Glyphs) -> Runs:
    """The median of all pairs, to compare the measurements with."""
    return [("   median       ", "dim"), *_value_runs(usual, most, unit, glyphs)]


def _value_runs(value: float | None, most: float, unit: str, glyphs: Glyphs) -> list[Run]:
    """A value and its bar; `most` has a full one."""
    text = "" if value is None else f"{significant_figures(value)} {unit}".rstrip()
    percent = None if value is None or not most else 100 * value / most
    return [
        (f"{text:14}", "title"),
        *draw_bar(percent, RESULT_BAR, glyphs, high=NEVER_HIGH),
        ("  ", "text"),
    ]
