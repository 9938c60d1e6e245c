"""One acceptance run as front ends show it, how it differs from the baseline, and what they may ask of `Session.acceptance`. Pure."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from shlex import quote
from statistics import median
from typing import Any, Protocol

from rankdeck.acceptance.judge import Judgement
from rankdeck.acceptance.leaves import Leaves
from rankdeck.model.acceptance import FEWEST, Answer, Kind, Outcome, Result, Stage, Verdict
from rankdeck.model.nodeset import fold
from rankdeck.model.text import figures

_MADS, _LEAST = 3.0, 0.03
"""A subject drifts by more than three median deviations of then, and by more than 3 %."""
_SIGN = 0.9
"""Share of the subjects that must be on one side for the whole cluster to have moved."""
_FEWEST = 4


@dataclass(frozen=True, slots=True)
class BaselineValue:
    """What was declared of one subject."""

    median: float
    mad: float


@dataclass(frozen=True, slots=True)
class Drift:
    """One subject that moved, or the whole."""

    subject: str
    """A node or a path; "" for the whole cluster."""
    change: float
    """Share of what it was: -0.06 is 6 % less."""
    sentence: str


def drifts(
    now: Mapping[str, float], then: Mapping[str, BaselineValue], changed: str = "", unit: str = ""
) -> tuple[Drift, ...]:
    """The whole cluster first, then each subject that moved; subjects of only one side are not compared.

    `changed` is what `changed_since` says; it stands in every sentence.
    """
    both = {
        name: (value, then[name])
        for name, value in now.items()
        if name in then and then[name].median > 0
    }
    shares = {name: value / normal.median - 1 for name, (value, normal) in both.items()}
    more = f"; changed since: {changed}" if changed else ""
    single = tuple(
        Drift(name, shares[name], f"{name}: {figures(value, 3)} {unit}".rstrip() + f", was {figures(normal.median, 3)} ({_percent(shares[name])}){more}")
        for name, (value, normal) in both.items()
        if abs(value - normal.median) > max(_MADS * normal.mad, _LEAST * normal.median)
    )  # fmt: skip
    return (*_whole(shares, more), *single)


def _whole(shares: Mapping[str, float], more: str) -> tuple[Drift, ...]:
    """A sign test: nine in ten on one side, also where each change is small."""
    lower = sum(1 for share in shares.values() if share < 0)
    higher = sum(1 for share in shares.values() if share > 0)
    most = max(lower, higher)
    if len(shares) < _FEWEST or most < _SIGN * len(shares):
        return ()
    change = median(shares.values())
    return (Drift("", change, f"{_percent(change)} on {most} of {len(shares)}{more}"),)


def _percent(share: float) -> str:
    return f"{share:+.1%}".replace("%", " %").replace("-", "−")


def changed_since(
    now: Mapping[str, Mapping[str, str]], then: Mapping[str, Mapping[str, str]]
) -> str:
    """What is different about the nodes, most useful line of a report: `driver 550.90 → 570.12 on n[1-16]`.

    Both are node -> fact -> value; nodes and facts of only one side are left out.
    """
    moved: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for node in sorted(set(now) & set(then)):
        for fact in sorted(set(now[node]) & set(then[node])):
            before, after = then[node][fact], now[node][fact]
            if before != after:
                moved[fact, before, after].append(node)
    return ", ".join(_said(key, nodes) for key, nodes in sorted(moved.items()))


def _said(key: tuple[str, str, str], nodes: Sequence[str]) -> str:
    fact, before, after = key
    return f"{fact} {before} → {after} on {fold(nodes)}"


class RunState(StrEnum):
    """The state of a run, a stage or a round."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    """Nothing of it applies here: the note says why."""
    STOPPED = "stopped"
    """The operator stopped it, or the console was killed; it can be resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """What one stage will do with one recipe, before anything starts."""

    stage: Stage
    recipe: str = ""
    """"" if nothing is measured (gate, identity)."""
    rounds: int = 0
    """As far as known: later stages are planned from the results."""
    tests: int = 0
    """Measurements of it, repeats counted."""
    minutes: float = 0.0
    """About, on healthy nodes."""
    bytes: int = 0
    """About, moved over the network; 0 if it is not known."""
    load: float = 0.0
    """Gb/s that all pairs of a round move at most at once; 0 if it is not known."""
    commands: tuple[str, ...] = ()
    """Every kind of command of the stage, as a shell would take it, for the first nodes of it."""
    note: str = ""
    """Why this recipe, or why the stage is skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What was agreed to: kept with the run, so that a resumed one plans as the first did."""

    cluster: str
    nodes: tuple[str, ...]
    """Those that take part, in the order of the cluster file."""
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> why it takes no part: busy, drained, excluded, no answer."""
    include_busy: tuple[str, ...] = ()
    """Nodes that are measured although they are busy."""
    stages: tuple[StagePlan, ...] = ()
    leaves: Leaves = field(default_factory=dict[str, str])
    seed: int = 0
    repeats: int = 2
    """Of each direction of each pair."""
    seconds: float = 0.0
    """Of one measurement of bandwidth; 0: the recipe's own."""
    exhaustive: bool = False
    max_crossing: float = 1.0
    """Share of the pairs that may cross leaves at once."""
    link_gbps: float = 0.0
    """Rate of the job network; 0: not known."""
    rdma_gbps: float = 0.0
    """Rate of the RDMA ports; 0: none, or not known."""
    node_gbps: float = 0.0
    """Of all ports for jobs of a node together; 0: not known."""
    gpu: str = ""
    """The name of the GPUs, where all nodes have the same."""
    gpus: int = 0
    """GPUs of a node that are measured."""
    rails: Mapping[str, Mapping[str, tuple[str, ...]]] = field(
        default_factory=dict[str, Mapping[str, tuple[str, ...]]]
    )
    """Recipe -> node -> its device for each rail; a recipe that is not here has one rail."""
    virtual: tuple[str, ...] = ()
    """Nodes that are one machine: what is between them is no network."""
    like: str = ""
    """The job file whose container, environment and options the measurements have."""
    soak: float = 0.0
    """Seconds."""
    notes: tuple[str, ...] = ()
    """What will happen to the cluster, a sentence each."""

    @property
    def parts(self) -> list[tuple[Stage, str]]:
        """(stage, recipe) that are carried out, in order; what follows from pairs is done with them."""
        own = (Stage.SINGLE, Stage.PAIRS, Stage.GROUPS, Stage.SOAK)
        return [
            (one.stage, one.recipe)
            for one in self.stages
            if one.stage in own and one.recipe and (one.rounds or one.stage is Stage.SOAK)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """All measurements from one node to another with one recipe: a cell of the heat map."""

    sender: str
    receiver: str
    recipe: str
    outcome: Outcome
    """Of the newest measurement that has one; a value of any repeat makes it measured."""
    value: float | None
    """The best repeat, because interference only lowers; of several rails the slowest one."""
    unit: str
    share: float | None
    """Of the median of its population."""
    answer: Answer | None
    """None while nothing is known."""
    results: tuple[Result, ...]
    """Oldest first, with their raw outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """One stage now."""

    plan: StagePlan
    progress: RunState
    done: int = 0
    """Measurements that have an outcome."""
    rounds_done: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceRun:
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
    """Everything measured or running, in the order of rounds; of the round that runs also what is pending."""
    judgements: Mapping[str, Judgement] = field(default_factory=dict[str, Judgement])
    """Recipe -> what its pairs say so far."""
    verdicts: tuple[Verdict, ...] = ()
    """All faults, worst first: of pairs, single nodes and groups."""
    answers: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    """Node -> its answer over all recipes, also of those left out."""
    notes: tuple[str, ...] = ()
    """What the operator must know and no verdict says."""
    identity: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """Node -> fact -> value."""
    differing: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> what it has and most others have not."""
    drift: tuple[Drift, ...] = ()
    """Changes from the declared baseline; empty without a baseline or a change."""
    baseline: str = ""
    """What was compared with: "run r1 of 2026-11-22", or why nothing was."""
    changed: str = ""
    """What of the identity changed since the baseline."""
    excluded: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> why it was taken out while the run went on."""
    verb: str = "rankdeck accept"
    """How a command about it begins, in whatever folder it is typed."""

    @property
    def left_out(self) -> Mapping[str, str]:
        """Node -> why it took no part, or not to the end."""
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
        """Nodes of which nothing was learned, those left out among them."""
        known = {*self.good, *self.bad}
        return tuple(node for node in self.answers if node not in known)

    @property
    def recipes(self) -> tuple[str, ...]:
        """Recipes that measured pairs, or will."""
        planned = (one.recipe for one in self.plan.stages if one.stage is Stage.PAIRS)
        return tuple(dict.fromkeys(name for name in planned if name))


_CABLE = "swap the cable of {first} with that of {other}"
_NO_WIRE = (Answer.NOT_MEASURED, Answer.REFUSED, Answer.WRONG_VALUES)
"""Answers that no cable explains."""
_TO_DO = {
    Kind.NODE: _CABLE,
    Kind.SENDS: _CABLE,
    Kind.RECEIVES: _CABLE,
    Kind.HCA: "swap the cable of this port with that of another port of {first}",
    Kind.PAIR: "put {first} on another switch port",
}
"""What tells the parts apart that a verdict leaves in doubt: the fault moves along, or stays."""
_ENOUGH = FEWEST
"""Nodes that are measured again: so many can be compared with each other."""


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
"""Stage -> the stages of `--only` without which it says nothing for sure."""


def _command(run: AcceptanceRun, verdict: Verdict, nodes: Iterable[str]) -> str:
    """Measures these again, or all of the run, as it was measured."""
    stages = _WITH.get(verdict.stage, verdict.stage.value)
    leaves = ",leaf" if verdict.leaves else ""
    words = [run.verb, ",".join(nodes), f"--only {stages}{leaves}"]
    words += [f"--recipe {verdict.recipe}"] if verdict.recipe else []
    words += [f"--soak {run.plan.soak:.0f}s"] if verdict.stage is Stage.SOAK else []
    words += [f"--seconds {run.plan.seconds:g}"] if run.plan.seconds else []
    words += [f"--like {quote(run.plan.like)}"] if run.plan.like else []
    return " ".join(filter(None, words))


_PARTNERS = 2


def once_more(
    run: AcceptanceRun, nodes: Sequence[str], recipe: str
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(recipe, nodes) to measure again: a pair, or of one node what it did alone, then pairs with two good nodes."""
    if len(nodes) > 1:
        return ((recipe, tuple(nodes)),)
    (node,) = nodes
    alone = [one.recipe for one in run.plan.stages if one.stage is Stage.SINGLE and one.recipe]
    others = [one for one in (*run.good, *run.plan.nodes) if one != node and one not in run.bad]
    partners = list(dict.fromkeys(others))[:_PARTNERS] if recipe else []
    return (
        *((name, (node,)) for name in dict.fromkeys(alone)),
        *((recipe, (node, partner)) for partner in partners),
    )


PAIRWISE = (Stage.PAIRS, Stage.CONFIRM)
"""Stages whose measurements make the cells: those of the leaf stage disturb each other on purpose."""


def cells(run: AcceptanceRun, recipe: str) -> Mapping[tuple[str, str], Cell]:
    """(sender, receiver) -> cell, for what was measured, runs, or comes in this round."""
    found: defaultdict[tuple[str, str], list[Result]] = defaultdict(list)
    for one in run.results:
        if one.recipe == recipe and one.receiver and one.stage in PAIRWISE and not one.port:
            found[one.sender, one.receiver].append(one)
    return {path: _cell(run, path, results) for path, results in found.items()}


_FINAL = (Outcome.MEASURED, Outcome.FAILED, Outcome.REFUSED, Outcome.NOT_MEASURED)


def outcome_of(results: Iterable[Result]) -> Outcome:
    """Of several measurements of the same path: running wins, then a value, then what went wrong."""
    all_of = [one.outcome for one in results]
    order = (Outcome.RUNNING, *_FINAL, Outcome.EXCLUDED)
    return next((one for one in order if one in all_of), Outcome.PENDING)


def _of_few(run: AcceptanceRun, path: tuple[str, str]) -> Answer | None:
    """Fewer than four nodes are no population: a path is as its nodes were judged, None before that."""
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
        answer = Answer.FAIR  # nodes of one machine: what else ran there, as the judge says
    outcome = outcome_of(results)
    if answer is None and outcome in (Outcome.FAILED, Outcome.REFUSED, Outcome.NOT_MEASURED):
        answer = Answer(outcome)
    return Cell(
        sender=path[0], receiver=path[1], recipe=results[0].recipe, outcome=outcome, value=best,
        unit=next((one.unit for one in results if one.unit), ""), share=share, answer=answer, results=tuple(results),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the operator asks for."""

    nodes: tuple[str, ...] = ()
    """Empty: all of the cluster."""
    begin: Stage | None = None
    """First stage after gate and identity; earlier ones are left out."""
    only: tuple[Stage, ...] = ()
    """Just these; empty: all."""
    recipes: tuple[str, ...] = ()
    """Just these; empty: by what the nodes have."""
    include_busy: tuple[str, ...] = ()
    """Nodes that take part although they are busy."""
    exhaustive: bool = False
    """All pairs of any number of nodes."""
    repeats: int = 2
    """Measurements of each direction of each pair."""
    seconds: float = 0.0
    """Of one measurement of bandwidth; 0: the recipe's own."""
    like: str = ""
    """A job file: container, environment, MPI and options of the measurements are those of this job."""
    max_crossing: float = 1.0
    """Share of the pairs that may cross leaves at once."""
    rails: tuple[str, ...] = ()
    """RDMA devices or interfaces of equal index, each measured for itself; empty: the RDMA devices, where there are several."""
    soak: float = 0.0
    """Seconds that the largest group is measured again and again; 0: not at all."""


class AcceptanceProtocol(Protocol):
    """Acceptance of one open cluster. All methods are called on the event loop."""

    @property
    def current(self) -> AcceptanceRun | None:
        """The run that was planned or started here, as it is now: another object whenever it changed."""
        ...

    async def plan(self, request: Request) -> AcceptanceRun:
        """Ask the nodes what they are and have, and say what would be done; nothing is measured.

        It becomes `current`, `pending`. Raises RankdeckError where nothing can be planned.
        """
        ...

    async def start(self) -> AcceptanceRun:
        """Carry out `current`, or continue it where it was stopped; returns it once it has ended.

        Cancelling this does what `stop` does. Raises RankdeckError.
        """
        ...

    async def stop(self) -> tuple[str, ...]:
        """Cancel everything that runs, with proof; what is left, a sentence each. The run can be resumed."""
        ...

    def exclude(self, node: str, why: str, until: float, run: str) -> None:
        """Keep jobs away from a node until then, epoch seconds, because of this run; one that goes on goes on without it.

        Raises HistoryError where that cannot be kept.
        """
        ...

    def readmit(self, node: str) -> None:
        """Take `exclude` back. Raises HistoryError."""
        ...

    def excluded(self) -> Mapping[str, str]:
        """Node -> why jobs are kept away from it, and how long."""
        ...

    async def again(self, nodes: Sequence[str], recipe: str) -> None:
        """Measure a pair, or one node, once more, as `once_more` says; where a run goes on, after its round.

        Raises RankdeckError, before anything is measured, where one of the nodes is busy or does not answer.
        """
        ...

    def runs(self) -> tuple[AcceptanceRun, ...]:
        """The kept runs of the cluster, newest first, without their results."""
        ...

    def open(self, run: str) -> AcceptanceRun:
        """A kept run with everything; nothing is measured again. Raises RankdeckError for an unknown id."""
        ...

    def resume(self, run: str) -> AcceptanceRun:
        """Make a stopped run `current`, so that `start` goes on with it. Raises RankdeckError."""
        ...

    def commands(self, run: AcceptanceRun, result: Result) -> tuple[str, ...]:
        """The commands of one measurement, as a shell would take them."""
        ...

    def raw(self, result: Result, most: int = 1 << 20) -> str:
        """The whole output of a measurement, safe to show, at most so many characters; "" if it is gone."""
        ...


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
        stages = tuple(_stage_plan(one) for one in found.pop("stages"))
        nodes, notes = tuple(found.pop("nodes")), tuple(found.pop("notes"))
        rails = {
            recipe: {node: tuple(ports) for node, ports in of.items()}
            for recipe, of in found.pop("rails", {}).items()
        }
        busy, virtual = tuple(found.pop("include_busy", ())), tuple(found.pop("virtual", ()))
        return RunPlan(
            **found, nodes=nodes, notes=notes, stages=stages, rails=rails,
            include_busy=busy, virtual=virtual,
        )  # fmt: skip
    except (KeyError, TypeError) as error:
        raise ValueError(f"not the plan of a run: {error}") from error


def _stage_plan(one: dict[str, Any]) -> StagePlan:
    stage, commands = Stage(one.pop("stage")), tuple(one.pop("commands"))
    return StagePlan(**one, stage=stage, commands=commands)
