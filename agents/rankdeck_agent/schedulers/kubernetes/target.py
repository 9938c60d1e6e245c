"""The job that a keeper keeps: where its objects are in the API; creates and
deletes them, and verifies that none is left.
"""

import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.job.folder import FolderError, RunFolder
from rankdeck_agent.schedulers.kubernetes.api import Api, Params
from rankdeck_agent.schedulers.kubernetes.json_values import Object, object_rows, table_of
from rankdeck_agent.schedulers.kubernetes.kubectl_errors import (
    ApiError,
    ProxyError,
    describe_api_refusal,
)
from rankdeck_agent.schedulers.kubernetes.kubectl_proxy import Proxy
from rankdeck_agent.schedulers.kubernetes.objects import (
    BY_NAME,
    FORMATS,
    MPIJOB,
    OPERATOR_LABEL,
    OURS_LABEL,
    Pod,
    held_by,
    string_value,
)
from rankdeck_agent.schedulers.kubernetes.watch import BACKOFF
from rankdeck_agent.text import parse_json_array, parse_json_table, plain_line
from rankdeck_agent.values import Value, field, replace
from rankdeck_agent.wire.schedulers.job_files import KUBERNETES_SETTINGS

GONE = "kubernetes.gone"
"""File in the run folder: nothing of the job is left in Kubernetes."""
_CORE = {"ConfigMap": "configmaps", "Pod": "pods", "Secret": "secrets", "Service": "services"}
"""Other kinds than jobs -> their plurals."""
_ASIDE = ("Service", "ConfigMap")
"""Kinds that we create in addition to the job."""
_HURRY = "1"
"""Seconds of grace when a cancel's own grace period is over; 0 would
remove the pod without asking its node.
"""
_TRIES = 3
_UNSURE = (0, 500, 502, 503, 504)
"""Statuses after which the request may have been carried out nevertheless; it may be sent again."""
_RIGHTS = re.compile(r"cannot \w+ resource")


class UnsureError(ApiError):
    """A job could not be created, but some of its objects may exist nevertheless."""


class Target(Value):
    """Where the job is, and how its ranks are found."""

    name: str
    kind: str = "Job"
    namespace: str = ""
    """"" for that of the context."""
    context: str = ""
    """"" for kubectl's current one."""
    wanted: int = 1
    """Number of pods with ranks."""
    each: int = 1
    """Ranks of each pod; for an MPIJob the launcher's log has all ranks."""
    ranks: int = 1
    """World size."""
    form: str = FORMATS[0]
    """How lines of ranks are marked in the logs: one of objects.FORMATS."""
    ours: bool = True
    """Whether we created the job, so that its objects have our label and its ranks our shim."""
    grace: float = 10.0
    """Grace period in seconds."""
    parts: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    """For a job of several parts: part -> (number of its first pod, pods of each of its Jobs).

    Other pods have no ranks.
    """

    @property
    def path(self) -> str:
        """The API path of the jobs of this kind."""
        return BY_NAME[self.kind].path(self.namespace)

    @property
    def selector(self) -> str:
        """The label selector of its pods."""
        if self.ours:
            return f"{OURS_LABEL}={self.name}"
        kind = BY_NAME[self.kind]
        own = f"{kind.label}={self.name}"
        return f"{own},{OPERATOR_LABEL}={kind.operator}" if kind.operator else own

    def number_of(self, pod: Pod) -> Optional[int]:
        """The pod's number among those with ranks, from 0; None if it has no ranks."""
        if not self.parts:
            return pod.index or 0
        first, each = self.parts.get(pod.part, (None, 0))
        return None if first is None else first + pod.part_index * each + (pod.index or 0)

    def numbered_ranks(self, pod: Pod) -> range:
        """The ranks that the pod has by its number; none if it has no ranks."""
        number = self.number_of(pod)
        if number is None:
            return range(0)
        first = number * self.each
        return range(first, min(first + self.each, self.ranks))

    @property
    def field(self) -> dict[str, str]:
        """Request parameters that select the job itself."""
        return {"fieldSelector": f"metadata.name={self.name}"}

    def collection(self, kind: str) -> str:
        """The API path of the objects of a core kind."""
        return collection_path("v1", kind, self.namespace)


MOST_FOLLOWED = 4096
_SPARE_FILES = 100


