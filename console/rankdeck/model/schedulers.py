"""What Slurm and Kubernetes report: nodes, partitions, queues, jobs and the user's rights."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from rankdeck_agent.wire import DRAIN_PREFIX, NO_JOBS

OWN_ENDS = frozenset({"COMPLETED", "FAILED"})
"""States of a job that ended by itself: its ranks show why."""


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
    """Number of ranks that began."""
    failed: tuple[int, ...] = ()
    """Some of the ranks that did not end with exit code 0."""
    exit_code: int | None = None
    """Exit code of the first of `failed`; 128 + signal if a signal ended it."""


@dataclass(frozen=True, slots=True)
class LogRun:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmTask:
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
    tasks: tuple[SlurmTask, ...] = ()
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


def queue_words(status: SlurmStatus, now: float) -> str:
    """`waits behind jobs with higher priority (Priority), place 3 of 12, may
    start in 20 min`, or the time left.
    """
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


class SlurmFlag(StrEnum):
    """Flags of a node's state that are judged, as the agent names them
    (`slurm/cluster.py` there has all).
    """

    NOT_RESPONDING = "not responding"
    POWERED_DOWN = "powered down"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """A node as Slurm reports it."""

    state: str
    """Slurm's state in lower case: idle, mixed, drained, …; "" if Slurm no longer has the node."""
    also: tuple[str, ...] = ()
    """Meaning of the flags that Slurm appends to the state: `not responding`, `powered down`, …"""
    reason: str = ""
    """Why it was taken out of service, as given by the person or program that did it."""
    by: str = ""
    """Who took it out of service."""
    since: float | None = None
    """When it was taken out of service, epoch seconds by Slurm's clock."""
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
        """Whether Slurm no longer has this node."""
        return not self.state

    @property
    def out(self) -> bool:
        """Whether it gets no new jobs until somebody acts."""
        return self.state.startswith(NO_JOBS)

    @property
    def ours(self) -> bool:
        """Whether a Rankdeck console drained it: its reason has our prefix."""
        return self.reason.startswith(DRAIN_PREFIX)

    @property
    def words(self) -> str:
        """`idle, not responding`."""
        return ", ".join((self.state, *self.also))

    @property
    def gres_words(self) -> str:
        """`gpu:a100 3/4`: 3 in use of 4."""
        return ", ".join(
            f"{name} {self.gres_used.get(name, 0)}/{count}" for name, count in self.gres.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOrder:
    """Nodes that an operator wants to take out of service, or to return."""

    do: str
    """`drain` or `resume`."""
    nodes: tuple[str, ...]
    why: str = ""
    anyway: bool = False
    """With `resume`: also return nodes that others took out of service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmChange:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceChange(SlurmChange):
    """The command for a `ServiceOrder`, and its result if it was run."""

    nodes: tuple[str, ...] = ()
    """The nodes that the command changes."""

    @property
    def word(self) -> str:
        """What the user must type to confirm: the node, or how many there are."""
        return self.nodes[0] if len(self.nodes) == 1 else str(len(self.nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """Jobs in Slurm's queue that somebody wants to hold, release,
    requeue, or give another time limit.
    """

    do: str
    """`hold`, `release`, `requeue` or `timelimit`."""
    jobs: tuple[str, ...]
    """Slurm's names: `4711`, `48_3`, `48_[2-5]`."""
    to: str = ""
    """The new time limit, in Slurm's syntax."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange(SlurmChange):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPage:
    """What one command of Slurm printed."""

    line: str = ""
    """The command line."""
    lines: tuple[str, ...] = ()
    error: str = ""
    """Why it failed, one sentence; "" if it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmEfficiency:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPages:
    """The answer to a question that Slurm itself answers."""

    pages: tuple[SlurmPage, ...] = ()
    efficiency: tuple[SlurmEfficiency, ...] = ()
    error: str = ""
    """Why nothing was asked, one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPartition:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmLook:
    """What Slurm knows about one job of any user, in the queue or just ended."""

    id: str = ""
    array: str = ""
    name: str = ""
    user: str = ""
    state: str = ""
    submitted: float | None = None
    out: str = ""
    """File of its stdout; "" if not known."""
    err: str = ""
    """File of its stderr; "" if not known."""
    ranks: int = 1
    """Number of ranks whose lines can be told apart; 1 if lines are not labelled."""
    components: int = 0
    """Number of components of a het job, which all end with it; 0 for other jobs."""
    tasks: int = 1
    """Number of tasks of an array that its name stands for and that have not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmComponent:
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


def slurm_owner(user: str, components: int, tasks: int = 1) -> str:
    """`Slurm job of alice`, `Slurm job of alice, 2 components`: also how many
    jobs of Slurm end with it, if not one.
    """
    several = f", {tasks} tasks" if tasks > 1 else ""
    parts = f", {components} component{'s' if components > 1 else ''}" if components else several
    return f"Slurm job of {user or 'unknown'}{parts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job of any user in Slurm's queue. Times are epoch seconds by Slurm's clock."""

    backend: ClassVar[str] = "slurm"
    id: str
    place: str
    """Its id for people: `4711`, `4711_3`, or `4711_[4-9]` for tasks that are pending together."""
    name: str = ""
    user: str = ""
    mine: bool = False
    cpus: int = 0
    count: int = 0
    """Number of nodes."""
    gpus: int = 0
    memory: float = 0.0
    """MB that it has or asks for, on all its nodes; 0: not told."""
    priority: int = 0
    components: tuple[SlurmComponent, ...] = ()
    """The components of a het job; this job is all of them."""
    created: float = 0.0
    ended: float | None = None
    """When it ended; only for jobs read from Slurm's accounting."""
    status: SlurmStatus = field(default_factory=SlurmStatus)

    @property
    def whose(self) -> str:
        """`Slurm job of alice`."""
        return slurm_owner(self.user, len(self.components))

    @property
    def state(self) -> str:
        """pending, running, or how it ended: done, cancelled or failed."""
        if self.status.over:
            return _ENDS.get(self.status.state, "failed")
        return "pending" if self.status.waits else "running"

    @property
    def end_words(self) -> str:
        """How it ended: `its time limit was over`, `exit code 7`; "" if it is not over."""
        if not self.status.over:
            return ""
        code = f"exit code {self.status.code}" if self.status.code else ""
        return self.status.text or code or self.status.state.lower()


ALL_NAMESPACES = "*"
"""In place of a namespace: all of them. The agent takes it, too."""
JOB, MPIJOB = "Job", "MPIJob"
"""The kinds of Kubernetes jobs that Rankdeck starts."""
FOLLOWED_KINDS = {
    JOB: "batch",
    MPIJOB: "kubeflow.org",
    "PyTorchJob": "kubeflow.org",
    "JobSet": "jobset.x-k8s.io",
    "TrainJob": "trainer.kubeflow.org",
}
"""Kinds of jobs that Rankdeck follows -> their API group."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a Kubernetes node, as its controller wrote it."""

    type: str
    status: str
    """True, False or Unknown."""
    reason: str = ""
    message: str = ""
    since: float | None = None
    """Epoch seconds, by the clock of the control plane."""

    @property
    def is_ready(self) -> bool:
        """Whether this is the condition `Ready`, which says whether pods can run on the node."""
        return self.type == "Ready"


@dataclass(frozen=True, slots=True)
class DeviceCount:
    """Devices of one kind on a node."""

    capacity: int
    allocatable: int
    """If less than the capacity, the device plugin reports the rest as unhealthy."""
    asked: int | None
    """Number requested by pods; None: the user may not see the pods of all namespaces."""

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
    """A node as the API server reports it."""

    conditions: tuple[Condition, ...] = ()
    unschedulable: bool = False
    taints: tuple[str, ...] = ()
    """`key=value:Effect`."""
    devices: Mapping[str, DeviceCount] = field(default_factory=dict[str, DeviceCount])
    """Extended resource (such as nvidia.com/gpu) -> how many."""
    jobs: tuple[str, ...] = ()
    """`namespace/name` of the jobs with pods on the node, as far as the user may see them."""
    kubelet: str = ""
    gone: bool = False
    """The API server no longer has the node."""

    @property
    def ready(self) -> Condition | None:
        """The condition `Ready`."""
        return next((one for one in self.conditions if one.is_ready), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesJob:
    """A Job, MPIJob, JobSet, TrainJob or PyTorchJob that the API server lists; or
    something else whose pods hold devices.
    """

    backend: ClassVar[str] = "kubernetes"
    kind: str
    namespace: str
    name: str
    uid: str = ""
    label: str = ""
    """The label of its pods whose value is the job's name."""
    owner: str = ""
    created: float = 0.0
    state: str = "pending"
    """pending, running, done or failed."""
    why: str = ""
    pods: int = 1
    """Number of pods with ranks."""
    ranks: int = 1
    parts: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """For a job with several parts: part -> (number of its first
    pod, pods in each Job of the part).
    """
    held: Mapping[str, int] = field(default_factory=dict[str, int])
    """For what is no job that Rankdeck follows (a RayCluster, a bare
    pod): device -> how many its pods hold.
    """
    nodes: tuple[str, ...] = ()
    """For the same: the nodes of these pods."""
    ours: str = ""
    """Rankdeck's job id, if a Rankdeck console started it; else ""."""
    spec: Mapping[str, Any] | None = None
    """What that console stored in the job for other consoles."""

    @property
    def place(self) -> str:
        """Its name for people: `mpijob/pi`."""
        return f"{self.kind.lower()}/{self.name}"

    @property
    def whose(self) -> str:
        """`MPIJob of alice`."""
        return f"{self.kind} of {self.owner or 'unknown'}"

    @property
    def held_words(self) -> str:
        """`holds 8 nvidia.com/gpu in 2 pods`; "" for a job."""
        if not self.held:
            return ""
        devices = ", ".join(f"{count} {name}" for name, count in self.held.items())
        return f"holds {devices} in {self.pods} pod{'s' if self.pods > 1 else ''}"

    @property
    def is_followed(self) -> bool:
        """Whether it is a job of a kind that Rankdeck follows."""
        return self.kind in FOLLOWED_KINDS


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
    """The kind of jobs that need it; "": all kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespaces:
    """The namespaces of a Kubernetes cluster that the user may know of."""

    allowed: tuple[str, ...] = ()
    """Those in which the user may list jobs."""
    closed: tuple[str, ...] = ()
    """The others."""
    current: str = ""
    every: bool = False
    """Whether all may be seen at once (ALL_NAMESPACES)."""
    why: str = ""
    """Why these may not be all; "" if they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAbout:
    """What is known about an API server and the user's rights there."""

    kubectl: str = ""
    context: str = ""
    namespace: str = ""
    server: str = ""
    kinds: tuple[str, ...] = ()
    kueue: bool = False
    rights: tuple[Permission, ...] = ()
    trouble: str = ""

    def missing(self, *needs: str, kind: str = JOB) -> tuple[str, ...]:
        """The rights that these features need for jobs of this kind
        and that the user lacks, in words.
        """
        asked = (one for one in self.rights if one.need in needs and one.kind in ("", kind))
        return tuple(one.what for one in asked if not one.allowed)
