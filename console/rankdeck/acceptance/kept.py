"""Between a run in memory and what is kept of it: plan and results, there and back. Pure."""

import hashlib
import json
from dataclasses import asdict
from typing import Any

from rankdeck.acceptance.measurement import Measurement
from rankdeck.acceptance.recipe import Recipe, Status, Where
from rankdeck.acceptance.run import RunPlan, StagePlan
from rankdeck.model.acceptance import Result, Stage


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
        rails = {
            recipe: {node: tuple(ports) for node, ports in of.items()}
            for recipe, of in found.pop("rails", {}).items()
        }
        return RunPlan(**found, nodes=nodes, notes=notes, stages=stages, rails=rails)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not the plan of a run: {error}") from error


def _stage(one: dict[str, Any]) -> StagePlan:
    stage, commands = Stage(one.pop("stage")), tuple(one.pop("commands"))
    return StagePlan(**one, stage=stage, commands=commands)


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
