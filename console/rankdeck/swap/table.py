"""A swap proof as lines for people, and as JSON for programs."""

from collections.abc import Iterator, Mapping
from typing import Any

from rankdeck.model.nodeset import fold_ranks
from rankdeck.swap.judge import result_words, run_label, who_and_where
from rankdeck.swap.values import (
    Blame,
    JobFault,
    RunWay,
    Swap,
    SwapPlan,
    SwapResult,
    SwapRun,
    SwapVerdict,
)
from rankdeck_agent.rules.units import write_duration

VERSION = 1
"""Version of the JSON; it changes if a field changes its meaning or is removed."""
_ONLY_IF = {
    RunWay.MOVED: "if that is not sure yet",
    RunWay.WITHOUT: "if that is not sure yet",
    RunWay.AGAIN: "if the fault has not come by then",
}


def plan_lines(plan: SwapPlan) -> Iterator[str]:
    """What is to be found out, and each run: which ranks where, how long at most."""
    after = (
        ""
        if plan.fault.seconds is None
        else f", {write_duration(plan.fault.seconds)} after the start"
    )
    yield f"{plan.job}: {who_and_where(plan.fault, plan.places)}{after}: is it the program or the node?"
    if plan.ends_job:
        yield f"  first {plan.job}, which still runs, is cancelled, with proof"
    for number, run in enumerate(plan.runs, 1):
        only = f", {_ONLY_IF[run.way]}" if number > 1 else ""
        yield f"  run {number}, {_place_words(run)}, at most {write_duration(run.limit)}{only}"
    yield from (f"  note: {note}" for note in plan.notes)


def _place_words(run: SwapRun) -> str:
    label = run_label(run.way, run.without)
    return f"{label}: {places_words(run.places)}" if run.places else label


def places_words(places: Mapping[str, tuple[int, ...]]) -> str:
    """`ranks 0-1 on n2, 2-3 on n1`; of many nodes the first."""
    parts = [f"{fold_ranks(ranks)} on {node}" for node, ranks in places.items()]
    more = f", and {len(parts) - 6} nodes more" if len(parts) > 6 else ""
    return f"ranks {', '.join(parts[:6])}{more}"


def start_question(plan: SwapPlan) -> str:
    """What is asked before anything runs."""
    first = f"Cancel {plan.job}, then start" if plan.ends_job else "Start"
    return f"{first} up to {len(plan.runs)} runs, one after the other, at most {write_duration(plan.longest)} in all?"


def result_line(number: int, result: SwapResult) -> str:
    """`run 2 (without n5): it went well, after 12 s`."""
    label = run_label(result.run.way, result.run.without)
    took = f", after {write_duration(result.seconds)}" if result.seconds else ""
    left = "".join(f"; {node}: {why}" for node, why in result.left.items())
    return f"run {number} ({label}): {result_words(result)}{took}{left}"


def verdict_headline(verdict: SwapVerdict | None) -> str:
    """`the node: n5, 98 % sure`."""
    if verdict is None:
        return "undecided: no run has ended"
    if verdict.blame is Blame.UNDECIDED:
        return "undecided"
    who = {
        Blame.NODE: f"the node: {verdict.node}",
        Blame.BOTH: f"rank {verdict.rank} on {verdict.node} only",
        Blame.PROGRAM: "the program"
        + ("" if verdict.rank is None else f": rank {verdict.rank}, wherever it runs"),
    }[verdict.blame]
    return f"{who}, {_percent(verdict.sure)} sure"


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %") if share > 0.985 else f"{share:.0%}".replace("%", " %")


def verdict_lines(swap: Swap) -> Iterator[str]:
    """The answer, why, and what to do next."""
    yield verdict_headline(swap.verdict)
    if swap.verdict is not None:
        yield f"  because {swap.verdict.sentence}"
        yield f"  next: {swap.verdict.advice}"


def swap_shape(swap: Swap) -> dict[str, Any]:
    """One swap proof, as `swap --json` prints it."""
    plan = swap.plan
    return {
        "version": VERSION,
        "swap": swap.id,
        "cluster": plan.cluster,
        "job": plan.job,
        "fault": _fault_shape(plan.fault),
        "places": _places_shape(plan.places),
        "suspects": list(plan.suspects),
        "ends_job": plan.ends_job,
        "notes": list(plan.notes),
        "planned": [_run_shape(run) for run in plan.runs],
        "started": swap.started,
        "ended": swap.ended,
        "runs": [_result_shape(one) for one in swap.results],
        "verdict": _verdict_shape(swap.verdict),
    }


def _fault_shape(fault: JobFault | None) -> dict[str, Any] | None:
    if fault is None:
        return None
    return {
        "kind": fault.kind.value, "ranks": list(fault.ranks), "nodes": list(fault.nodes),
        "exit_code": fault.exit_code, "signal": fault.signal, "seconds": fault.seconds,
        "sentence": fault.sentence,
    }  # fmt: skip


def _places_shape(places: Mapping[str, tuple[int, ...]]) -> dict[str, list[int]]:
    return {node: list(ranks) for node, ranks in places.items()}


def _run_shape(run: SwapRun) -> dict[str, Any]:
    return {
        "way": run.way.value, "places": _places_shape(run.places), "without": list(run.without),
        "limit": run.limit,
    }  # fmt: skip


def _result_shape(one: SwapResult) -> dict[str, Any]:
    return {
        "way": one.run.way.value, "without": list(one.run.without), "outcome": one.outcome.value,
        "places": _places_shape(one.places or one.run.places), "fault": _fault_shape(one.fault),
        "job": one.job, "seconds": one.seconds, "sentence": one.sentence, "left": dict(one.left),
    }  # fmt: skip


def _verdict_shape(verdict: SwapVerdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    return {
        "blame": verdict.blame.value, "rank": verdict.rank, "node": verdict.node,
        "sure": verdict.sure, "sentence": verdict.sentence, "advice": verdict.advice,
        "shares": dict(verdict.shares),
    }  # fmt: skip
