"""One run of a swap proof: its job, until the fault shows again or the time is over, and the proof
that nothing of it is left.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rankdeck.acceptance.measure import MeasureSession
from rankdeck.acceptance.watched_job import run_watched_job
from rankdeck.model.job import Job
from rankdeck.model.rank import State
from rankdeck.model.safe_text import clean_line
from rankdeck.swap.fault import faults_in, places_of
from rankdeck.swap.values import FaultKind, JobFault, RunOutcome, SwapPlan, SwapResult, SwapRun
from rankdeck.values import replace

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

    async def look(self, job: Job, now: float) -> bool:
        """Take in what is shown now; returns whether nothing more is waited for."""
        self.take_in(job, now)
        return self.is_decided(job, now)

    async def release(self) -> None:
        """Nothing was done to the nodes."""

    def take_in(self, job: Job, now: float) -> None:
        """Keep the faults that are told at `now`, epoch seconds."""
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
        failed = job.first_failure is not None and job.first_failure.settled
        stood = self.fault is not None and now >= self.since + STANDS
        if failed or (stood and self._tells_enough()):
            return True
        return job.began is not None and now > job.began + self.limit

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


async def run_swapped(
    session: MeasureSession, plan: SwapPlan, run: SwapRun, environment: Mapping[str, str]
) -> SwapResult:
    """Run the job as this run says, until it is known what it shows.

    Cancelled, it cancels the job with proof first.
    """
    watch = RunWatch(plan.fault, run.limit)
    limit = START * session.cluster.access.patience + run.limit
    ended = await run_watched_job(session, run.spec, watch, limit, environment)
    blank = SwapResult(
        run=run, outcome=RunOutcome.NOT_RUN, job=ended.job, left=ended.left,
        seconds=round(ended.seconds, 1),
    )  # fmt: skip
    if ended.refused or not ended.job:
        return replace(blank, sentence=clean_line(ended.refused or "it was not started", _MOST))
    job = session.jobs.job(ended.job)
    return conclude_run(plan, replace(blank, places=places_of(job)), job, watch)


def conclude_run(plan: SwapPlan, blank: SwapResult, job: Job, watch: RunWatch) -> SwapResult:
    """What a run showed whose job has ended. Pure."""
    fault, other = watch.fault, watch.other
    if fault is not None and fault.is_like(plan.fault):
        return replace(blank, outcome=RunOutcome.AGAIN, fault=fault, sentence=fault.sentence)
    odd = fault or other
    if odd is not None:
        return replace(blank, outcome=RunOutcome.OTHER, fault=odd, sentence=odd.sentence)
    if job.began is None:
        why = job.not_started or "no rank began"
        return replace(blank, sentence=clean_line(why, _MOST))
    took = blank.seconds if job.ended is None else max(job.ended - job.began, 0.0)
    after = plan.fault.seconds or 0.0
    if job.state is State.DONE or took >= after:
        return replace(blank, outcome=RunOutcome.NONE)
    return replace(
        blank, outcome=RunOutcome.SHORT, sentence=f"stopped after {took:.0f} of {after:.0f} s"
    )
