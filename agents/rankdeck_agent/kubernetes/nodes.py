"""Nodes of Kubernetes as rows for the console: conditions, taints, devices, jobs. Pure."""

import calendar
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from rankdeck_agent.kubernetes.kinds import Object, job_of_pod, part, rows, text

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
    devices: Mapping[str, int] = field(default_factory=dict)


def pod_use(pod: Object) -> Optional[PodUse]:
    """What a pod takes; None where it is on no node, or over."""
    node = text(part(pod, "spec").get("nodeName"))
    if not node or part(pod, "status").get("phase") in _FINISHED:
        return None
    return PodUse(node, job_of_pod(pod), requested(part(pod, "spec")))


def requested(spec: Object) -> "dict[str, int]":
    """Devices that the scheduler counts for a pod: all containers together, or one that runs before them."""
    total: dict[str, int] = {}
    for container in rows(spec.get("containers")):
        for name, count in _asked(container).items():
            total[name] = total.get(name, 0) + count
    for container in rows(spec.get("initContainers")):
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
    return {text(name): count for name, count in list(found.items())[:MOST] if count is not None}


def _is_device(name: str) -> bool:
    domain, slash, _ = name.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


def count_of(value: Any) -> Optional[int]:  # noqa: ANN401 - JSON of any shape
    """A quantity that is a whole number; None for all else."""
    if type(value) is int:
        return value if value >= 0 else None
    match = _QUANTITY.match(value) if isinstance(value, str) else None
    return int(match[1]) * _SUFFIXES[match[2] or ""] if match else None


def node_row(node: Object, uses: Optional[Iterable[PodUse]]) -> Object:
    """What the console shows of a node; `uses` None: its pods may not be seen."""
    spec, status = part(node, "spec"), part(node, "status")
    capacity = devices(part(status, "capacity"))
    free = devices(part(status, "allocatable"))
    asked, jobs = _taken(uses)
    return {
        "name": text(part(node, "metadata").get("name")),
        "unschedulable": spec.get("unschedulable") is True,
        "conditions": [_condition(one) for one in rows(status.get("conditions"))[:MOST]],
        "taints": [_taint(one) for one in rows(spec.get("taints"))[:MOST]],
        "devices": {
            name: {
                "capacity": capacity.get(name, 0),
                "allocatable": free.get(name, 0),
                "asked": None if asked is None else asked.get(name, 0),
            }
            for name in sorted({**capacity, **free})[:MOST]
        },
        "jobs": jobs,
        "address": _address(status),
        "kubelet": text(part(status, "nodeInfo").get("kubeletVersion"), 60),
    }


def _taken(
    uses: Optional[Iterable[PodUse]],
) -> "tuple[Optional[dict[str, int]], Optional[list[str]]]":
    if uses is None:
        return None, None
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
        "type": text(found.get("type"), 100),
        "status": text(found.get("status"), 20),
        "reason": text(found.get("reason"), 100),
        "message": text(found.get("message"), 400),
        "since": epoch(found.get("lastTransitionTime")),
    }


def _taint(found: Object) -> str:
    key, value, effect = (text(found.get(key)) for key in ("key", "value", "effect"))
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def _address(status: Object) -> str:
    known = {
        text(one.get("type")): text(one.get("address")) for one in rows(status.get("addresses"))
    }
    return known.get("InternalIP", "")


def epoch(stamp: Any) -> Optional[float]:  # noqa: ANN401 - JSON of any shape
    """Epoch seconds of `2026-11-21T10:58:11Z`; None for all else."""
    try:
        return float(calendar.timegm(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S")))
    except (TypeError, ValueError):
        return None
