"""A node as the API server reports it, and what that means for its health."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from msgspec import field

from rankdeck.model.health import of_reasons
from rankdeck.model.scheduler_node import SchedulerColumn
from rankdeck.values import Value
from rankdeck_agent.rules.levels import Health, Level, Reason

SILENT = "node.silent"
"""The check that fires while no Rankdeck agent is heard."""
_GOOD_ENDS = (
    "Ready", "Healthy", "OK", "Available", "Up", "Active", "Online", "Running", "Enabled",
    "Registered", "Initialized", "Configured", "Joined", "Synced", "Passed", "Succeeded", "Valid",
)  # fmt: skip
"""Endings of the condition types for which True is good."""
_FACT = re.compile(r"(?:Is|Has|Supports)[A-Z]")
"""In the middle of a type that states a fact (`EtcdIsVoter`): good or bad, it is no fault.

For all others True is a fault.
"""
_USUAL = {
    "MemoryPressure": "memory is short there: the kubelet evicts pods",
    "DiskPressure": "disk is short there: the kubelet evicts pods and images",
    "PIDPressure": "processes are short there: the kubelet evicts pods",
    "NetworkUnavailable": "its network is not set up: pods there reach nobody",
}


class Condition(Value):
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


class DeviceCount(Value):
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


class KubernetesNode(Value, kw_only=True):
    """A node as the API server reports it."""

    scheduler: ClassVar[str] = "kubernetes"
    title: ClassVar[str] = "Kubernetes"
    tells_own_jobs: ClassVar[bool] = False
    agent_install: ClassVar[str] = "rankdeck agent install --kubernetes"
    columns: ClassVar[Sequence[SchedulerColumn]] = ()
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

    @property
    def out(self) -> bool:
        """Whether Kubernetes places no new pods there."""
        return self.unschedulable

    @property
    def alone(self) -> str:
        return "by Kubernetes alone: no agent is heard"

    @property
    def remark(self) -> str:
        cordoned = "cordoned" if self.unschedulable else ""
        return ", ".join(filter(None, (cordoned, self.kubelet)))

    @property
    def said(self) -> tuple[tuple[str, str], ...]:
        """Its conditions verbatim, taints, devices, jobs."""
        conditions = (
            (one.type, "; ".join(filter(None, (f"{one.status} {one.reason}".strip(), one.message))))
            for one in self.conditions
        )
        devices = ((name, count.words) for name, count in self.devices.items())
        taints = (("taint", taint) for taint in self.taints)
        return (*conditions, *taints, *devices, *(("job", job) for job in self.jobs))

    @property
    def lines(self) -> tuple[str, ...]:
        """Its conditions verbatim, taints, devices, jobs."""
        conditions = (
            f"condition {one.type} = {one.status} {one.reason} {one.message}".rstrip()
            for one in self.conditions
        )
        taints = (f"taint {taint}" for taint in self.taints)
        cordoned = ("unschedulable",) if self.unschedulable else ()
        devices = (f"{name}: {count.words}" for name, count in self.devices.items())
        return (*conditions, *taints, *cordoned, *devices, *(f"job {job}" for job in self.jobs))

    @property
    def searched(self) -> str:
        return ""

    def values_of(self, word: str) -> Iterable[str]:
        """Kubernetes has no users, partitions or reasons of nodes."""
        return ()

    def merge_health(self, health: Health, *, heard: bool, tried: bool) -> Health:
        """The health with what Kubernetes says; a node without an agent is judged by it alone."""
        reasons = kubernetes_reasons(self, heard=heard)
        if heard or tried:
            still = () if heard or not _is_ready(self) else (_still_ready(),)
            return of_reasons(health, (*health.reasons, *still, *reasons))
        kept = (one for one in health.reasons if one.check != SILENT)
        return of_reasons(health, (*kept, *reasons))

    def why_closed(self, *, shared: bool) -> str:
        """Why a pod would not run there, or that others use its devices."""
        if self.gone:
            return "the API server has no such node"
        if self.unschedulable:
            return "cordoned in Kubernetes"
        if self.ready is not None and self.ready.status != "True":
            return f"not Ready in Kubernetes: {self.ready.reason or self.ready.status}"
        used = [(name, count) for name, count in self.devices.items() if count.asked]
        if shared or not used:
            return ""
        name, count = used[-1]
        return f"busy: pods ask for {count.asked} of its {count.capacity} {name}"


def kubernetes_reasons(view: KubernetesNode, *, heard: bool) -> tuple[Reason, ...]:
    """Why the node is not healthy according to Kubernetes; () if it is."""
    if view.gone:
        text = "Kubernetes has no such node any more · it was removed from the cluster"
        return (Reason("kubernetes.gone", Level.UNKNOWN, text),)
    found = [_condition(one, heard=heard) for one in view.conditions]
    if view.ready is None:
        text = "Kubernetes says nothing of its state · its kubelet may never have started"
        found.append(Reason("kubernetes.ready", Level.UNKNOWN, text))
    if view.unschedulable:
        text = (
            "cordoned: Kubernetes places no new pods here · "
            "`kubectl uncordon` ends that, once whoever did it agrees"
        )
        found.append(Reason("kubernetes.cordoned", Level.WARN, text))
    return (*filter(None, found), *_devices(view.devices.items()))


def _is_ready(view: KubernetesNode) -> bool:
    return not view.gone and view.ready is not None and view.ready.status == "True"


def _still_ready() -> Reason:
    text = "Kubernetes still calls it Ready · it notices a dead node after some 40 s"
    return Reason("kubernetes.ready", Level.UNKNOWN, text)


def _condition(one: Condition, *, heard: bool) -> Reason | None:
    """A reason if the condition shows a fault, in its own words, with
    the meaning of known ones; else None.
    """
    if one.is_ready:
        return None if one.status == "True" else _not_ready(one, heard=heard)
    if one.status == "Unknown":
        text = f"Kubernetes does not know its {_words(one)}"
        return Reason("kubernetes.condition", Level.UNKNOWN, text, device=one.type)
    if _FACT.search(one.type) or (one.status == "True") is one.type.endswith(_GOOD_ENDS):
        return None
    means = f" · {_USUAL[one.type]}" if one.type in _USUAL else ""
    status = f" is {one.status}" if one.type.endswith(_GOOD_ENDS) else ""
    text = f"{_words(one, status)}{means}"
    return Reason("kubernetes.condition", Level.WARN, text, device=one.type)


def _not_ready(one: Condition, *, heard: bool) -> Reason:
    sentence = (
        "Kubernetes calls it not ready"
        if one.status == "False"
        else "Kubernetes lost touch with it"
    )
    text = f"{sentence} ({_words(one)})"
    if heard:
        text += " but our agent is heard · its kubelet or the way to the server may be down · look at the kubelet there"
        return Reason("kubernetes.ready", Level.WARN, text)
    level = Level.BAD if one.status == "False" else Level.UNKNOWN
    return Reason("kubernetes.ready", level, f"{text} · look at its kubelet, or whether it is up")


def _words(one: Condition, status: str = "") -> str:
    return ": ".join(filter(None, (one.type + status, one.reason, one.message)))


def _devices(counts: Iterable[tuple[str, DeviceCount]]) -> list[Reason]:
    return [
        Reason(
            "kubernetes.devices",
            Level.WARN,
            f"{count.capacity - count.allocatable} of {count.capacity} {name} are not given out: "
            "their device plugin calls them unhealthy · look at its log and at the devices",
            device=name,
        )
        for name, count in counts
        if count.allocatable < count.capacity
    ]
