"""When to stop the rest of a job that failed (gang abort). No I/O."""

from rankdeck.model.job import Countdown, Job
from rankdeck.model.rank import State

_GOING = (State.PENDING, State.RUNNING)


def countdown_for(job: Job, now: float) -> Countdown | None:
    """The countdown to begin now, or None if nothing failed or nothing is
    left to stop. `now` is epoch seconds.

    The console does this because launchers notice a lost node only after minutes, and torchrun
    does not tell the other nodes that a rank failed.
    """
    abort = job.plan.abort
    if not abort.enabled or job.state.final:
        return None
    why = abort_reason(job)
    if not why or not is_anybody_left(job):
        return None
    return Countdown(why=why, deadline=now + abort.countdown)


def is_anybody_left(job: Job) -> bool:
    """Whether a rank has not ended yet, as far as known."""
    return any(rank.state in _GOING for rank in job.ranks)


def abort_reason(job: Job) -> str:
    """Why the rest of a job must be stopped: what failed first; "" if nothing did.

    Also "" if no node answers: then the console's own link may be down, and the job may be running.
    """
    first = job.first_failure
    lost = {rank.node for rank in job.ranks if rank.state is State.LOST}
    if first is None or (first.what == "node" and lost >= set(job.nodes)):
        return ""
    return f"{first.who}: {first.how}"
