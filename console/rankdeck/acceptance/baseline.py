"""Baselines of a cluster: make them from runs, and compare a run with them. Pure."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from statistics import median

from rankdeck.acceptance.population import FEWEST
from rankdeck.acceptance.recipe import Endpoints, Recipe
from rankdeck.acceptance.run import (
    AcceptanceRun,
    BaselineValue,
    Drift,
    RunPlan,
    changed_since,
    list_drifts,
)
from rankdeck.acceptance.store import Baseline
from rankdeck.acceptance.values import Result, Stage
from rankdeck.acceptance.work import find_recipe
from rankdeck.values import Value


def params_hash(recipe: Recipe, seconds: int) -> str:
    """A hash of how a recipe measures, eight characters; it does not depend on the nodes."""
    commands = recipe.commands(Endpoints(nodes=("a", "b"), seconds=seconds))
    return hashlib.sha256("\0".join((*commands.argv, *commands.server)).encode()).hexdigest()[:8]


_HARDWARE = ("cpu", "gpu name", "link rate")
"""Nodes are comparable if these facts are equal."""
Identities = Mapping[str, Mapping[str, str]]


class Compared(Value, kw_only=True):
    """The comparison of a run with the declared baseline."""

    drift: tuple[Drift, ...] = ()
    sentence: str = ""
    """What the run was compared with, or why it was not compared."""
    changed: str = ""
    partly: bool = False
    """Whether some values were not compared; `sentence` says which and why."""


def hardware_name(facts: Mapping[str, str]) -> str:
    """A name for the group of nodes with equal hardware to which these facts belong."""
    return " | ".join(facts.get(name, "") for name in _HARDWARE)[:200]


def kinds_of_hardware(identity: Identities) -> dict[str, str]:
    """Node -> its CPU and GPU, if at least two kinds have enough nodes to compare; else empty.

    Nodes of a rare kind count as the most common kind. The link rate does
    not make a kind: it may be the fault.
    """
    kinds = {
        node: " ".join(filter(None, (facts.get("cpu"), facts.get("gpu name"))))[:80]
        for node, facts in identity.items()
    }
    count = Counter(kinds.values())
    common = [kind for kind, nodes in count.most_common() if nodes >= FEWEST]
    if len(common) < 2:
        return {}
    return {node: kind if kind in common else common[0] for node, kind in kinds.items()}


def subject_values(results: Iterable[Result], recipe: str) -> dict[str, list[float]]:
    """Subject (`n3 sends`, `n3 receives`, or `n3` for tests of a single
    node) -> its values with one recipe.
    """
    found: defaultdict[str, list[float]] = defaultdict(list)
    for one in results:
        if one.recipe != recipe or one.value is None or one.port:
            continue
        if one.stage is Stage.SINGLE:
            found[one.sender].append(one.value)
        elif one.stage is Stage.PAIRS:
            rail = f" on rail {one.rail}" if one.rail else ""
            found[f"{one.sender} sends{rail}"].append(one.value)
            found[f"{one.receiver} receives{rail}"].append(one.value)
    return dict(found)


def baselines_of(run: AcceptanceRun, by: str, at: float) -> tuple[Baseline, ...]:
    """The baseline to declare from this run: a row for each recipe and subject."""
    rows: list[Baseline] = []
    for recipe in run.plan.recipes_of(Stage.SINGLE, Stage.PAIRS):
        params = params_hash(find_recipe(recipe), ceil(run.plan.seconds))
        for subject, values in subject_values(run.results, recipe).items():
            middle = median(values)
            rows.append(
                Baseline(
                    cluster=run.cluster,
                    recipe=recipe,
                    params=params,
                    hardware=hardware_name(run.identity.get(_node(subject), {})),
                    subject=subject,
                    median=middle,
                    mad=median(abs(one - middle) for one in values),
                    count=len(values),
                    run=run.id,
                    accepted_by=by,
                    at=at,
                )
            )
    return tuple(rows)


def _node(subject: str) -> str:
    return subject.partition(" ")[0]


def compare_with_baseline(
    plan: RunPlan,
    results: Sequence[Result],
    now: Identities,
    rows: Sequence[Baseline],
    then: Identities,
) -> Compared:
    """Compare recipe by recipe.

    Values measured in another way or on other hardware are left out, and a sentence says so.
    """
    if not rows:
        return Compared(sentence="no baseline is declared")
    changed = changed_since(now, then)
    found: list[Drift] = []
    why: list[str] = []
    for recipe in plan.recipes_of(Stage.SINGLE, Stage.PAIRS):
        normal, not_so = _normal(recipe, plan, now, rows)
        why += not_so
        values = {name: median(some) for name, some in subject_values(results, recipe).items()}
        found += list_drifts(values, normal, changed, find_recipe(recipe).traits.unit)
    of = f"compared with run {rows[0].run}, declared by {rows[0].accepted_by or 'somebody'}"
    return Compared(
        drift=tuple(found),
        sentence="; ".join((of, *dict.fromkeys(why))),
        changed=changed,
        partly=bool(why),
    )


def _normal(
    recipe: str, plan: RunPlan, now: Identities, rows: Iterable[Baseline]
) -> tuple[dict[str, BaselineValue], list[str]]:
    """(subject -> normal value, sentences on why others are not compared)."""
    mine = [one for one in rows if one.recipe == recipe]
    same = [
        one for one in mine if one.params == params_hash(find_recipe(recipe), ceil(plan.seconds))
    ]
    why = [f"{recipe} is not compared: it was not in the baseline"] if not mine else []
    if mine and not same:
        why.append(f"{recipe} is not compared: it was run with other parameters")
    normal: dict[str, BaselineValue] = {}
    for one in same:
        group = hardware_name(now.get(_node(one.subject), {}))
        if one.hardware == group:
            normal[one.subject] = BaselineValue(one.median, one.mad)
        elif _node(one.subject) in now:
            why.append(
                f"{_node(one.subject)} is not compared: its hardware was {one.hardware}, is {group}"
            )
    return normal, why
