"""Nodes and jobs of Kubernetes as rows for the console. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Optional

from rankdeck_agent.schedulers.kubernetes.json_values import Object, object_rows, whole_or_zero
from rankdeck_agent.schedulers.kubernetes.objects import (
    BY_NAME,
    FINISHED,
    ID_ANNOTATION,
    JOB,
    KINDS,
    MPIJOB,
    OURS_LABEL,
    SPEC_ANNOTATION,
    JobKind,
    held_by,
    job_of_pod,
    job_outcome,
    parse_object_time,
    part_of_object,
    string_value,
)
from rankdeck_agent.text import parse_json_table, plain_line
from rankdeck_agent.values import Value, field

MOST = 64
"""Most conditions, taints, devices and jobs (each) in the row of one node."""
_SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_QUANTITY = re.compile(r"(\d{1,15})(k|M|G|Ki|Mi|Gi)?\Z", re.ASCII)


class PodUse(Value):
    """What one pod uses of its node."""

    node: str
    job: str
    """`namespace/name` of its job; "" if it has none."""
    devices: Mapping[str, int] = field(default_factory=dict[str, int])
    starts: bool = False
    """Whether no container of it has begun."""
    holder: Optional["Holder"] = None
    """What the pod belongs to, if that is no job of a kind that
    Rankdeck follows and the pod has devices.
    """


class Holder(Value):
    """What holds devices without being a job that Rankdeck follows: a
    RayCluster, a TFJob, a bare pod.
    """

    kind: str
    """As kubectl takes it: `RayCluster`; with its group if a followed kind has
    the same name (`Job.batch.volcano.sh`).
    """
    namespace: str
    name: str
    owner: str = ""
    created: Optional[float] = None

    @property
    def key(self) -> tuple[str, str]:
        """(kind, `namespace/name`), as rows of jobs are known by."""
        return self.kind, f"{self.namespace}/{self.name}"


def pod_use(pod: Object) -> Optional[PodUse]:
    """What a pod uses; None if it is on no node or has ended."""
    node = string_value(part_of_object(pod, "spec"), "nodeName")
    phase = part_of_object(pod, "status").get("phase")
    if not node or phase in FINISHED:
        return None
    held = requested_devices(part_of_object(pod, "spec"))
    holder = holder_of(pod) if any(held.values()) else None
    place = f"{holder.namespace}/{holder.kind.lower()}/{holder.name}" if holder else ""
    return PodUse(node, place or job_of_pod(pod), held, phase == "Pending", holder)


def holder_of(pod: Object) -> Optional[Holder]:
    """What the pod belongs to; None if that is a job of a kind that Rankdeck follows."""
    meta = part_of_object(pod, "metadata")
    owners = object_rows(meta.get("ownerReferences"))
    above = next((row for row in owners if row.get("controller") is True), meta)
    bare = above is meta
    if bare and job_of_pod(pod):
        return None
    kind = "Pod" if bare else string_value(above, "kind", 60)
    group = "" if bare else string_value(above, "apiVersion", 120).rpartition("/")[0]
    known = BY_NAME.get(kind)
    if known is not None and known.group == group:
        return None
    return Holder(
        kind if known is None else f"{kind}.{group}",
        string_value(meta, "namespace", 63),
        string_value(above, "name"),
        _person(meta),
        parse_object_time(meta.get("creationTimestamp")),
    )


def holder_row(holder: Holder, uses: "Iterable[PodUse]") -> Object:
    """The row of what holds devices, like that of a job; `held` is device -> count."""
    known = list(uses)
    held, _ = _taken(known)
    nodes = sorted({use.node for use in known})
    return {
        "kind": holder.kind,
        "namespace": holder.namespace,
        "name": holder.name,
        "owner": holder.owner or "unknown",
        "created": holder.created,
        "state": "running",
        "why": "",
        "pods": min(len(known), _MOST_PODS),
        "ranks": min(len(known), _MOST_PODS),
        "held": dict(list(held.items())[:MOST]),
        "nodes": nodes[:_MOST_NODES],
    }


def requested_devices(spec: Object) -> "dict[str, int]":
    """Device -> number that the scheduler counts for a pod: the sum of its containers and
    sidecars, or more if an init container, with the sidecars before it, needs more.
    """
    total: Counter[str] = Counter()
    first: Counter[str] = Counter()
    beside: Counter[str] = Counter()
    for container in object_rows(spec.get("containers")):
        total.update(_asked(container))
    for container in object_rows(spec.get("initContainers")):
        if container.get("restartPolicy") == "Always":
            beside.update(_asked(container))
        else:
            first |= beside + Counter(_asked(container))
    return (total + beside) | first | beside


def _asked(container: Object) -> "dict[str, int]":
    given = part_of_object(container, "resources")
    # For devices, request and limit are the same, and either may be left out.
    return extended_resources(
        {**part_of_object(given, "limits"), **part_of_object(given, "requests")}
    )


def extended_resources(quantities: Mapping[str, Any]) -> "dict[str, int]":
    """The extended resources in `quantities`: names with a domain that is not Kubernetes' own."""
    found = {name: parse_quantity(value) for name, value in quantities.items() if _is_device(name)}
    return {
        plain_line(name, 253): count
        for name, count in list(found.items())[:MOST]
        if count is not None
    }


