"""The scheduler of the double: nodes with devices, and messages for pods that fit on no node."""

from collections import Counter
from typing import Any

from tests.support.kubernetes.defaults import requested
from tests.support.kubernetes.kinds import CLAIM, JOB, NODE, POD
from tests.support.kubernetes.store import Store, deleting, is_true, labels, now

Json = dict[str, Any]
BY = "default-scheduler"


def node(name: str, gpus: int = 8, healthy: int | None = None, **resources: int) -> Json:
    """A node object; `healthy` is the number of devices that the device plugin offers."""
    own = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    devices = {"nvidia.com/gpu": gpus, **{k.replace("__", "/"): v for k, v in resources.items()}}
    capacity = {**own, **{k: str(v) for k, v in devices.items()}}
    offered = {**capacity, "nvidia.com/gpu": str(gpus if healthy is None else healthy)}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "capacity": capacity,
            "allocatable": offered,
            "conditions": [ready("True")],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.36.2-double"},
        },
    }


def ready(value: str) -> Json:
    """The node's Ready condition."""
    words = {
        "True": ("KubeletReady", "kubelet is posting ready status"),
        "Unknown": ("NodeStatusUnknown", "Kubelet stopped posting node status."),
    }
    reason, message = words[value]
    times = {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
    return {"type": "Ready", "status": value, **times, "reason": reason, "message": message}


VOLCANO, _MEMBERS = "volcano", "scheduling.volcano.sh/group-min-member"


def reconcile(store: Store) -> None:
    """Assign a node to each waiting pod, or write its event
    FailedScheduling; pods of other schedulers wait.
    """
    for pod in store.all(POD):
        if not pod["spec"].get("nodeName") and not deleting(pod) and _is_due(store, pod):
            _place(store, pod)


def _is_due(store: Store, pod: Json) -> bool:
    """Whether a scheduler would look at the pod: Volcano waits until a group has the
    members that its Job says (`group-min-member`).
    """
    name = pod["spec"].get("schedulerName", BY)
    if name != VOLCANO:
        return name == BY
    owners = {one["uid"] for one in pod["metadata"].get("ownerReferences", [])}
    jobs = [job for job in store.all(JOB) if job["metadata"]["uid"] in owners]
    wanted = max(
        (int(job["metadata"].get("annotations", {}).get(_MEMBERS, 1)) for job in jobs), default=1
    )
    group = [
        one
        for one in store.all(POD)
        if owners & {o["uid"] for o in one["metadata"].get("ownerReferences", [])}
    ]
    return len(group) >= wanted


def _place(store: Store, pod: Json) -> None:
    nodes = store.all(NODE)
    reasons = {each["metadata"]["name"]: _why_not(store, pod, each) for each in nodes}
    free = [name for name, reason in reasons.items() if not reason]
    if missing := _missing_claim(store, pod):
        _unschedulable(store, pod, f"0/{len(nodes)} nodes are available: {missing}")
    elif free:
        load = Counter(p["spec"].get("nodeName") for p in store.all(POD))
        _bind(store, pod, min(free, key=lambda name: (load[name], name)))
    else:
        counted = Counter(reasons.values())
        told = ", ".join(f"{n} {reason}" for reason, n in sorted(counted.items()))
        available = f"0/{len(nodes)} nodes are available: "
        rest = f"{available}{len(nodes)} Preemption is not helpful for scheduling."
        words = f"{available}{told}. no new claims to deallocate, preemption: {rest}"
        _unschedulable(store, pod, words)


def _why_not(store: Store, pod: Json, node: Json) -> str:
    wanted = (pod["spec"].get("nodeSelector") or {}).items()
    if any(labels(node).get(key) != value for key, value in wanted):
        return "node(s) didn't match Pod's node affinity/selector"
    if not _by_name(pod, node["metadata"]["name"]):
        return "node(s) didn't match Pod's node affinity/selector"
    if node["spec"].get("unschedulable"):
        return "node(s) were unschedulable"
    silent = [] if is_true(node, "Ready") else [_UNREACHABLE]
    for taint in [*node["spec"].get("taints", []), *silent]:
        if taint["effect"] != "PreferNoSchedule" and not _tolerated(pod, taint):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    if _has_one_like(store, pod, node):
        return "node(s) didn't match pod anti-affinity rules"
    return _lacking(store, pod, node)


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _by_name(pod: Json, name: str) -> bool:
    """Whether a required term of node affinity allows a node of this
    name; only `matchFields` is read.
    """
    wanted = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(_REQUIRED)
    if wanted is None:
        return True
    terms = [term["matchFields"] for term in wanted["nodeSelectorTerms"]]
    for field in (field for fields in terms for field in fields):
        if field["key"] != "metadata.name" or len(field["values"]) != 1:
            raise ValueError(f"the API server refuses {field}")
    return any(
        all((name in each["values"]) == (each["operator"] == "In") for each in fields)
        for fields in terms
    )


def _has_one_like(store: Store, pod: Json, node: Json) -> bool:
    """Whether a pod runs there that the anti-affinity of this one
    excludes; the only topology is the node.
    """
    rules = pod["spec"].get("affinity", {}).get("podAntiAffinity", {}).get(_REQUIRED, [])
    wanted = [rule["labelSelector"]["matchLabels"].items() for rule in rules]
    there = [labels(other).items() for other in store.all(POD) if _on(other, node)]
    return any(ours <= theirs for ours in wanted for theirs in there)


_UNREACHABLE: Json = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}


