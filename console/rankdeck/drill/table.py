"""A drill as rows for people, and as JSON for programs."""

from typing import Any

from rankdeck.drill.values import Drill, DrillFault, DrillResult, DrillVerdict
from rankdeck.model.json_values import fields_of
from rankdeck.model.stall import share_words

VERSION = 1
"""Version of the JSON; it changes if a field changes its meaning or is removed."""
HEADS = (
    "launch",
    "fault",
    "victim",
    "answer",
    "seconds",
    "named",
    "sure",
    "launcher said",
    "sentence",
)


def result_row(one: DrillResult) -> tuple[str, ...]:
    """A result as text, one cell for each of HEADS."""
    fault = one.fault
    where = f" on {one.node}" if one.node else ""
    victim = f"node {one.node}".rstrip() if fault.way.of_node else f"rank {fault.victim}{where}"
    first = f" (first {', '.join(one.before)})" if one.before else ""
    return (
        fault.launch.value, fault.way.value, victim, one.verdict.value,
        "-" if one.seconds is None else f"{one.seconds:.1f}",
        f"{one.named or '-'}{first}", "-" if one.sure is None else share_words(one.sure),
        one.launcher or "nobody" if one.named else "-", one.sentence,
    )  # fmt: skip


def drill_headline(drill: Drill) -> str:
    """The results in one line."""
    planted = [one for one in drill.results if one.verdict is not DrillVerdict.UNPLANTED]
    told = sorted(one.seconds for one in planted if one.seconds is not None and not one.verdict.bad)
    middle = f", half of them within {told[(len(told) - 1) // 2]:.0f} s" if told else ""
    by_launcher = sum(1 for one in planted if _launcher_is_right(one))
    words = [
        f"{drill.count(DrillVerdict.RIGHT)} of {len(planted)} right{middle}",
        f"the launchers {by_launcher} of {len(planted)}",
    ]
    if unplanted := drill.count(DrillVerdict.UNPLANTED):
        words.append(f"{unplanted} not planted")
    return "; ".join(words)


def _launcher_is_right(one: DrillResult) -> bool:
    right = one.node if one.fault.way.of_node else f"rank {one.fault.victim}"
    return one.launcher == right


def drill_shape(drill: Drill) -> dict[str, Any]:
    """One drill, as `drill --json` prints it."""
    return {
        "version": VERSION,
        "drill": drill.id,
        "cluster": drill.plan.cluster,
        "started": drill.started,
        "ended": drill.ended,
        "limit": drill.plan.limit,
        "notes": list(drill.plan.notes),
        "planned": [_fault_shape(one) for one in drill.plan.faults],
        "counts": {one.value: drill.count(one) for one in DrillVerdict},
        "trusted": drill.trusted,
        "results": [_result_shape(one) for one in drill.results],
    }


def _fault_shape(fault: DrillFault) -> dict[str, Any]:
    return {
        "fault": fault.way.value, "launch": fault.launch.value, "victim": fault.victim,
        "nodes": list(fault.spec.on), "unplanted": fault.unplanted,
    }  # fmt: skip


def _result_shape(one: DrillResult) -> dict[str, Any]:
    shape = {key: value for key, value in fields_of(one).items() if key != "fault"}
    head = {
        "fault": one.fault.way.value,
        "launch": one.fault.launch.value,
        "victim": one.fault.victim,
    }
    return {**head, **shape}