def _is_device(name: str) -> bool:
    domain, slash, _ = name.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


def parse_quantity(value: Any) -> Optional[int]:  # noqa: ANN401 - JSON of any shape
    """The whole number that a quantity means (`4`, `2k`, `1Gi`); None for anything else."""
    if type(value) is int:
        return value if value >= 0 else None
    match = _QUANTITY.match(value) if isinstance(value, str) else None
    return int(match[1]) * _SUFFIXES[match[2] or ""] if match else None


def node_row(node: Object, uses: Iterable[PodUse], *, all_pods: bool) -> Object:
    """The row of a node for the console; without `all_pods`, `asked` is
    None, since not all its pods are known.
    """
    spec, status = part_of_object(node, "spec"), part_of_object(node, "status")
    capacity = extended_resources(part_of_object(status, "capacity"))
    free = extended_resources(part_of_object(status, "allocatable"))
    asked, jobs = _taken(uses)
    return {
        "name": string_value(part_of_object(node, "metadata"), "name"),
        "unschedulable": spec.get("unschedulable") is True,
        "conditions": [_condition(one) for one in object_rows(status.get("conditions"))[:MOST]],
        "taints": [_taint(one) for one in object_rows(spec.get("taints"))[:MOST]],
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
        "kubelet": string_value(part_of_object(status, "nodeInfo"), "kubeletVersion", 60),
    }


def _taken(uses: Iterable[PodUse]) -> "tuple[dict[str, int], list[str]]":
    """(device -> number that pods have requested, names of their jobs)."""
    total: Counter[str] = Counter()
    jobs: set[str] = set()
    for use in uses:
        total.update(use.devices)
        jobs.add(use.job)
    return total, sorted(jobs - {""})[:MOST]


def _condition(found: Object) -> Object:
    return {
        "type": string_value(found, "type", 100),
        "status": string_value(found, "status", 20),
        "reason": string_value(found, "reason", 100),
        "message": string_value(found, "message", 400),
        "since": parse_object_time(found.get("lastTransitionTime")),
    }


def _taint(found: Object) -> str:
    key, value, effect = (string_value(found, key) for key in ("key", "value", "effect"))
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def _address(status: Object) -> str:
    known = {
        string_value(one, "type"): string_value(one, "address")
        for one in object_rows(status.get("addresses"))
    }
    return known.get("InternalIP", "")


_STATES = {"succeeded": "done", "failed": "failed", "suspended": "pending"}
_BEGUN = ("Running", "SuccessCriteriaMet", "FailureTarget")
_NEWS = {
    "FailureTarget": "it fails, and its last pods end",
    "SuccessCriteriaMet": "it succeeds, and its last pods end",
    "Restarting": "it starts again",
    "RestartingJobSet": "it starts again",
}
"""Condition of a job that is not over -> what it means, before the controller's own words."""
_COUNTS = ("active", "succeeded", "failed", "terminating")
_PEOPLE = ("owner", "user", "username", "created-by", "app.kubernetes.io/created-by", "submitter")
"""Labels and annotations that sites use for the user's name; the first that exists counts."""
_MOST_PODS, _MOST_RANKS, _MOST_PARTS, _MOST_NODES = 4096, 65536, 64, 1024
_LONGEST_NOTE = 10_000


