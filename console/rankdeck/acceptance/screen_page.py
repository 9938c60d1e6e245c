"""Parts of the screens for acceptance runs: the sentences, and the actions that both
screens have (measure again, keep jobs away).
"""

import textwrap
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from rich.cells import cell_len

from rankdeck.acceptance.heatmap import (
    HeatMap,
    answer_kind,
    cell_kind,
    cell_words,
    outcome_headline,
)
from rankdeck.acceptance.judge import Judgement
from rankdeck.acceptance.pair_map import NOT_GOOD, ROLES
from rankdeck.acceptance.run import (
    AcceptanceProtocol,
    AcceptanceRun,
    RunState,
    StageView,
    again_command,
    next_step,
    once_more,
)
from rankdeck.acceptance.values import Answer, Outcome, Result, Stage
from rankdeck.errors import RankdeckError
from rankdeck.model.health import parse_duration
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.safe_text import printable_line
from rankdeck.ui import actions, formatting
from rankdeck.ui.operations import errors_shown, in_background
from rankdeck.ui.screens.base import BaseScreen
from rankdeck.ui.screens.modals import WIDE, ChangeQuestion
from rankdeck.ui.themes import Glyphs
from rankdeck.ui.widgets.canvas import Run, Runs, break_runs, cut_text, fit_text, measure_runs
from rankdeck.ui.widgets.grid import INDENT, section_head
from rankdeck.values import Value
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.rules.units import write_duration, write_size

PROGRESS_ROLES = {
    RunState.PENDING: "dim",
    RunState.RUNNING: "key",
    RunState.DONE: "ok",
    RunState.SKIPPED: "dim",
    RunState.STOPPED: "warn",
}
_SIGNS = {
    RunState.PENDING: "",
    RunState.RUNNING: "",
    RunState.DONE: " ok",
    RunState.SKIPPED: " -",
    RunState.STOPPED: " stopped",
}
MOST_SHOWN = 100
"""Most lines for nodes that were left out or that differ."""


def acceptance_run_line(run: AcceptanceRun, now: float) -> Runs:
    """A run in one line: id, state, outcome, nodes, time."""
    outcome = f"  {outcome_headline(run)}" if run.progress is RunState.DONE else ""
    end = run.ended or now
    took = f"  {write_duration(max(end - run.started, 0.0))}" if run.started else ""
    return [
        (f" {printable_line(run.id)}", "title"),
        (f"  {run.progress.value}", PROGRESS_ROLES[run.progress]),
        (printable_line(outcome), "title"),
        (f"  {formatting.format_many(len(run.plan.nodes), 'node')}{took}", "dim"),
    ]


def stage_line(stages: Sequence[StageView]) -> Runs:
    """Each stage and its progress: `single sysbench ok  pairs
    iperf3 43/112, round 4/7  confirm`.
    """
    runs: list[Run] = []
    for one in stages:
        name = f" {one.plan.stage.value} {printable_line(one.plan.recipe)}".rstrip()
        runs.append((f"{name}{_far(one)} ", PROGRESS_ROLES[one.progress]))
    return runs


def _far(one: StageView) -> str:
    if one.progress is not RunState.RUNNING:
        return _SIGNS[one.progress]
    rounds = f", round {one.rounds_done + 1}/{one.plan.rounds}" if one.plan.rounds else ""
    return f" {one.done}/{one.plan.tests}{rounds}"


def start_lines(run: AcceptanceRun) -> list[Runs]:
    """What starting this run means, for the question."""
    minutes = sum(one.minutes for one in run.plan.stages)
    moved = sum(one.bytes for one in run.plan.stages)
    nodes = printable_line(f"{len(run.plan.nodes)}: {fold_nodes(run.plan.nodes)}")
    lines: list[Runs] = [
        [("nodes    ", "dim"), (nodes, "title")],
        [("takes    ", "dim"), (f"about {write_duration(minutes * 60)}", "text")],
    ]
    if moved:
        lines.append(
            [("moves    ", "dim"), (f"about {write_size(moved)} over the network", "text")]
        )
    if run.plan.left_out:
        lines.append(
            [("without  ", "dim"), (printable_line(fold_nodes(run.plan.left_out)), "warn")]
        )
    lines += [[(printable_line(note), "text")] for note in run.plan.notes[:6]]
    return lines


