"""When the rest of a job is to be stopped because one part of it is gone."""

from rankdeck.model.job import Countdown, Job, State


def countdown_for(job: Job, now: float) -> Countdown | None:
    """The countdown to begin now, or None where nothing is wrong or nobody is left to stop.

    Launchers do not notice a lost node for minutes, and torchrun does not tell the other
    nodes that a rank failed: that is why this is the console's business.
    """
    abort = job.plan.abort
    if not abort.enabled or job.state.final:
        return None
    left = [rank for rank in job.ranks if not rank.state.final]
    if not left:
        return None
    why = _failed(job) or _lost(job)
    return Countdown(why=why, deadline=now + abort.countdown) if why else None


def _failed(job: Job) -> str:
    for rank in job.ranks:
        if rank.state is State.FAILED:
            how = (
                f"signal {rank.signal}"
                if rank.signal
                else f"exit code {rank.exit_code}"
            )
            return f"rank {rank.rank} on {rank.node} failed ({how})"
    return ""


def _lost(job: Job) -> str:
    for rank in job.ranks:
        if rank.state is State.LOST:
            return f"node {rank.node} stopped answering"
    return ""