def _lacking(store: Store, pod: Json, node: Json) -> str:
    """`Insufficient NAME` for the first device of which the node has too
    few free; "" if there are enough.
    """
    offered = node["status"]["allocatable"]
    for name in _devices(pod):
        used = sum(requested(p, name) for p in store.all(POD) if _on(p, node))
        if requested(pod, name) > int(offered.get(name, 0)) - used:
            return f"Insufficient {name}"
    return ""


def _tolerated(pod: Json, taint: Json) -> bool:
    for known in pod["spec"].get("tolerations", []):
        if known.get("key") in (None, "", taint["key"]) and known.get("effect") in (
            None,
            "",
            taint["effect"],
        ):
            any_value = known.get("operator") == "Exists"
            if any_value or known.get("value", "") == taint.get("value", ""):
                return True
    return False


def _devices(pod: Json) -> set[str]:
    """Extended resources: those with a slash in their name."""
    asked = [container.get("resources", {}) for container in pod["spec"]["containers"]]
    names = {name for each in asked for part in each.values() for name in part}
    return {name for name in names if "/" in name}


def _on(pod: Json, node: Json) -> bool:
    ended = pod["status"]["phase"] in ("Succeeded", "Failed")
    return pod["spec"].get("nodeName") == node["metadata"]["name"] and not ended


def _missing_claim(store: Store, pod: Json) -> str:
    for volume in pod["spec"].get("volumes", []):
        name = volume.get("persistentVolumeClaim", {}).get("claimName")
        if name and store.get(CLAIM, pod["metadata"]["namespace"], name) is None:
            return f'persistentvolumeclaim "{name}" not found. preemption: not eligible'
    return ""


def _bind(store: Store, pod: Json, name: str) -> None:
    def change(new: Json) -> None:
        new["spec"]["nodeName"] = name
        new["status"]["conditions"] = [pod_condition("PodScheduled", "True")]

    store.change(POD, pod, change)
    meta = pod["metadata"]
    words = f"Successfully assigned {meta['namespace']}/{meta['name']} to {name}"
    store.event(POD, pod, "Scheduled", words, by=BY)


def _unschedulable(store: Store, pod: Json, message: str) -> None:
    def change(new: Json) -> None:
        old = [c for c in new["status"].get("conditions", []) if c.get("message") == message]
        why = {"reason": "Unschedulable", "message": message}
        if not old:
            new["status"]["conditions"] = [{**pod_condition("PodScheduled", "False"), **why}]

    store.change(POD, pod, change)
    store.event(POD, pod, "FailedScheduling", message, by=BY, warning=True)


def pod_condition(name: str, value: str) -> Json:
    return {"type": name, "status": value, "lastProbeTime": None, "lastTransitionTime": now()}
