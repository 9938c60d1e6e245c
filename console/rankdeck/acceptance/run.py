"""An acceptance run as front ends show it, its plan, how it differs from the baseline,
and the protocol of `Session.acceptance`. Pure.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from shlex import quote
from statistics import median
from typing import Any, Protocol

from msgspec import field

from rankdeck.acceptance.judge import Judgement
from rankdeck.acceptance.leaves import Leaves
from rankdeck.acceptance.population import FEWEST
from rankdeck.acceptance.values import Answer, Kind, Outcome, Result, Stage, Verdict
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.text import significant_figures
from rankdeck.values import Value, value_table

_MADS, _LEAST = 3.0, 0.03
"""A subject has drifted if it changed by more than three median absolute
deviations of the baseline, and by 3 %.
"""
_SIGN = 0.9
"""Share of the subjects that must have changed in one direction for
the whole cluster to have drifted.
"""
_FEWEST = 4


class BaselineValue(Value):
    """The normal value of one subject: the median, and the median absolute deviation (`mad`)."""

    median: float
    mad: float


class Drift(Value):
    """A change from the baseline, of one subject or of the whole cluster."""

    subject: str
    """A node or a path; "" for the whole cluster."""
    change: float
    """Relative change: -0.06 is 6 % less."""
    sentence: str


def list_drifts(
    now: Mapping[str, float], then: Mapping[str, BaselineValue], changed: str = "", unit: str = ""
) -> tuple[Drift, ...]:
    """The drift of the whole cluster first, then of each subject; subjects
    that only one side has are not compared.

    `changed` is the result of `changed_since`; every sentence ends with it.
    """
    both = {
        name: (value, then[name])
        for name, value in now.items()
        if name in then and then[name].median > 0
    }
    shares = {name: value / normal.median - 1 for name, (value, normal) in both.items()}
    more = f"; changed since: {changed}" if changed else ""
    single = tuple(
        Drift(
            name,
            shares[name],
            f"{name}: {significant_figures(value, 3)} {unit}".rstrip()
            + f", was {significant_figures(normal.median, 3)} ({_percent(shares[name])}){more}",
        )
        for name, (value, normal) in both.items()
        if abs(value - normal.median) > max(_MADS * normal.mad, _LEAST * normal.median)
    )
    return (*_whole(shares, more), *single)


def _whole(shares: Mapping[str, float], more: str) -> tuple[Drift, ...]:
    """A sign test: nine in ten subjects changed in one direction, even if each change is small."""
    lower = sum(1 for share in shares.values() if share < 0)
    higher = sum(1 for share in shares.values() if share > 0)
    most = max(lower, higher)
    if len(shares) < _FEWEST or most < _SIGN * len(shares):
        return ()
    change = median(shares.values())
    said = f"{_percent(change)} against the baseline, on {most} of {len(shares)} measured"
    return (Drift("", change, f"{said}{more}"),)


def _percent(share: float) -> str:
    return f"{share:+.1%}".replace("%", " %").replace("-", "−")


def changed_since(
    now: Mapping[str, Mapping[str, str]], then: Mapping[str, Mapping[str, str]]
) -> str:
    """What is different about the nodes, often the cause of a drift:
    `driver 550.90 → 570.12 on n[1-16]`.

    Both are node -> fact -> value; nodes and facts that only one side has are left out.
    """
    moved: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for node in sorted(set(now) & set(then)):
        for fact in sorted(set(now[node]) & set(then[node])):
            before, after = then[node][fact], now[node][fact]
            if before != after:
                moved[fact, before, after].append(node)
    return ", ".join(_drift_words(key, nodes) for key, nodes in sorted(moved.items()))


def _drift_words(key: tuple[str, str, str], nodes: Sequence[str]) -> str:
    fact, before, after = key
    return f"{fact} {before} → {after} on {fold_nodes(nodes)}"


class RunState(StrEnum):
    """The state of a run, a stage or a round."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    """It does not apply here; the note of the stage says why."""
    STOPPED = "stopped"
    """The operator stopped it, or the console was killed; it can be resumed."""


class StagePlan(Value, kw_only=True):
    """What one stage will do with one recipe, before anything starts."""

    stage: Stage
    recipe: str = ""
    """"" if nothing is measured (gate, identity)."""
    rounds: int = 0
    """Number of rounds, as far as known: later stages are planned from the results."""
    tests: int = 0
    """Number of measurements, including repeats."""
    minutes: float = 0.0
    """Estimate of the duration on healthy nodes."""
    bytes: int = 0
    """Estimate of the bytes sent over the network; 0 if it is not known."""
    load: float = 0.0
    """The most that all pairs of a round send together, in Gb/s; 0 if it is not known."""
    commands: tuple[str, ...] = ()
    """Every kind of command of the stage, quoted for a shell, for its first nodes."""
    note: str = ""
    """Why this recipe, or why the stage is skipped."""


class RunPlan(Value, kw_only=True):
    """What the operator agreed to.

    Kept with the run, so that a resumed run is planned in the same way.
    """

    cluster: str
    nodes: tuple[str, ...]
    """The nodes that take part, in the order of the cluster file."""
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> why it does not take part: busy, drained, excluded, no answer."""
    include_busy: tuple[str, ...] = ()
    """Nodes that are measured although they are busy."""
    stages: tuple[StagePlan, ...] = ()
    leaves: Leaves = field(default_factory=dict[str, str])
    seed: int = 0
    repeats: int = 2
    """How often each direction of each pair is measured."""
    seconds: float = 0.0
    """Length of one bandwidth measurement in seconds; 0: the recipe's own."""
    exhaustive: bool = False
    max_crossing: float = 1.0
    """Share of the pairs that may cross leaves at once."""
    link_gbps: float = 0.0
    """Rate of the job network in Gb/s; 0: not known."""
    rdma_gbps: float = 0.0
    """Rate of an RDMA port in Gb/s; 0: none, or not known."""
    node_gbps: float = 0.0
    """Rate of all ports of a node for jobs together, in Gb/s; 0: not known."""
    gpu: str = ""
    """The name of the GPUs, if all nodes have the same; else ""."""
    gpus: int = 0
    """How many GPUs of each node are measured."""
    rails: Mapping[str, Mapping[str, tuple[str, ...]]] = field(
        default_factory=dict[str, Mapping[str, tuple[str, ...]]]
    )
    """Recipe -> node -> device of each rail; a recipe that is not listed has one rail."""
    virtual: tuple[str, ...] = ()
    """Nodes that share one machine; there is no network between them."""
    like: str = ""
    """The job file whose container, environment and options the measurements use; "": none."""
    soak: float = 0.0
    """How long to soak, in seconds; 0: not at all."""
    notes: tuple[str, ...] = ()
    """Sentences on what the run will do to the cluster."""

    def recipes_of(self, *stages: Stage) -> tuple[str, ...]:
        """The recipes of these stages, each once, in the order of the plan."""
        found = (one.recipe for one in self.stages if one.recipe and one.stage in stages)
        return tuple(dict.fromkeys(found))

    @property
    def parts(self) -> list[tuple[Stage, str]]:
        """(stage, recipe) to run, in order.

        Stages that follow from the pairs stage run as part of it.
        """
        own = (Stage.SINGLE, Stage.PAIRS, Stage.GROUPS, Stage.SOAK)
        return [
            (one.stage, one.recipe)
            for one in self.stages
            if one.stage in own and one.recipe and (one.rounds or one.stage is Stage.SOAK)
        ]


