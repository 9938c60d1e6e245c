"""The exit code that a cluster or a job earns."""

from rankdeck.cli.codes import INTERRUPTED, OK, TROUBLE
from rankdeck.model.health import Level
from rankdeck.model.job import Job, State

_STATUS = {Level.OK: OK, Level.UNKNOWN: 3, Level.WARN: 4, Level.BAD: 5}


def of_level(level: Level) -> int:
    """The exit code of `status` where this is the worst level."""
    return _STATUS[level]


def of_job(job: Job) -> int:
    """The exit code of `run`: that of what failed first."""
    if job.state is State.DONE:
        return OK
    if job.state is State.CANCELLED:
        return INTERRUPTED
    return job.exit_code or TROUBLE