def is_outermost(found: Object) -> bool:
    """False for a part of another job: an MPIJob's launcher, the Jobs of a JobSet."""
    names = {kind.name for kind in KINDS}
    return not any(
        row.get("controller") is True and row.get("kind") in names
        for row in object_rows(part_of_object(found, "metadata").get("ownerReferences"))
    )


def job_row(kind: JobKind, found: Object) -> Object:
    """The row of a job for the console."""
    meta = part_of_object(found, "metadata")
    notes = part_of_object(meta, "annotations")
    state, why = kubernetes_job_state(found)
    ours = part_of_object(meta, "labels").get(OURS_LABEL)
    return {
        "kind": kind.name,
        "namespace": string_value(meta, "namespace"),
        "name": string_value(meta, "name"),
        "uid": string_value(meta, "uid", 64),
        "label": kind.label,
        "owner": job_owner(found),
        "created": parse_object_time(meta.get("creationTimestamp")),
        "state": state,
        "why": why,
        "pods": min(pod_count(kind, found), _MOST_PODS),
        "ranks": min(world_size(kind, found), _MOST_RANKS),
        "parts": job_parts(kind, part_of_object(found, "spec")),
        "ours": string_value(notes, ID_ANNOTATION) if ours else "",
        "spec": _note(notes.get(SPEC_ANNOTATION)),
    }


def kubernetes_job_state(found: Object) -> "tuple[str, str]":
    """(`done`, `failed`, `running` or `pending`; why, in the server's words)."""
    outcome, deleting = job_outcome(found), _deletion_words(part_of_object(found, "metadata"))
    if outcome.state in _STATES:
        message = outcome.message or outcome.reason
        if outcome.state == "suspended":
            message = deleting or message
        return _STATES[outcome.state], "" if outcome.state == "succeeded" else message
    status = part_of_object(found, "status")
    parts = object_rows(status.get("jobsStatus") or status.get("replicatedJobsStatus"))
    true = [row for row in object_rows(status.get("conditions")) if row.get("status") == "True"]
    begun = any(row.get("type") in _BEGUN for row in true)
    news = [(_NEWS[row["type"]], row) for row in true if row.get("type") in _NEWS]
    why = next((f"{words}: {string_value(row, 'message', 400) or string_value(row, 'reason', 100)}" for words, row in news), "")  # fmt: skip
    # While the last pods are being counted none is active, and no condition says how it ended yet.
    counted = any(whole_or_zero(row.get(key)) for row in (status, *parts) for key in _COUNTS)
    return ("running" if begun or counted else "pending"), deleting or why


def _deletion_words(meta: Object) -> str:
    """That somebody has deleted a job that is still there, and what holds it; "" if nobody has."""
    if not meta.get("deletionTimestamp"):
        return ""
    held = held_by(meta)
    return f"it is being deleted{f' ({held})' if held else ''}"


def job_owner(found: Object) -> str:
    """Who created the job, as far as the object says: a person (label), a
    controller, or the program that sent it.
    """
    meta = part_of_object(found, "metadata")
    person = _person(meta)
    if person:
        return person
    for row in object_rows(meta.get("ownerReferences")):
        if row.get("controller") is True:
            return f"{string_value(row, 'kind', 60)} {string_value(row, 'name')}"
    for row in object_rows(meta.get("managedFields")):
        if row.get("operation") == "Update" and row.get("subresource") in (None, ""):
            return f"somebody with {string_value(row, 'manager', 60)}"
    return "unknown"


def _person(meta: Object) -> str:
    """The user that a label or annotation names; "" if none does."""
    labels = {**part_of_object(meta, "annotations"), **part_of_object(meta, "labels")}
    return next(filter(None, (string_value(labels, key, 100) for key in _PEOPLE)), "")


