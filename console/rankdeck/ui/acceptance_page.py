"""What the acceptance screen says in words: a run in one line, its plan, its sentences."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from rankdeck.acceptance.heatmap import HeatMap, headline, kind_of
from rankdeck.acceptance.judge import Judgement
from rankdeck.acceptance.measurement import Answer
from rankdeck.acceptance.port import AcceptancePort
from rankdeck.acceptance.run import AcceptanceRun, Progress, StageView, once_more
from rankdeck.model.acceptance import Outcome, Result, Stage
from rankdeck.model.nodeset import fold
from rankdeck.model.text import duration, printable, size
from rankdeck.ui import formatting
from rankdeck.ui.screens.modals import WIDE, Question
from rankdeck.ui.widgets.canvas import Run, Runs, cut, length
from rankdeck.ui.widgets.pairmap import ROLES

PROGRESS_ROLES = {
    Progress.PENDING: "dim",
    Progress.RUNNING: "key",
    Progress.DONE: "ok",
    Progress.SKIPPED: "dim",
    Progress.STOPPED: "warn",
}
_SIGNS = {
    Progress.PENDING: "",
    Progress.RUNNING: "",
    Progress.DONE: " ok",
    Progress.SKIPPED: " -",
    Progress.STOPPED: " stopped",
}
MOST_TOLD = 100
"""Nodes left out, and nodes that differ, that have a line each."""


def run_line(run: AcceptanceRun, now: float) -> Runs:
    """Id, state, outcome, nodes, time."""
    outcome = f"  {headline(run)}" if run.progress is Progress.DONE else ""
    end = run.ended or now
    took = f"  {duration(max(end - run.started, 0.0))}" if run.started else ""
    return [
        (f" {printable(run.id)}", "title"),
        (f"  {run.progress.value}", PROGRESS_ROLES[run.progress]),
        (printable(outcome), "title"),
        (f"  {formatting.many(len(run.plan.nodes), 'node')}{took}", "dim"),
    ]


def stage_line(stages: Sequence[StageView]) -> Runs:
    """Each stage with how far it is: `single sysbench ok  pairs iperf3 43/112, round 4/7  confirm`."""
    runs: list[Run] = []
    for one in stages:
        name = f" {one.plan.stage.value} {printable(one.plan.recipe)}".rstrip()
        runs.append((f"{name}{_far(one)} ", PROGRESS_ROLES[one.progress]))
    return runs


def _far(one: StageView) -> str:
    if one.progress is not Progress.RUNNING:
        return _SIGNS[one.progress]
    rounds = f", round {one.rounds_done + 1}/{one.plan.rounds}" if one.plan.rounds else ""
    return f" {one.done}/{one.plan.tests}{rounds}"


def start_lines(run: AcceptanceRun) -> list[Runs]:
    """What a start means, for the question."""
    minutes = sum(one.minutes for one in run.plan.stages)
    moved = sum(one.bytes for one in run.plan.stages)
    nodes = printable(f"{len(run.plan.nodes)}: {fold(run.plan.nodes)}")
    lines: list[Runs] = [
        [("nodes    ", "dim"), (nodes, "title")],
        [("takes    ", "dim"), (f"about {duration(minutes * 60)}", "text")],
    ]
    if moved:
        lines.append([("moves    ", "dim"), (f"about {size(moved)} over the network", "text")])
    if run.plan.left_out:
        lines.append([("without  ", "dim"), (printable(fold(run.plan.left_out)), "warn")])
    lines += [[(printable(note), "text")] for note in run.plan.notes[:6]]
    return lines


def plan_lines(run: AcceptanceRun) -> list[Runs]:
    """The plan: what each stage does, how long, what it moves, every command."""
    lines: list[Runs] = [[(" ", "text"), *line] for line in start_lines(run)]
    for node, why in list(run.plan.left_out.items())[:MOST_TOLD]:
        lines.append([(f" {printable(node)}: ", "warn"), (printable(why), "text")])
    head = f" {'stage':10}{'test':16}{'rounds':>7}{'tests':>8}{'minutes':>9}  {'moved':>9}  why"
    lines += [[], [(head, "dim")]]
    for one in run.plan.stages:
        moved = size(one.bytes) if one.bytes else ""
        numbers = f"{one.rounds or '':>7}{one.tests or '':>8}{one.minutes:>9.1f}  {moved:>9}"
        stage: Run = (f" {one.stage.value:10}", "title")
        test: Run = (f"{printable(one.recipe):16}{numbers}", "text")
        lines.append([stage, test, (f"  {printable(one.note)}", "dim")])
    for one in run.plan.stages:
        if one.commands:
            lines += [[], [(f" {one.stage.value} {printable(one.recipe)}", "title")]]
            lines += [[(f"   $ {printable(command)}", "text")] for command in one.commands]
    return lines


_MOST_COMMANDS = 3


def again_question(
    run: AcceptanceRun, port: AcceptancePort, nodes: tuple[str, ...], recipe: str
) -> Question:
    """Whether to measure these once more, with what is run."""
    lines: list[Runs] = [[("run   ", "dim"), (printable(run.id), "title")], []]
    for name, some in once_more(run, nodes, recipe):
        lines.append([(printable(f"{name}: {' – '.join(some)}"), "title")])
        pair = len(some) > 1
        one = Result(
            stage=Stage.CONFIRM if pair else Stage.SINGLE, recipe=name,
            sender=some[0], receiver=some[1] if pair else "",
        )  # fmt: skip
        commands = port.commands(run, one)[:_MOST_COMMANDS]
        lines += [[("  $ ", "dim"), (cut(printable(text), WIDE), "text")] for text in commands]
    when = (
        "after the round that runs"
        if run.progress is Progress.RUNNING
        else "if nobody is busy there"
    )
    lines += [[], [(f"Measured {when}; kept with the run and judged with it.", "text")]]
    keys: Runs = [("enter", "key"), (" measure     ", "text"), ("esc", "key"), (" not now", "text")]
    return Question("Measure this again?", lines, keys)


def readmit_question(node: str, why: str) -> Question:
    """Whether jobs may run on a node again."""
    lines: list[Runs] = [[("node  ", "dim"), (printable(node), "title")], []]
    lines += [[(row, "text")] for row in textwrap.wrap(printable(why), WIDE)]
    keys: Runs = [("enter", "key"), (" let jobs run there     ", "text"), ("esc", "key"), (" keep them away", "text")]  # fmt: skip
    return Question("Let jobs run on this node again?", lines, keys)


def reason_of(run: AcceptanceRun, node: str) -> str:
    """What the run says of a node, as far as it fits a line; "" where it says nothing."""
    said = next((one.sentence for one in run.verdicts if node in one.nodes), "")
    return cut(printable(said.partition(": ")[0]), WIDE)


def told_lines(
    run: AcceptanceRun, heat: HeatMap, width: int, signs: Sequence[Runs], out: Mapping[str, str]
) -> list[Runs]:
    """What the letters of the map mean (`signs`, see `pairmap.legend`), then the sentences, the gravest first.

    `out`: node -> why jobs are kept away from it.
    """
    lines: list[Runs] = [*_legend_lines(heat.recipe, width, signs), []]
    for text, role in _sentences(run, out):
        lines += _wrapped(text, role, width)
    return lines


def _legend_lines(recipe: str, width: int, signs: Sequence[Runs]) -> list[Runs]:
    """As many lines as there is need of."""
    lines: list[list[Run]] = [[(f" {printable(recipe)} ", "title")]]
    for part in signs:
        if length(lines[-1]) + length(part) > width:
            lines.append([])
        lines[-1] += part
    return [*lines]


def _sentences(run: AcceptanceRun, out: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Sentence and role."""
    yield from ((one.sentence, ROLES[kind_of(one.answer)]) for one in run.verdicts)
    suspected = [one for item in run.judgements.items() for one in _suspected(*item)]
    yield from ((text, "unknown") for text in suspected)
    if not run.verdicts and not suspected:
        yield from _well(run)
    if run.changed:
        yield f"changed since the baseline: {run.changed}", "accent"
    yield from ((one.sentence, "accent") for one in run.drift)
    kept_away = {node: why for node, why in out.items() if node in run.plan.nodes}
    odd = [*run.differing.items(), *{**run.left_out, **kept_away}.items()][:MOST_TOLD]
    yield from ((f"{node}: {why}", "dim") for node, why in odd)
    yield from ((note, "dim") for note in run.notes)