class Cell(Value, kw_only=True):
    """All measurements from one node to another with one recipe: a cell of the heat map."""

    sender: str
    receiver: str
    recipe: str
    outcome: Outcome
    """The outcome over all repeats, see `join_outcomes`: measured if any repeat has a value."""
    value: float | None
    """The best repeat, because interference only makes results worse; with
    several rails, that of the slowest rail.
    """
    unit: str
    share: float | None
    """`value` as a share of the median of its population."""
    answer: Answer | None
    """None while nothing is known."""
    results: tuple[Result, ...]
    """The measurements, oldest first."""


class StageView(Value, kw_only=True):
    """One stage and its progress."""

    plan: StagePlan
    progress: RunState
    done: int = 0
    """Measurements that have an outcome."""
    rounds_done: int = 0


class AcceptanceRun(Value, kw_only=True):
    """A run: before it starts (`pending`), while it runs, stopped, or done."""

    id: str
    cluster: str
    operator: str = ""
    started: float = 0.0
    """Epoch seconds; 0: not started."""
    ended: float = 0.0
    """0: not ended."""
    progress: RunState = RunState.PENDING
    plan: RunPlan
    stages: tuple[StageView, ...] = ()
    results: tuple[Result, ...] = ()
    """All measurements, done or running, in the order of rounds; in the
    current round also those that wait.
    """
    judgements: Mapping[str, Judgement] = field(default_factory=dict[str, Judgement])
    """Recipe -> judgement of its pairs so far."""
    verdicts: tuple[Verdict, ...] = ()
    """All faults of pairs, single nodes and groups, the worst first."""
    answers: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    """Node -> its answer over all recipes; nodes that were left out are included."""
    notes: tuple[str, ...] = ()
    """What the operator must know that is not in a verdict."""
    identity: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """Node -> fact -> value."""
    differing: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> how it differs from most others."""
    drift: tuple[Drift, ...] = ()
    """Changes from the declared baseline; empty without a baseline or a change."""
    baseline: str = ""
    """What the run was compared with: "run r1 of 2026-11-22", or why it was not compared."""
    changed: str = ""
    """What changed in the nodes' identity since the baseline."""
    partly_compared: bool = False
    """Whether some values were not compared with the baseline; `baseline` says which and why."""
    excluded: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> why it was excluded during the run."""
    verb: str = "rankdeck accept"
    """How a command about this run begins, so that it works in any folder."""

    @property
    def left_out(self) -> Mapping[str, str]:
        """Node -> why it did not take part, or not until the end."""
        return {**self.plan.left_out, **self.excluded}

    @property
    def accepted(self) -> bool:
        """Whether every node and every planned path is good or fair, and the run is done."""
        parts = (*self.answers.values(), *(one.answer for one in self.verdicts))
        settled = all(not one.open.sides and not one.open.paths for one in self.judgements.values())
        done = self.progress is RunState.DONE and settled and bool(self.answers)
        return done and all(one.accepted for one in parts)

    @property
    def good(self) -> tuple[str, ...]:
        """Nodes that are good or fair."""
        return tuple(node for node, answer in self.answers.items() if answer.accepted)

    @property
    def bad(self) -> tuple[str, ...]:
        """Nodes that ran and are not good."""
        return tuple(node for node, answer in self.answers.items() if answer.bad)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Nodes without a result, including those that were left out."""
        known = {*self.good, *self.bad}
        return tuple(node for node in self.answers if node not in known)

    @property
    def recipes(self) -> tuple[str, ...]:
        """Recipes that measure pairs, in the order of the plan."""
        return self.plan.recipes_of(Stage.PAIRS)


