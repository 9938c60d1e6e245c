"""Whether to stop the rest of a job because a part of it has failed (gang abort)."""

from rankdeck.model.blame import how, who
from rankdeck.model.job import Countdown, Job, State

_GOING = (State.PENDING, State.RUNNING)


def countdown_for(job: Job, now: float) -> Countdown | None:
    """The countdown to begin now, or None if nothing failed or nothing is left to stop.

    Launchers do not notice a lost node for minutes, and torchrun does not tell the other
    nodes that a rank failed: that is why the console does it.
    """
    abort = job.plan.abort
    if not abort.enabled or job.state.final:
        return None
    left = [rank for rank in job.ranks if rank.state in _GOING]
    why = reason(job)
    return Countdown(why=why, deadline=now + abort.countdown) if left and why else None


def reason(job: Job) -> str:
    """Why the rest of a job is to be stopped: what failed first; "" if nothing did.

    If no node answers, this machine's own link is as likely the reason: the job may go on.
    """
    first = job.first_failure
    lost = {rank.node for rank in job.ranks if rank.state is State.LOST}
    if first is None or (first.what == "node" and lost >= set(job.nodes)):
        return ""
    return f"{who(first)}: {how(first)}"
