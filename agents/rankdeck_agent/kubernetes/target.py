"""Which job a keeper keeps: where its objects are in the API, how they are created, deleted and proved gone."""

import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.job.folder import FolderError, RunFolder
from rankdeck_agent.kubernetes.api import (
    BACKOFF,
    Api,
    ApiError,
    Object,
    Proxy,
    ProxyError,
    refusal,
    rows_of,
    table_of,
)
from rankdeck_agent.kubernetes.objects import (
    BY_NAME,
    FORMATS,
    OPERATOR_LABEL,
    OURS_LABEL,
    Pod,
    text_of,
)
from rankdeck_agent.text import array, plain, table

SETTINGS, MANIFEST, CREATED, GONE = "kubernetes.json", "manifest.json", "kubernetes.created", "kubernetes.gone"  # fmt: skip
"""Files in the run folder: what to keep, its objects, that they were created, that none is left."""
_CORE = {"ConfigMap": "configmaps", "Pod": "pods", "Secret": "secrets", "Service": "services"}
"""Kinds beside those of jobs, and their plurals."""
_ASIDE = ("Service", "ConfigMap")
"""What we create beside the job."""
_HURRY = "1"
"""Seconds of grace where a cancel's own grace is over; 0 would take the pod away without its node."""
_TRIES = 3
_UNSURE = (0, 500, 502, 503, 504)
"""Statuses after which the request may have been done all the same, and may be sent again."""
_RIGHTS = re.compile(r"cannot \w+ resource")


class UnsureError(ApiError):
    """A job could not be created, and something of it may be there all the same."""


@dataclass(frozen=True)
class Target:
    """The job: where it is, and how its ranks are found."""

    name: str
    kind: str = "Job"
    namespace: str = ""
    """Empty: that of the context."""
    context: str = ""
    """Empty: kubectl's current one."""
    wanted: int = 1
    """Pods with ranks."""
    each: int = 1
    """Ranks of a pod; of an MPIJob the launcher's log has all ranks."""
    ranks: int = 1
    form: str = FORMATS[0]
    """How lines of ranks are marked; see split.py."""
    ours: bool = True
    """Whether we created it, so that its objects bear our label and its ranks have our shim."""
    grace: float = 10.0
    parts: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    """Of a job of several parts: name -> number of its first pod, and pods of each of its Jobs. Other pods have no ranks."""

    @property
    def path(self) -> str:
        """Where jobs of its kind are."""
        return BY_NAME[self.kind].path(self.namespace)

    @property
    def selector(self) -> str:
        """The label of its pods."""
        if self.ours:
            return f"{OURS_LABEL}={self.name}"
        kind = BY_NAME[self.kind]
        own = f"{kind.label}={self.name}"
        return f"{own},{OPERATOR_LABEL}={kind.operator}" if kind.operator else own

    def number_of(self, pod: Pod) -> Optional[int]:
        """The pod's number among those with ranks, from 0; None if it has none."""
        if not self.parts:
            return pod.index or 0
        first, each = self.parts.get(pod.part, (None, 0))
        return None if first is None else first + pod.part_index * each + (pod.index or 0)

    @property
    def field(self) -> dict[str, str]:
        """What selects the job itself."""
        return {"fieldSelector": f"metadata.name={self.name}"}

    def collection(self, kind: str) -> str:
        """Where objects of a core kind are."""
        return collection("v1", kind, self.namespace)


def collection(version: str, kind: str, namespace: str) -> str:
    """The path of all objects of a kind in a namespace; raises ValueError for a kind that is not ours."""
    plural = BY_NAME[kind].plural if kind in BY_NAME else _CORE.get(kind)
    if plural is None:
        raise ValueError(f"objects of kind {plain(kind, 60)} are not created by Rankdeck")
    root = "apis" if "/" in version else "api"
    return f"/{root}/{version}/namespaces/{namespace}/{plural}"


def read_target(file: Path) -> Target:
    """The settings in a run folder; raises FolderError."""
    try:
        row = table(file.read_text(encoding="utf-8")) or {}
        return Target(**row)
    except (OSError, TypeError) as error:
        raise FolderError(f"{file} cannot be read: {error}") from error