_CABLE = "swap the cable of {first} with that of {other}"
_NO_WIRE = (Answer.NOT_MEASURED, Answer.REFUSED, Answer.WRONG_VALUES)
"""Answers for which a cable cannot be the cause."""
_TO_DO = {
    Kind.NODE: _CABLE,
    Kind.SENDS: _CABLE,
    Kind.RECEIVES: _CABLE,
    Kind.HCA: "swap the cable of this port with that of another port of {first}",
    Kind.PAIR: "put {first} on another switch port",
}
"""What to swap to find the faulty part: the fault moves with the part, or stays."""
_ENOUGH = FEWEST
"""How many nodes to measure again, at least: enough to compare them with each other."""


def next_step(run: AcceptanceRun, verdict: Verdict) -> str:
    """What to try, with the one command that shows whether it helped."""
    if run.progress is not RunState.DONE:
        return ""
    bad = verdict.nodes or verdict.ends
    others = [node for node in run.good if node not in bad]
    wire = verdict.stage is Stage.PAIRS and verdict.answer not in _NO_WIRE and bad and others
    to_do = _TO_DO.get(verdict.kind, "") if wire else ""
    first = f"{to_do.format(first=bad[0], other=others[0])}, then" if to_do else "after the repair:"
    if verdict.answer is Answer.UNSTEADY:
        first = "while nobody else works there:"
    nodes = (*bad, *others)[: max(len(bad), _ENOUGH)] if bad else ()
    return f"{first} `{_command(run, verdict, nodes)}`"


_WITH = {Stage.PAIRS: "pairs,confirm", Stage.SOAK: "groups,soak"}
"""Stage -> the stages that `--only` needs for a sure result."""


def _command(run: AcceptanceRun, verdict: Verdict, nodes: Iterable[str]) -> str:
    """The command that measures these nodes (none: all nodes of the run)
    again, with the options of the run.
    """
    stages = _WITH.get(verdict.stage, verdict.stage.value)
    leaves = ",leaf" if verdict.leaves else ""
    words = [run.verb, ",".join(nodes), f"--only {stages}{leaves}"]
    words += [f"--recipe {verdict.recipe}"] if verdict.recipe else []
    words += [f"--soak {run.plan.soak:.0f}s"] if verdict.stage is Stage.SOAK else []
    words += [f"--seconds {run.plan.seconds:g}"] if run.plan.seconds else []
    words += [f"--like {quote(run.plan.like)}"] if run.plan.like else []
    return " ".join(filter(None, words))