def most_followed(target: Target, files: int) -> int:
    """How many pods of the job can be followed by a process that may open so many
    files: a stream, and two files per rank.
    """
    mpi = target.kind == MPIJOB.name
    free = max(0, files - _SPARE_FILES - (2 * target.ranks if mpi else 0))
    return min(MOST_FOLLOWED, free // (1 if mpi else 1 + 2 * target.each))


def not_kept(target: Target, files: int) -> str:
    """What of the job's output a keeper that may open so many files cannot keep; "" for nothing."""
    most = most_followed(target, files)
    if target.wanted <= most:
        return ""
    return (
        f"the output of {target.wanted} pods cannot be kept here: this host lets a program open {files} files,"
        f" enough for {most}; kept is that of the first, the last and failed pods (`ulimit -Hn`)"
    )


def collection_path(version: str, kind: str, namespace: str) -> str:
    """The API path of the objects of a kind in a namespace; raises
    ValueError for a kind that we do not create.
    """
    plural = BY_NAME[kind].plural if kind in BY_NAME else _CORE.get(kind)
    if plural is None:
        raise ValueError(f"objects of kind {plain_line(kind, 60)} are not created by Rankdeck")
    root = "apis" if "/" in version else "api"
    return f"/{root}/{version}/namespaces/{namespace}/{plural}"


def read_target(folder: RunFolder) -> Target:
    """The Target in the settings of a run folder; raises FolderError."""
    file = folder / KUBERNETES_SETTINGS
    try:
        row = parse_json_table(file.read_text(encoding="utf-8")) or {}
        return Target(**row)
    except (OSError, TypeError) as error:
        raise FolderError(f"{file} cannot be read: {error}") from error


def place_target(target: Target, proxy: Proxy) -> Target:
    """The target in its namespace, which is that of the context if
    it names none; raises ProxyError.
    """
    return replace(target, namespace=target.namespace or proxy.namespace())


def read_objects(file: Path) -> Sequence[Object]:
    """The objects to create, in order, from the file MANIFEST; raises FolderError."""
    try:
        return object_rows(parse_json_array(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise FolderError(f"{file} cannot be read: {error}") from error


# ---- creating ---------------------------------------------------------------------------


def create_objects(
    api: Api, target: Target, objects: Sequence[Object], *, dry: bool = False
) -> None:
    """Create all objects, the job last. `dry`: the server only checks them,
    and the pods that the job would have.

    The job becomes the owner of the others, so that Kubernetes deletes them with it.
    Raises ApiError after removing what was created; UnsureError if something may be left.
    """
    made: list[Object] = []
    try:
        # One by one, so that `made` is right if one is refused.
        for one in objects:
            made += (_create(api, target, one, dry=dry),)
    except ApiError as error:
        if not dry and not _taken_back(api, target, made, sure=error.status not in _UNSURE):
            raise UnsureError(error.status, error.reason, error.message) from error
        raise
    if dry and objects:
        _try_pods(api, target, objects[-1])
    elif made:
        _give_to(api, target, made[-1], made[:-1])


def _try_pods(api: Api, target: Target, job: Object) -> None:
    """Have the server check a pod of each template of the job, if the
    user may create pods; raises ApiError.

    A job is taken although none of its pods will be: PodSecurity, quotas, LimitRanges,
    RuntimeClasses and most webhooks look at pods only.
    """
    for template in templates_of(table_of(job.get("spec"))):
        meta = {**table_of(template.get("metadata")), "generateName": f"{target.name}-"}
        spec = {"restartPolicy": "Never", **table_of(template.get("spec"))}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        params = {"fieldValidation": "Strict", "dryRun": "All"}
        try:
            api.request("POST", target.collection("Pod"), params, pod)
        except ApiError as error:
            if error.status == 403 and _RIGHTS.search(error.message):
                return
            if error.status in (403, 422, 400):
                raise ApiError(error.status, error.reason, f"its pods: {error.message}") from error


def templates_of(spec: Object) -> list[Object]:
    """The pod templates in the spec of a Job or MPIJob, that of the launcher first."""
    roles = table_of(spec.get("mpiReplicaSpecs"))
    found = [table_of(roles.get(name)) for name in ("Launcher", "Worker")] if roles else [spec]
    return [table_of(one["template"]) for one in found if "template" in one]


def _taken_back(api: Api, target: Target, made: Iterable[Object], *, sure: bool) -> bool:
    """Delete what was made; returns whether nothing is left.

    Not `sure`: we do not know what the server did.
    """
    if not sure:
        ending = Ending(api, target)
        while not ending.step(0.0, quiet=True):
            time.sleep(_PAUSE)
        return not ending.left
    try:
        for one in made:
            delete_object(api, _path(target, one), _name(one))
    except ApiError:
        return False
    return True


def may_be_there(target: Target) -> str:
    """The sentence for the operator after an UnsureError."""
    return (
        f"{target.kind} {target.namespace}/{target.name} may have been created all the same: "
        f"`kubectl -n {target.namespace} delete {target.kind.lower()} {target.name}` makes sure"
    )


def _create(api: Api, target: Target, one: Object, *, dry: bool) -> Object:
    params = {"fieldValidation": "Strict", "dryRun": "All" if dry else ""}
    path = _path(target, one)
    for attempt in range(_TRIES):
        try:
            return api.request("POST", path, params, one)
        except ApiError as error:
            refused = error
        if refused.reason == "AlreadyExists" and attempt:
            # An earlier attempt created it and its answer was lost. Listing needs no further right.
            there, _ = api.items(path, {"fieldSelector": f"metadata.name={_name(one)}"})
            return there[0] if there else {}
        if not _passes(refused) or attempt == _TRIES - 1:
            raise _explained(refused, one)
        time.sleep(BACKOFF[attempt])
    raise AssertionError


def _passes(error: ApiError) -> bool:
    """Whether the same request may succeed a moment later.

    (Two requests may collide in a quota: Conflict.)
    """
    return error.status in (*_UNSURE, 429) or error.reason == "Conflict"


def _name(one: Object) -> str:
    return string_value(table_of(one.get("metadata")), "name")


def _path(target: Target, one: Object) -> str:
    kind, version = string_value(one, "kind", 63), string_value(one, "apiVersion", 63)
    return collection_path(version, kind, target.namespace)


def _explained(error: ApiError, one: Object) -> ApiError:
    """The error, with a better sentence for the most frequent causes."""
    kind = string_value(one, "kind", 63)
    if (
        error.status == 404
        and kind not in ("ConfigMap", "Service")
        and "namespaces" not in error.message
    ):
        message = (
            f"this cluster knows no {kind}: the operator for it is not installed (MPIJob: MPI"
            " Operator, kubeflow.org/v2beta1; the training operator's v1 is another)"
        )
        return ApiError(error.status, error.reason, message)
    if error.status == 403 and _RIGHTS.search(error.message):
        message = f"{error.message} (docs/kubernetes.md has the smallest Role)"
        return ApiError(error.status, error.reason, message)
    return error


def _give_to(api: Api, target: Target, owner: Object, others: Iterable[Object]) -> None:
    meta = table_of(owner.get("metadata"))
    reference = {
        "apiVersion": owner.get("apiVersion") or BY_NAME[target.kind].api_version,
        "kind": owner.get("kind") or target.kind,
        "name": meta.get("name"),
        "uid": meta.get("uid"),
    }
    for one in others:
        body = {"metadata": {"ownerReferences": [reference]}}
        try:
            api.request("PATCH", f"{_path(target, one)}/{_name(one)}", None, body)
        except ApiError:
            return  # we may not change them: they are deleted when the job ends


# ---- deleting ---------------------------------------------------------------------------


def delete_object(api: Api, path: str, name: str) -> None:
    """Delete one object, after the objects that it owns; no error if it is gone.

    Raises ApiError.
    """
    # Without a policy, deleting a Job would leave its pods running, with nothing to cancel.
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
    _delete(api, f"{path}/{name}", None, body)


def _delete(api: Api, path: str, params: Optional[Params], body: Optional[Object] = None) -> None:
    try:
        api.request("DELETE", path, params, body)
    except ApiError as error:
        if error.status != 404:
            raise


def ask_to_end(api: Api, target: Target) -> None:
    """Delete the job and all that we created with it; does not wait. Raises ApiError."""
    delete_object(api, target.path, target.name)
    for kind, found in _aside(api, target):
        delete_object(api, target.collection(kind), _name(found))


def shorten_grace(api: Api, target: Target) -> None:
    """Have the nodes kill the pods that are left, after the grace period; raises ApiError."""
    path = target.collection("Pod")
    pods, _ = api.items(path, {"labelSelector": target.selector})
    for pod in pods:
        _delete(api, f"{path}/{_name(pod)}", {"gracePeriodSeconds": _HURRY})


def _aside(api: Api, target: Target) -> Iterator[tuple[str, Object]]:
    if not target.ours:
        return
    for kind in _ASIDE:
        found, _ = api.items(target.collection(kind), {"labelSelector": target.selector})
        for one in found:
            yield kind, one


def list_left_objects(api: Api, target: Target) -> list[str]:
    """The objects of the job that still exist, one line each; raises ApiError."""
    jobs, _ = api.items(target.path, target.field)
    pods, _ = api.items(target.collection("Pod"), {"labelSelector": target.selector})
    rows = [(target.kind, job) for job in jobs] + [("Pod", pod) for pod in pods]
    return [_named(target, kind, one) for kind, one in (*rows, *_aside(api, target))]


def _named(target: Target, kind: str, one: Mapping[str, Any]) -> str:
    meta, status = table_of(one.get("metadata")), table_of(one.get("status"))
    phase = string_value(status, "phase", 20)
    node = string_value(table_of(one.get("spec")), "nodeName", 63)
    more = [phase, f"on node {node}" if node else "", held_by(meta)]
    details = ", ".join(filter(None, more))
    return f"{kind} {target.namespace}/{string_value(meta, 'name')}{f' ({details})' if details else ''}"


SLACK = 4.0
"""Seconds beyond the grace period after which a deletion is given up and what is left is named."""
_LOOK_PERIOD = 2.0
_PAUSE = 0.3
_KUBELET = 1.0
"""Seconds after the grace period for nodes to kill what did not end,
before we delete the pods once more.
"""


class Ending:
    """One deletion, done step by step.

    `left` names what is left; it is empty once the server has shown that nothing is.
    """

    def __init__(self, api: Api, target: Target) -> None:
        self._api, self._target = api, target
        self._began = time.monotonic()
        self._asked = self._hurried = False
        self._looked = float("-inf")
        self.left = [f"{target.kind} {target.namespace}/{target.name}: nothing is known of it"]

    def step(self, grace: float, *, quiet: bool) -> bool:
        """Do what is due; returns whether the deletion is over.
        `grace`: seconds from its beginning.

        `quiet`: no pod is known to exist, so ask the server at once what is left.
        """
        now = time.monotonic()
        late = now - self._began - grace
        refused = ""
        try:
            self._ask(late)
        except ApiError as error:
            refused = describe_api_refusal(error)
            if error.status == 0:  # it does not answer: it would not list what is left either
                self.left = [refused]
                return late > SLACK
        if refused or quiet or now - self._looked > _LOOK_PERIOD:
            self._looked = now
            self.left = self._list(refused)
        return not self.left or late > SLACK

    def _list(self, refused: str) -> list[str]:
        """What is left, with the server's refusal to delete it ("": none) before it."""
        try:
            left = list_left_objects(self._api, self._target)
        except ApiError as error:
            left = [describe_api_refusal(error)]
        return list(dict.fromkeys((refused, *left))) if refused and left else left

    def _ask(self, late: float) -> None:
        if not self._asked:
            ask_to_end(self._api, self._target)
            self._asked = True
        if late > _KUBELET and not self._hurried:
            self._hurried = True
            # In a thread: with hundreds of pods it takes seconds, and they may end meanwhile.
            threading.Thread(target=self._hurry, daemon=True).start()

    def _hurry(self) -> None:
        try:
            shorten_grace(self._api, self._target)
        except ApiError:
            return  # `list_left_objects` shows what is left


def end_without_keeper(folder: RunFolder, grace: float) -> list[dict[str, Any]]:
    """End the job of a run folder if its keeper has not; returns what is
    left, as rows of `left` of a cancel.
    """
    if (folder / GONE).exists():
        return []
    target = read_target(folder)
    try:
        with Proxy(target.context) as proxy:
            ending = Ending(proxy.api, place_target(target, proxy))
            while not ending.step(grace, quiet=True):
                time.sleep(_PAUSE)
    except ProxyError as error:
        return [{"pid": 0, "command": f"Kubernetes job {target.name}: {error}"}]
    if not ending.left:
        (folder / GONE).touch(mode=0o600)
    return [{"pid": 0, "command": f"Kubernetes: {one}"} for one in ending.left[:50]]
