"""Swap proofs on one open cluster: plans them and makes their runs, one after the other."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rankdeck.acceptance.measure import Follows, MeasureSession, ended_with_proof
from rankdeck.acceptance.series import JobSeries
from rankdeck.backends.plan_options import new_series_id
from rankdeck.errors import RankdeckError
from rankdeck.model.job import Job
from rankdeck.model.stall import Stall
from rankdeck.state.black_box import NodeBox
from rankdeck.state.boxed_stalls import stalls_in_boxes
from rankdeck.swap.fault import fault_in
from rankdeck.swap.judge import ENOUGH, judge_swap
from rankdeck.swap.planning import Around, plan_swap
from rankdeck.swap.trial import run_swapped
from rankdeck.swap.values import (
    LIMIT,
    Blame,
    RunOutcome,
    RunWay,
    Swap,
    SwapPlan,
    SwapResult,
    SwapRun,
)
from rankdeck.values import replace

WATCH = 50.0
"""Seconds for which a running job is watched for a stall, if none is known."""
_LOOK = 1.0
_LEAST, _LONGER = 20.0, 2.0
"""Least seconds of a run, and how many times as long it may take as one with the fault took."""


class FollowsBoxes(Follows, Protocol):
    """What a swap proof needs from `Following`."""

    async def learn_boxes(self, job_id: str) -> Mapping[str, NodeBox]:
        """Node -> the black box of the job there."""
        ...

    async def ask_ranks_enough(self) -> None:
        """Ask the ranks of silent jobs what they wait for."""
        ...

    def notice_stalls(self) -> None:
        """Judge now which ranks are stalled."""
        ...


class SwapSession(MeasureSession, Protocol):
    """The parts of a session that swap proofs work with."""

    @property
    def following(self) -> FollowsBoxes: ...


class Swaps:
    """Plans a swap proof and carries it out."""

    def __init__(self, session: SwapSession) -> None:
        self._session = session
        self._series = JobSeries(session, "swap proof")
        self.current: Swap | None = None
        """The one that was planned or started last."""
        self.changed: Callable[[], None] = lambda: None
        """Called without arguments whenever `current` changed; may be replaced."""

    async def plan(self, job_id: str, limit: float = LIMIT) -> Swap:
        """Plan the swap proof of a job; no job is started. Raises RankdeckError."""
        self._series.refuse_while_running()
        session, silent = self._session, await self._series.look_around()
        stalls = await self._stalls(job_id)
        job = session.jobs.job(job_id)
        fault = fault_in(job, stalls)
        plan = plan_swap(session.cluster, job, fault, self._around(job, silent), limit)
        plan = replace(plan, notes=(*plan.notes, *self._others(plan)))
        name = new_series_id("w")
        return self._touch(Swap(id=name, plan=plan))

    async def _stalls(self, job_id: str) -> tuple[Stall, ...]:
        """The stalls of a job that is not known to stall; a running one is watched for them."""
        session, until = (
            self._session,
            time.monotonic() + WATCH * self._session.cluster.access.patience,
        )
        while is_blank(session.jobs.job(job_id)) and time.monotonic() < until:
            await session.following.ask_ranks_enough()
            session.following.notice_stalls()
            await asyncio.sleep(_LOOK)
        job = session.jobs.job(job_id)
        if not job.state.final or job.first_failure is not None:
            return job.stalled
        boxes = await session.following.learn_boxes(job_id)
        return stalls_in_boxes(session.jobs.job(job_id), boxes.values())

    def _around(self, job: Job, silent: Mapping[str, str]) -> Around:
        session, out = self._session, self._session.control.find_excluded()
        taken = {node for one in session.jobs.all() if not one.state.final for node in one.nodes}
        free = (
            node.name
            for node in session.cluster.nodes
            if node.name not in {*taken, *out, *silent, *job.nodes, *session.fleet.bad}
        )
        return Around(free=tuple(free), silent=silent)

    def _others(self, plan: SwapPlan) -> list[str]:
        """Sentences on what else runs on the nodes, and on nodes that are excluded."""
        nodes = {node for run in plan.runs for node in run.places}
        busy = [
            f"{job} runs on {node}: it takes from the runs"
            for job, node in self._series.jobs_on(nodes)
            if job != plan.job
        ]
        out = self._session.control.find_excluded()
        return [*busy[:3], *(f"{node} is {out[node]}" for node in sorted(nodes & out.keys())[:3])]

    async def start(self) -> Swap:
        """Make the runs of `current`; returns it when it has ended or was stopped."""
        self._series.refuse_while_running()
        if self.current is None:
            raise RankdeckError("nothing is planned")
        swap = self._touch(
            replace(
                self.current, going=True, started=time.time(), ended=0.0, results=(), verdict=None
            )
        )
        try:
            if await self._series.carry_out(self._go(swap)):
                self._touch(replace(self.current, ended=time.time()))
        finally:
            self._touch(replace(self.current, going=False, running=0))
        return self.current

    async def _go(self, swap: Swap) -> None:
        plan = swap.plan
        if plan.ends_job:
            left = await ended_with_proof(self._session, plan.job)
            self._series.remember(plan.job, left)
        for run in plan.runs:
            now = self.current or swap
            if not is_needed(run, now):
                continue
            await self._series.prove_clean()
            self._touch(replace(now, running=len(now.results) + 1))
            result = await self._made(swap, run)
            self._series.remember(result.job, result.left)
            results = (*now.results, result)
            verdict = judge_swap(plan, results)
            self._touch(replace(now, results=results, verdict=verdict, running=0))

    async def _made(self, swap: Swap, run: SwapRun) -> SwapResult:
        if why := self._series.why_not_free(run.places):
            return SwapResult(run=run, outcome=RunOutcome.NOT_RUN, sentence=why)
        shorter = limit_by_earlier(run, (self.current or swap).results)
        own = replace(run, spec=replace(run.spec, part_of=swap.id), limit=shorter)
        return await run_swapped(self._session, swap.plan, own, self._session.cluster.environment)

    async def stop(self) -> tuple[str, ...]:
        """Stop: cancel its job and verify that; returns a sentence for each process left."""
        return await self._series.stop(self.current.id if self.current else "")

    def _touch(self, swap: Swap) -> Swap:
        self.current = swap
        self.changed()
        return swap


def is_blank(job: Job) -> bool:
    """Whether a job runs and nothing is known to be wrong with it. Pure."""
    return not (job.state.final or job.stalled or job.first_failure or job.plan.replay_of)


def limit_by_earlier(run: SwapRun, results: Sequence[SwapResult]) -> float:
    """Most seconds of a run: not much more than it took to tell the fault in those before. Pure."""
    took = [one.seconds for one in results if one.outcome is RunOutcome.AGAIN]
    return min(run.limit, max(_LEAST, _LONGER * max(took))) if took else run.limit


def is_needed(run: SwapRun, swap: Swap) -> bool:
    """Whether this run is still worth its time after those that were made. Pure."""
    verdict = swap.verdict
    if verdict is not None and verdict.blame is not Blame.UNDECIDED and verdict.sure >= ENOUGH:
        return False
    came = any(one.outcome is RunOutcome.AGAIN for one in swap.results)
    if run.way is RunWay.AGAIN:
        return not came
    before = [one for one in swap.results if one.run.way is run.way]
    if run.way is RunWay.MOVED:
        return came or not before
    same = [one.outcome for one in before if one.run.places == run.places]
    # Once more only if it went well without these nodes, and not so with them.
    return not same or (came and set(same) == {RunOutcome.NONE})
