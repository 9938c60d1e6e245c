"""A study as rows for people, and as JSON and CSV for programs."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from rankdeck.model.json_values import fields_of
from rankdeck.model.text import csv_cell, significant_figures
from rankdeck.scaling.study import Curve, CurvePoint, Study, StudyState
from rankdeck.scaling.values import Trial

VERSION = 1
"""Version of the JSON; it changes if a field changes its meaning or is removed."""


def study_headline(study: Study) -> str:
    """How far the study is, in a few words."""
    done, bad = len(study.trials), sum(1 for one in study.trials if one.text)
    failed = f", {bad} without a result" if bad else ""
    if study.progress is StudyState.DONE:
        return f"{done} runs{failed}"
    return f"{done} of {study.runs} runs{failed}"


def number_name(study: Study) -> str:
    """The compared number with its unit: `mflops`, `wall (s)`."""
    return f"{study.number} ({study.unit})" if study.unit else study.number


def point_heads(study: Study) -> tuple[str, ...]:
    """The titles of `point_row`."""
    curve = ("values",) if len(study.curves) > 1 or any(one.name for one in study.curves) else ()
    serial = () if study.plan.weak else ("serial",)
    return (
        *curve,
        "ranks",
        "nodes",
        "runs",
        number_name(study),
        "±",
        "speed-up",
        "ideal",
        "efficiency",
        *serial,
    )


def point_row(study: Study, curve: Curve, one: CurvePoint) -> tuple[str, ...]:
    """A point as text, one cell for each title of `point_heads`; `-` where a number is missing."""
    named = (curve.name or "-",) if len(point_heads(study)) > len(_unnamed(study)) else ()
    good = len(one.values)
    runs = f"{good}" if good == len(one.trials) else f"{good} of {len(one.trials)}"
    serial = () if study.plan.weak else (_percent(one.serial),)
    return (
        *named, str(one.point.ranks), str(one.point.nodes), runs,
        "-" if one.median is None else significant_figures(one.median), _percent(one.spread),
        "-" if one.speedup is None else f"{one.speedup:.2f}", f"{one.times:g}" if float(one.times).is_integer() else f"{one.times:.2f}",
        _percent(one.efficiency), *serial,
    )  # fmt: skip


def _unnamed(study: Study) -> Sequence[str]:
    return [head for head in point_heads(study) if head != "values"]


def _percent(share: float | None) -> str:
    if share is None:
        return "-"
    if share > 1.5:
        return "> 100 %"
    return (
        f"{share * 100:.0f} %"
        if abs(share) >= 0.0995 or abs(share) < 5e-4
        else f"{share * 100:.1f} %"
    )


def study_shape(study: Study) -> dict[str, Any]:
    """One study; `scale` prints it and `report.json` holds it."""
    return {
        "version": VERSION,
        "study": study.id,
        "cluster": study.plan.cluster,
        "job": study.plan.job,
        "file": study.plan.file,
        "operator": study.operator,
        "started": study.started,
        "ended": study.ended,
        "progress": study.progress.value,
        "weak": study.plan.weak,
        "number": study.number,
        "unit": study.unit,
        "lower_is_better": study.lower_is_better,
        "offered": list(study.offered),
        "nodes": list(study.plan.nodes),
        "repeats": study.plan.repeats,
        "planned": study.runs,
        "fixed": dict(study.plan.points[0].fixed) if study.plan.points else {},
        "notes": list(study.plan.notes),
        "curves": [_curve_shape(one) for one in study.curves],
        "verdicts": [fields_of(one) for one in study.verdicts],
        "runs": [_trial_shape(study, one) for one in study.trials],
    }


def _curve_shape(curve: Curve) -> dict[str, Any]:
    return {
        "values": curve.name,
        "law": fields_of(curve.fit) if curve.fit else None,
        "points": [
            {
                "ranks": one.point.ranks, "nodes": one.point.nodes, "size": dict(one.point.size),
                "values": list(one.values), "median": one.median, "spread": one.spread,
                "speedup": one.speedup, "low": one.low, "high": one.high, "ideal": one.times,
                "efficiency": one.efficiency, "serial": one.serial, "failed": one.failed,
            }
            for one in curve.points
        ],
    }  # fmt: skip


def _trial_shape(study: Study, one: Trial) -> dict[str, Any]:
    point = study.plan.points[one.point]
    return {
        "block": one.block + 1, "ranks": point.ranks, "nodes": point.nodes, "values": dict(point.values),
        "size": dict(point.size), "outcome": one.outcome.value, "numbers": dict(one.numbers),
        "job": one.job, "at": one.at, "text": one.text, "signs": fields_of(one.signs),
    }  # fmt: skip


def study_csv(study: Study) -> str:
    """Every run as a row, with all numbers that any run has."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    keys = list(
        dict.fromkeys(
            key for one in study.plan.points for key in (*one.fixed, *one.values, *one.size)
        )
    )
    heads = (
        "block",
        "ranks",
        "nodes",
        "ranks_per_node",
        *keys,
        "outcome",
        *study.offered,
        "job",
        "at",
        "text",
    )
    writer.writerow(map(csv_cell, heads))
    for one in study.trials:
        point = study.plan.points[one.point]
        both = {**point.fixed, **point.values, **point.size}
        row = (
            one.block + 1,
            point.ranks,
            point.nodes,
            point.ranks_per_node,
            *(both.get(key, "") for key in keys),
            one.outcome.value,
            *(one.numbers.get(name, "") for name in study.offered),
            one.job,
            f"{one.at:.3f}",
            one.text,
        )
        writer.writerow(map(csv_cell, row))
    return out.getvalue()
