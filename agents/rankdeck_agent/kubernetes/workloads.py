"""Jobs of a namespace as rows for the console: kind, owner, state, size. Pure."""

import json
from typing import Any, Optional

from rankdeck_agent.kubernetes.kinds import (
    ID_ANNOTATION,
    KINDS,
    OURS_LABEL,
    SPEC_ANNOTATION,
    Kind,
    Object,
    labels,
    part,
    rows,
    text,
    whole,
)
from rankdeck_agent.kubernetes.nodes import epoch

_DONE = ("Complete", "Succeeded", "Completed")
_PEOPLE = ("owner", "user", "username", "created-by", "app.kubernetes.io/created-by", "submitter")
"""Labels and annotations by which sites name people, the first that is there."""
_MOST_PODS = 4096


def is_outermost(found: Object) -> bool:
    """False for a part of another job: an MPIJob's launcher, the Jobs of a JobSet."""
    names = {kind.name for kind in KINDS}
    return not any(
        row.get("controller") is True and row.get("kind") in names
        for row in rows(part(found, "metadata").get("ownerReferences"))
    )


def job_row(kind: Kind, found: Object) -> Object:
    """What the console lists of a job."""
    meta = part(found, "metadata")
    notes = part(meta, "annotations")
    state, why = job_state(found)
    return {
        "kind": kind.name,
        "namespace": text(meta.get("namespace")),
        "name": text(meta.get("name")),
        "uid": text(meta.get("uid"), 64),
        "label": kind.label,
        "owner": owner(found),
        "created": epoch(meta.get("creationTimestamp")),
        "state": state,
        "why": why,
        "pods": min(pods(kind, found), _MOST_PODS),
        "ours": text(notes.get(ID_ANNOTATION)) if labels(found).get(OURS_LABEL) else "",
        "spec": _note(notes.get(SPEC_ANNOTATION)),
    }


def job_state(found: Object) -> "tuple[str, str]":
    """`done`, `failed`, `running` or `pending`, and why in the server's words."""
    true = {
        text(row.get("type"), 60): text(row.get("message") or row.get("reason"), 300)
        for row in rows(part(found, "status").get("conditions"))
        if row.get("status") == "True"
    }
    for name in _DONE:
        if name in true:
            return "done", ""
    if "Failed" in true:
        return "failed", true["Failed"]
    if "Suspended" in true:
        return "pending", f"suspended: {true['Suspended']}"
    status = part(found, "status")
    runs = "Running" in true or whole(status.get("active")) or any(
        whole(row.get("active")) for row in rows(status.get("jobsStatus") or status.get("replicatedJobsStatus"))
    )  # fmt: skip
    return ("running" if runs else "pending"), ""


def owner(found: Object) -> str:
    """Who made it, as far as the object tells: a person by label, a controller, or the program that sent it."""
    meta = part(found, "metadata")
    said = {**part(meta, "annotations"), **part(meta, "labels")}
    for key in _PEOPLE:
        if name := text(said.get(key), 100):
            return name
    for row in rows(meta.get("ownerReferences")):
        if row.get("controller") is True:
            return f"{text(row.get('kind'), 60)} {text(row.get('name'))}"
    for row in rows(meta.get("managedFields")):
        if row.get("operation") == "Update" and row.get("subresource") in (None, ""):
            return f"somebody with {text(row.get('manager'), 60)}"
    return "unknown"


def pods(kind: Kind, found: Object) -> int:
    """How many pods the job has when all run."""
    return max(1, _PODS[kind.name](part(found, "spec")))


def _of_job(spec: Object) -> int:
    both = (spec.get("parallelism"), spec.get("completions"))
    given = [whole(value) for value in both if value is not None]
    return min(given) if given else 1


def _of_replicas(spec: Object) -> int:
    tables = part(spec, "mpiReplicaSpecs") or part(spec, "pytorchReplicaSpecs")
    return sum(whole(part(row).get("replicas", 1)) for row in tables.values())


def _of_jobset(spec: Object) -> int:
    return sum(
        whole(row.get("replicas", 1)) * _of_job(part(row, "template", "spec"))
        for row in rows(spec.get("replicatedJobs"))
    )


def _of_trainjob(spec: Object) -> int:
    return whole(part(spec, "trainer").get("numNodes", 1))


_PODS = {
    "Job": _of_job,
    "MPIJob": _of_replicas,
    "PyTorchJob": _of_replicas,
    "JobSet": _of_jobset,
    "TrainJob": _of_trainjob,
}


def _note(given: Any) -> Optional[Object]:  # noqa: ANN401 - JSON of any shape
    try:
        found = json.loads(given) if isinstance(given, str) and len(given) < 10_000 else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
