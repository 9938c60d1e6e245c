"""Files of a scaling study for people and other programs: a page with plots, JSON, CSV."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import rankdeck_agent
from rankdeck.config.files import write_user_files
from rankdeck.model.json_values import json_of, read_value
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.text import significant_figures
from rankdeck.reports import html
from rankdeck.reports.html import Html, Part, element_html
from rankdeck.reports.job import write_moment
from rankdeck.rules.secrets import Secrets
from rankdeck.scaling.laws import NO_LAW, amdahl_speedup
from rankdeck.scaling.report_plot import RankLine, RankPlot, RankValue, rank_plot_html
from rankdeck.scaling.study import PAYS, Curve, Study
from rankdeck.scaling.table import (
    number_name,
    point_heads,
    point_row,
    study_csv,
    study_headline,
    study_shape,
)
from rankdeck_agent.rules.units import write_duration

_NONE = Secrets(())
_STEPS = 24
"""Points of the line of a law."""


def study_files(study: Study, secrets: Secrets = _NONE, now: float | None = None) -> dict[str, str]:
    """File name -> text, secrets masked; `now` is the time of creation in epoch seconds, which
    tests may set.
    """
    clean = read_value(secrets.in_tree(json.loads(json_of(study))), Study)
    made = time.time() if now is None else now
    shape = {**study_shape(clean), "rankdeck": rankdeck_agent.__version__, "made": made}
    return {
        "report.html": study_page(clean, made),
        "report.json": json.dumps(shape, indent=1, ensure_ascii=False, default=list) + "\n",
        "runs.csv": study_csv(clean),
    }


def write_study_files(study: Study, folder: Path, secrets: Secrets = _NONE) -> tuple[Path, ...]:
    """Write all files into the folder, readable only by their owner; returns their paths.

    Raises RankdeckError.
    """
    return write_user_files(folder, study_files(study, secrets))


def study_page(study: Study, now: float) -> str:
    """The whole HTML file."""
    plan = study.plan
    rows = [point_row(study, curve, one) for curve in study.curves for one in curve.points]
    return html.page_html(
        f"How {plan.job} scales on {plan.cluster}: {study_headline(study)}",
        *_verdicts(study),
        html.section_html("Results", html.table_html(point_heads(study), rows)),
        html.section_html("Plots", *map(rank_plot_html, report_plots(study))),
        html.section_html("The study", html.facts_html(_facts(study, now))),
        html.section_html("Runs", _runs(study)),
    )


def _verdicts(study: Study) -> Iterator[Html]:
    for one in study.verdicts:
        kind = "slow" if one.kind.doubtful else "unknown"
        curve = f"{one.curve}: " if one.curve else ""
        yield element_html("p", f"{curve}{one.text}", class_=f"verdict {kind}")


def _facts(study: Study, now: float) -> Iterator[tuple[str, Part]]:
    plan = study.plan
    yield "Study", f"{study.id}, {study.progress.value}"
    yield "Job file", plan.file
    yield (
        "Compared",
        f"{number_name(study)}, {'less' if study.lower_is_better else 'more'} is better",
    )
    yield "Work", "grows with the ranks (weak)" if plan.weak else "the same at every point (strong)"
    yield "Nodes", f"{len(plan.nodes)}: {fold_nodes(plan.nodes)}" if plan.nodes else ""
    yield "Fixed", ", ".join(f"{key}={value}" for key, value in plan.points[0].fixed.items())
    yield "Blocks", f"{plan.repeats}, each runs every point once; every second one goes backwards"
    yield "Operator", study.operator
    yield "Started", write_moment(study.started) if study.started else ""
    yield "Took", write_duration(study.ended - study.started) if study.ended else ""
    yield "Notes", "; ".join(plan.notes)
    yield "Page made", f"{write_moment(now)} by Rankdeck {rankdeck_agent.__version__}"


def _runs(study: Study) -> Html:
    heads = ("block", "point", number_name(study), "wall (s)", "job", "result")
    rows = (
        (
            one.block + 1,
            study.plan.points[one.point].label,
            _number(one.numbers.get(study.number)),
            _number(one.numbers.get("wall")),
            one.job,
            one.text or one.outcome.value,
        )
        for one in study.trials
    )
    return html.table_html(heads, rows)


def _number(value: float | None) -> str:
    return "-" if value is None else significant_figures(value)


# ---- plots


def report_plots(study: Study) -> Iterator[RankPlot]:
    """Speed-up with the ideal line and the law, efficiency, the number itself."""
    scaling = [curve for curve in study.curves if curve.scales]
    if scaling:
        lines = [line for at, curve in enumerate(scaling) for line in _speedups(study, curve, at)]
        title = "Scaled speed-up" if study.plan.weak else "Speed-up"
        yield RankPlot(title, [*lines, _ideal(scaling)], lambda value: f"{value:.3g}")
        shares = [_line(curve, at, "efficiency") for at, curve in enumerate(scaling)]
        yield RankPlot("Efficiency", shares, lambda value: f"{value * 100:.0f} %", PAYS)
    numbers = [_line(curve, at, "number") for at, curve in enumerate(study.curves)]
    name = number_name(study)
    title = f"{name}, constant work per rank" if study.plan.weak else name
    yield RankPlot(title, numbers, lambda value: significant_figures(value, 3))


def _name(curve: Curve) -> str:
    return curve.name or "measured"


def _line(curve: Curve, colour: int, what: str) -> RankLine:
    values: list[RankValue] = []
    for one in curve.measured:
        ranks = float(one.point.ranks)
        if what == "number":
            values.append(RankValue(ranks, one.median or 0.0, min(one.values), max(one.values)))
        else:
            part = one.times if what == "efficiency" else 1.0
            each = ((number or 0.0) / part for number in (one.speedup, one.low, one.high))
            values.append(RankValue(ranks, *each))
    return RankLine(_name(curve), values, colour)


def _speedups(study: Study, curve: Curve, colour: int) -> Iterator[RankLine]:
    yield _line(curve, colour, "speedup")
    fit, points = curve.fit, curve.measured
    if fit is None or fit.misfit > NO_LAW or study.plan.weak:
        return
    first, last = points[0].point.ranks, points[-1].point.ranks
    usual = amdahl_speedup(fit.share, first)
    steps = (first * (last / first) ** (step / _STEPS) for step in range(_STEPS + 1))
    values = [(ranks, amdahl_speedup(fit.share, ranks) / usual) for ranks in steps]
    law = [RankValue(ranks, value, value, value) for ranks, value in values]
    yield RankLine(f"Amdahl, {fit.share * 100:.1f} % serial", law, colour, "law")


def _ideal(curves: list[Curve]) -> RankLine:
    ranks = sorted({one.point.ranks for curve in curves for one in curve.measured})
    steps = [ranks[0] * (ranks[-1] / ranks[0]) ** (step / _STEPS) for step in range(_STEPS + 1)]
    values = [RankValue(at, at / ranks[0], at / ranks[0], at / ranks[0]) for at in steps]
    return RankLine("ideal", values, 0, "ideal")
