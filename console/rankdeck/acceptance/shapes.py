"""What `rankdeck accept --json` prints; docs/cli.md has the same for people."""

from rankdeck.acceptance.recipe import OutputReading
from rankdeck.acceptance.run import AcceptanceRun, next_step
from rankdeck.cli.shapes import Shape
from rankdeck.values import value_table


def reading_shape(recipe: str, reading: OutputReading) -> Shape:
    """One result in the output of an acceptance test; `accept --read` prints it."""
    return {
        "recipe": recipe,
        "status": reading.status.value,
        "size": reading.size,
        "value": reading.value,
        "out_of_place": reading.out_of_place,
        "in_place": reading.in_place,
        "unit": reading.unit,
        "ranks": reading.ranks,
        "hosts": list(reading.hosts),
        "text": reading.text,
    }


def acceptance_shape(run: AcceptanceRun) -> Shape:
    """One acceptance run; `accept` prints it. `version` counts changes of this shape."""
    return {
        "version": 1,
        "run": run.id,
        "cluster": run.cluster,
        "operator": run.operator,
        "started": run.started,
        "ended": run.ended,
        "progress": run.progress.value,
        "accepted": run.accepted,
        "good": list(run.good),
        "bad": list(run.bad),
        "not_measured": list(run.unknown),
        "left_out": dict(run.left_out),
        "verdicts": [value_table(one) | {"next": next_step(run, one)} for one in run.verdicts],
        "answers": dict(run.answers),
        "notes": [*run.plan.notes, *run.notes],
        "stages": [
            value_table(one.plan) | {"progress": one.progress.value, "done": one.done}
            for one in run.stages
        ],
        "results": [value_table(one) for one in run.results],
        "identity": {node: dict(facts) for node, facts in run.identity.items()},
        "differing": dict(run.differing),
        "baseline": run.baseline,
        "changed": run.changed,
        "drift": [value_table(one) for one in run.drift],
    }