def acceptance_plan_lines(run: AcceptanceRun, width: int) -> list[Runs]:
    """The plan: what each stage does, how long it takes, how much it sends,
    every command, which alone may be wider.
    """
    lines: list[Runs] = [[(" ", "text"), *line] for line in start_lines(run)]
    for node, why in list(run.plan.left_out.items())[:MOST_SHOWN]:
        lines.append([(f" {printable_line(node)}: ", "warn"), (printable_line(why), "text")])
    head = f" {'stage':10}{'test':16}{'rounds':>7}{'tests':>8}{'minutes':>9}  {'moved':>9}  why"
    lines += [[], [(head, "dim")]]
    for one in run.plan.stages:
        moved = write_size(one.bytes) if one.bytes else ""
        numbers = f"{one.rounds or '':>7}{one.tests or '':>8}{one.minutes:>9.1f}  {moved:>9}"
        stage: Run = (f" {one.stage.value:10}", "title")
        test: Run = (f"{printable_line(one.recipe):16}{numbers}", "text")
        lines.append([stage, test, (f"  {printable_line(one.note)}", "dim")])
    lines = [piece for line in lines for piece in break_runs(line, width)]
    for one in run.plan.stages:
        if one.commands:
            lines += [[], section_head(f"{one.stage.value} {printable_line(one.recipe)}")]
            lines += [[(f"   $ {printable_line(command)}", "text")] for command in one.commands]
    return lines


_MOST_COMMANDS = 3
_MOST_ODD = 24
"""Most pairs that are listed."""


def _again_question(
    run: AcceptanceRun, port: AcceptanceProtocol, nodes: tuple[str, ...], recipe: str
) -> ChangeQuestion:
    """The question whether to measure these nodes again, with what would run."""
    lines: list[Runs] = [[("run   ", "dim"), (printable_line(run.id), "title")], []]
    for name, some in once_more(run, nodes, recipe):
        lines.append([(printable_line(f"{name}: {' – '.join(some)}"), "title")])
        pair = len(some) > 1
        one = Result(
            stage=Stage.CONFIRM if pair else Stage.SINGLE,
            recipe=name,
            sender=some[0],
            receiver=some[1] if pair else "",
        )
        commands = port.commands(run, one)[:_MOST_COMMANDS]
        lines += [
            [("  $ ", "dim"), (cut_text(printable_line(text), WIDE), "text")] for text in commands
        ]
    when = (
        "after the round that runs"
        if run.progress is RunState.RUNNING
        else "if nobody is busy there"
    )
    lines += [[], [(f"Measured {when}; kept with the run and judged with it.", "text")]]
    return ChangeQuestion("Measure this again?", lines, "measure", "not now")


def _readmit_question(node: str, why: str) -> ChangeQuestion:
    """The question whether jobs may run on a node again."""
    lines: list[Runs] = [[("node  ", "dim"), (printable_line(node), "title")], []]
    lines += [[(row, "text")] for row in textwrap.wrap(printable_line(why), WIDE)]
    title = "Let jobs run on this node again?"
    return ChangeQuestion(title, lines, "let jobs run there", "keep them away")


def _reason_of(run: AcceptanceRun, node: str) -> str:
    """What the run says about a node, cut to one line; "" if nothing."""
    sentence = next((one.sentence for one in run.verdicts if node in one.nodes), "")
    return cut_text(printable_line(sentence.partition(": ")[0]), WIDE)


def sentence_lines(
    run: AcceptanceRun,
    heat: HeatMap,
    room: tuple[int, Glyphs],
    signs: Sequence[Runs],
    out: Mapping[str, str],
) -> list[Runs]:
    """What the letters of the map mean (`signs`, see `legend`), then
    the sentences, the most serious first.

    `room`: cells of a line, and the signs of the terminal; `out`: node -> why jobs are kept
    away from it.
    """
    width, glyphs = room
    lines = [*_legend_lines(heat.recipe, width, signs), [], section_head("Findings")]
    for text, role in _sentences(run, out):
        lines += _wrapped(text, role, width, glyphs)
    return [*lines, *_odd_pairs(run, heat, width)]


def _odd_pairs(run: AcceptanceRun, heat: HeatMap, width: int) -> list[Runs]:
    """Each pair that is not good, with the command that measures it again."""
    odd = [
        cell
        for row in range(len(heat.senders))
        for column in range(len(heat.receivers))
        if (cell := heat.cell(row, column)) is not None and cell_kind(cell) in NOT_GOOD
    ]
    if not odd or run.progress is RunState.RUNNING:
        return []
    lines: list[Runs] = [[], section_head("Odd pairs", f"{len(odd)}, and what measures each again")]
    wide = max(cell_len(printable_line(cell_words(cell))) for cell in odd[:_MOST_ODD])
    for cell in odd[:_MOST_ODD]:
        words = fit_text(printable_line(cell_words(cell)), wide)
        said: Run = (f"   {words}", ROLES[cell_kind(cell)])
        command: Run = (f"   {printable_line(again_command(run, cell))}", "dim")
        lines += (
            [[said, command]]
            if measure_runs([said, command]) < width
            else [[(said[0].rstrip(), said[1])], [(f"  {command[0]}", command[1])]]
        )
    if len(odd) > _MOST_ODD:
        lines.append(
            [
                (
                    f"   and {len(odd) - _MOST_ODD} more; {actions.action_key('failure')} goes from one to the next",
                    "dim",
                )
            ]
        )
    return lines


