"""Orders to a scheduler, and what it answers."""

from collections.abc import Mapping

from msgspec import field

from rankdeck.values import Value


class ServiceOrder(Value, kw_only=True):
    """Nodes that an operator wants to take out of service, or to return."""

    do: str
    """`drain` or `resume`."""
    nodes: tuple[str, ...]
    why: str = ""
    anyway: bool = False
    """With `resume`: also return nodes that others took out of service."""


class OrderChange(Value, kw_only=True):
    """The command that changes nodes or jobs in Slurm, and its result if it was run."""

    line: str = ""
    """The exact command line; "" if there is nothing to do."""
    left_alone: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node or job -> why it is not changed."""
    done: bool = False
    """Whether the command was run and succeeded."""
    said: str = ""
    """What the command printed when it succeeded; usually nothing."""
    now: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node or job -> what Slurm says of it afterwards."""
    error: str = ""
    """Why the command was not run or failed, one sentence."""


class ServiceChange(OrderChange, kw_only=True):
    """The command for a `ServiceOrder`, and its result if it was run."""

    nodes: tuple[str, ...] = ()
    """The nodes that the command changes."""

    @property
    def word(self) -> str:
        """What the user must type to confirm: the node, or how many there are."""
        return self.nodes[0] if len(self.nodes) == 1 else str(len(self.nodes))


class JobOrder(Value, kw_only=True):
    """Jobs in Slurm's queue that somebody wants to hold, release,
    requeue, or give another time limit.
    """

    do: str
    """`hold`, `release`, `requeue` or `timelimit`."""
    jobs: tuple[str, ...]
    """Slurm's names: `4711`, `48_3`, `48_[2-5]`."""
    to: str = ""
    """The new time limit, in Slurm's syntax."""


class JobChange(OrderChange, kw_only=True):
    """The command for a `JobOrder`, and its result if it was run."""

    jobs: tuple[str, ...] = ()
    """The jobs that the command changes."""
    hits: int = 0
    """How many they are, tasks of arrays and components of het jobs counted apart."""

    @property
    def hit_words(self) -> str:
        """`1 job`, or how many jobs, tasks and components the command changes."""
        names = len(self.jobs)
        jobs = f"{names} job{'s' if names != 1 else ''}"
        return jobs if self.hits <= names else f"{jobs}, with {self.hits} tasks or components"


class SchedulerPage(Value, kw_only=True):
    """What one command of Slurm printed."""

    line: str = ""
    """The command line."""
    lines: tuple[str, ...] = ()
    error: str = ""
    """Why it failed, one sentence; "" if it did not."""


class JobEfficiency(Value, kw_only=True):
    """How a job used what it had, reckoned as `seff` does; None: Slurm did not measure it."""

    job: str = ""
    state: str = ""
    elapsed: float = 0.0
    """Seconds that it ran."""
    cpus: int = 0
    nodes: int = 0
    gpus: int = 0
    cpu_used: float | None = None
    """CPU seconds of all its steps."""
    cpu: float | None = None
    """Share of the CPU time that it had, 0 to 1."""
    memory: float | None = None
    """MB that it had."""
    memory_used: float | None = None
    """MB: the peaks of all tasks of the step that used most."""
    memory_share: float | None = None
    gpu: float | None = None
    """Share of the time of its GPUs, 0 to 1."""

    @property
    def lines(self) -> tuple[str, ...]:
        """`CPU     12 % of 1:04:00 …`: a line for each kind."""
        had = self.elapsed * self.cpus
        cpu = f"{_share(self.cpu)} of {_clock(had)} on {self.cpus} CPUs" if had else _UNKNOWN
        used = f"{self.memory_used:,.0f} MB" if self.memory_used is not None else _UNKNOWN
        of = f" of {self.memory:,.0f} MB" if self.memory else ""
        gpu = f"{_share(self.gpu)} of {self.gpus} GPUs" if self.gpus else "none"
        return (
            f"job     {self.job} {self.state}, ran {_clock(self.elapsed)} on {self.nodes} nodes",
            f"CPU     {cpu}",
            f"memory  {_share(self.memory_share)}: {used}{of}",
            f"GPU     {gpu}",
        )


_UNKNOWN = "not measured"


def _share(share: float | None) -> str:
    return _UNKNOWN if share is None else f"{share:.1%}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


class SchedulerPages(Value, kw_only=True):
    """The answer to a question that Slurm itself answers."""

    pages: tuple[SchedulerPage, ...] = ()
    efficiency: tuple[JobEfficiency, ...] = ()
    error: str = ""
    """Why nothing was asked, one sentence."""