def _well(run: AcceptanceRun) -> Iterator[tuple[str, str]]:
    """That nothing is to blame, where something was measured."""
    if run.progress is not Progress.DONE:
        yield "nothing is slow so far", "dim"
    elif run.good and not run.bad:
        yield "all that was measured is good or fair", "ok"


def _suspected(recipe: str, judgement: Judgement) -> Iterator[str]:
    for (end, role), evidence in judgement.open.sides.items():
        counted = f"with {len(evidence.slow)} of {evidence.total}"
        yield f"{end.node} {role.value} slowly {counted}: to be confirmed ({recipe})"
    for first, last in judgement.open.paths:
        yield f"{first.node} → {last.node}: to be measured again ({recipe})"


def _wrapped(text: str, role: str, width: int) -> list[Runs]:
    """A sentence in as many lines as it needs; a sign of its colour stands before it."""
    rows = textwrap.wrap(printable(text), max(width - 3, 20)) or [""]
    sign = " ! " if role in ("warn", "bad") else " - "
    words = "dim" if role == "dim" else "text"
    return [[("   " if at else sign, role), (row, words)] for at, row in enumerate(rows)]


def seen_in(heat: HeatMap) -> list[str]:
    """The answers that are to be seen on the map."""
    words = {cell.answer.value for cell in heat.cells.values() if cell.answer is not None}
    running = any(cell.outcome is Outcome.RUNNING for cell in heat.cells.values())
    return [Answer.GOOD.value, *words, *(["running"] if running else [])]
