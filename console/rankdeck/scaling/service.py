"""Scaling studies of one open cluster: plans them, runs them, keeps them."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rankdeck import plugins
from rankdeck.acceptance.measure import MeasureSession
from rankdeck.acceptance.recipe import Recipe
from rankdeck.acceptance.series import JobSeries
from rankdeck.backends.launchers import exclude_nodes
from rankdeck.backends.plan_options import new_series_id
from rankdeck.config.files import command_of
from rankdeck.config.user import operator_name
from rankdeck.errors import LaunchError, RankdeckError, UnknownRunError
from rankdeck.model.job_spec import JobSpec
from rankdeck.model.nodeset import expand_nodes
from rankdeck.scaling.judge import judge_study
from rankdeck.scaling.planning import ScaleRequest, ScalingError, hash_job, job_of, plan_study
from rankdeck.scaling.store import KeptStudy, ScalingStudies
from rankdeck.scaling.study import Study, StudyState
from rankdeck.scaling.trial import run_trial
from rankdeck.scaling.values import StudyPlan, Trial, TrialOutcome
from rankdeck.values import replace


class Scaling:
    """Implements `ScalingProtocol`; see `scaling/study.py` for the methods."""

    def __init__(self, session: MeasureSession, store: ScalingStudies) -> None:
        self._session, self.store = session, store
        self._head: KeptStudy | None = None
        self._trials: tuple[Trial, ...] = ()
        self._progress = StudyState.PENDING
        self._running = ""
        self._series = JobSeries(session, "study")
        self._view: Study | None = None
        self.changed: Callable[[], None] = lambda: None
        """Called without arguments whenever `current` changed; may be replaced."""

    # ---- plan

    async def plan(self, request: ScaleRequest) -> Study:
        """Plan a study; no job is started."""
        self._series.refuse_while_running()
        session, cluster = self._session, self._session.cluster
        spec = session.control.read_job(Path(request.file))
        out = session.control.find_excluded()
        chosen = expand_nodes(request.on) if request.on else spec.on
        free = () if session.cluster.can.chooses_nodes else (node.name for node in cluster.nodes)
        names = chosen or tuple(name for name in free if name not in out)
        if named := [name for name in chosen if name in out]:
            raise LaunchError("plan", f"`{named[0]}` is {out[named[0]]}")
        if not names and not session.cluster.can.chooses_nodes:
            raise ScalingError(f"no node of `{cluster.name}` may be used: all are excluded")
        plan = plan_study(request, cluster, spec, names)
        plan = _with_reader(plan)
        await self._series.look_around()
        plan = replace(plan, notes=(*plan.notes, *self._others(plan, out)))
        name = new_series_id("s")
        self._head = KeptStudy(id=name, plan=plan, started=0.0, operator=operator_name())
        self._trials, self._progress = (), StudyState.PENDING
        return self._touch()

    def _others(self, plan: StudyPlan, out: Mapping[str, str]) -> list[str]:
        """Sentences on what else runs on the nodes, and on nodes that are left out."""
        busy = [
            f"{job} runs on {node}: it takes from what is measured"
            for job, node in self._series.jobs_on(plan.nodes)
        ]
        return [*busy[:3], *(f"{node} is {why}" for node, why in list(out.items())[:3])]

    # ---- run

    async def start(self) -> Study:
        """Run `current`, or continue it if it was stopped; returns it when it has ended."""
        self._series.refuse_while_running()
        if self._head is None:
            raise RankdeckError("nothing is planned")
        head = self._head
        spec = self._session.control.read_job(Path(head.plan.file))
        if hash_job(spec) != head.plan.spec:
            raise RankdeckError(
                f"{head.plan.file} has changed since {head.id} began: start a new study"
            )
        if not head.started:
            head = self._head = replace(head, started=time.time())
            self.store.begin(head)
        ended = StudyState.STOPPED
        try:
            if await self._carry_out(head, spec):
                ended = StudyState.DONE
        finally:
            self._progress, self._running = ended, ""
            self._head = replace(head, state=ended.value, ended=time.time())
            self.store.end(head.id, ended.value, self._head.ended)
            self._touch()
        return self._shown()

    async def _carry_out(self, head: KeptStudy, spec: JobSpec) -> bool:
        """Run what is left; returns whether it came to its end, False if it was stopped."""
        self._progress = StudyState.RUNNING
        self._touch()
        return await self._series.carry_out(self._go(head, spec))

    async def _go(self, head: KeptStudy, spec: JobSpec) -> None:
        await self._series.end_earlier(head.id)
        plan, done = head.plan, {(one.block, one.point) for one in self._trials}
        for block, place in plan.order:
            if (block, place) in done:
                continue
            if why := self._hopeless(plan, block):
                raise RankdeckError(why)
            await self._series.prove_clean()
            self._running = f"block {block + 1}, {plan.points[place].label}"
            self._touch()
            trial = replace(await self._trial(head, spec, place), point=place, block=block)
            self.store.add(head.id, trial)
            self._trials = (*self._trials, trial)
            self._running = ""
            self._touch()

    async def _trial(self, head: KeptStudy, spec: JobSpec, place: int) -> Trial:
        cluster, plan = self._session.cluster, head.plan
        try:
            wanted = job_of(spec, plan.points[place], plan.nodes, head.id)
            wanted = exclude_nodes(cluster, wanted, self._session.control.find_excluded())
        except (ScalingError, LaunchError) as error:
            return Trial(point=0, block=0, outcome=TrialOutcome.NOT_STARTED, text=str(error))
        if why := self._series.why_not_free(wanted.on):
            return Trial(point=0, block=0, outcome=TrialOutcome.NOT_STARTED, text=why)
        trial, left = await run_trial(self._session, plan, wanted, cluster.environment)
        self._series.remember(trial.job, left)
        return trial

    def _hopeless(self, plan: StudyPlan, block: int) -> str:
        """Why the study cannot give anything: no run of a whole block had a result; else ""."""
        if block == 0 or any(one.outcome is TrialOutcome.MEASURED for one in self._trials):
            return ""
        last = self._trials[-1]
        return f"no run of a whole block gave a result, the study ends: {last.outcome}: {last.text}"

    async def stop(self) -> tuple[str, ...]:
        """Cancel the run and verify it; returns a sentence for each process left."""
        return await self._series.stop(self._head.id if self._head else "")

    # ---- what is kept

    @property
    def current(self) -> Study | None:
        """The study that was planned, started or opened to go on; None if there is none."""
        return self._view

    def studies(self) -> tuple[Study, ...]:
        """The kept studies of the cluster, newest first, with their results."""
        heads = self.store.studies(self._session.cluster.name)
        return tuple(self._value(head, self.store.trials(head.id)) for head in heads)

    def open(self, study: str, number: str = "") -> Study:
        """A kept study, judged by this number."""
        if self._head is not None and study == self._head.id:
            return self._value(self._head, self._trials, number)
        head = self._find(study)
        return self._value(head, self.store.trials(head.id), number)

    def resume(self, study: str) -> Study:
        """Make a stopped study `current`, so that `start` continues it."""
        self._series.refuse_while_running()
        head = self._find(study)
        self._head, self._trials = head, self.store.trials(head.id)
        self._progress = StudyState.DONE if head.state == "done" else StudyState.STOPPED
        return self._touch()

    def _find(self, study: str) -> KeptStudy:
        heads = self.store.studies(self._session.cluster.name)
        found = [one for one in heads if one.id == study] or [
            one for one in heads if study and one.id.startswith(study)
        ]
        if len(found) != 1:
            known = ", ".join(one.id for one in heads[:5]) or "none"
            what = "several studies begin with" if found else "no study"
            raise UnknownRunError(
                f"{what} `{study[:60]}` of {self._session.cluster.name}; there are: {known}"
            )
        return found[0]

    # ----

    def _touch(self) -> Study:
        assert self._head is not None
        self._view = self._value(self._head, self._trials)
        self.changed()
        return self._view

    def _shown(self) -> Study:
        assert self._view is not None
        return self._view

    def _value(self, head: KeptStudy, trials: tuple[Trial, ...], number: str = "") -> Study:
        own = self._head is not None and head.id == self._head.id
        if number and (trials and not any(number in one.numbers for one in trials)):
            there = (
                ", ".join(dict.fromkeys(name for one in trials for name in one.numbers)) or "none"
            )
            raise UnknownRunError(f"{head.id} has no number `{number[:60]}`; there are: {there}")
        judged = judge_study(head.plan, trials, number)
        kept = StudyState.DONE if head.state == "done" else StudyState.STOPPED
        return Study(
            id=head.id,
            plan=head.plan,
            operator=head.operator,
            started=head.started,
            ended=head.ended,
            progress=self._progress if own else kept,
            trials=trials,
            running=self._running if own else "",
            number=judged.number,
            unit=judged.unit,
            lower_is_better=judged.lower_is_better,
            offered=judged.offered,
            curves=judged.curves,
            verdicts=judged.verdicts,
            verb=command_of("scale", self._session.cluster.file),
        )


def _with_reader(plan: StudyPlan) -> StudyPlan:
    """The plan with the recipe that its number names, if it names one."""
    if plan.number not in plugins.plugin_names("recipes"):
        return plan
    recipe: Recipe = plugins.find_plugin("recipes", plan.number)()
    return replace(plan, reader=plan.number, lower_is_better=recipe.traits.lower_is_better)
