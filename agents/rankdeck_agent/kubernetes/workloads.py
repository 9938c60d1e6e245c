"""Jobs of a namespace as rows for the console: kind, owner, state, size. Pure."""

from typing import Optional

from rankdeck_agent.job.journal import table
from rankdeck_agent.kubernetes.kinds import (
    ID_ANNOTATION,
    KINDS,
    MPIJOB,
    OURS_LABEL,
    SPEC_ANNOTATION,
    Kind,
    part,
    whole,
)
from rankdeck_agent.kubernetes.pods import Object, outcome_of, rows_of, text_of
from rankdeck_agent.kubernetes.split import epoch

_STATES = {"succeeded": "done", "failed": "failed", "suspended": "pending"}
_BEGUN = ("Running", "SuccessCriteriaMet", "FailureTarget")
_COUNTS = ("active", "succeeded", "failed", "terminating")
_PEOPLE = ("owner", "user", "username", "created-by", "app.kubernetes.io/created-by", "submitter")
"""Labels and annotations by which sites name people, the first that is there."""
_MOST_PODS, _MOST_RANKS, _MOST_PARTS = 4096, 65536, 64
_LONGEST_NOTE = 10_000


def is_outermost(found: Object) -> bool:
    """False for a part of another job: an MPIJob's launcher, the Jobs of a JobSet."""
    names = {kind.name for kind in KINDS}
    return not any(
        row.get("controller") is True and row.get("kind") in names
        for row in rows_of(part(found, "metadata").get("ownerReferences"))
    )


def job_row(kind: Kind, found: Object) -> Object:
    """What the console lists of a job."""
    meta = part(found, "metadata")
    notes = part(meta, "annotations")
    state, why = job_state(found)
    ours = part(meta, "labels").get(OURS_LABEL)
    return {
        "kind": kind.name,
        "namespace": text_of(meta, "namespace"),
        "name": text_of(meta, "name"),
        "uid": text_of(meta, "uid", 64),
        "label": kind.label,
        "owner": owner(found),
        "created": epoch(meta.get("creationTimestamp")),
        "state": state,
        "why": why,
        "pods": min(pods(kind, found), _MOST_PODS),
        "ranks": min(ranks(kind, found), _MOST_RANKS),
        "parts": parts(kind, part(found, "spec")),
        "ours": text_of(notes, ID_ANNOTATION) if ours else "",
        "spec": _note(notes.get(SPEC_ANNOTATION)),
    }


def job_state(found: Object) -> "tuple[str, str]":
    """`done`, `failed`, `running` or `pending`, and why in the server's words."""
    outcome = outcome_of(found)
    if outcome.state in _STATES:
        said = outcome.message or outcome.reason
        return _STATES[outcome.state], "" if outcome.state == "succeeded" else said
    status = part(found, "status")
    parts = rows_of(status.get("jobsStatus") or status.get("replicatedJobsStatus"))
    begun = any(
        row.get("type") in _BEGUN and row.get("status") == "True"
        for row in rows_of(status.get("conditions"))
    )
    # While its last pods are counted none is active, and no condition says yet how it ended.
    counted = any(whole(row.get(key)) for row in (status, *parts) for key in _COUNTS)
    return ("running" if begun or counted else "pending"), ""


def owner(found: Object) -> str:
    """Who made it, as far as the object tells: a person by label, a controller, or the program that sent it."""
    meta = part(found, "metadata")
    said = {**part(meta, "annotations"), **part(meta, "labels")}
    for key in _PEOPLE:
        if name := text_of(said, key, 100):
            return name
    for row in rows_of(meta.get("ownerReferences")):
        if row.get("controller") is True:
            return f"{text_of(row, 'kind', 60)} {text_of(row, 'name')}"
    for row in rows_of(meta.get("managedFields")):
        if row.get("operation") == "Update" and row.get("subresource") in (None, ""):
            return f"somebody with {text_of(row, 'manager', 60)}"
    return "unknown"


def pods(kind: Kind, found: Object) -> int:
    """How many pods with ranks the job has when all run: an MPIJob's launcher is none."""
    return max(1, _PODS[kind.name](part(found, "spec")))


def ranks(kind: Kind, found: Object) -> int:
    """How many ranks: of an MPIJob its slots, of others one a pod, as far as Kubernetes knows."""
    slots = whole(part(found, "spec").get("slotsPerWorker", 1)) if kind == MPIJOB else 1
    return pods(kind, found) * max(slots, 1)


def _of_job(spec: Object) -> int:
    both = (spec.get("parallelism"), spec.get("completions"))
    given = [whole(value) for value in both if value is not None]
    return min(given) if given else 1


def _of_replicas(spec: Object) -> int:
    return sum(jobs * each for _, jobs, each in _replicas(spec))


def _of_workers(spec: Object) -> int:
    workers = whole(part(spec, "mpiReplicaSpecs", "Worker").get("replicas", 0))
    return workers + (spec.get("runLauncherAsWorker") is True)


def _of_jobset(spec: Object) -> int:
    return sum(jobs * each for _, jobs, each in _replicated(spec))


def _of_trainjob(spec: Object) -> int:
    return whole(part(spec, "trainer").get("numNodes", 1))


Part = tuple[str, int, int]
"""Name, Jobs, pods of each Job."""


def _replicas(spec: Object) -> "list[Part]":
    """Of a PyTorchJob: rank 0 is the master's, whichever the object names first."""
    tables = part(spec, "pytorchReplicaSpecs")
    found = [(name.lower(), 1, whole(part(row).get("replicas", 1))) for name, row in tables.items()]
    return sorted(found, key=lambda one: one[0] != "master")


def _replicated(spec: Object) -> "list[Part]":
    return [
        (
            text_of(row, "name", 63),
            whole(row.get("replicas", 1)),
            _of_job(part(row, "template", "spec")),
        )
        for row in rows_of(spec.get("replicatedJobs"))
    ]


def _nodes(spec: Object) -> "list[Part]":
    """Of a TrainJob: what prepares data and model, and an MPI launcher, have no ranks."""
    return [("node", 1, _of_trainjob(spec))]


_PARTS = {"PyTorchJob": _replicas, "JobSet": _replicated, "TrainJob": _nodes}


def parts(kind: Kind, spec: Object) -> "dict[str, list[int]]":
    """Part -> number of its first pod, and pods of each of its Jobs; empty where there are no parts."""
    first = 0
    found: dict[str, list[int]] = {}
    rows = _PARTS[kind.name](spec) if kind.name in _PARTS else []
    for name, jobs, each in rows[:_MOST_PARTS]:
        found[name] = [min(first, _MOST_PODS), min(each, _MOST_PODS)]
        first += jobs * each
    return found


_PODS = {
    "Job": _of_job,
    "MPIJob": _of_workers,
    "PyTorchJob": _of_replicas,
    "JobSet": _of_jobset,
    "TrainJob": _of_trainjob,
}


def _note(given: object) -> Optional[Object]:
    return table(given) if isinstance(given, str) and len(given) < _LONGEST_NOTE else None
