"""What `rankdeck accept` says about a run: the plan before, a line a round, the outcome. Pure."""

import time
from collections.abc import Iterator

from rankdeck.acceptance.heatmap import headline
from rankdeck.acceptance.run import AcceptanceRun, Progress, StagePlan
from rankdeck.model.acceptance import Outcome, Result, Stage
from rankdeck.model.cluster import Cluster
from rankdeck.model.nodeset import fold
from rankdeck.model.text import size as bytes_text

_MOST = 12
"""Lines of a kind that are printed one by one."""


def plan_text(run: AcceptanceRun) -> str:
    """Everything that will be done, stage by stage, with the commands."""
    plan = run.plan
    lines = [f"acceptance {run.id} of {run.cluster}: {fold(plan.nodes)} ({len(plan.nodes)} nodes)"]
    lines += [f"  left out {node}: {why}" for node, why in plan.left_out.items()]
    lines += [f"  differs {node}: {what}" for node, what in list(run.differing.items())[:_MOST]]
    for one in plan.stages:
        lines.append(_stage_line(one))
        lines += [f"      {command}" for command in one.commands]
    lines += [f"  {note}" for note in plan.notes]
    return "\n".join(lines)


def _stage_line(one: StagePlan) -> str:
    words = [f"  {one.stage:9}", one.recipe]
    if one.rounds:
        words.append(
            f"{one.rounds} round{'s' * (one.rounds != 1)}, {one.tests} measurements, about {max(one.minutes, 0.1):.1f} min"
        )
    if one.bytes:
        words.append(f"about {bytes_text(one.bytes)}")
    return " ".join(filter(None, words)) + (f": {one.note}" if one.note else "")


class Followed:
    """Which lines of a run were said already."""

    def __init__(self) -> None:
        self._said: set[tuple[Stage, str, int]] = set()

    def news(self, run: AcceptanceRun) -> Iterator[str]:
        """A line for each round that has ended since."""
        rounds: dict[tuple[Stage, str, int], list[Result]] = {}
        for one in run.results:
            rounds.setdefault((one.stage, one.recipe, one.round), []).append(one)
        for key, results in rounds.items():
            open_ = any(one.outcome in (Outcome.PENDING, Outcome.RUNNING) for one in results)
            if key not in self._said and not open_:
                self._said.add(key)
                yield _round_line(run, *key, results)


def _round_line(
    run: AcceptanceRun, stage: Stage, recipe: str, number: int, results: list[Result]
) -> str:
    planned = next(
        (one.rounds for one in run.plan.stages if (one.stage, one.recipe) == (stage, recipe)), 0
    )
    of = f" {number + 1} of {planned}" if 1 < planned > number else ""
    values = [one.value for one in results if one.value is not None]
    span = f", {min(values):.3g} to {max(values):.3g} {results[0].unit}" if values else ""
    wrong = [one for one in results if one.outcome is not Outcome.MEASURED]
    said = f"{stage} {recipe}{of}: {len(values)} of {len(results)} measured{span}"
    return "\n".join([said, *(f"  {_who(one)}: {one.outcome}: {one.text}" for one in wrong[:3])])


def _who(one: Result) -> str:
    return f"{one.sender}→{one.receiver}" if one.receiver else fold(one.group or (one.sender,))


def outcome(run: AcceptanceRun, cluster: Cluster) -> str:
    """Who is to blame, a sentence each; who is good; what changed; what to do."""
    lines = [f"{run.cluster}, {run.id}: {_verdict(run)}"]
    lines += [f"  {one.answer}: {one.sentence}" for one in run.verdicts]
    lines += [f"  {node}: left out: {why}" for node, why in run.left_out.items()]
    lines += [f"  note: {note}" for note in (*run.notes, *run.plan.notes[:-1])]
    lines += [f"  differs {node}: {what}" for node, what in list(run.differing.items())[:_MOST]]
    lines += [f"  drift: {one.sentence}" for one in run.drift[:_MOST]]
    if run.baseline and (run.drift or run.changed or "not compared" in run.baseline):
        lines.append(f"  baseline: {run.baseline}")
    lines += [
        f"  {word}: {fold(nodes)}"
        for word, nodes in (("good", run.good), ("bad", run.bad), ("not measured", run.unknown))
        if nodes
    ]
    lines += [f"  {line}" for line in proposals(run, cluster)]
    return "\n".join(lines)


def _verdict(run: AcceptanceRun) -> str:
    resume = f"; go on with `rankdeck accept --resume {run.id}`"
    return headline(run) + ("" if run.progress is Progress.DONE else resume)


def proposals(run: AcceptanceRun, cluster: Cluster) -> Iterator[str]:
    """Commands to copy: nothing of it is done unasked."""
    if run.progress is not Progress.DONE:
        return
    for node in run.bad:
        why = next(
            (one.sentence for one in run.verdicts if node in one.nodes),
            f"{run.answers[node]} in acceptance",
        )
        reason = why.replace('"', "'").replace("`", "'").replace("$", "")[:160]
        day = time.strftime("%Y-%m-%d", time.localtime(run.ended or run.started))
        yield f'to keep jobs away: rankdeck accept --exclude {node} --why "run {run.id}: {reason}"'
        if cluster.backend == "slurm":
            yield f'in Slurm: scontrol update nodename={node} state=drain reason="rankdeck {day}: {reason}"; back: state=resume'
        if cluster.backend == "kubernetes":
            yield f"in Kubernetes: kubectl cordon {node}; back: kubectl uncordon {node}"
    if run.bad and run.good:
        yield f"to try first: swap its cable with that of a good node, then rankdeck accept --only {','.join((run.bad[0], run.good[0]))}"


def run_line(run: AcceptanceRun) -> str:
    """One kept run."""
    begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started))
    return f"{run.id}  {begun}  {run.progress:8}  {fold(run.plan.nodes)}  {run.operator}"
