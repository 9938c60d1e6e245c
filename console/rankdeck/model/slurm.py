"""What Slurm says of a job, now and of its earlier runs."""

from collections.abc import Mapping
from dataclasses import dataclass

OWN_ENDS = frozenset({"COMPLETED", "FAILED"})
"""States of a job that ended by itself: its ranks tell why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of a job that Slurm queued again. Times are epoch seconds on the console's clock."""

    number: int
    """From 0: Slurm's restart count."""
    text: str
    """Why it ended, one sentence."""
    nodes: tuple[str, ...] = ()
    started: float | None = None
    ended: float | None = None
    ranks: int = 0
    """Ranks that began."""
    failed: tuple[int, ...] = ()
    """Ranks that ended otherwise than with 0, a few."""
    exit_code: int | None = None
    """Of the first of them; 128 + signal where a signal ended it."""


@dataclass(frozen=True, slots=True)
class LogRun:
    """Where the output of one run of a job lies: rank and stream -> bytes."""

    starts: Mapping[tuple[int, str], int]
    """A log that is not named began empty."""
    ends: Mapping[tuple[int, str], int]
    """Of a log that is not named it is the last run so far."""

    def has(self, rank: int, stream: str, offset: int) -> bool:
        """Whether the byte at this offset was written in this run."""
        key = (rank, stream)
        return self.starts.get(key, 0) <= offset < self.ends.get(key, offset + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmTask:
    """One task of an array as Slurm has it; its rank has the same number."""

    number: int
    id: str = ""
    """Slurm's own id of the task, such as 4713 for 4711_3; "" while it waits with others."""
    state: str = ""
    reason: str = ""
    text: str = ""
    """Why it waits, or how it ended: one sentence; "" where there is nothing to say."""
    do: str = ""
    attempt: int = 0
    """How often Slurm queued it again."""
    attempts: tuple[Attempt, ...] = ()
    """Its earlier runs, oldest first."""
    over: bool = False

    @property
    def decided(self) -> bool:
        """Whether Slurm ended it: its word comes before that of its rank."""
        return self.over and self.state not in OWN_ENDS


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmStatus:
    """A job as Slurm has it. Times are epoch seconds on the console's clock."""

    id: str = ""
    state: str = ""
    """Slurm's word, such as PENDING; shown as it is."""
    reason: str = ""
    """Slurm's word for why it waits."""
    text: str = ""
    """Why it waits, or how it ended: one sentence; "" where there is nothing to say."""
    do: str = ""
    """What to do about it."""
    stuck: bool = False
    """It will not start until somebody does something."""
    partition: str = ""
    nodes: str = ""
    """Where it runs, or is planned to run, as Slurm folds names."""
    position: int | None = None
    """Among the `waiting` jobs of its partition, from 1."""
    waiting: int | None = None
    limit: float | None = None
    """Its time limit in seconds; None: none, or not known."""
    start: float | None = None
    """When it began, or is expected to."""
    ends: float | None = None
    """When its time limit is over, while it runs."""
    attempt: int = 0
    """How often Slurm queued it again."""
    attempts: tuple[Attempt, ...] = ()
    """Its earlier runs, oldest first."""
    over: bool = False
    node: str = ""
    """The node that failed, or on which memory was used up."""
    rank: int | None = None
    code: int | None = None
    """Exit status of the batch script."""
    by: str = ""
    """Who cancelled it, where Slurm tells."""
    array: str = ""
    """Of an array, its tasks as sbatch has them: `0-9%2`; each rank is the task of its number."""
    tasks: tuple[SlurmTask, ...] = ()
    """Tasks of which Slurm has said something, in the order of their numbers."""

    @property
    def waits(self) -> bool:
        """Whether it is in the queue: its ranks cannot have begun."""
        return not self.over and self.state not in (
            "RUNNING",
            "COMPLETING",
            "SUSPENDED",
            "STOPPED",
            "",
        )

    @property
    def decided(self) -> bool:
        """Whether Slurm ended the job: its word comes before that of any rank."""
        return self.over and bool(self.text) and self.state not in OWN_ENDS

    def left(self, now: float) -> float | None:
        """Seconds until its time limit is over; None where it does not run or has no limit."""
        return max(self.ends - now, 0.0) if self.ends is not None and not self.over else None


def queue_words(status: SlurmStatus, now: float) -> str:
    """`waits behind jobs with higher priority (Priority), place 3 of 12, may start in 20 min`; of a job that runs the time left."""
    if status.over:
        return ""
    if not status.waits:
        left = status.left(now)
        return "" if left is None else f"{_span(left)} left"
    reason = f" ({status.reason})" if status.reason and status.reason not in status.text else ""
    parts = [f"{status.text or status.state.lower()}{reason}"]
    if status.position:
        parts.append(f"place {status.position} of {status.waiting}")
    if status.start is not None and status.start > now and not status.stuck:
        parts.append(f"may start in {_span(status.start - now)}")
    return ", ".join(parts)


def _span(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"
