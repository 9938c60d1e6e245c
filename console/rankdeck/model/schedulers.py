"""What Slurm and Kubernetes say: of nodes, partitions, queues, jobs and our rights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rankdeck_agent.wire import DRAIN_PREFIX, NO_JOBS

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
    """Some of the ranks that did not end with 0."""
    exit_code: int | None = None
    """Of the first of them; 128 + signal where a signal ended it."""


@dataclass(frozen=True, slots=True)
class LogRun:
    """Which part of the output belongs to one run of a job: rank and stream -> bytes."""

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
    """One task of an array as Slurm reports it; its rank has the same number."""

    number: int
    id: str = ""
    """Slurm's own id of the task, such as 4713 for 4711_3; "" while it waits with others."""
    state: str = ""
    reason: str = ""
    text: str = ""
    """Why it waits, or how it ended: one sentence; "" if there is nothing to say."""
    do: str = ""
    attempt: int = 0
    """How often Slurm queued it again."""
    attempts: tuple[Attempt, ...] = ()
    """Its earlier runs, oldest first."""
    over: bool = False

    @property
    def decided(self) -> bool:
        """Whether Slurm ended it; then Slurm's verdict counts more than the end of its rank."""
        return self.over and self.state not in OWN_ENDS


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmStatus:
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
    """Of an array, its tasks as sbatch reports them: `0-9%2`; each rank is the task of its number."""
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
        """Whether Slurm ended the job; then Slurm's verdict counts more than the end of any rank."""
        return self.over and bool(self.text) and self.state not in OWN_ENDS

    def left(self, now: float) -> float | None:
        """Seconds until its time limit is over; None if it does not run or has no limit."""
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


