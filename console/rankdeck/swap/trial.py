"""One run of a swap proof: its job, until the fault shows again or the time is over, and the proof
that nothing of it is left.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rankdeck.acceptance.measure import Ended, MeasureSession, ended_with_proof, measure_job
from rankdeck.model.job import Job
from rankdeck.model.rank import State
from rankdeck.model.safe_text import clean_line
from rankdeck.swap.fault import faults_in, places_of
from rankdeck.swap.values import FaultKind, JobFault, RunOutcome, SwapPlan, SwapResult, SwapRun

LOOK = 0.2
"""Seconds between two looks at what is shown."""
STANDS = 6.0
"""Seconds for which the same must be named: the answer may still change."""
START = 120.0
"""Seconds within which the ranks start."""
_MOST = 300


@dataclass(slots=True)
class RunWatch:
    """What is shown of the job of a run, look by look."""

    wanted: JobFault
    limit: float
    fault: JobFault | None = None
    """The fault of the kind that is looked for, as it is told now."""
    other: JobFault | None = None
    """A fault of another kind, as it is told now."""
    since: float = 0.0
    """Since when the same are named, epoch seconds."""

    def look(self, job: Job, now: float) -> None:
        """Take in what is shown now."""
        found = faults_in(job)
        mine = next((one for one in found if one.kind is self.wanted.kind), None)
        self.other = next((one for one in found if one.kind is not self.wanted.kind), None)
        if self.fault is None or mine is None or _who(mine) != _who(self.fault):
            self.since = now
        self.fault = mine

    def is_decided(self, job: Job, now: float) -> bool:
        """Whether nothing more is waited for."""
        if job.state.final:
            return True
        start = _start_of(job)
        failed = job.first_failure is not None and job.first_failure.settled
        stood = self.fault is not None and now >= self.since + STANDS
        if failed or (stood and self._tells_enough()):
            return True
        return start is not None and now > start + self.limit

    def _tells_enough(self) -> bool:
        """A stall that names nobody may still name somebody, where somebody was named before."""
        fault = self.fault
        if fault is None:
            return False
        if fault.kind is FaultKind.FAILED:
            return True
        named = bool(fault.ranks or fault.nodes)
        return named or not (self.wanted.ranks or self.wanted.nodes)


def _who(fault: JobFault) -> tuple[tuple[int, ...], tuple[str, ...]]:
    return fault.ranks, fault.nodes


def _start_of(job: Job) -> float | None:
    return min((rank.started for rank in job.ranks if rank.started), default=None)


async def run_swapped(
    session: MeasureSession, plan: SwapPlan, run: SwapRun, environment: Mapping[str, str]
) -> SwapResult:
    """Run the job as this run says, until it is known what it shows.

    Cancelled, it cancels the job with proof first.
    """
    one = _Run(session, plan, run)
    async with asyncio.TaskGroup() as tasks:
        job = tasks.create_task(measure_job(session, run.spec, one.rest, environment))
        look = tasks.create_task(one.watch())
        try:
            await asyncio.wait((job,))
        finally:
            look.cancel()
            job.cancel()
    return await one.result(job.result())


class _Run:
    """The job of one run."""

    def __init__(self, session: MeasureSession, plan: SwapPlan, run: SwapRun) -> None:
        self._session, self._plan, self._run = session, plan, run
        self._known = {job.id for job in session.jobs.all()}
        self._watch = RunWatch(plan.fault, run.limit)
        self._decided = False

    def rest(self) -> float:
        """Seconds that the job may run, as `measure_job` asks; 0 once all is known."""
        start = START * self._session.cluster.access.patience
        return 0.0 if self._decided else start + self._run.limit

    def _job(self) -> Job | None:
        part = self._run.spec.part_of
        own = (one for one in self._session.jobs.all() if one.plan.part_of == part)
        return next((one for one in own if one.id not in self._known), None)

    async def watch(self) -> None:
        """Follow the job until all is known."""
        while not self._decided:
            await asyncio.sleep(LOOK)
            job, now = self._job(), time.time()
            if job is not None:
                self._watch.look(job, now)
                self._decided = self._watch.is_decided(job, now)

    async def result(self, ended: Ended) -> SwapResult:
        """What the run showed, and the proof that nothing of it is left."""
        blank = SwapResult(
            run=self._run, outcome=RunOutcome.NOT_RUN, job=ended.job, left=ended.left,
            seconds=round(ended.seconds, 1),
        )  # fmt: skip
        if ended.refused or not ended.job:
            return replace(blank, sentence=clean_line(ended.refused or "it was not started", _MOST))
        job = self._session.jobs.job(ended.job)
        if not ended.hung:
            self._watch.look(job, time.time())
            blank = replace(blank, left=await ended_with_proof(self._session, ended.job))
        return conclude_run(self._plan, replace(blank, places=places_of(job)), job, self._watch)


def conclude_run(plan: SwapPlan, blank: SwapResult, job: Job, watch: RunWatch) -> SwapResult:
    """What a run showed whose job has ended. Pure."""
    fault, other = watch.fault, watch.other
    if fault is not None and fault.is_like(plan.fault):
        return replace(blank, outcome=RunOutcome.AGAIN, fault=fault, sentence=fault.sentence)
    odd = fault or other
    if odd is not None:
        return replace(blank, outcome=RunOutcome.OTHER, fault=odd, sentence=odd.sentence)
    start = _start_of(job)
    if start is None:
        why = job.not_started or "no rank began"
        return replace(blank, sentence=clean_line(why, _MOST))
    took = blank.seconds if job.ended is None else max(job.ended - start, 0.0)
    after = plan.fault.seconds or 0.0
    if job.state is State.DONE or took >= after:
        return replace(blank, outcome=RunOutcome.NONE)
    return replace(
        blank, outcome=RunOutcome.SHORT, sentence=f"stopped after {took:.0f} of {after:.0f} s"
    )
