"""Scaling studies as front ends get them: the real judge on runs that follow a law."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rankdeck.errors import UnknownRunError
from rankdeck.scaling.judge import judge_study
from rankdeck.scaling.planning import ScaleRequest
from rankdeck.scaling.study import Study, StudyState
from rankdeck.scaling.values import WALL, ScalePoint, Signs, StudyPlan, Trial, TrialOutcome
from rankdeck.values import replace

START = 1_700_000_000.0
Law = Callable[[ScalePoint, int], Mapping[str, float] | str]
"""(point, block) -> the numbers of that run, or why it failed."""


def point(ranks: int, **values: str) -> ScalePoint:
    each = min(ranks, 4)
    return ScalePoint(ranks=ranks, nodes=-(-ranks // 4), ranks_per_node=each, values=values)


def plan_of(*points: ScalePoint, **more: object) -> StudyPlan:
    fields = {
        "cluster": "lab",
        "job": "stencil",
        "file": "stencil.yaml",
        "nodes": ("n1", "n2"),
        **more,
    }
    return StudyPlan(points=points, **fields)  # type: ignore[arg-type]


def amdahl(share: float, seconds: float = 100.0) -> Law:
    """A program of which this share is serial."""
    return lambda one, _: {WALL: seconds * (share + (1 - share) / one.ranks)}


def trials_of(
    plan: StudyPlan, law: Law, signs: Callable[[ScalePoint], Signs] | None = None
) -> tuple[Trial, ...]:
    found: list[Trial] = []
    for number, (block, place) in enumerate(plan.order):
        said = law(plan.points[place], block)
        seen = signs(plan.points[place]) if signs else Signs()
        base = Trial(
            point=place,
            block=block,
            outcome=TrialOutcome.MEASURED,
            job=f"stencil-{number}",
            at=START + number,
            signs=seen,
        )
        if isinstance(said, str):
            found.append(replace(base, outcome=TrialOutcome.FAILED, text=said))
        else:
            found.append(replace(base, numbers=said))
    return tuple(found)


def made_study(
    plan: StudyPlan, trials: Sequence[Trial] = (), number: str = "", **more: object
) -> Study:
    judged = judge_study(plan, trials, number)
    study = Study(
        id="s1", plan=plan, operator="ann", started=START, ended=START + 150, progress=StudyState.DONE,
        trials=tuple(trials), number=judged.number, unit=judged.unit, lower_is_better=judged.lower_is_better,
        offered=judged.offered, curves=judged.curves, verdicts=judged.verdicts,
    )  # fmt: skip
    return replace(study, **more)  # type: ignore[arg-type]


def planned() -> Study:
    plan = plan_of(
        *map(point, (1, 2, 4, 8)), notes=("stencil-7 runs on n1: it takes from what is measured",)
    )
    return made_study(plan, started=0.0, ended=0.0, progress=StudyState.PENDING)


def falling() -> Study:
    """Eight ranks do not pay, because the cores are full; one run failed."""
    plan = plan_of(*map(point, (1, 2, 4, 8)))

    def law(one: ScalePoint, block: int) -> Mapping[str, float] | str:
        if one.ranks == 4 and block == 1:
            return "rank 2 on n1, exit 3"
        speed = 100.0 * one.ranks / (1 + 0.02 * (one.ranks - 1) ** 2) * (1 + 0.01 * block)
        return {"mflops": speed, "gosa": 1e-4, WALL: 12.0}

    full = Signs(looks=40, own=0.9, waits=0.6, busy=98.0, cores=4)
    calm = Signs(looks=40, own=1.0, waits=0.02, busy=26.0, cores=4)
    return made_study(plan, trials_of(plan, law, lambda one: full if one.ranks > 4 else calm))


@dataclass
class ScalingPort:
    """The studies of a session without machines."""

    current: Study | None = None
    kept: list[Study] = field(default_factory=list)
    asked: list[ScaleRequest] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    stops: int = 0
    left: tuple[str, ...] = ()
    changed: Callable[[], None] = lambda: None

    async def plan(self, request: ScaleRequest) -> Study:
        self.asked.append(request)
        self.current = planned()
        return self.current

    async def start(self) -> Study:
        assert self.current is not None
        self.started.append(self.current.id)
        self.current = replace(falling(), id=self.current.id)
        return self.current

    async def stop(self) -> tuple[str, ...]:
        self.stops += 1
        assert self.current is not None
        self.current = replace(self.current, progress=StudyState.STOPPED, running="")
        return self.left

    def studies(self) -> tuple[Study, ...]:
        return tuple(self.kept)

    def open(self, study: str, number: str = "") -> Study:
        del number
        found = [one for one in self.kept if one.id == study]
        if not found:
            raise UnknownRunError(f"no study `{study}`")
        return found[0]

    def resume(self, study: str) -> Study:
        self.current = self.open(study)
        return self.current