_PARTNERS = 2


def again_command(run: AcceptanceRun, cell: Cell) -> str:
    """The command that measures this pair again."""
    recipe = f" --recipe {cell.recipe}" if len(run.recipes) > 1 else ""
    return f"{run.verb} {cell.sender},{cell.receiver} --only pairs{recipe}"


def once_more(
    run: AcceptanceRun, nodes: Sequence[str], recipe: str
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(recipe, nodes) to measure again: the pair; or for one node its single-node
    tests, then pairs with two good nodes.
    """
    if len(nodes) > 1:
        return ((recipe, tuple(nodes)),)
    (node,) = nodes
    others = [one for one in (*run.good, *run.plan.nodes) if one != node and one not in run.bad]
    partners = list(dict.fromkeys(others))[:_PARTNERS] if recipe else []
    return (
        *((name, (node,)) for name in run.plan.recipes_of(Stage.SINGLE)),
        *((recipe, (node, partner)) for partner in partners),
    )


PAIRWISE = (Stage.PAIRS, Stage.CONFIRM)
"""Stages whose measurements make the cells; those of the leaf
stage disturb each other on purpose.
"""


def measured_cells(run: AcceptanceRun, recipe: str) -> Mapping[tuple[str, str], Cell]:
    """(sender, receiver) -> cell, for all pairs that were measured, run
    now, or wait in the current round.
    """
    found: defaultdict[tuple[str, str], list[Result]] = defaultdict(list)
    for one in run.results:
        if one.recipe == recipe and one.receiver and one.stage in PAIRWISE and not one.port:
            found[one.sender, one.receiver].append(one)
    return {path: _cell(run, path, results) for path, results in found.items()}


_FINAL = (Outcome.MEASURED, Outcome.FAILED, Outcome.REFUSED, Outcome.NOT_MEASURED)


def join_outcomes(results: Iterable[Result]) -> Outcome:
    """The outcome of several measurements of the same path: running first,
    then measured, then what went wrong.
    """
    all_of = [one.outcome for one in results]
    order = (Outcome.RUNNING, *_FINAL, Outcome.EXCLUDED)
    return next((one for one in order if one in all_of), Outcome.PENDING)


def _of_few(run: AcceptanceRun, path: tuple[str, str]) -> Answer | None:
    """The answer for a path if there are fewer than four nodes, which are no population: that
    of its worse node, None before they are judged.
    """
    known = [run.answers[node] for node in path if node in run.answers]
    return next((one for one in known if not one.accepted), known[0] if known else None)


def _of_rails(results: Iterable[Result]) -> float | None:
    """The best repeat of the slowest rail."""
    best: dict[int, float] = {}
    for one in results:
        if one.value is not None:
            best[one.rail] = max(best.get(one.rail, 0.0), one.value)
    return min(best.values(), default=None)


def _cell(run: AcceptanceRun, path: tuple[str, str], results: list[Result]) -> Cell:
    judgement = run.judgements.get(results[0].recipe)
    best = _of_rails(results)
    share, answer = None, None
    if judgement and best is not None and (normal := judgement.population_of(*path)):
        few = len(run.plan.nodes) < FEWEST
        share, answer = best / normal.median, _of_few(run, path) if few else normal.answer(best)
        if few or (answer and answer.accepted):
            answer = judgement.flaws.get(path, answer)
    if answer in (Answer.SLOW, Answer.UNSTEADY) and set(path) <= set(run.plan.virtual):
        answer = Answer.FAIR  # nodes of one machine: their speed says little, see `judge`
    outcome = join_outcomes(results)
    if answer is None and outcome in (Outcome.FAILED, Outcome.REFUSED, Outcome.NOT_MEASURED):
        answer = Answer(outcome)
    return Cell(
        sender=path[0],
        receiver=path[1],
        recipe=results[0].recipe,
        outcome=outcome,
        value=best,
        unit=next((one.unit for one in results if one.unit), ""),
        share=share,
        answer=answer,
        results=tuple(results),
    )


class Request(Value, kw_only=True):
    """What the operator wants to measure."""

    nodes: tuple[str, ...] = ()
    """Nodes to measure; (): all nodes of the cluster."""
    begin: Stage | None = None
    """First stage to run after gate and identity; earlier stages are left out. None: all."""
    only: tuple[Stage, ...] = ()
    """Just these; empty: all."""
    recipes: tuple[str, ...] = ()
    """Just these; empty: by what the nodes have."""
    include_busy: tuple[str, ...] = ()
    """Nodes that take part although they are busy."""
    exhaustive: bool = False
    """Measure all pairs, however many nodes there are."""
    repeats: int = 2
    """How often to measure each direction of each pair."""
    seconds: float = 0.0
    """Length of one bandwidth measurement in seconds; 0: the recipe's own."""
    like: str = ""
    """A job file whose container, environment, MPI and options the measurements use; "": none."""
    max_crossing: float = 1.0
    """Share of the pairs that may cross leaves at once."""
    rails: tuple[str, ...] = ()
    """RDMA devices or interfaces to measure as separate rails; (): the
    RDMA devices, if a node has several.
    """
    soak: float = 0.0
    """For how many seconds to measure the largest group repeatedly; 0: not at all."""


class MeasurementSource(Protocol):
    """Gives commands and outputs of measurements."""

    def commands(self, run: AcceptanceRun, result: Result) -> tuple[str, ...]:
        """The commands of one measurement, quoted for a shell."""
        ...

    def raw(self, result: Result, most: int = 1 << 20) -> str:
        """The output of a measurement, made safe to show, at most
        `most` characters; "" if it is gone.
        """
        ...


class AcceptanceProtocol(MeasurementSource, Protocol):
    """Acceptance of one open cluster. All methods are called on the event loop."""

    @property
    def current(self) -> AcceptanceRun | None:
        """The run that was planned or started here, as it is now; None if there is none.

        A new object after each change.
        """
        ...

    async def plan(self, request: Request) -> AcceptanceRun:
        """Ask the nodes for their hardware and programs, and plan the run; nothing is measured.

        The plan becomes `current`, in state `pending`. Raises
        RankdeckError if nothing can be planned.
        """
        ...

    async def start(self) -> AcceptanceRun:
        """Run `current`, or continue it if it was stopped; returns the run when it has ended.

        Cancelling this coroutine does what `stop` does. Raises RankdeckError.
        """
        ...

    async def stop(self) -> tuple[str, ...]:
        """Cancel all measurements and verify it; returns a sentence for each process left.

        The run can be resumed.
        """
        ...

    def exclude(self, node: str, why: str, until: float, run: str) -> None:
        """Keep jobs away from a node until `until` (epoch seconds) because of `run`;
        a run in progress continues without it.

        Raises HistoryError if that cannot be saved.
        """
        ...

    def readmit(self, node: str) -> None:
        """Undo `exclude`; raises HistoryError."""
        ...

    def excluded(self) -> Mapping[str, str]:
        """Node -> why and until when jobs are kept away from it."""
        ...

    async def again(self, nodes: Sequence[str], recipe: str) -> None:
        """Measure a pair or one node again, see `once_more`; during a run, after the current round.

        Raises RankdeckError, before anything is measured, if one of the
        nodes is busy or does not answer.
        """
        ...

    def runs(self) -> tuple[AcceptanceRun, ...]:
        """The saved runs of the cluster, newest first, without their results."""
        ...

    def open(self, run: str) -> AcceptanceRun:
        """A saved run with all results. Raises RankdeckError for an unknown id."""
        ...

    def resume(self, run: str) -> AcceptanceRun:
        """Make a stopped run `current`, so that `start` continues it. Raises RankdeckError."""
        ...


def acceptance_plan_json(plan: RunPlan) -> str:
    """The plan as JSON."""
    return json.dumps(value_table(plan), sort_keys=True)


def plan_hash(plan: RunPlan) -> str:
    """A hash of the plan, twelve characters."""
    return hashlib.sha256(acceptance_plan_json(plan).encode()).hexdigest()[:12]


def read_plan(text: str) -> RunPlan:
    """The plan in the JSON of `acceptance_plan_json`; raises
    ValueError if that is something else.
    """
    try:
        found: dict[str, Any] = json.loads(text)
        stages = tuple(_stage_plan(one) for one in found.pop("stages"))
        nodes, notes = tuple(found.pop("nodes")), tuple(found.pop("notes"))
        rails = {
            recipe: {node: tuple(ports) for node, ports in of.items()}
            for recipe, of in found.pop("rails", {}).items()
        }
        busy, virtual = tuple(found.pop("include_busy", ())), tuple(found.pop("virtual", ()))
        return RunPlan(
            **found,
            nodes=nodes,
            notes=notes,
            stages=stages,
            rails=rails,
            include_busy=busy,
            virtual=virtual,
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not the plan of a run: {error}") from error


def _stage_plan(one: dict[str, Any]) -> StagePlan:
    stage, commands = Stage(one.pop("stage")), tuple(one.pop("commands"))
    return StagePlan(**one, stage=stage, commands=commands)
