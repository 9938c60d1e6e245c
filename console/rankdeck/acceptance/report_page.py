"""The HTML page of an acceptance run: verdicts, heat maps, facts about
nodes, drift, commands, raw outputs. No I/O.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import rankdeck_agent
from rankdeck.acceptance.heatmap import (
    LEGEND,
    HeatMap,
    answer_kind,
    cell_kind,
    cell_mark,
    cell_words,
    close_up,
    heat_map,
    leaf_blocks,
    outcome_headline,
    traits_of,
)
from rankdeck.acceptance.population import FEWEST
from rankdeck.acceptance.run import AcceptanceRun, MeasurementSource, next_step
from rankdeck.acceptance.values import Outcome, Result, Stage
from rankdeck.acceptance.view import unit_of
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.text import significant_figures
from rankdeck.reports import html
from rankdeck.reports.html import Html, Part, element_html, join_html
from rankdeck.reports.job import write_moment
from rankdeck.rules.secrets import Secrets
from rankdeck.values import Value
from rankdeck_agent.rules.units import write_duration, write_size

MOST_CELLS = 128
"""With up to this many nodes, every pair has a cell; with more, every pair
of leaves, and each suspect has a row.
"""
MOST_RAW = 40
"""Most measurements whose commands and raw output are on the
page, those that are not good first.
"""
_MOST_SINGLES = 64
_RAW = 12 << 10
_RAW_LINES = 120


class Excerpt(Value):
    """One measurement with its commands and raw output, secrets masked."""

    result: Result
    commands: tuple[str, ...]
    raw: str


def choose_excerpts(
    run: AcceptanceRun, source: MeasurementSource, secrets: Secrets
) -> tuple[Excerpt, ...]:
    """The measurements to show with raw output: failed ones first, then
    those of bad nodes, lowest values first.
    """
    bad = {node for verdict in run.verdicts for node in verdict.nodes} | {*run.bad}
    ran = sorted(
        (one for one in run.results if one.raw and one.outcome is not Outcome.RUNNING),
        key=lambda one: (
            one.outcome is Outcome.MEASURED,
            not bad.intersection((one.sender, one.receiver, *one.group)),
            one.value or 0.0,
        ),
    )
    # One of the repeats, the worst, is enough.
    each = {(one.stage, one.recipe, one.sender, one.receiver, one.group): one for one in ran[::-1]}
    worst = {*each.values()}
    chosen = [one for one in ran if one in worst][:MOST_RAW]
    return tuple(
        Excerpt(
            one,
            tuple(map(secrets.in_text, source.commands(run, one))),
            secrets.in_text(source.raw(one, _RAW)),
        )
        for one in chosen
    )


def acceptance_page(run: AcceptanceRun, now: float, some: Sequence[Excerpt] = ()) -> str:
    """The whole HTML file; `now` is when it is made, epoch seconds."""
    return html.page_html(
        f"Acceptance of {run.cluster}: {outcome_headline(run)}",
        *_verdicts(run),
        html.section_html("The run", html.facts_html(_facts(run, now)), *_notes(run)),
        *(_heat(run, recipe) for recipe in run.recipes),
        html.section_html("Single nodes", _singles(run)),
        html.section_html("Groups", _groups(run)),
        html.section_html("Against the baseline", *_drift(run)),
        html.section_html("What the nodes are", *_identity(run)),
        html.section_html("Left out", html.table_html(("node", "why"), run.left_out.items())),
        html.section_html("Plan and commands", *_plan(run)),
        html.section_html("Raw outputs", *map(_excerpt, some)),
    )


# ---- what it says


def _verdicts(run: AcceptanceRun) -> Iterator[Html]:
    for one in run.verdicts:
        step = (
            [element_html("br"), element_html("small", advice)]
            if (advice := next_step(run, one))
            else []
        )
        yield element_html("p", one.sentence, *step, class_=f"verdict {answer_kind(one.answer)}")
    doubts = [
        f"{recipe}: suspected and not confirmed: {suspects}."
        for recipe, one in run.judgements.items()
        if (suspects := one.open.names(_MOST_SUSPECTS))
    ]
    yield from (element_html("p", doubt, class_="verdict") for doubt in doubts)
    if not run.verdicts and not doubts and run.good and not run.bad:
        yield element_html("p", "All that was measured is good or fair.", class_="verdict good")


_MOST_SUSPECTS = 12


def _notes(run: AcceptanceRun) -> Iterator[Html]:
    yield from (element_html("p", note) for note in dict.fromkeys((*run.notes, *run.plan.notes)))


def _facts(run: AcceptanceRun, now: float) -> Iterator[tuple[str, Part]]:
    yield "Run", run.id
    yield "Cluster", run.cluster
    yield "Operator", run.operator
    yield "State", run.progress.value
    yield "Started", write_moment(run.started) if run.started else ""
    end = run.ended or now
    yield "Took", write_duration(end - run.started) if run.started else ""
    yield "Nodes", f"{len(run.plan.nodes)}: {fold_nodes(run.plan.nodes)}"
    for names, word in ((run.good, "Good"), (run.bad, "Not good"), (run.unknown, "Not measured")):
        yield word, f"{len(names)}: {fold_nodes(names)}" if names else ""
    yield "Repeats", f"{run.plan.repeats} of each direction, seed {run.plan.seed}"
    for recipe, judgement in run.judgements.items():
        for name, one in judgement.populations.items():
            words = {"inside": "inside a leaf", "crossing": "crossing leaves", "all": ""}
            kind, _, of_hardware = name.partition(", ")
            parts = ", ".join(filter(None, (words.get(kind, kind), of_hardware)))
            of = f" ({parts})" if parts else ""
            limits = (
                f"good from {significant_figures(one.good)}, slow below {significant_figures(one.limit)}"
                if len(run.plan.nodes) >= FEWEST
                else "no limit: fewer than four nodes"
            )
            unit = unit_of(recipe) if traits_of(recipe) else ""
            middle = f"median {significant_figures(one.median)} {unit} of {one.count} paths"
            yield f"{recipe}{of}", f"{middle}, {limits}"
    yield "Page made", f"{write_moment(now)} by Rankdeck {rankdeck_agent.__version__}"


# ---- heat map


def _heat(run: AcceptanceRun, recipe: str) -> Html:
    whole = heat_map(run, recipe)
    if not whole.cells:
        return Html()
    keys = join_html(
        (
            html.key_html(f"var(--{colour})", name)
            for colour, name in (
                ("good", "good"), ("fair", "fair"), ("slow", "slow: percent of the median"),
                ("bad", "failed or wrong values"), ("unknown", "not measured"),
            )
        )
    )  # fmt: skip
    letters = ", ".join(f"{letter} {word}" for letter, word in LEGEND if letter not in ".+")
    parts = [element_html("p", keys), element_html("p", f"Letters: {letters}", class_="dim")]
    if len(whole.senders) <= MOST_CELLS:
        parts.append(_matrix(whole))
    else:
        parts += [_blocks(whole), element_html("h3", "Suspects and their partners")]
        parts.append(_matrix(close_up(run, whole)))
    return html.section_html(f"Heat map: {recipe}", *parts)


def _matrix(heat: HeatMap) -> Html:
    if not heat.senders:
        return element_html("p", "Nobody is suspected.")
    found = {
        (row, column): html.MatrixCell(cell_kind(cell), _letter(cell_mark(cell)), cell_words(cell))
        for row in range(len(heat.senders))
        for column in range(len(heat.receivers))
        if (cell := heat.cell(row, column)) is not None
    }
    drawn = html.Matrix(rows=heat.senders, columns=heat.receivers, cells=found, breaks=heat.breaks)
    return html.matrix_html(drawn, f"{heat.recipe}: senders and receivers")


def _letter(marked: str) -> str:
    """The letter in a cell of the page; "" if it is good, because the colour is enough."""
    return marked.strip().strip(".+*")


def _blocks(whole: HeatMap) -> Html:
    found = leaf_blocks(whole)
    names = sorted({leaf for path in found for leaf in path})
    if not names:
        return element_html("p", "No leaves are known: there is no picture of leaf against leaf.")
    place = {name: number for number, name in enumerate(names)}
    drawn: dict[tuple[int, int], html.MatrixCell] = {}
    for (sender, receiver), one in found.items():
        share = one.share or 0.0
        colour = "good" if not one.slow else "slow" if one.slow < one.count / 2 else "bad"
        words = (
            f"leaf {sender} → {receiver}: median {share:.0%}, {one.slow} of {one.count} not good"
        )
        drawn[place[sender], place[receiver]] = html.MatrixCell(colour, str(one.slow or ""), words)
    leaf_names = [f"leaf {name}" for name in names]
    return html.matrix_html(
        html.Matrix(rows=leaf_names, columns=leaf_names, cells=drawn), "leaves against leaves"
    )


# ---- tables


def _value(one: Result) -> str:
    return (
        one.outcome.value
        if one.value is None
        else f"{significant_figures(one.value)} {one.unit}".rstrip()
    )


def _singles(run: AcceptanceRun) -> Html:
    """The table of single nodes, the worst first; with many nodes,
    the others are only in the JSON.
    """
    found = (one for one in run.results if one.stage is Stage.SINGLE)
    order = sorted(
        found, key=lambda one: (one.outcome is Outcome.MEASURED, one.recipe, one.value or 0.0)
    )
    rows = ((one.sender, one.recipe, _value(one), one.text) for one in order)
    return html.table_html(("node", "test", "value", "what it says"), rows, _MOST_SINGLES)


def _groups(run: AcceptanceRun) -> Html:
    rows = (
        (len(one.group), fold_nodes(one.group), one.recipe, _value(one), one.text)
        for one in run.results
        if one.group
    )
    return html.table_html(("size", "nodes", "test", "value", "what it says"), rows)


def _drift(run: AcceptanceRun) -> Iterator[Html]:
    if run.baseline:
        yield element_html("p", f"Compared with: {run.baseline}")
    if run.changed:
        yield element_html("p", f"Changed since: {run.changed}", class_="verdict")
    if run.drift:
        yield element_html("ul", *(element_html("li", one.sentence) for one in run.drift))


def _identity(run: AcceptanceRun) -> Iterator[Html]:
    """How nodes differ, and each fact with its values and the nodes
    that have them, the majority first.
    """
    if run.differing:
        yield element_html(
            "ul", *(element_html("li", f"{node}: {what}") for node, what in run.differing.items())
        )
    yield html.table_html(("fact", "value", "nodes"), _identity_rows(run.identity))


def _identity_rows(identity: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, str]]:
    for fact in sorted({fact for facts in identity.values() for fact in facts}):
        counts = Counter(facts[fact] for facts in identity.values() if fact in facts)
        for value, count in counts.most_common(20):
            names = [node for node, facts in identity.items() if facts.get(fact) == value]
            yield fact, value, f"{fold_nodes(names)} ({count})"


def _plan(run: AcceptanceRun) -> Iterator[Html]:
    rows = (
        (
            one.plan.stage.value,
            one.plan.recipe,
            one.plan.rounds or "",
            one.plan.tests or "",
            f"{one.plan.minutes:.1f}" if one.plan.minutes else "",
            write_size(one.plan.bytes) if one.plan.bytes else "",
            one.progress.value,
            one.plan.note,
        )
        for one in run.stages
    )
    heads = ("stage", "test", "rounds", "measurements", "minutes", "moved", "state", "why")
    yield html.table_html(heads, rows)
    for one in run.plan.stages:
        if one.commands:
            what = f"{one.stage.value} {one.recipe}".rstrip()
            yield html.details_html(f"Commands of stage {what}", html.block_html(one.commands))


def _excerpt(one: Excerpt) -> Html:
    result = one.result
    who = " → ".join(filter(None, (result.sender, result.receiver))) or fold_nodes(result.group)
    which = f"{result.recipe}, {result.stage.value}, round {result.round + 1}, repeat {result.repeat + 1}"
    lines = one.raw.splitlines()
    cut = [f"… {len(lines) - _RAW_LINES} lines before"] if len(lines) > _RAW_LINES else []
    return html.details_html(
        f"{who}: {_value(result)} ({which})",
        element_html("p", result.text),
        html.block_html(f"$ {command}" for command in one.commands) if one.commands else None,
        html.block_html([*cut, *lines[-_RAW_LINES:]]),
    )
