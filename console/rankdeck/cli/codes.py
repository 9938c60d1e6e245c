"""What the exit codes mean, and the errors that only a command line has."""

from rankdeck.errors import RankdeckError
from rankdeck.model.health import Level
from rankdeck.model.job import Job, State

OK = 0
TROUBLE = 1
BAD_INPUT = 2
INTERRUPTED = 130
"""128 + SIGINT."""
NOBODY_READS = 141
"""128 + SIGPIPE, as the shell reports it of other programs."""
_STATUS = {Level.OK: OK, Level.UNKNOWN: 3, Level.WARN: 4, Level.BAD: 5}


class UsageError(RankdeckError):
    """An option or name on the command line that cannot be meant."""


def of_level(level: Level) -> int:
    """The exit code of `status` where this is the worst level."""
    return _STATUS[level]


def of_job(job: Job) -> int:
    """The exit code of `run`: that of the first rank that failed."""
    if job.state is State.DONE:
        return OK
    if job.state is State.CANCELLED:
        return INTERRUPTED
    failure = job.first_failure
    if failure is not None and failure.signal:
        return 128 + failure.signal
    if failure is not None and failure.exit_code:
        return failure.exit_code
    return job.exit_code or TROUBLE