def parent_job(found: Object) -> "tuple[str, str]":
    """(kind, `namespace/name`) of the job of which this one is a part; ("", "") for others."""
    meta = part_of_object(found, "metadata")
    for row in object_rows(meta.get("ownerReferences")):
        if row.get("controller") is True:
            return string_value(
                row, "kind", 63
            ), f"{string_value(meta, 'namespace')}/{string_value(row, 'name')}"
    return "", ""


def lacks_pods(kind: JobKind, found: Object) -> bool:
    """Whether pods of a job that is not over have not been created,
    as far as its status counts them.
    """
    if kubernetes_job_state(found)[0] == "pending":
        return True
    if kind != JOB or kubernetes_job_state(found)[0] != "running":
        return False
    status = part_of_object(found, "status")
    return sum(whole_or_zero(status.get(key)) for key in _COUNTS) < pod_count(kind, found)


def pod_count(kind: JobKind, found: Object) -> int:
    """How many pods with ranks the job has when all run; the launcher of an MPIJob has none."""
    spec = part_of_object(found, "spec")
    if kind.name in _PARTS:
        return max(1, sum(jobs * each for _, jobs, each in _PARTS[kind.name](spec)))
    return max(1, _of_workers(spec) if kind == MPIJOB else _of_job(spec))


def world_size(kind: JobKind, found: Object) -> int:
    """World size: the slots of an MPIJob; for others one rank per pod,
    since Kubernetes does not know more.
    """
    slots = (
        whole_or_zero(part_of_object(found, "spec").get("slotsPerWorker", 1))
        if kind == MPIJOB
        else 1
    )
    return pod_count(kind, found) * max(slots, 1)


def _of_job(spec: Object) -> int:
    both = (spec.get("parallelism"), spec.get("completions"))
    given = [whole_or_zero(value) for value in both if value is not None]
    return min(given) if given else 1


def _of_workers(spec: Object) -> int:
    workers = whole_or_zero(part_of_object(spec, "mpiReplicaSpecs", "Worker").get("replicas", 0))
    return workers + (spec.get("runLauncherAsWorker") is True)


Part = tuple[str, int, int]
"""(name, number of Jobs, pods of each Job)."""


def _replicas(spec: Object) -> "list[Part]":
    """Parts of a PyTorchJob, the master first: it has rank 0."""
    tables = part_of_object(spec, "pytorchReplicaSpecs")
    found = [
        (name.lower(), 1, whole_or_zero(part_of_object(row).get("replicas", 1)))
        for name, row in tables.items()
    ]
    return sorted(found, key=lambda one: one[0] != "master")


def _replicated(spec: Object) -> "list[Part]":
    return [
        (
            string_value(row, "name", 63),
            whole_or_zero(row.get("replicas", 1)),
            _of_job(part_of_object(row, "template", "spec")),
        )
        for row in object_rows(spec.get("replicatedJobs"))
    ]


def _nodes(spec: Object) -> "list[Part]":
    """Parts of a TrainJob with ranks; not those that prepare data
    and model, nor an MPI launcher.
    """
    return [("node", 1, whole_or_zero(part_of_object(spec, "trainer").get("numNodes", 1)))]


_PARTS = {"PyTorchJob": _replicas, "JobSet": _replicated, "TrainJob": _nodes}


def job_parts(kind: JobKind, spec: Object) -> "dict[str, list[int]]":
    """Part -> [number of its first pod, pods of each of its Jobs];
    empty if the job has no parts.
    """
    first = 0
    found: dict[str, list[int]] = {}
    rows = _PARTS[kind.name](spec) if kind.name in _PARTS else []
    for name, jobs, each in rows[:_MOST_PARTS]:
        found[name] = [min(first, _MOST_PODS), min(each, _MOST_PODS)]
        first += jobs * each
    return found


def _note(given: object) -> Optional[Object]:
    return (
        parse_json_table(given) if isinstance(given, str) and len(given) < _LONGEST_NOTE else None
    )
