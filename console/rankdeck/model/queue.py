"""A job in the queue of its scheduler: its state there, its tasks and its earlier runs."""

import re
from collections.abc import Mapping
from typing import ClassVar, Protocol

from rankdeck.values import Value
from rankdeck_agent.wire.schedulers.slurm_states import OWN_ENDS


class Attempt(Value, kw_only=True):
    """One run of a job that Slurm queued again. Times are epoch seconds on the console's clock."""

    number: int
    """From 0: Slurm's restart count."""
    text: str
    """Why it ended, one sentence."""
    nodes: tuple[str, ...] = ()
    started: float | None = None
    ended: float | None = None
    ranks: int = 0
    """Number of ranks that began."""
    failed: tuple[int, ...] = ()
    """Some of the ranks that did not end with exit code 0."""
    exit_code: int | None = None
    """Exit code of the first of `failed`; 128 + signal if a signal ended it."""


class LogRun(Value):
    """Which part of the output belongs to one run of a job: byte offsets by (rank, stream)."""

    starts: Mapping[tuple[int, str], int]
    """First byte of the run; 0 for a log without an entry."""
    ends: Mapping[tuple[int, str], int]
    """Byte after the last one; a log without an entry has no later
    run, so the run goes to its end.
    """

    def has(self, rank: int, stream: str, offset: int) -> bool:
        """Whether the byte at this offset was written in this run."""
        key = (rank, stream)
        return self.starts.get(key, 0) <= offset < self.ends.get(key, offset + 1)


class ArrayTask(Value, kw_only=True):
    """One task of a job array as Slurm reports it; the task's rank has the same number."""

    number: int
    id: str = ""
    """Slurm's own id of the task, such as 4713 for 4711_3; "" while it
    is pending together with others.
    """
    state: str = ""
    reason: str = ""
    text: str = ""
    """Why it waits, or how it ended: one sentence; "" if there is nothing to say."""
    do: str = ""
    """What to do about it; "" if nothing."""
    attempt: int = 0
    """How often Slurm queued it again."""
    attempts: tuple[Attempt, ...] = ()
    """Its earlier runs, oldest first."""
    over: bool = False

    @property
    def decided(self) -> bool:
        """Whether Slurm ended it; then Slurm's verdict counts more than the end of its rank."""
        return self.over and self.state not in OWN_ENDS


_AT_ONCE = re.compile(r"%\d+(?=\]\Z)")
"""How many tasks of an array may run at once, at the end of a row."""


class QueueStatus(Value, kw_only=True):
    """A job as Slurm reports it. Times are epoch seconds on the console's clock."""

    id: str = ""
    state: str = ""
    """Slurm's state, such as PENDING; shown as it is."""
    reason: str = ""
    """Slurm's reason why it waits."""
    text: str = ""
    """Why it waits, or how it ended: one sentence; "" if there is nothing to say."""
    do: str = ""
    """What to do about it."""
    stuck: bool = False
    """It will not start until somebody does something."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    nodes: str = ""
    """Node set in Slurm's syntax: where it runs, or is planned to run."""
    position: int | None = None
    """Place among the `waiting` jobs of its partition, from 1; None: not known."""
    waiting: int | None = None
    limit: float | None = None
    """Its time limit in seconds; None: none, or not known."""
    start: float | None = None
    """When it began, or is expected to begin."""
    ends: float | None = None
    """When its time limit will be reached; only while it runs."""
    attempt: int = 0
    """How often Slurm queued it again."""
    attempts: tuple[Attempt, ...] = ()
    """Its earlier runs, oldest first."""
    over: bool = False
    node: str = ""
    """The node that failed, or that ran out of memory."""
    rank: int | None = None
    code: int | None = None
    """Exit status of the batch script."""
    by: str = ""
    """Who cancelled it, if Slurm tells."""
    array: str = ""
    """Task numbers of a job array in sbatch's syntax, `0-9%2`; "" for other jobs.

    Rank N is task N.
    """
    tasks: tuple[ArrayTask, ...] = ()
    """Tasks that Slurm has reported on, in the order of their numbers."""

    @property
    def name(self) -> str:
        """As Slurm's commands take it: `4711`, `48_3`, `48_[2-5]` of the row `48_[2-5%2]`."""
        return _AT_ONCE.sub("", self.id)

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
        """Whether Slurm ended the job; then Slurm's verdict counts
        more than the end of any rank.
        """
        return self.over and bool(self.text) and self.state not in OWN_ENDS

    def left(self, now: float) -> float | None:
        """Seconds until its time limit is reached; None if it does not run or has no limit."""
        return max(self.ends - now, 0.0) if self.ends is not None and not self.over else None


