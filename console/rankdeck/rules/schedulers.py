"""Health of a node by what Slurm and Kubernetes say of it, beside our agent; where they disagree both are said."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rankdeck.model.health import Health, Level, Reason, worst_of

if TYPE_CHECKING:  # the first picture shows no scheduler
    from rankdeck.model.schedulers import Condition, DeviceCount, KubernetesNode, SlurmNode

_LOOK = "look at slurmd there (`systemctl status slurmd`, its log) and at the way to the controller"

_BACK = {True: "`:resume` gives it back", False: "`:resume anyway` gives it back"}
_USED = ("idle", "mixed", "alloc", "compl", "planned")
"""How the states begin in which jobs run there, or may be started."""


def with_slurm(health: Health, view: "SlurmNode | None", *, heard: bool) -> Health:
    """The health by our agent with the opinion of Slurm; `heard` is whether the agent is heard now."""
    if view is None:
        return health
    told = tuple(filter(None, (_state(view, health, heard=heard), _touch(view, heard=heard))))
    told = told or tuple(filter(None, (_still_used(view, health),)))
    if not told:
        return health
    ordered = tuple(sorted((*health.reasons, *told), key=lambda one: -one.level))
    return Health(worst_of(ordered), ordered, health.evaluated, health.checks, health.limits)


def _state(view: "SlurmNode", health: Health, *, heard: bool) -> Reason | None:
    """What its state means for jobs."""
    if view.gone:
        text = "Slurm has no such node any more · it was removed from slurm.conf"
        return Reason("slurm.gone", Level.UNKNOWN, text)
    if view.state.startswith(("down", "error")):
        return _down(view, heard=heard)
    if view.state == "inval":
        text = f"Slurm gives it no jobs: less is there than slurm.conf says{_why(view)} · compare `slurmd -C` there with slurm.conf"
        return Reason("slurm.state", Level.WARN, text)
    if not view.out:
        return None
    well = heard and health.level is Level.OK
    ours = view.ours
    text = f"{view.state} in Slurm: it gets no new jobs{_why(view)}"
    text += (
        f" · our agent finds nothing wrong there · {_BACK[ours]}{'' if ours else ', once whoever did it agrees'}"
        if well
        else f" · {_BACK[ours]} once it is repaired"
    )
    return Reason("slurm.state", Level.WARN, text)


def _down(view: "SlurmNode", *, heard: bool) -> Reason:
    text = f"Slurm calls it down{_why(view)}"
    if heard:
        return Reason("slurm.state", Level.WARN, f"{text} but our agent is heard · {_LOOK}")
    return Reason("slurm.state", Level.BAD, f"{text} · is it up? {_LOOK}")


def _touch(view: "SlurmNode", *, heard: bool) -> Reason | None:
    """Whether Slurm and its slurmd hear each other."""
    if "powered down" in view.also and not heard:
        text = "Slurm has powered it down to save energy · it starts when a job needs it"
        return Reason("slurm.power", Level.UNKNOWN, text)
    if "not responding" not in view.also or view.state.startswith("down"):
        return None
    but = " but our agent is heard" if heard else ""
    level = Level.WARN if heard else Level.UNKNOWN
    return Reason("slurm.silent", level, f"its slurmd does not answer Slurm{but} · {_LOOK}")


def _still_used(view: "SlurmNode", health: Health) -> Reason | None:
    """Slurm goes on giving jobs to a node on which something is wrong."""
    bad = any(one.level is Level.BAD and one.acknowledged_until is None for one in health.reasons)
    if not bad or view.also or not view.state.startswith(_USED):
        return None
    text = f"Slurm still gives it jobs ({view.words}) · `:drain WHY` takes it out of service"
    return Reason("slurm.usable", Level.WARN, text)


def _why(view: "SlurmNode") -> str:
    """` (bad cable, by root, since 11-22 18:23)`."""
    since = time.strftime("since %m-%d %H:%M", time.localtime(view.since)) if view.since else ""
    known = (view.reason, f"by {view.by}" if view.by else "", since if view.reason else "")
    words = ", ".join(filter(None, known))
    return f" ({words})" if words else ""


SILENT = "node.silent"
"""The check that fires while no agent of ours is heard."""
_GOOD_ENDS = ("Ready", "Healthy", "OK", "Available")
"""How the types of conditions end that are well when they are True; all others are faults when True."""
_USUAL = {
    "MemoryPressure": "memory is short there: the kubelet evicts pods",
    "DiskPressure": "disk is short there: the kubelet evicts pods and images",
    "PIDPressure": "processes are short there: the kubelet evicts pods",
    "NetworkUnavailable": "its network is not set up: pods there reach nobody",
}


def merged(health: Health, view: "KubernetesNode | None", *, heard: bool, tried: bool) -> Health:
    """The health by our agent, with the second opinion of Kubernetes.

    `heard` is whether the agent is heard now, `tried` whether one was ever heard or could not be
    started there. A node on which we have no agent is judged by Kubernetes alone.
    """
    if view is None:
        return health
    told = kubernetes_reasons(view, heard=heard)
    if heard or tried:
        still = () if heard or not _is_ready(view) else (_still_ready(),)
        kept = (*health.reasons, *still, *told)
    else:
        kept = (*(one for one in health.reasons if one.check != SILENT), *told)
    ordered = tuple(sorted(kept, key=lambda one: -one.level))
    return Health(worst_of(ordered), ordered, health.evaluated, health.checks, health.limits)


def kubernetes_reasons(view: "KubernetesNode", *, heard: bool) -> tuple[Reason, ...]:
    """Why Kubernetes does not call the node well."""
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


def _is_ready(view: "KubernetesNode") -> bool:
    return not view.gone and view.ready is not None and view.ready.status == "True"


def _still_ready() -> Reason:
    text = "Kubernetes still calls it Ready · it notices a dead node after some 40 s"
    return Reason("kubernetes.ready", Level.UNKNOWN, text)


def _condition(one: "Condition", *, heard: bool) -> Reason | None:
    """What a condition says, verbatim where it is not one of Kubernetes' own."""
    if one.is_ready:
        return None if one.status == "True" else _not_ready(one, heard=heard)
    if one.status == "Unknown":
        text = f"Kubernetes does not know its {_words(one)}"
        return Reason("kubernetes.condition", Level.UNKNOWN, text, device=one.type)
    if (one.status == "True") is one.type.endswith(_GOOD_ENDS):
        return None
    means = f" · {_USUAL[one.type]}" if one.type in _USUAL else ""
    status = f" is {one.status}" if one.type.endswith(_GOOD_ENDS) else ""
    text = f"{_words(one, status)}{means}"
    return Reason("kubernetes.condition", Level.WARN, text, device=one.type)


def _not_ready(one: "Condition", *, heard: bool) -> Reason:
    said = (
        "Kubernetes calls it not ready"
        if one.status == "False"
        else "Kubernetes lost touch with it"
    )
    text = f"{said} ({_words(one)})"
    if heard:
        text += " but our agent is heard · its kubelet or the way to the server may be down · look at the kubelet there"
        return Reason("kubernetes.ready", Level.WARN, text)
    level = Level.BAD if one.status == "False" else Level.UNKNOWN
    return Reason("kubernetes.ready", level, f"{text} · look at its kubelet, or whether it is up")


def _words(one: "Condition", status: str = "") -> str:
    return ": ".join(filter(None, (one.type + status, one.reason, one.message)))


def _devices(counts: "Iterable[tuple[str, DeviceCount]]") -> list[Reason]:
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
