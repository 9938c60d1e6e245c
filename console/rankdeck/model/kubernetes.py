"""What Kubernetes says of a node, of a job and of our rights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

READY = "Ready"
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
    """The API server had it and has it no more."""

    @property
    def ready(self) -> Condition | None:
        """The condition `Ready`."""
        return next((one for one in self.conditions if one.type == READY), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesJob:
    """A Job, MPIJob, JobSet, TrainJob or PyTorchJob that the API server lists."""

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
