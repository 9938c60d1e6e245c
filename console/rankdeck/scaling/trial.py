"""One run of a scaling study: its job, what ranks and nodes did meanwhile, the
numbers in its output.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from rankdeck import plugins
from rankdeck.acceptance.measure import Ended, MeasureSession, measure_job
from rankdeck.acceptance.output_text import read_output
from rankdeck.acceptance.recipe import Recipe
from rankdeck.acceptance.values import Outcome
from rankdeck.model.job import Job
from rankdeck.model.job_spec import JobSpec
from rankdeck.model.rank import Activity, State
from rankdeck.model.safe_text import printable_line, strip_codes
from rankdeck.rules.progress import ProgressReader
from rankdeck.scaling.values import WALL, Signs, StudyPlan, Trial, TrialOutcome
from rankdeck.state.node import NodeState
from rankdeck.values import replace

LOOK = 0.5
"""Seconds between two looks at ranks and nodes."""
_LONGEST = 300
_POLLS = 0.6
"""Share of system time from which a rank polls for messages instead of computing."""
_STARVED = 0.5
"""A rank that is ready to run and got fewer cores than this lacks one."""
_THROTTLES = ("cpu.throttles", "cgroup.throttled")
"""Counters that grow while something holds a node back."""


@dataclass(slots=True)
class Watch:
    """What is seen of a running job, look by look."""

    _looks: dict[tuple[int, float], Activity] = field(
        default_factory=dict[tuple[int, float], Activity]
    )
    _busy: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    _clocks: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    _cores: dict[str, int] = field(default_factory=dict[str, int])
    _first: dict[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    _held: dict[str, None] = field(default_factory=dict[str, None])
    _traffic: tuple[float, float | None] | None = None
    _slow: str = ""

    def see_job(self, job: Job) -> None:
        """Take in what its ranks do now."""
        for rank in job.ranks:
            if rank.activity is not None and rank.state is State.RUNNING:
                self._looks[rank.rank, rank.activity.at] = rank.activity
                if rank.activity.throttled:
                    self._held[rank.node] = None
        slow = next((one.text for one in job.stalled if one.kind == "slow"), "")
        self._slow = slow or self._slow

    def see_node(self, name: str, node: NodeState) -> None:
        """Take in the newest numbers of a node."""
        for used in node.current("cpu.used").values():
            self._busy.setdefault(name, []).append(used)
        for clock in node.current("cpu.freq").values():
            self._clocks.setdefault(name, []).append(clock)
        for cores in node.current("cpu.cores").values():
            self._cores[name] = int(cores)
        counts = {metric: sum(node.values.get(metric, {}).values()) for metric in _THROTTLES}
        first = self._first.setdefault(name, counts)
        if any(counts[metric] > first[metric] for metric in _THROTTLES) or any(
            node.current("pi.throttled").values()
        ):
            self._held[name] = None
        links = node.current("net.speed")
        for metric in ("net.rx", "net.tx"):
            for device, rate in node.current(metric).items():
                if device != "lo" and (self._traffic is None or rate > self._traffic[0]):
                    self._traffic = rate, links.get(device)

    def signs(self) -> Signs:
        """All that was seen, in a few numbers."""
        looks = list(self._looks.values())
        busy = {name: _at_work(several) for name, several in self._busy.items()}
        busiest = max(busy, key=lambda name: busy[name], default="")
        clocks = [fmean(several) for several in self._clocks.values()]
        return Signs(
            looks=len(looks),
            own=_share(looks, lambda one: one.work),
            waits=_share(looks, _waits),
            starved=_share(looks, lambda one: one.state == "R" and one.cores < _STARVED),
            busy=busy.get(busiest),
            cores=self._cores.get(busiest),
            traffic=self._traffic[0] if self._traffic else None,
            link=self._traffic[1] if self._traffic else None,
            clock=min(clocks, default=None),
            held=tuple(self._held),
            slow=self._slow,
        )


def _at_work(several: list[float]) -> float:
    """The mean of the upper half: the start and the end of a job are not its work."""
    return fmean(sorted(several)[len(several) // 2 :])


def _waits(one: Activity) -> bool:
    return not one.computes or (one.system or 0.0) >= _POLLS


def _share(looks: list[Activity], of: Callable[[Activity], float]) -> float | None:
    return round(fmean(map(of, looks)), 4) if looks else None


async def run_trial(
    session: MeasureSession, plan: StudyPlan, spec: JobSpec, environment: Mapping[str, str]
) -> tuple[Trial, Mapping[str, str]]:
    """Run a job of the study to its end; returns its result (of point 0, block 0), and node -> what
    may still run there.

    Cancelled, it cancels the job with proof first.
    """
    watch, began = Watch(), time.time()
    async with asyncio.TaskGroup() as tasks:
        look = tasks.create_task(_watch(session, spec.part_of, watch))
        try:
            ended = await measure_job(session, spec, lambda: plan.limit, environment)
        finally:
            look.cancel()
    job = session.jobs.job(ended.job) if ended.job and session.jobs.knows(ended.job) else None
    trial = replace(_result(plan, spec, ended, job), at=began, signs=watch.signs())
    return trial, ended.left


async def _watch(session: MeasureSession, study: str, watch: Watch) -> None:
    while True:
        await asyncio.sleep(LOOK)
        for job in session.jobs.all():
            if job.plan.part_of != study or job.state is not State.RUNNING:
                continue
            watch.see_job(job)
            for name in job.nodes:
                if session.fleet.knows(name):
                    watch.see_node(name, session.fleet.node(name))


def _result(plan: StudyPlan, spec: JobSpec, ended: Ended, job: Job | None) -> Trial:
    """What the end of the job means."""
    blank = Trial(point=0, block=0, outcome=TrialOutcome.NOT_STARTED, job=ended.job)
    if ended.refused or job is None:
        return replace(blank, text=_short(ended.refused or "it was not started"))
    if ended.hung:
        return replace(blank, outcome=TrialOutcome.HUNG, text=_short(ended.hung))
    if job.state is not State.DONE:
        return replace(blank, outcome=TrialOutcome.FAILED, text=_short(_why(job)))
    numbers, unit, why = read_numbers(plan, spec, ended.output)
    numbers = {**numbers, WALL: wall_time(job)}
    good = not plan.number or plan.number in numbers
    outcome = TrialOutcome.MEASURED if good else TrialOutcome.NO_NUMBER
    if not good:
        there = ", ".join(numbers)
        why = why or f"it printed no `{plan.number}`; there are: {there}"
    return replace(
        blank, outcome=outcome, numbers=numbers, unit=unit, text="" if good else _short(why)
    )


def _why(job: Job) -> str:
    if job.first_failure is not None:
        return job.first_failure.sentence
    return job.not_started or f"{job.state.value}, exit {job.exit_code}"


def _short(text: str) -> str:
    return printable_line(text)[:_LONGEST]


def wall_time(job: Job) -> float:
    """Seconds from the start of the first rank to the end of the last; without these times, those
    of the job.
    """
    ends = [rank.ended for rank in job.ranks if rank.ended]
    begin = job.began or job.created
    end = max(ends, default=job.ended or begin)
    return round(max(end - begin, 0.001), 3)


def read_numbers(
    plan: StudyPlan, spec: JobSpec, output: Mapping[int, bytes]
) -> tuple[dict[str, float], str, str]:
    """(name -> the last number in the output, unit of what the recipe reads, why that is missing).

    A name counts on the first rank that prints it.
    """
    found: dict[str, float] = {}
    for rank in sorted(output):
        reader = ProgressReader(spec.progress or None, None)
        for line in output[rank].decode("utf-8", "replace").splitlines():
            reader.take(strip_codes(line), rank, 0.0)
        if reader.now is not None:
            found = {**reader.now.values, **found}
    if not plan.reader:
        return found, "", ""
    recipe: Recipe = plugins.find_plugin("recipes", plan.reader)()
    raw = b"\n".join(output[rank] for rank in sorted(output))
    readings = read_output(recipe, raw)
    good = [one for one in readings if one.status is Outcome.MEASURED and one.value is not None]
    if not good:
        return found, "", readings[0].text
    return {plan.reader: good[-1].value or 0.0, **found}, good[-1].unit, ""
