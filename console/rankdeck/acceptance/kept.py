"""Between a run in memory and what is kept of it: plan and results, there and back. Pure."""

import hashlib
import json
from dataclasses import asdict
from typing import Any

from rankdeck.acceptance.measurement import Measurement, Stage
from rankdeck.acceptance.recipe import Recipe, Status, Where
from rankdeck.acceptance.run import Outcome, Result, RunPlan, StagePlan
from rankdeck.model.nodeset import expand, fold
from rankdeck.state.acceptance import KeptMeasurement


def plan_text(plan: RunPlan) -> str:
    """The plan as JSON."""
    return json.dumps(asdict(plan), sort_keys=True)


def plan_hash(plan: RunPlan) -> str:
    """Twelve characters that are the same for the same plan."""
    return hashlib.sha256(plan_text(plan).encode()).hexdigest()[:12]


def read_plan(text: str) -> RunPlan:
    """What `plan_text` wrote; raises ValueError where it is something else."""
    try:
        found: dict[str, Any] = json.loads(text)
        stages = tuple(_stage(one) for one in found.pop("stages"))
        nodes, notes = tuple(found.pop("nodes")), tuple(found.pop("notes"))
        return RunPlan(**found, nodes=nodes, notes=notes, stages=stages)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not the plan of a run: {error}") from error


def _stage(one: dict[str, Any]) -> StagePlan:
    stage, commands = Stage(one.pop("stage")), tuple(one.pop("commands"))
    return StagePlan(**one, stage=stage, commands=commands)


def kept(run: str, params: str, one: Result) -> KeptMeasurement:
    """The row of a result that has an outcome."""
    return KeptMeasurement(
        run=run, stage=one.stage, recipe=one.recipe, params=params, sender=one.sender, receiver=one.receiver or fold(one.group),
        rail=one.rail, port=one.port, round=one.round, repeat=one.repeat, value=one.value, unit=one.unit,
        status=one.outcome, seconds=one.seconds, raw=one.raw, text=one.text, job=one.job,
    )  # fmt: skip


def result_of(row: KeptMeasurement) -> Result:
    """The result of a row."""
    grouped = row.stage in (Stage.GROUPS, Stage.SOAK)
    return Result(
        stage=Stage(row.stage), recipe=row.recipe, sender=row.sender, receiver="" if grouped else row.receiver,
        group=expand(row.receiver) if grouped and row.receiver else (), rail=row.rail, port=row.port, round=row.round,
        repeat=row.repeat, outcome=Outcome(row.status), value=row.value, unit=row.unit, seconds=row.seconds,
        text=row.text, raw=row.raw, job=row.job,
    )  # fmt: skip


def measurement_of(one: Result, *, lower_is_better: bool = False) -> Measurement:
    """What the judge takes: higher is better, so a latency in µs becomes round trips a second."""
    value = one.value
    if value and lower_is_better:
        value = 1e6 / value
    status = Status(one.outcome) if one.outcome in set(Status) else Status.NOT_MEASURED
    return Measurement(
        stage=one.stage, sender=one.sender, receiver=one.receiver, value=value if status is Status.MEASURED else None,
        status=status, round=one.round, repeat=one.repeat, rail=one.rail, port=one.port, group=one.group, text=one.text,
    )  # fmt: skip


def params_hash(recipe: Recipe, seconds: int) -> str:
    """Eight characters that are the same where the same was asked for, whatever the nodes."""
    commands = recipe.commands(Where(nodes=("a", "b"), seconds=seconds))
    return hashlib.sha256("\0".join((*commands.argv, *commands.server)).encode()).hexdigest()[:8]