def read_objects(file: Path) -> Sequence[Object]:
    """The objects to create, in order; raises FolderError."""
    try:
        return rows_of(array(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise FolderError(f"{file} cannot be read: {error}") from error


# ---- creating ---------------------------------------------------------------------------


def create(api: Api, target: Target, objects: Sequence[Object], *, dry: bool = False) -> None:
    """Create all objects, the job last. `dry`: the server only checks.

    Raises ApiError and leaves none then; UnsureError where that could not be proved.

    What lies beside the job belongs to it afterwards, so that it goes with the job.
    """
    made: list[Object] = []
    try:
        # One by one: what was made before a refusal must be known.
        for one in objects:
            made += (_create(api, target, one, dry=dry),)
    except ApiError as error:
        if not dry and not _taken_back(api, target, made, sure=error.status not in _UNSURE):
            raise UnsureError(error.status, error.reason, error.message) from error
        raise
    if not dry and made:
        _give_to(api, target, made[-1], made[:-1])


def _taken_back(api: Api, target: Target, made: Iterable[Object], *, sure: bool) -> bool:
    """Delete what was made; returns whether nothing is left. Not `sure`: what the server did is not known."""
    if not sure:
        ending = Ending(api, target)
        while not ending.step(0.0, quiet=True):
            time.sleep(_PAUSE)
        return not ending.left
    try:
        for one in made:
            delete(api, _path(target, one), _name(one))
    except ApiError:
        return False
    return True


def may_be_there(target: Target) -> str:
    """What to tell after an UnsureError."""
    return (
        f"{target.kind} {target.namespace}/{target.name} may have been created all the same: "
        f"`kubectl -n {target.namespace} delete {target.kind.lower()} {target.name}` makes sure"
    )


def _create(api: Api, target: Target, one: Object, *, dry: bool) -> Object:
    params = {"fieldValidation": "Strict", "dryRun": "All" if dry else ""}
    path = _path(target, one)
    for attempt in range(_TRIES):
        made, refused = _try(api, path, params, one)
        if made is not None:
            return made
        assert refused is not None
        if refused.reason == "AlreadyExists" and attempt:
            # The answer to our own request before had been lost. A list needs no right that a watch has not.
            there, _ = api.items(path, {"fieldSelector": f"metadata.name={_name(one)}"})
            return there[0] if there else {}
        if not _passes(refused) or attempt == _TRIES - 1:
            raise _explained(refused, one)
        time.sleep(BACKOFF[attempt])
    raise AssertionError


def _passes(error: ApiError) -> bool:
    """Whether the same request may be taken a moment later; of quotas, two requests may be in each other's way."""
    return error.status in (*_UNSURE, 429) or error.reason == "Conflict"


def _try(
    api: Api, path: str, params: Mapping[str, str], one: Object
) -> tuple[Optional[Object], Optional[ApiError]]:
    try:
        return api.request("POST", path, params, one), None
    except ApiError as error:
        return None, error


def _name(one: Object) -> str:
    return text_of(table_of(one.get("metadata")), "name")


def _path(target: Target, one: Object) -> str:
    kind, version = text_of(one, "kind", 63), text_of(one, "apiVersion", 63)
    return collection(version, kind, target.namespace)


def _explained(error: ApiError, one: Object) -> ApiError:
    """The same with the sentence for what happens most."""
    kind = text_of(one, "kind", 63)
    if error.status == 404 and kind not in ("ConfigMap", "Service") and "namespaces" not in error.message:  # fmt: skip
        message = f"this cluster knows no {kind}: the operator for it is not installed (MPIJob: MPI Operator, kubeflow.org/v2beta1; the training operator's v1 is another)"
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
            return  # without the right to change them, the end of the job deletes them


# ---- deleting ---------------------------------------------------------------------------


def delete(api: Api, path: str, name: str) -> None:
    """Delete one object and, before it, what belongs to it; one that is gone is no error. Raises ApiError."""
    # Without a policy a Job leaves all its pods running, and nothing that could be cancelled.
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
    try:
        api.request("DELETE", f"{path}/{name}", None, body)
    except ApiError as error:
        if error.status != 404:
            raise


def ask_to_end(api: Api, target: Target) -> None:
    """Delete the job and all that we created beside it; raises ApiError."""
    delete(api, target.path, target.name)
    for kind, found in _aside(api, target):
        delete(api, target.collection(kind), _name(found))


def hurry(api: Api, target: Target) -> None:
    """The grace is over: have the nodes kill what is left of the pods; raises ApiError."""
    path = target.collection("Pod")
    pods, _ = api.items(path, {"labelSelector": target.selector})
    for pod in pods:
        name = _name(pod)
        try:
            api.request("DELETE", f"{path}/{name}", {"gracePeriodSeconds": _HURRY})
        except ApiError as error:
            if error.status != 404:
                raise


def _aside(api: Api, target: Target) -> Iterator[tuple[str, Object]]:
    if not target.ours:
        return
    for kind in _ASIDE:
        found, _ = api.items(target.collection(kind), {"labelSelector": target.selector})
        for one in found:
            yield kind, one


def leftovers(api: Api, target: Target) -> list[str]:
    """All that is left of the job, an empty list where nothing is; raises ApiError."""
    jobs, _ = api.items(target.path, target.field)
    pods, _ = api.items(target.collection("Pod"), {"labelSelector": target.selector})
    rows = [(target.kind, job) for job in jobs] + [("Pod", pod) for pod in pods]
    return [_named(target, kind, one) for kind, one in (*rows, *_aside(api, target))]


def _named(target: Target, kind: str, one: Mapping[str, Any]) -> str:
    meta, status = table_of(one.get("metadata")), table_of(one.get("status"))
    finalizers: Optional[object] = meta.get("finalizers")
    phase = text_of(status, "phase", 20)
    node = text_of(table_of(one.get("spec")), "nodeName", 63)
    more = [phase, f"on node {node}" if node else "", "has finalizers" if finalizers else ""]
    told = ", ".join(filter(None, more))
    return f"{kind} {target.namespace}/{text_of(meta, 'name')}{f' ({told})' if told else ''}"


SLACK = 4.0
"""Seconds beyond the grace in which it is proven, or what is left is named."""
_LOOK_PERIOD = 2.0
_PAUSE = 0.3
_KUBELET = 1.0
"""Seconds after the grace in which nodes kill what did not end, before we delete it once more."""


class Ending:
    """One deletion, done step by step. `left` names what is left; empty once it is proven that nothing is."""

    def __init__(self, api: Api, target: Target) -> None:
        self._api, self._target = api, target
        self._began = time.monotonic()
        self._asked = self._hurried = False
        self._looked = float("-inf")
        self.left = [f"{target.kind} {target.namespace}/{target.name}: nothing is known of it"]

    def step(self, grace: float, *, quiet: bool) -> bool:
        """Do what is due; returns whether it is over. `grace` counts from the beginning, in seconds.

        `quiet`: no pod is known to be there, so that a look may prove it.
        """
        now = time.monotonic()
        late = now - self._began - grace
        try:
            self._ask(late)
            if quiet or now - self._looked > _LOOK_PERIOD:
                self._looked = now
                self.left = leftovers(self._api, self._target)
        except ApiError as error:
            self.left = [refusal(error)]
        return not self.left or late > SLACK

    def _ask(self, late: float) -> None:
        if not self._asked:
            ask_to_end(self._api, self._target)
            self._asked = True
        if late > _KUBELET and not self._hurried:
            self._hurried = True
            # In a thread: with hundreds of pods it takes seconds, and they may go by themselves meanwhile.
            threading.Thread(target=self._hurry, daemon=True).start()

    def _hurry(self) -> None:
        try:
            hurry(self._api, self._target)
        except ApiError:
            return  # the looks tell what is left


def end_without_keeper(folder: RunFolder, grace: float) -> list[dict[str, Any]]:
    """End the job of a run folder whose keeper did not; what is left, as `left` of a cancel has it."""
    settings = folder / SETTINGS
    if not settings.exists() or (folder / GONE).exists():
        return []
    target = read_target(settings)
    try:
        with Proxy(target.context) as proxy:
            if not target.namespace:
                target = replace(target, namespace=proxy.namespace())
            ending = Ending(proxy.api, target)
            while not ending.step(grace, quiet=True):
                time.sleep(_PAUSE)
    except ProxyError as error:
        return [{"pid": 0, "command": f"Kubernetes job {target.name}: {error}"}]
    if not ending.left:
        (folder / GONE).touch(mode=0o600)
    return [{"pid": 0, "command": f"Kubernetes: {one}"} for one in ending.left[:50]]
