"""Judges which ranks of running jobs are stalled, with what is known of their nodes and processes."""

import logging
from collections.abc import Iterable, Sequence

from rankdeck.model.job import Job, Stall
from rankdeck.model.text import strip_controls
from rankdeck.rules.rank_activity import Known
from rankdeck.rules.stall import gpus_busy, is_idle, stalls
from rankdeck.state.fleet import Fleet
from rankdeck.state.jobs import Jobs
from rankdeck_agent.wire import LAUNCHER

log = logging.getLogger(__name__)
_LAST_LINES = 20


def notice_stalls(jobs: Jobs, fleet: Fleet, job_ids: Iterable[str], now: float) -> None:
    """Judge these jobs; a new stall is also logged."""
    for job_id in job_ids:
        job = jobs.job(job_id)
        found = stalls(job, now, _known(jobs, fleet, job))
        before = _kinds(job.stalled)
        for stall in found:
            if (stall.kind, stall.ranks) not in before:
                log.warning("%s", stall.text, extra={"source": job_id})
        jobs.set_stalled(job_id, found)


def _kinds(found: Iterable[Stall]) -> set[tuple[str, tuple[int, ...]]]:
    return {(stall.kind, stall.ranks) for stall in found}


def _known(jobs: Jobs, fleet: Fleet, job: Job) -> Known:
    return Known(
        idle=lambda node: _idle(fleet, job, node),
        gpus=lambda node: gpus_busy(_gpus(fleet, node)),
        clock=lambda node: _clock(fleet, node),
        launcher=_said(jobs, job, LAUNCHER),
        words=lambda rank: _said(jobs, job, rank),
        looks=jobs.looks(job.id),
        told=jobs.told(job.id),
    )


def _said(jobs: Jobs, job: Job, rank: int) -> list[str]:
    kept = jobs.log(job.id, rank)
    lines = [strip_controls(line.text) for line in kept.lines[-_LAST_LINES:]]
    return [*lines, strip_controls(kept.partial.text)] if kept.partial else lines


def _is_heard(fleet: Fleet, name: str) -> bool:
    if not fleet.knows(name):
        return False
    node = fleet.node(name)
    return node.heard_s() is not None and not node.silent


def _gpus(fleet: Fleet, name: str) -> Sequence[float]:
    """How busy each GPU is, in percent; simulated ones say nothing."""
    if not _is_heard(fleet, name) or any(fleet.node(name).simulated):
        return ()
    node = fleet.node(name)
    if node.detailed:
        return [float(value) for value in node.current("gpu.used").values()]
    mean = node.summary("gpu.used")
    return [] if mean is None else [mean]


def _clock(fleet: Fleet, name: str) -> float | None:
    return fleet.node(name).value("cpu.freq") if _is_heard(fleet, name) else None


def _idle(fleet: Fleet, job: Job, name: str) -> bool | None:
    if not _is_heard(fleet, name):
        return None
    node = fleet.node(name)
    here = sum(1 for rank in job.ranks if rank.node == name)
    used, cores = node.summary("cpu.used"), node.summary("cpu.cores")
    return is_idle(here, used, cores, _gpus(fleet, name))
