"""Nodes of Kubernetes as rows for the console: conditions, taints, devices, jobs. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from rankdeck_agent.job.journal import plain
from rankdeck_agent.kubernetes.kinds import job_of_pod, part
from rankdeck_agent.kubernetes.pods import Object, rows_of, text_of
from rankdeck_agent.kubernetes.split import epoch

MOST = 64
"""Conditions, taints, devices and jobs of one node that are told."""
_FINISHED = ("Succeeded", "Failed")
_SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_QUANTITY = re.compile(r"(\d{1,15})(k|M|G|Ki|Mi|Gi)?\Z", re.ASCII)


@dataclass(frozen=True)
class PodUse:
    """What one pod takes of its node."""

    node: str
    job: str
    """`namespace/name`; "" where it is no job's."""
    devices: Mapping[str, int] = field(default_factory=dict[str, int])


def pod_use(pod: Object) -> Optional[PodUse]:
    """What a pod takes; None where it is on no node, or over."""
    node = text_of(part(pod, "spec"), "nodeName")
    if not node or part(pod, "status").get("phase") in _FINISHED:
        return None
    return PodUse(node, job_of_pod(pod), requested(part(pod, "spec")))


def requested(spec: Object) -> "dict[str, int]":
    """Devices that the scheduler counts for a pod: all containers together, or one that runs before them."""
    total: dict[str, int] = {}
    for container in rows_of(spec.get("containers")):
        for name, count in _asked(container).items():
            total[name] = total.get(name, 0) + count
    for container in rows_of(spec.get("initContainers")):
        for name, count in _asked(container).items():
            total[name] = max(total.get(name, 0), count)
    return total


def _asked(container: Object) -> "dict[str, int]":
    given = part(container, "resources")
    # Of devices request and limit are the same, and either may be left out.
    return devices({**part(given, "limits"), **part(given, "requests")})


def devices(quantities: Mapping[str, Any]) -> "dict[str, int]":
    """Extended resources alone: those whose name has a domain that is not Kubernetes' own."""
    found = {name: count_of(value) for name, value in quantities.items() if _is_device(name)}
    return {
        plain(name, 253): count for name, count in list(found.items())[:MOST] if count is not None
    }


def _is_device(name: str) -> bool:
    domain, slash, _ = name.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


def count_of(value: Any) -> Optional[int]:  # noqa: ANN401 - JSON of any shape
    """A quantity that is a whole number; None for all else."""
    if type(value) is int:
        return value if value >= 0 else None
    match = _QUANTITY.match(value) if isinstance(value, str) else None
    return int(match[1]) * _SUFFIXES[match[2] or ""] if match else None


def node_row(node: Object, uses: Iterable[PodUse], *, all_pods: bool) -> Object:
    """What the console shows of a node; without `all_pods` what is asked of it is not known."""
    spec, status = part(node, "spec"), part(node, "status")
    capacity = devices(part(status, "capacity"))
    free = devices(part(status, "allocatable"))
    asked, jobs = _taken(uses)
    return {
        "name": text_of(part(node, "metadata"), "name"),
        "unschedulable": spec.get("unschedulable") is True,
        "conditions": [_condition(one) for one in rows_of(status.get("conditions"))[:MOST]],
        "taints": [_taint(one) for one in rows_of(spec.get("taints"))[:MOST]],
        "devices": {
            name: {
                "capacity": capacity.get(name, 0),
                "allocatable": free.get(name, 0),
                "asked": asked.get(name, 0) if all_pods else None,
            }
            for name in sorted({**capacity, **free})[:MOST]
        },
        "jobs": jobs,
        "address": _address(status),
        "kubelet": text_of(part(status, "nodeInfo"), "kubeletVersion", 60),
    }


def _taken(uses: Iterable[PodUse]) -> "tuple[dict[str, int], list[str]]":
    """Devices that pods have asked for, and their jobs."""
    total: dict[str, int] = {}
    jobs: dict[str, None] = {}
    for use in uses:
        for name, count in use.devices.items():
            total[name] = total.get(name, 0) + count
        if use.job:
            jobs[use.job] = None
    return total, sorted(jobs)[:MOST]


def _condition(found: Object) -> Object:
    return {
        "type": text_of(found, "type", 100),
        "status": text_of(found, "status", 20),
        "reason": text_of(found, "reason", 100),
        "message": text_of(found, "message", 400),
        "since": epoch(found.get("lastTransitionTime")),
    }


def _taint(found: Object) -> str:
    key, value, effect = (text_of(found, key) for key in ("key", "value", "effect"))
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def _address(status: Object) -> str:
    known = {
        text_of(one, "type"): text_of(one, "address") for one in rows_of(status.get("addresses"))
    }
    return known.get("InternalIP", "")
