"""Look for stalled ranks in the jobs that run, with what telemetry says of their nodes."""

import logging
from collections.abc import Iterable

from rankdeck.model.insight import Stall
from rankdeck.model.job import Job
from rankdeck.rules.stall import is_idle, stalls
from rankdeck.state.fleet import Fleet
from rankdeck.state.jobs import Jobs
from rankdeck_agent.wire import LAUNCHER

log = logging.getLogger(__name__)
_LAST_LINES = 20
STEP = 5.0


def notice_stalls(jobs: Jobs, fleet: Fleet, job_ids: Iterable[str], now: float) -> None:
    """Judge these jobs anew; what was not known before goes to the messages too."""
    # In steps, or the seconds in the text would make a new state of the job every second.
    now -= now % STEP
    for job_id in job_ids:
        job = jobs.job(job_id)
        found = stalls(
            job, now, lambda node, j=job: _idle(fleet, j, node), _said(jobs, job)
        )
        if _kinds(found) - _kinds(job.stalled):
            log.warning("%s", found[0].text, extra={"source": job_id})
        jobs.set_stalled(job_id, found)


def _kinds(found: Iterable[Stall]) -> set[tuple[str, tuple[int, ...]]]:
    return {(stall.kind, stall.ranks) for stall in found}


def _said(jobs: Jobs, job: Job) -> list[str]:
    lines = jobs.log(job.id, LAUNCHER).lines[-_LAST_LINES:]
    return [line.text for line in lines]


def _idle(fleet: Fleet, job: Job, name: str) -> bool | None:
    if not fleet.knows(name):
        return None
    node = fleet.node(name)
    if node.silent or any(node.simulated):
        gpus: list[float] = []
    else:
        gpus = [float(value) for value in node.current("gpu.used").values()]
    if node.heard_s() is None or node.silent:
        return None
    here = sum(1 for rank in job.ranks if rank.node == name)
    return is_idle(here, node.value("cpu.used"), node.value("cpu.cores"), gpus)