_ENDS = {"COMPLETED": "done", "CANCELLED": "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """A node as Slurm reports it."""

    state: str
    """Slurm's state in lower case: idle, mixed, drained, …; "" if it has no such node any more."""
    also: tuple[str, ...] = ()
    """What the signs at the state say: `not responding`, `powered down`, …"""
    reason: str = ""
    """Why it was taken out of service, in the words of whoever did it."""
    by: str = ""
    since: float | None = None
    """When that was, epoch seconds by Slurm's clock."""
    partitions: tuple[str, ...] = ()
    features: str = ""
    gres: Mapping[str, int] = field(default_factory=dict[str, int])
    """`gpu:a100` -> how many there are."""
    gres_used: Mapping[str, int] = field(default_factory=dict[str, int])
    cpus: int = 0
    cpus_used: int = 0
    memory: int = 0
    """MB."""
    memory_used: int = 0
    jobs: tuple[str, ...] = ()
    """`4711 alice`, at most 64."""

    @property
    def gone(self) -> bool:
        """Whether Slurm no longer has it."""
        return not self.state

    @property
    def out(self) -> bool:
        """Whether it gets no new jobs until somebody does something."""
        return self.state.startswith(NO_JOBS)

    @property
    def ours(self) -> bool:
        """Whether its reason was given from a console like this one."""
        return self.reason.startswith(DRAIN_PREFIX)

    @property
    def words(self) -> str:
        """`idle, not responding`."""
        return ", ".join((self.state, *self.also))

    @property
    def gres_words(self) -> str:
        """`gpu:a100 3/4`: in use, and how many there are."""
        return ", ".join(
            f"{name} {self.gres_used.get(name, 0)}/{count}" for name, count in self.gres.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOrder:
    """Nodes that an operator wants out of service, or back."""

    do: str
    """`drain` or `resume`."""
    nodes: tuple[str, ...]
    why: str = ""
    anyway: bool = False
    """Also return nodes that others took out of service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceChange:
    """What would be run for such an order, and what came of it."""

    line: str = ""
    """The exact command; "" if nothing is left to do."""
    nodes: tuple[str, ...] = ()
    """The nodes that it changes."""
    left_alone: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> why it is left alone."""
    done: bool = False
    said: str = ""
    """What Slurm answered where it took it; usually nothing."""
    now: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> its state afterwards."""
    error: str = ""
    """Why it was not done, one sentence."""

    @property
    def word(self) -> str:
        """What the user must type to confirm: the node, or how many there are."""
        return self.nodes[0] if len(self.nodes) == 1 else str(len(self.nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPartition:
    """A partition and what it allows."""

    name: str
    usual: bool = False
    """Jobs that name none go there."""
    up: bool = True
    limit: float | None = None
    """Seconds that a job may run at most; None: as long as it likes."""
    size: str = ""
    """Nodes that a job may have, as Slurm writes it: `1-infinite`."""
    nodes: int = 0
    idle: int = 0
    usable: int = 0
    """Nodes that are neither down nor drained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmLook:
    """What Slurm has of one job of anybody, in the queue or just ended."""

    id: str = ""
    array: str = ""
    name: str = ""
    user: str = ""
    state: str = ""
    submitted: float | None = None
    out: str = ""
    """Where its stdout goes; "" if that is not told."""
    err: str = ""
    ranks: int = 1
    """Whose lines can be told apart; 1 where they are not labelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job in Slurm's queue, of anybody. Times are epoch seconds by Slurm's clock."""

    backend: ClassVar[str] = "slurm"
    id: str
    place: str
    """How an operator names it: `4711`, `4711_3`, or `4711_[4-9]` where tasks wait together."""
    name: str = ""
    user: str = ""
    mine: bool = False
    cpus: int = 0
    count: int = 0
    """Nodes."""
    created: float = 0.0
    ended: float | None = None
    """When it ended, of one that Slurm's accounting remembers."""
    status: SlurmStatus = field(default_factory=SlurmStatus)

    @property
    def whose(self) -> str:
        """`Slurm job of alice`."""
        return f"Slurm job of {self.user or 'unknown'}"

    @property
    def state(self) -> str:
        """pending, running, or how it ended: done, cancelled or failed."""
        if self.status.over:
            return _ENDS.get(self.status.state, "failed")
        return "pending" if self.status.waits else "running"

    @property
    def end_words(self) -> str:
        """`its time limit was over`, `exit code 7`; of one that is not over ""."""
        if not self.status.over:
            return ""
        code = f"exit code {self.status.code}" if self.status.code else ""
        return self.status.text or code or self.status.state.lower()


JOB, MPIJOB = "Job", "MPIJob"
"""The kinds of jobs that are started here."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a node, in the words of whoever set it."""

    type: str
    status: str
    """True, False or Unknown."""
    reason: str = ""
    message: str = ""
    since: float | None = None
    """Epoch seconds, by the clock of the control plane."""

    @property
    def is_ready(self) -> bool:
        """Whether it is the condition that says if pods can run there."""
        return self.type == "Ready"


@dataclass(frozen=True, slots=True)
class DeviceCount:
    """Devices of one kind on a node."""

    capacity: int
    allocatable: int
    """Less than the capacity: the device plugin calls the rest unhealthy."""
    asked: int | None
    """By pods; None: pods of all namespaces may not be seen."""

    @property
    def words(self) -> str:
        """`8, 1 unhealthy, 6 asked by pods`."""
        ill = self.capacity - self.allocatable
        asked = (
            "not allowed to see what pods ask"
            if self.asked is None
            else f"{self.asked} asked by pods"
        )
        return ", ".join(
            filter(None, (str(self.capacity), f"{ill} unhealthy" if ill > 0 else "", asked))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesNode:
    """A node as the API server has it."""

    conditions: tuple[Condition, ...] = ()
    unschedulable: bool = False
    taints: tuple[str, ...] = ()
    """`key=value:Effect`."""
    devices: Mapping[str, DeviceCount] = field(default_factory=dict[str, DeviceCount])
    """Extended resource, such as nvidia.com/gpu, -> how many."""
    jobs: tuple[str, ...] = ()
    """`namespace/name` of the jobs that have pods there, as far as they may be seen."""
    kubelet: str = ""
    gone: bool = False
    """The API server no longer has it."""

    @property
    def ready(self) -> Condition | None:
        """The condition `Ready`."""
        return next((one for one in self.conditions if one.is_ready), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesJob:
    """A Job, MPIJob, JobSet, TrainJob or PyTorchJob that the API server lists."""

    backend: ClassVar[str] = "kubernetes"
    kind: str
    namespace: str
    name: str
    uid: str = ""
    label: str = ""
    """The label of its pods that holds its name."""
    owner: str = ""
    created: float = 0.0
    state: str = "pending"
    """pending, running, done or failed."""
    why: str = ""
    pods: int = 1
    """Pods with ranks."""
    ranks: int = 1
    parts: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Of a job of several parts: name -> number of its first pod, and pods of each of its Jobs."""
    ours: str = ""
    """Our job id, where a console of Rankdeck started it."""
    spec: Mapping[str, Any] | None = None
    """What that console noted for others."""

    @property
    def place(self) -> str:
        """`mpijob/pi`: how an operator names it."""
        return f"{self.kind.lower()}/{self.name}"

    @property
    def whose(self) -> str:
        """`MPIJob of alice`."""
        return f"{self.kind} of {self.owner or 'unknown'}"


@dataclass(frozen=True, slots=True)
class Permission:
    """One right that a feature needs, and whether the user has it."""

    need: str
    """launch, tidy, see, follow, events, cancel, force, fleet or devices."""
    what: str
    """`create jobs.batch`."""
    allowed: bool
    why: str = ""
    kind: str = ""
    """Of the jobs for which it is needed; "" for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAbout:
    """What is known of an API server and of what the user may do there."""

    kubectl: str = ""
    context: str = ""
    namespace: str = ""
    server: str = ""
    kinds: tuple[str, ...] = ()
    kueue: bool = False
    rights: tuple[Permission, ...] = ()
    trouble: str = ""

    def missing(self, *needs: str, kind: str = JOB) -> tuple[str, ...]:
        """Rights that these features need for jobs of this kind and the user has not, in words."""
        asked = (one for one in self.rights if one.need in needs and one.kind in ("", kind))
        return tuple(one.what for one in asked if not one.allowed)
