"""What the scaling screen shows of a study: head, plan, plots, table, sentences. No I/O."""

import textwrap
from collections.abc import Callable, Iterator, Sequence

from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.safe_text import printable_line
from rankdeck.model.text import significant_figures
from rankdeck.scaling.study import PAYS, Curve, CurvePoint, Study, StudyState
from rankdeck.scaling.table import number_name, point_heads, point_row, study_headline
from rankdeck.ui import formatting
from rankdeck.ui.themes import Glyphs
from rankdeck.ui.widgets.canvas import Run, Runs, join_blocks
from rankdeck.ui.widgets.plots import BarFigure, BarGroup, draw_bars, round_up

STATE_ROLES = {
    StudyState.PENDING: "dim",
    StudyState.RUNNING: "accent",
    StudyState.STOPPED: "warn",
    StudyState.DONE: "ok",
}
LINE_ROLES = ("accent", "ok", "key", "warn", "unknown", "title")
"""Roles of the curves, in order; more curves begin again."""
IDEAL = "dim"
PLOT_WIDTH = 48
"""Cells that a plot needs at least; so many stand side by side."""
PLOT_NAMES = ("speed-up", "efficiency", "number")


def study_line(study: Study, now: float) -> Runs:
    """A study in one line."""
    took = (study.ended or now) - study.started if study.started else 0.0
    kind = "weak: the work grows" if study.plan.weak else "strong: the same work"
    return [
        (f" {printable_line(study.id)}", "title"),
        (f"  {printable_line(study.plan.job)}", "text"),
        (f"  {study.progress.value}", STATE_ROLES[study.progress]),
        (f"  {printable_line(study_headline(study))}", "text"),
        (f"  {kind}", "dim"),
        (f"  {formatting.format_duration(took)}" if took else "", "dim"),
    ]


def study_start_lines(study: Study) -> list[Runs]:
    """What starting this study means, for the question."""
    plan = study.plan
    where = fold_nodes(plan.nodes) if plan.nodes else "nodes that the scheduler chooses"
    return [
        [("job      ", "dim"), (printable_line(plan.job), "title")],
        [("nodes    ", "dim"), (printable_line(where), "text")],
        [
            ("runs     ", "dim"),
            (
                f"{len(plan.points)} points × {plan.repeats} = {study.runs}, one after the other",
                "text",
            ),
        ],
        *([(printable_line(note), "warn")] for note in plan.notes),
    ]


def study_plan_lines(study: Study) -> list[Runs]:
    """The plan: every point with its ranks, nodes and values."""
    lines: list[Runs] = [[(" ", "text"), *line] for line in study_start_lines(study)]
    for key, value in study.plan.points[0].fixed.items():
        lines.append([(printable_line(f" {key}={value} at every point"), "dim")])
    lines.append([])
    for point in study.plan.points:
        size = "".join(f", {key}={value}" for key, value in point.size.items())
        each = f", {point.ranks_per_node} on each" if point.nodes > 1 else ""
        lines.append([("  ", "text"), (printable_line(f"{point.label}{each}{size}"), "text")])
    return lines


def study_lines(study: Study, width: int) -> list[Runs]:
    """The table of points, then the sentences."""
    if not study.curves:
        return []
    heads = point_heads(study)
    rows = [
        (point_row(study, curve, one), _role(at, len(study.curves)))
        for at, curve in enumerate(study.curves)
        for one in curve.points
    ]
    widths = [
        max(len(row[at]) for row in (heads, *(row for row, _ in rows))) for at in range(len(heads))
    ]
    lines: list[Runs] = [[(_columns(heads, widths), "dim")]]
    lines += [[(_columns(row, widths), role)] for row, role in rows]
    lines.append([])
    for one in study.verdicts:
        curve = f"{one.curve}: " if one.curve and len(study.curves) > 1 else ""
        lines += _wrapped(f"{curve}{one.text}", width, doubtful=one.kind.doubtful)
    return lines


def _role(place: int, curves: int) -> str:
    return LINE_ROLES[place % len(LINE_ROLES)] if curves > 1 else "text"


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f"{cell:>{wide}}" for cell, wide in zip(cells, widths, strict=True))
    return printable_line(" " + "  ".join(padded))


def _wrapped(text: str, width: int, *, doubtful: bool) -> Iterator[Runs]:
    sign, role = (" ! ", "warn") if doubtful else (" - ", "text")
    for at, row in enumerate(textwrap.wrap(printable_line(text), max(width - 4, 20))):
        yield [("   " if at else sign, role), (row, "text")]


# ---- plots


def draw_study_plots(study: Study, room: tuple[int, int], first: str, glyphs: Glyphs) -> list[Runs]:
    """As many plots as fit side by side into `room` (cells, lines), beginning with `first`."""
    width, height = room
    figures = _figures(study)
    names = [
        name for name in (*PLOT_NAMES[PLOT_NAMES.index(first) :], *PLOT_NAMES) if name in figures
    ]
    names = list(dict.fromkeys(names))
    count = min(max(width // PLOT_WIDTH, 1), len(names))
    if not count or height < 4:
        return []
    each = width // count - 1
    blocks = [draw_bars(figures[name], (each, height), glyphs) for name in names[:count]]
    return join_blocks(blocks, each, glyphs.more)


def _figures(study: Study) -> dict[str, BarFigure]:
    found: dict[str, BarFigure] = {}
    scaling = [curve for curve in study.curves if curve.scales]
    if scaling:
        most = max(one.times for curve in scaling for one in curve.measured)
        title = "scaled speed-up" if study.plan.weak else "speed-up"
        groups = _groups(study, scaling, lambda one: one.speedup, lambda one: one.times)
        found["speed-up"] = BarFigure(
            f"{title} by ranks", "last bar: ideal", groups, _plain, round_up(most)
        )
        groups = _groups(study, scaling, lambda one: one.efficiency, None)
        top = round_up(
            max(1.0, *((one.efficiency or 0.0) for curve in scaling for one in curve.measured))
        )
        found["efficiency"] = BarFigure(
            "efficiency by ranks", f"pays from {PAYS:.0%}", groups, _share, top
        )
    measured = [one.median or 0.0 for curve in study.curves for one in curve.measured]
    if measured:
        groups = _groups(study, study.curves, lambda one: one.median, None)
        title = f"{number_name(study)} by ranks"
        note = "constant work per rank" if study.plan.weak else ""
        found["number"] = BarFigure(title, note, groups, _number, round_up(max(measured)))
    return found


Of = Callable[[CurvePoint], float | None]


def _groups(
    study: Study,
    curves: Sequence[Curve],
    of: Of,
    ideal: Of | None,
) -> list[BarGroup]:
    """The bars of each number of ranks: one of each curve, then the ideal one."""
    ranks = sorted({one.point.ranks for curve in curves for one in curve.points})
    groups: list[BarGroup] = []
    for count in ranks:
        bars: list[tuple[float | None, str]] = []
        best: float | None = None
        for at, curve in enumerate(study.curves):
            one = next((each for each in curve.points if each.point.ranks == count), None)
            if curve in curves:
                bars.append((of(one) if one else None, LINE_ROLES[at % len(LINE_ROLES)]))
                best = ideal(one) if one and ideal else best
        if ideal:
            bars.append((best, IDEAL))
        groups.append(BarGroup(str(count), bars))
    return groups


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value * 100:.0f} %"


def _number(value: float | None) -> str:
    return "" if value is None else significant_figures(value, 3)


def run_line(study: Study) -> Run:
    """What runs now, or what can be done."""
    if study.running:
        return (f" running: {printable_line(study.running)}", "accent")
    return ("", "dim")