def queue_words(status: QueueStatus, now: float) -> str:
    """`waits behind jobs with higher priority (Priority), place 3 of 12, may
    start in 20 min`, or the time left.
    """
    if status.over:
        return ""
    if not status.waits:
        left = status.left(now)
        return ", ".join(filter(None, (status.text, "" if left is None else f"{_span(left)} left")))
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


class Partition(Value, kw_only=True):
    """A partition and its limits."""

    name: str
    usual: bool = False
    """Whether it is the default partition."""
    up: bool = True
    limit: float | None = None
    """Time limit of a job in seconds; None: no limit."""
    size: str = ""
    """Number of nodes that a job may have, in Slurm's syntax: `1-infinite`."""
    nodes: int = 0
    idle: int = 0
    usable: int = 0
    """Nodes that are neither down nor drained."""


class JobComponent(Value, kw_only=True):
    """One component of a het job, as the queue has it."""

    id: str = ""
    """`4711+1`."""
    state: str = ""
    partition: str = ""
    nodes: str = ""
    text: str = ""
    """Why it waits."""
    count: int = 0
    """Number of nodes."""
    cpus: int = 0
    gpus: int = 0
    memory: float = 0.0


class QueueJob(Protocol):
    """A job that a scheduler lists, of any user; each scheduler has a frozen value of its own."""

    backend: ClassVar[str]
    """The scheduler: the `backend:` of a cluster file."""

    @property
    def place(self) -> str:
        """Its name for people: `4711`, `mpijob/pi`."""
        ...

    @property
    def name(self) -> str: ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which a person can choose it."""
        ...

    @property
    def known_as(self) -> str:
        """The name by which commands take it."""
        ...

    @property
    def user(self) -> str: ...

    @property
    def namespace(self) -> str:
        """Its namespace; "" where there are none."""
        ...

    @property
    def ranks(self) -> int:
        """Number of its ranks; 0: not told."""
        ...

    @property
    def node_set(self) -> str:
        """Where it runs, or is planned to run; "" if that is not told."""
        ...

    @property
    def whose(self) -> str:
        """`Slurm job of alice`."""
        ...

    @property
    def mine(self) -> bool:
        """Whether it is listed among one's own."""
        ...

    @property
    def state(self) -> str:
        """pending, running, or how it ended: done, cancelled or failed."""
        ...

    @property
    def created(self) -> float:
        """Epoch seconds."""
        ...

    @property
    def ended(self) -> float | None: ...

    @property
    def status(self) -> QueueStatus | None:
        """What the scheduler says of it in the terms of a queue; None if it has no queue."""
        ...

    @property
    def remark(self) -> str:
        """How it ended, why it waits, or what it holds; "" if there is nothing to say."""
        ...

    @property
    def priority(self) -> int: ...

    @property
    def gpus(self) -> int:
        """GPUs that it has or asks for; 0: none, or not told."""
        ...

    @property
    def memory(self) -> float:
        """MB that it has or asks for, on all its nodes; 0: not told."""
        ...

    @property
    def components(self) -> tuple[JobComponent, ...]:
        """The components of a het job; this job is all of them."""
        ...


class UnqueuedJob(Value):
    """The part of a `QueueJob` whose scheduler has no queue: it tells nothing of it."""

    @property
    def mine(self) -> bool:
        return True

    @property
    def ended(self) -> float | None:
        return None

    @property
    def status(self) -> QueueStatus | None:
        return None

    @property
    def priority(self) -> int:
        return 0

    @property
    def gpus(self) -> int:
        return 0

    @property
    def memory(self) -> float:
        return 0.0

    @property
    def components(self) -> tuple[JobComponent, ...]:
        return ()