def _legend_lines(recipe: str, width: int, signs: Sequence[Runs]) -> list[Runs]:
    """The legend, on as many lines as it needs."""
    lines: list[list[Run]] = [[(f" {printable_line(recipe)} ", "title")]]
    for part in signs:
        if measure_runs(lines[-1]) + measure_runs(part) > width:
            lines.append([(" ", "text")])
        lines[-1] += part
    return [*lines]


def _sentences(run: AcceptanceRun, out: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each sentence and its role."""
    for one in run.verdicts:
        yield one.sentence, ROLES[answer_kind(one.answer)]
        yield from ((step, "accent") for step in [next_step(run, one)] if step)
    over = run.progress is not RunState.RUNNING
    suspected = [one for item in run.judgements.items() for one in _suspected(*item, over=over)]
    yield from ((text, "unknown") for text in suspected)
    if not run.verdicts and not suspected:
        yield from _well(run)
    if run.changed:
        yield f"changed since the baseline: {run.changed}", "accent"
    yield from ((one.sentence, "accent") for one in run.drift)
    kept_away = {node: why for node, why in out.items() if node in run.plan.nodes}
    odd = [*run.differing.items(), *{**run.left_out, **kept_away}.items()][:MOST_SHOWN]
    yield from ((f"{node}: {why}", "dim") for node, why in odd)
    yield from ((note, "dim") for note in run.notes)


def _well(run: AcceptanceRun) -> Iterator[tuple[str, str]]:
    """A sentence that nothing is slow, if that is so."""
    if run.progress is not RunState.DONE:
        yield "nothing is slow so far", "dim"
    elif run.good and not run.bad:
        yield "all that was measured is good or fair", "ok"


def _suspected(recipe: str, judgement: Judgement, *, over: bool) -> Iterator[str]:
    again = (
        f"suspected; {actions.action_key('again')} measures it again"
        if over
        else "to be measured again"
    )
    for (end, role), evidence in judgement.open.sides.items():
        counted = f"with {len(evidence.slow)} of {evidence.total}"
        yield f"{end.node} {role.value} slowly {counted}: {again} ({recipe})"
    for pair in judgement.open.pair_names():
        yield f"{pair}: {again} ({recipe})"


_SENTENCE_LEVELS = {"bad": Level.BAD, "warn": Level.WARN}
"""Role of a sentence about what is not good -> the level whose sign it has."""


def _wrapped(text: str, role: str, width: int, glyphs: Glyphs) -> list[Runs]:
    """A sentence in as many lines as it needs, after a sign in its colour."""
    rows = textwrap.wrap(printable_line(text), max(width - 5, 20)) or [""]
    level = _SENTENCE_LEVELS.get(role)
    sign = f"{INDENT}{glyphs.level(level).glyph if level is not None else '-'} "
    words = "title" if level is not None else "dim" if role == "dim" else "text"
    return [[(" " * len(sign) if at else sign, role), (row, words)] for at, row in enumerate(rows)]


def seen_in(heat: HeatMap) -> list[str]:
    """The answers that the map shows."""
    words = {cell.answer.value for cell in heat.cells.values() if cell.answer is not None}
    running = any(cell.outcome is Outcome.RUNNING for cell in heat.cells.values())
    return [Answer.GOOD.value, *words, *(["running"] if running else [])]


T = TypeVar("T")
USUAL_SPAN = "7d"
"""How long jobs are kept away from a node by default, as with `rankdeck accept --exclude`."""


class RunChoice(Value):
    """What is chosen on a screen of a run."""

    run: AcceptanceRun | None
    test: str
    """The recipe on screen."""
    nodes: tuple[str, ...]
    """A pair, the sender first, or one node; empty if nothing is chosen."""


class RunActions:
    """What both screens of a run can do: measure the choice again, keep jobs away from its node."""

    def __init__(
        self, screen: BaseScreen, choice: Callable[[], RunChoice], changed: Callable[[], None]
    ) -> None:
        """`changed` is called when a node was excluded or readmitted,
        which does not change the run itself.
        """
        self._screen, self._choice, self._changed = screen, choice, changed
        self._to_exclude = ""
        """The node to exclude, while the prompt asks why; "" if it asks something else."""

    @property
    def port(self) -> AcceptanceProtocol:
        """The acceptance runs of the session; raises NotOpenError if there is none."""
        return self._screen.console.need_session().acceptance

    @property
    def current(self) -> AcceptanceRun | None:
        """The run that was planned or started here."""
        return self.port.current

    @property
    def is_going(self) -> bool:
        """Whether something is being measured."""
        run = self.current
        return run is not None and run.progress is RunState.RUNNING

    @property
    def excluded(self) -> Mapping[str, str]:
        """Node -> why jobs are kept away from it."""
        return self.port.excluded()

    def _is_kept(self, run: AcceptanceRun) -> bool:
        """Whether this is a saved run, and not the one that was planned or started here."""
        return self.current is None or self.current.id != run.id

    def do(self, work: Awaitable[None]) -> None:
        """Do this work, also while other screens are open."""
        in_background(self._screen.console, "acceptance", work, exclusive=False)

    # ---- measure again

    def again(self) -> None:
        """Ask, then measure the choice again."""
        port, now = self.port, self._choice()
        if now.run is None or not now.nodes or not now.run.started:
            self._screen.refuse(
                "put the cursor on a cell of a map first: a pair, or a node on the diagonal"
            )
        elif self._is_kept(now.run) and self.is_going:
            self._screen.refuse(
                "another run is in progress: measure this one again when it has ended"
            )
        else:
            question = _again_question(now.run, port, now.nodes, now.test)
            self._screen.console.ask(question, lambda: self._again(port, now))

    def _again(self, port: AcceptanceProtocol, what: RunChoice) -> None:
        going, who = self.is_going, " – ".join(what.nodes)
        with errors_shown(self._screen, "bad"):
            if what.run is not None and self._is_kept(what.run):
                port.resume(what.run.id)
            if going:
                self._screen.say(f"{who}: measured when this round has ended", "dim")
                self.do(self._measure_again(what, ""))
            else:
                self._screen.say(f"{who}: asking who is busy, then measuring …", "dim")
                self.do(self._measure_again(what, who))

    async def _measure_again(self, what: RunChoice, who: str) -> None:
        """`who`: whose outcome is said then; "" for nobody's."""
        await self.port.again(what.nodes, what.test)
        if who:
            run = self._choice().run
            self._screen.say(f"{who}: measured again; {outcome_headline(run) if run else ''}", "ok")

    # ---- keep jobs away

    def exclude(self) -> None:
        """Ask why and for how long, then keep jobs away from the chosen node; if it
        is excluded already, ask to readmit it.
        """
        port, now = self.port, self._choice()
        if now.run is None or not now.nodes:
            self._screen.refuse("put the cursor on a row of a map first: its node is meant")
            return
        node = now.nodes[0]
        if why := self.excluded.get(node):
            question = _readmit_question(node, why)
            self._screen.console.ask(question, lambda: self._readmit(port, node))
            return
        self._to_exclude = node
        self._screen.prompt.ask(
            f"exclude {printable_line(node)}", f"{USUAL_SPAN} {_reason_of(now.run, node)}"
        )
        self._screen.say(
            "how long, and why: 7d its cable is being swapped; run and Launch pass it over", "dim"
        )

    def answered_why(self, text: str | None) -> bool:
        """Handle the answer if it is the reason to exclude a node; returns whether it was."""
        node, self._to_exclude = self._to_exclude, ""
        run = self._choice().run
        if node and text is not None and run is not None:
            self._exclude(self.port, run, node, text)
        return bool(node)

    def _exclude(self, port: AcceptanceProtocol, run: AcceptanceRun, node: str, text: str) -> None:
        span, _, why = text.strip().partition(" ")
        if not why.strip():
            self._screen.say("nothing is excluded: give a reason, for other users", "warn")
            return
        try:
            port.exclude(
                node, printable_line(why.strip()), time.time() + parse_duration(span), run.id
            )
        except (ValueError, RankdeckError) as error:
            self._screen.say(str(error), "warn")
            return
        out = ", and out of the run" if self.is_going and not self._is_kept(run) else ""
        again = f"; {actions.action_key('exclude')} again takes that back"
        self._screen.say(f"{node}: kept free of jobs for {span}{out}{again}", "ok")
        self._changed()

    def _readmit(self, port: AcceptanceProtocol, node: str) -> None:
        with errors_shown(self._screen, "bad"):
            port.readmit(node)
            self._screen.say(f"{node}: jobs may run there again", "ok")
            self._changed()
