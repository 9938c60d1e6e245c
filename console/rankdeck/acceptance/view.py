"""Builds what front ends show, from the plan of a run and its results, while it runs or later.

Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from statistics import median

from msgspec import field

from rankdeck.acceptance.judge import Judgement
from rankdeck.acceptance.planning import MEASURED, schedule_options
from rankdeck.acceptance.population import FEWEST, measure_population
from rankdeck.acceptance.recipe import ExpectedResult, HardwareFacts, OutputReading, grade_value
from rankdeck.acceptance.run import PAIRWISE, RunPlan, RunState, StageView
from rankdeck.acceptance.schedule import Schedule, next_groups
from rankdeck.acceptance.suspects import Context
from rankdeck.acceptance.values import (
    Answer,
    Kind,
    Outcome,
    Result,
    Stage,
    Verdict,
    failure_answer,
    measurement_of,
)
from rankdeck.acceptance.work import find_recipe, known_of, resting_text
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.text import list_names, significant_figures
from rankdeck.values import Value, replace

_LEARNED = {Outcome.MEASURED, Outcome.FAILED}
_GRAVEST = (
    Answer.LEFT_OUT, Answer.WRONG_VALUES, Answer.FAILED, Answer.SLOW, Answer.UNSTEADY, Answer.REFUSED, Answer.NOT_MEASURED,
    Answer.FAIR, Answer.GOOD,
)  # fmt: skip
"""The answers from the gravest to the best: of several about a node the gravest counts."""


class Judged(Value, kw_only=True):
    """The judgement of a run, all stages together."""

    judgements: Mapping[str, Judgement] = field(default_factory=dict[str, Judgement])
    verdicts: tuple[Verdict, ...] = ()
    answers: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    notes: tuple[str, ...] = ()


def able_nodes(plan: RunPlan, results: Iterable[Result]) -> tuple[str, ...]:
    """Nodes that take part in pairs: all but those that failed a single-node test."""
    broken = {
        one.sender for one in results if one.stage is Stage.SINGLE and one.outcome is Outcome.FAILED
    }
    return tuple(node for node in plan.nodes if node not in broken)


def schedule_of(
    plan: RunPlan, recipe: str, results: Iterable[Result], notes: Mapping[str, str], kinds: Mapping[str, str]
) -> Schedule:  # fmt: skip
    """The schedule of a recipe's pairs, with all that was measured; `notes`: node -> what
    else is odd about it, `kinds`: its hardware.
    """
    all_of = tuple(results)
    traits = find_recipe(recipe).traits
    context = Context(
        unit=unit_of(recipe),
        tolerance=traits.tolerance,
        leaves=plan.leaves,
        notes=notes,
        rails=_rail_names(plan, recipe),
        hardware=kinds,
        virtual=frozenset(plan.virtual),
    )
    schedule = Schedule(schedule_options(plan, recipe, able_nodes(plan, all_of)), context)
    for one in all_of:
        if one.recipe == recipe and one.receiver and one.outcome.final:
            schedule.take(measurement_of(one, lower_is_better=traits.lower_is_better))
    schedule.expect(expected_median(plan, recipe, all_of))
    return schedule


def _rail_names(plan: RunPlan, recipe: str) -> tuple[str, ...]:
    """The device of each rail; "" if the nodes call theirs differently."""
    columns = zip(*plan.rails.get(recipe, {}).values(), strict=True)
    return tuple(names[0] if len(set(names)) == 1 else "" for names in columns)


def unit_of(recipe: str) -> str:
    """The unit of the values that the judge compares; a latency is
    compared as round trips per second.
    """
    traits = find_recipe(recipe).traits
    return "round trips/s" if traits.lower_is_better else traits.unit


def expected_median(plan: RunPlan, recipe: str, results: Iterable[Result]) -> ExpectedResult | None:
    """What the median of the pairs should reach; None if the link is
    unknown or nothing can be expected.
    """
    values = [
        one.value
        for one in results
        if one.recipe == recipe and one.receiver and one.value is not None
    ]
    found = find_recipe(recipe)
    known = known_of(found, plan.link_gbps, plan.rdma_gbps)
    if not values or not known.link_gbps or found.traits.lower_is_better:
        return None
    gpus = found.traits.gpus
    if gpus and plan.gpus == 1 and known.link_gbps > _SLOT:
        return None
    both = ("sender", "receiver") if gpus else ()
    middle = OutputReading(
        status=Outcome.MEASURED,
        text="",
        value=median(values),
        unit=found.traits.unit,
        hosts=both,
        ranks=len(both) * plan.gpus,
    )
    return found.expect(middle, replace(known, gpu=plan.gpu, node_gbps=plan.node_gbps))


_SLOT = 100.0
"""Gb/s that a GPU reaches even in a PCIe 3.0 slot."""


def judge_results(
    plan: RunPlan, results: Sequence[Result], odd: Mapping[str, str], kinds: Mapping[str, str]
) -> Judged:
    """Judge all results; `odd`: node -> how it differs from others, or what its telemetry showed
    during the run, `kinds`: node -> its hardware.
    """
    judgements = {
        name: schedule_of(plan, name, results, odd, kinds).judgement()
        for name in plan.recipes_of(Stage.PAIRS)
    }
    single, alone, notes = _single(plan, results, odd, kinds)
    groups = _groups(plan, results)
    verdicts = (
        *single,
        *(replace(one, recipe=name) for name, each in judgements.items() for one in each.verdicts),
        *groups,
        *_soak(results),
        *(out := _out(results)),
        *_unmeasured(results, {one.subject for one in out}),
    )
    answers = _answers(plan, results, judgements.values(), alone, verdicts)
    several = len(judgements) > 1
    notes += [
        f"{name}: {note}" if several else note
        for name, each in judgements.items()
        for note in each.notes
    ]
    notes += _nothing_planned(plan)
    return Judged(
        judgements=judgements, verdicts=verdicts, answers=answers, notes=tuple(dict.fromkeys(notes))
    )


def _nothing_planned(plan: RunPlan) -> list[str]:
    """Why each stage is left out, if none can be measured."""
    stages = (
        [] if plan.parts else [one for one in plan.stages if one.stage in MEASURED and one.note]
    )
    return [f"{one.stage} not measured: {one.note}" for one in stages]


# ---- single nodes


def _single(
    plan: RunPlan, results: Iterable[Result], odd: Mapping[str, str], kinds: Mapping[str, str]
) -> tuple[list[Verdict], dict[str, list[Answer]], list[str]]:
    """(verdicts, node -> answers, notes). Only nodes with the same hardware are compared."""
    verdicts: list[Verdict] = []
    answers: defaultdict[str, list[Answer]] = defaultdict(list)
    notes: list[str] = []
    alike: defaultdict[tuple[str, str], list[Result]] = defaultdict(list)
    for one in results:
        if one.stage is Stage.SINGLE and one.outcome.final:
            alike[one.recipe, kinds.get(one.sender, "")].append(one)
    for (recipe, _), repeats in alike.items():
        some = _of_repeats(repeats)
        for one in some:
            answer, verdict = _single_answer(one, recipe, some, odd, _expected_alone(plan, one))
            answers[one.sender].append(answer)
            verdicts += [verdict] if verdict else []
            if answer in (Answer.NOT_MEASURED, Answer.REFUSED):
                notes.append(f"{one.sender}: {recipe} was {answer}: {one.text}")
    return verdicts, answers, notes


def _of_repeats(results: Iterable[Result]) -> list[Result]:
    """One result per node: the best value; without values the newest that measured or failed.

    Wrong values are kept, whatever came after them.
    """
    found: dict[str, Result] = {}
    for one in sorted(results, key=lambda one: one.repeat):
        before = found.setdefault(one.sender, one)
        wrong = (
            before.outcome is Outcome.FAILED and failure_answer((before,)) is Answer.WRONG_VALUES
        )
        worse = before.value is not None and one.value is not None and one.value < before.value
        lost = one.outcome not in _LEARNED and before.outcome in _LEARNED
        if not (wrong or worse or lost):
            found[one.sender] = one
    return list(found.values())


def _expected_alone(plan: RunPlan, one: Result) -> ExpectedResult | None:
    """What the GPUs of a node should reach with each other; None for other
    recipes, or if no figure is known.
    """
    recipe = find_recipe(one.recipe)
    if not recipe.traits.gpus:
        return None
    reading = OutputReading(
        status=Outcome.MEASURED, text="", value=one.value, hosts=(one.sender,), ranks=plan.gpus
    )
    return recipe.expect(reading, HardwareFacts(gpu=plan.gpu))


def _single_answer(
    one: Result,
    recipe: str,
    some: Sequence[Result],
    odd: Mapping[str, str],
    expected: ExpectedResult | None,
) -> tuple[Answer, Verdict | None]:
    """Compare one node with what it should reach, and with the
    others if there are at least four.
    """
    if one.outcome is Outcome.FAILED:
        answer = failure_answer((one,))
        return answer, _alone(
            one, answer, f"{one.sender} fails {recipe} alone: {one.text}; it takes no part in pairs"
        )
    if one.value is None:
        return Answer.LEFT_OUT if one.outcome is Outcome.EXCLUDED else Answer(one.outcome), None
    values = [other.value for other in some if other.value is not None]
    normal = (
        measure_population(values, find_recipe(recipe).traits.tolerance)
        if len(values) >= FEWEST and find_recipe(recipe).traits.tolerance
        else None
    )
    grade = grade_value(one.value, expected)
    if normal and one.value < normal.limit:
        usual, why = (
            f"others {significant_figures(normal.median)}",
            _WHY_ALONE[find_recipe(recipe).traits.gpus],
        )
    elif expected and grade == "slow":
        usual, why = f"{expected.of} {significant_figures(expected.ceiling)}", expected.advice
    else:
        return (normal.answer(one.value) if normal else Answer(grade or "good")), None
    more = f"; {odd[one.sender]}" if one.sender in odd else ""
    text = f"{one.sender} alone reaches {significant_figures(one.value)} {one.unit} of {recipe} ({usual}): {why}{more}"
    return Answer.SLOW, _alone(one, Answer.SLOW, text)


_WHY_ALONE = {
    False: "its clocks, cooling, memory or power",
    True: "the links between its GPUs, their clocks or their power",
}
"""Whether it is a GPU test -> what can make it slow."""


def _alone(one: Result, answer: Answer, text: str) -> Verdict:
    return Verdict(
        kind=Kind.NODE,
        subject=one.sender,
        answer=answer,
        sentence=text,
        nodes=(one.sender,),
        stage=Stage.SINGLE,
        recipe=one.recipe,
    )


# ---- groups and soak


def _groups(plan: RunPlan, results: Sequence[Result]) -> tuple[Verdict, ...]:
    planned = (one for one in plan.stages if one.stage is Stage.GROUPS and one.rounds)
    recipe = next((one.recipe for one in planned), "")
    some = [one for one in results if one.stage is Stage.GROUPS and one.outcome.final]
    if not recipe or not some:
        return ()
    nodes = tuple(node for node in plan.nodes if any(node in one.group for one in some))
    found = next_groups(nodes, some, find_recipe(recipe).traits.tolerance).verdicts
    return tuple(replace(one, stage=Stage.GROUPS, recipe=recipe) for one in found)


_DROP = 0.7


def _soak(results: Iterable[Result]) -> tuple[Verdict, ...]:
    """Unsteady if two or more repeats dropped; failed if one failed."""
    some = [one for one in results if one.stage is Stage.SOAK]
    values = [one.value for one in some if one.value is not None]
    found: list[Verdict] = []
    dropped = sum(1 for value in values if value < _DROP * max(values))
    if dropped > 1:
        text = (
            f"over {len(values)} repeats between {significant_figures(min(values), 3)} and"
            f" {significant_figures(max(values), 3)} {some[0].unit}: throttling, errors, or other"
            " traffic"
        )
        found.append(
            Verdict(kind=Kind.SCALE, subject="soak", answer=Answer.UNSTEADY, sentence=text)
        )
    broken = [one for one in some if one.outcome is Outcome.FAILED]
    if broken:
        text = f"{len(broken)} of {len(some)} repeats failed: {broken[0].text}"
        found.append(Verdict(kind=Kind.SCALE, subject="soak", answer=Answer.FAILED, sentence=text))
    return tuple(replace(one, stage=Stage.SOAK, recipe=some[0].recipe) for one in found)


def _out(results: Iterable[Result]) -> tuple[Verdict, ...]:
    """Nodes whose last result says that something may still run there."""
    last = {node: one for one in results if one.outcome.final for node in one.nodes}
    return tuple(
        Verdict(
            kind=Kind.NODE,
            subject=node,
            answer=Answer.NOT_MEASURED,
            nodes=(node,),
            recipe=one.recipe,
            sentence=f"{node} takes part no longer: {one.text.removeprefix(resting_text(node, ''))}",
        )
        for node, one in last.items()
        if one.text.startswith(resting_text(node, ""))
    )


def _unmeasured(results: Sequence[Result], out: Set[str]) -> tuple[Verdict, ...]:
    """Paths and groups that were not measured: that is never accepted. One
    verdict per stage and recipe, or per node.

    Leaves out paths of nodes in `out`, and both directions of a pair that
    failed: nothing was started after it.
    """
    broken = {
        frozenset((one.sender, one.receiver)) for one in results if one.outcome is Outcome.FAILED
    }
    reached = {
        node for one in results if one.outcome in _LEARNED for node in (one.sender, one.receiver)
    }
    parts: defaultdict[tuple[str, str], dict[str, list[Result]]] = defaultdict(dict)
    for one in results:
        ends = frozenset((one.sender, one.receiver))
        pair = (
            one.stage in PAIRWISE and not one.port and ends not in broken and ends.isdisjoint(out)
        )
        if pair or one.stage in (Stage.GROUPS, Stage.SOAK):
            stage = Stage.PAIRS if pair else one.stage
            parts[stage, one.recipe].setdefault(_subject(one), []).append(one)
    found: list[Verdict] = []
    for (_, recipe), subjects in parts.items():
        lost = {name: _why(some) for name, some in subjects.items() if _is_lost(some)}
        nodes = _unreached(lost.values(), len(reached))
        found += [_unreached_node(recipe, node, lost.values(), results) for node in nodes]
        known = {
            name: one for name, one in lost.items() if one.group or reached.issuperset(one.nodes)
        }
        found += [_lost(recipe, known or lost, apart=bool(known))] if lost and not nodes else []
    return tuple(found)


def _unreached(lost: Iterable[Result], count: int) -> tuple[str, ...]:
    """The few nodes that explain all of these paths, each with two or
    more partners; () if no few nodes do.
    """
    left: set[frozenset[str]] = {
        frozenset((one.sender, one.receiver)) for one in lost if one.receiver
    }
    found: list[str] = []
    while left:
        node, times = Counter(sorted(node for pair in left for node in pair)).most_common(1)[0]
        if times < _PARTNERS:
            return ()
        found.append(node)
        left = {pair for pair in left if node not in pair}
    return tuple(found) if _MINORITY * len(found) <= count else ()


_PARTNERS, _MINORITY = 2, 3


def _unreached_node(
    recipe: str, node: str, lost: Iterable[Result], results: Iterable[Result]
) -> Verdict:
    mine = sorted((one for one in lost if node in one.nodes), key=lambda one: one.sender != node)
    met = {
        name
        for one in results
        if one.recipe == recipe and node in (one.sender, one.receiver)
        for name in (one.sender, one.receiver)
    }
    without = {name for one in mine for name in (one.sender, one.receiver)} - {node}
    text = f"{node}: {recipe} was not measured with {len(without)} of {len(met - {node, ''})} partners: {mine[0].text}"
    return Verdict(
        kind=Kind.NODE,
        subject=node,
        answer=Answer.NOT_MEASURED,
        nodes=(node,),
        sentence=text,
        recipe=recipe,
    )


def _is_lost(some: Iterable[Result]) -> bool:
    outcomes = {one.outcome for one in some}
    return not outcomes & _LEARNED and bool(outcomes & {Outcome.NOT_MEASURED, Outcome.REFUSED})


def _subject(one: Result) -> str:
    """`n1→n2`, or the nodes of a group."""
    if one.group:
        return fold_nodes(one.group)
    sign = "→" if find_recipe(one.recipe).traits.directed else "–"
    return f"{one.sender}{sign}{one.receiver}" + (f" on rail {one.rail}" if one.rail else "")


def _lost(recipe: str, lost: Mapping[str, Result], *, apart: bool) -> Verdict:
    """The verdict about paths or groups that were not measured;
    `apart`: their nodes reached others.
    """
    names = list_names(list(lost), 4)
    first = _why(tuple(lost.values())[::-1])
    answer = Answer.REFUSED if first.outcome is Outcome.REFUSED else Answer.NOT_MEASURED
    kind = Kind.SCALE if first.group else Kind.PAIR
    hint = _unheard(first) if apart else _NOBODY
    text = f"{names}: {recipe} was {answer.value}: {first.text}{hint}"
    return Verdict(
        kind=kind,
        subject=names,
        answer=answer,
        sentence=text,
        stage=first.stage if first.group else Stage.PAIRS,
        ends=() if first.group else first.nodes,
        recipe=recipe,
    )


_NOBODY = ": look at addresses, firewall, and whether the program runs there"
_UNHEARD = ("timed out", "No route to host", "Network is unreachable", "Host is unreachable")


def _unheard(one: Result) -> str:
    """What to try if packets between a pair got no answer; "" if that is not the reason."""
    if not one.receiver or not any(words in one.text for words in _UNHEARD):
        return ""
    return ". These nodes reach others: a firewall, an access list or a route between the two"


def _why(some: Sequence[Result]) -> Result:
    """The result with the most useful reason: packets without an
    answer, otherwise the last result.
    """
    return next((one for one in some if _unheard(one)), some[-1])


# ---- nodes


def _answers(
    plan: RunPlan,
    results: Iterable[Result],
    judgements: Iterable[Judgement],
    alone: Mapping[str, Sequence[Answer]],
    verdicts: Iterable[Verdict],
) -> dict[str, Answer]:
    """Node -> the gravest answer of all stages; nodes without any answer yet are missing."""
    by_node: defaultdict[str, list[Answer]] = defaultdict(list)
    for node, some in alone.items():
        by_node[node] += some
    named = [(node, verdict.answer) for verdict in verdicts for node in verdict.nodes]
    for node, answer in chain(named, *(each.nodes.items() for each in judgements)):
        by_node[node].append(answer)
    groups = [one for one in results if one.stage is Stage.GROUPS and one.outcome.final]
    well = {node for one in groups if one.value is not None for node in one.group}
    for node in {node for one in groups for node in one.group}:
        lost = [] if by_node[node] else [Answer.NOT_MEASURED]
        by_node[node] += [Answer.GOOD] if node in well else lost
    found = {node: min(by_node[node], key=_GRAVEST.index) for node in plan.nodes if by_node[node]}
    return {**found, **dict.fromkeys(plan.left_out, Answer.LEFT_OUT)}


# ---- stages


def stage_views(
    plan: RunPlan, results: Sequence[Result], now: Stage | None, over: RunState
) -> tuple[StageView, ...]:
    """Each planned stage with its progress; `now`: the stage that
    runs, `over`: the state of the run.
    """
    order = list(dict.fromkeys(one.stage for one in plan.stages))
    views: list[StageView] = []
    for one in plan.stages:
        some = [
            result
            for result in results
            if result.stage is one.stage and result.recipe == one.recipe
        ]
        done = [result for result in some if result.outcome.final]
        views.append(
            StageView(
                plan=one,
                progress=_progress(one.stage, bool(some), now, over, order),
                done=len(done),
                rounds_done=len({result.round for result in done}),
            )
        )
    return tuple(views)


def _progress(
    stage: Stage, begun: bool, now: Stage | None, over: RunState, order: Sequence[Stage]
) -> RunState:
    asked = stage in (Stage.GATE, Stage.IDENTITY)
    if over is RunState.PENDING:
        return RunState.DONE if asked else RunState.PENDING
    if over is RunState.RUNNING and now is not None:
        if stage is now:
            return RunState.RUNNING
        if now in order and order.index(stage) > order.index(now) and not begun:
            return RunState.PENDING
    if begun or asked:
        return RunState.DONE
    return RunState.STOPPED if over is RunState.STOPPED else RunState.SKIPPED
