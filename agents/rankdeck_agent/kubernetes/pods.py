"""Pods, jobs and events as the API sends them, checked and made small. No I/O."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, cast

from rankdeck_agent.job.journal import plain
from rankdeck_agent.kubernetes.split import epoch

Object = Mapping[str, Any]
WAITING, RUNNING, TERMINATED = "waiting", "running", "terminated"
_NONE: Object = {}
_INDEX = ("batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-index")
_PART = ("jobset.sigs.k8s.io/replicatedjob-name", "training.kubeflow.org/replica-type")
_PART_INDEX = ("jobset.sigs.k8s.io/job-index",)
_ROLE = ("rankdeck/role", "training.kubeflow.org/job-role", "job-role")
LAUNCHER, WORKER, READER = "launcher", "worker", "reader"
ROLE_LABEL = "rankdeck/role"
"""Ours, on a pod that is none of the job's own: READER prints what is on its volume claim."""


@dataclass(frozen=True)
class Container:
    """The container of a rank, in its newest life. Times are epoch seconds of the node's clock."""

    name: str
    id: str = ""
    state: str = ""
    reason: str = ""
    message: str = ""
    code: Optional[int] = None
    started: Optional[float] = None
    finished: Optional[float] = None
    image: str = ""


@dataclass(frozen=True)
class Pod:
    """One pod of a job."""

    name: str
    uid: str
    node: str = ""
    host: str = ""
    """What `uname -n` says in it."""
    index: Optional[int] = None
    part: str = ""
    """The replicated job of a JobSet or TrainJob, the replica type of a PyTorchJob."""
    part_index: int = 0
    """Which Job of the part it belongs to."""
    role: str = ""
    """LAUNCHER or WORKER of an MPIJob; READER of the volume claim; "" of an Indexed Job."""
    phase: str = ""
    reason: str = ""
    message: str = ""
    pending: str = ""
    """Why it is on no node, in the scheduler's words."""
    leaving: bool = False
    """Somebody deletes it."""
    devices: Mapping[str, int] = field(default_factory=dict[str, int])
    """Extended resource -> how many it holds."""
    container: Container = field(default_factory=lambda: Container(""))


@dataclass(frozen=True)
class Outcome:
    """What a job's conditions say. `state` is "", "suspended", "succeeded" or "failed"."""

    state: str = ""
    reason: str = ""
    message: str = ""


def table_of(value: object) -> Object:
    """A JSON object, empty where it is none."""
    return cast("Object", value) if isinstance(value, dict) else {}


def rows_of(value: object) -> list[Object]:
    """The JSON objects of a list."""
    rows = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Object", row) for row in rows if isinstance(row, dict)]


def text_of(row: Object, name: str, limit: int = 253) -> str:
    """One value as a line that is safe to show."""
    value = row.get(name)
    return plain(value, limit) if isinstance(value, str) else ""


def _number(value: object) -> Optional[int]:
    return value if type(value) is int and abs(value) < 1 << 31 else None


def _labelled(labels: Object, names: Iterable[str]) -> str:
    return next((text for name in names if (text := text_of(labels, name, 63))), "")


def _index(labels: Object, names: Iterable[str]) -> Optional[int]:
    text = _labelled(labels, names)
    return int(text) if text.isdigit() and len(text) < 8 else None


def pod_of(found: Object) -> Pod:
    """A pod object, checked; what is invalid in it is left empty."""
    meta, spec, status = (table_of(found.get(key)) for key in ("metadata", "spec", "status"))
    labels = table_of(meta.get("labels"))
    name = text_of(meta, "name")
    first = next(iter(rows_of(spec.get("containers"))), _NONE)
    return Pod(
        name=name,
        uid=text_of(meta, "uid", 63),
        node=text_of(spec, "nodeName", 63),
        host=text_of(spec, "hostname", 63) or name,
        index=_index(labels, _INDEX),
        part=_labelled(labels, _PART).lower(),
        part_index=_index(labels, _PART_INDEX) or 0,
        role=_labelled(labels, _ROLE),
        phase=text_of(status, "phase", 20),
        reason=text_of(status, "reason", 63),
        message=text_of(status, "message", 400),
        pending=_unscheduled(rows_of(status.get("conditions"))),
        leaving=bool(meta.get("deletionTimestamp")),
        devices=_devices(first),
        container=_container(first, rows_of(status.get("containerStatuses"))),
    )


def _unscheduled(conditions: Iterable[Object]) -> str:
    for condition in conditions:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return text_of(condition, "message", 400) or text_of(condition, "reason", 63)
    return ""


def _devices(container: Object) -> dict[str, int]:
    limits = table_of(table_of(container.get("resources")).get("limits"))
    counts = {plain(name, 63): str(value) for name, value in limits.items() if "/" in name}
    return {name: int(count) for name, count in counts.items() if count.isdigit()}


def _container(spec: Object, statuses: Iterable[Object]) -> Container:
    name = text_of(spec, "name", 63)
    status = next((row for row in statuses if row.get("name") == name), _NONE)
    states = table_of(status.get("state"))
    kind = next((kind for kind in (TERMINATED, RUNNING, WAITING) if kind in states), "")
    state = table_of(states.get(kind))
    return Container(
        name=name,
        id=text_of(status, "containerID", 200),
        state=kind,
        reason=text_of(state, "reason", 63),
        message=text_of(state, "message", 400),
        code=_number(state.get("exitCode")),
        started=epoch(state.get("startedAt")),
        finished=epoch(state.get("finishedAt")),
        image=text_of(spec, "image", 200),
    )


_ENDS = {"Complete": "succeeded", "Succeeded": "succeeded", "Completed": "succeeded", "Failed": "failed"}  # fmt: skip


def outcome_of(found: Object) -> Outcome:
    """What the conditions of a Job, an MPIJob, a JobSet or a TrainJob say of its end."""
    conditions = rows_of(table_of(found.get("status")).get("conditions"))
    true = [row for row in conditions if row.get("status") == "True"]
    for row in true:
        state = _ENDS.get(text_of(row, "type", 63))
        if state:
            return Outcome(state, text_of(row, "reason", 100), text_of(row, "message", 400))
    for row in true:
        if row.get("type") == "Suspended":
            return Outcome("suspended", text_of(row, "reason", 100), text_of(row, "message", 400))
    return Outcome()
