"""What the exit codes mean, and the errors that only a command line has."""

from rankdeck.errors import RankdeckError

OK = 0
TROUBLE = 1
BAD_INPUT = 2
INTERRUPTED = 130
"""128 + SIGINT."""
NOBODY_READS = 141
"""128 + SIGPIPE, as the shell reports it of other programs."""


class UsageError(RankdeckError):
    """An option or name on the command line that cannot be meant."""


class OutputError(RankdeckError):
    """What was asked for cannot be written."""
