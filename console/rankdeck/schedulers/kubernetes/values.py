"""What the API server reports: jobs, namespaces and the user's rights."""

import re
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import field

from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.queue import UnqueuedJob
from rankdeck.values import Value

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


class KubernetesJob(UnqueuedJob, kw_only=True):
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
    def user(self) -> str:
        return self.owner

    @property
    def job_id(self) -> str:
        """Rankdeck's id for it, the same in every console: for a job of others its
        name, time of creation and a part of its uid.
        """
        if self.ours:
            return self.ours
        made = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self.created))
        name = re.sub(r"[^A-Za-z0-9._-]", "-", self.name)[:60]
        return f"{name}-{made}-{self.uid.replace('-', '')[:4].ljust(4, '0')}"

    @property
    def known_as(self) -> str:
        return self.ours or self.place

    @property
    def node_set(self) -> str:
        return fold_nodes(self.nodes) if self.nodes else ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which a person can choose it."""
        return (self.place, self.name, self.ours, self.job_id)

    @property
    def remark(self) -> str:
        """What it holds, or why it is as it is."""
        return "; ".join(filter(None, (self.held_words, self.why)))

    @property
    def whose(self) -> str:
        """`MPIJob of alice`."""
        who = "somebody unknown" if self.owner in ("", "unknown") else self.owner
        return f"{self.kind} of {who}"

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


class Permission(Value):
    """One right that a feature needs, and whether the user has it."""

    need: str
    """launch, tidy, see, follow, events, cancel, force, fleet or devices."""
    what: str
    """`create jobs.batch`."""
    allowed: bool
    why: str = ""
    kind: str = ""
    """The kind of jobs that need it; "": all kinds."""


class Namespaces(Value, kw_only=True):
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


class ClusterAbout(Value, kw_only=True):
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
