"""The REST part of the double: verbs on objects, watches, access rights, logs; no controllers."""

import asyncio
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.kubernetes import defaults, discovery, protobuf, status
from tests.support.kubernetes.access import Access
from tests.support.kubernetes.admission import Admission
from tests.support.kubernetes.exec import Start, serve_exec
from tests.support.kubernetes.http import CutError, Reply, Request
from tests.support.kubernetes.kinds import BUILT_IN, JOB, NAMESPACE, POD, Kind
from tests.support.kubernetes.logs import serve_log
from tests.support.kubernetes.selectors import chosen
from tests.support.kubernetes.store import Change, Store, deleting

Json = dict
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v[^/]+)(?:/namespaces/(?P<ns>[^/]+))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?"
)
_NAMESPACES = re.compile(r"/api/v1/namespaces(?:/(?P<name>[^/]+)(?:/(?P<sub>status))?)?")
_BOOKMARK_EVERY = 1.0


@dataclass(frozen=True)
class Target:
    """The object or collection that a path names."""

    kind: Kind
    namespace: str
    name: str
    sub: str


@dataclass
class Faults:
    """Faults of the server, in force until a test removes them."""

    delay: float = 0.0
    """Seconds before each answer."""
    answers: list[tuple[str, str, Callable[[], tuple[int, object] | tuple[int, object, str]]]] = (
        None  # type: ignore[assignment]
    )
    """(method pattern, path pattern, function that gives the answer instead)."""
    watch_cuts: int = 0
    """Counter; adding one breaks all watches."""
    log_cuts: int = 0
    log_sticks: int = 0
    """Counter; adding one silences all follows that are open."""

    def __post_init__(self) -> None:
        self.answers = self.answers or []

    def instead(self, request: Request) -> tuple[int, object] | tuple[int, object, str] | None:
        for method, path, answer in self.answers:
            if re.fullmatch(method, request.method) and re.fullmatch(path, request.path):
                return answer()
        return None


class Api:
    """Answers requests from the store."""

    def __init__(self, store: Store, access: Access, kinds: tuple[Kind, ...], logs: dict) -> None:
        self.store, self.access, self.faults = store, access, Faults()
        self.admission = Admission(store)
        self.kinds = (*BUILT_IN, *kinds)
        self.logs = logs
        """Logs of pods by (namespace, pod name)."""
        self.start_beside: Start | None = None
        """Runs commands in containers, if they are real."""
        self.requests: list[tuple[str, str]] = []
        """(method, path with query) of all requests, for tests."""

    async def handle(self, request: Request, reply: Reply) -> None:
        """Answer one request."""
        self.requests.append((request.method, request.path))
        if self.faults.delay:
            await asyncio.sleep(self.faults.delay)
        try:
            instead = self.faults.instead(request)
            if instead is not None:
                await reply.send(*instead)
                return
            await self._answer(request, reply)
        except status.RefusedError as refusal:
            await reply.send(refusal.code, refusal.body)

    async def _answer(self, request: Request, reply: Reply) -> None:
        user = self.access.user(request.headers.get("authorization", ""))
        found = discovery.answer(request.path.rstrip("/") or "/", self.kinds)
        if found is not None:
            await reply.send(200, found)
            return
        if request.path.startswith("/apis/authorization.k8s.io/v1/") and request.method == "POST":
            await reply.send(201, self.access.review(user, _body(request)))
            return
        target = self._target(request.path)
        if target is None:
            await reply.send(404, "404 page not found\n")
            return
        verb = _verb(request, target)
        self.access.demand(user, verb, target)
        if target.sub == "exec":  # 1.35 and newer: to look at a pod is not to run something in it
            self.access.demand(user, "create", target)
        await getattr(self, f"_{verb}")(request, reply, target)

    def _target(self, path: str) -> Target | None:
        if match := _NAMESPACES.fullmatch(path):
            return Target(NAMESPACE, "", match["name"] or "", match["sub"] or "")
        match = _PATH.fullmatch(path)
        for kind in self.kinds:
            if match and (kind.group, kind.version, kind.plural) == (
                match["group"] or "", match["version"], match["plural"],
            ):  # fmt: skip
                return Target(kind, match["ns"] or "", match["name"] or "", match["sub"] or "")
        return None

    # ---- reading ----------------------------------------------------------------------

    async def _get(self, request: Request, reply: Reply, target: Target) -> None:
        found = self.store.need(target.kind, target.namespace, target.name)
        if target.sub == "log":
            await serve_log(request, reply, found, self.logs, self.faults)
            return
        if target.sub == "exec" and self.start_beside is not None:
            await serve_exec(request, reply, found, self.start_beside)
            return
        await reply.send(200, found)

    async def _list(self, request: Request, reply: Reply, target: Target) -> None:
        wanted = _chosen(request)
        items = [f for f in self.store.all(target.kind, target.namespace) if wanted(f)]
        head = {"kind": f"{target.kind.name}List", "apiVersion": target.kind.group_version}
        limit = int(request.one("limit") or 0)
        first = int(request.one("continue") or 0)
        meta = {"resourceVersion": str(self.store.version)}
        if limit and len(items) > first + limit:
            left = len(items) - first - limit
            meta |= {"continue": str(first + limit), "remainingItemCount": left}
        items = items[first : first + limit] if limit else items
        plain = [{k: v for k, v in f.items() if k not in ("kind", "apiVersion")} for f in items]
        await reply.send(200, {**head, "metadata": meta, "items": plain})

    async def _watch(self, request: Request, reply: Reply, target: Target) -> None:
        watch = _Watch(self.store, request, target)
        await reply.begin("application/json")
        cuts = self.faults.watch_cuts
        try:
            await reply.part(watch.first())
            while watch.seconds_left() > 0 and cuts == self.faults.watch_cuts:
                await reply.part(watch.news())
                await watch.wait()
        except status.RefusedError as refusal:
            await reply.part(_line("ERROR", refusal.body))
        if cuts != self.faults.watch_cuts:
            raise CutError

    # ---- writing ----------------------------------------------------------------------

    async def _create(self, request: Request, reply: Reply, target: Target) -> None:
        if target.sub == "eviction":
            self._end(target, {"gracePeriodSeconds": None})
            await reply.send(201, {"kind": "Status", "status": "Success", "code": 201})
            return
        made = _body(request)
        warning = defaults.check(target.kind, made, request.one("fieldValidation"))
        made = defaults.completed(target.kind, made, target.namespace)
        made = self.admission.admit(target.kind, made)
        defaults.check_quota(target.kind, made, self.store)
        made = self.store.create(target.kind, made, dry=bool(request.one("dryRun")))
        await reply.send(201, made, warning=warning)

    async def _patch(self, request: Request, reply: Reply, target: Target) -> None:
        found = self.store.need(target.kind, target.namespace, target.name)
        patch = _body(request)
        kind = request.headers.get("content-type", "")
        if "merge-patch" not in kind:
            raise status.RefusedError(415, "UnsupportedMediaType", "the body must be a merge patch")
        new = self.store.change(target.kind, found, lambda old: _merge(old, patch))
        await reply.send(200, new)

    async def _update(self, request: Request, reply: Reply, target: Target) -> None:
        found, new = self.store.need(target.kind, target.namespace, target.name), _body(request)
        asked = new.get("metadata", {}).get("resourceVersion")
        if asked and asked != found["metadata"]["resourceVersion"]:
            raise status.conflict(target.kind, target.name)

        def replace(old: Json) -> None:
            old.clear()
            old.update(new)

        await reply.send(200, self.store.change(target.kind, found, replace))

    async def _delete(self, request: Request, reply: Reply, target: Target) -> None:
        options = _options(request)
        found = self.store.need(target.kind, target.namespace, target.name)
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted and wanted != found["metadata"]["uid"]:
            raise status.conflict(target.kind, target.name)
        if request.one("dryRun") or options.get("dryRun"):
            await reply.send(200, found)
            return
        left = self._end(target, options)
        gone = status.success(target.kind, target.name, found["metadata"]["uid"])
        await reply.send(200, left or gone)

    async def _deletecollection(self, request: Request, reply: Reply, target: Target) -> None:
        wanted, options = _chosen(request), _options(request)
        found = [f for f in self.store.all(target.kind, target.namespace) if wanted(f)]
        for each in found:
            meta = each["metadata"]
            place = Target(target.kind, meta.get("namespace", ""), meta["name"], "")
            self._end(place, options)
        head = {"kind": f"{target.kind.name}List", "apiVersion": target.kind.group_version}
        await reply.send(200, {**head, "metadata": {}, "items": found})

    def _end(self, target: Target, options: Json) -> Json | None:
        """Begin a deletion; returns the object if it is still there."""
        kind = target.kind
        found = self.store.need(kind, target.namespace, target.name)
        default = "Orphan" if kind is JOB else "Background"
        policy = options.get("propagationPolicy") or default
        finalizer = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}.get(policy, "")
        if kind is NAMESPACE:
            finalizer = "kubernetes"
        grace = _grace(found, options.get("gracePeriodSeconds")) if kind is POD else 0
        return self.store.delete(kind, found, "" if kind is POD else finalizer, grace)


class _Watch:
    """One watch: its position in the history, and when to send a bookmark."""

    def __init__(self, store: Store, request: Request, target: Target) -> None:
        self._store, self._target = store, target
        self._wanted = _chosen(request)
        asked = request.one("resourceVersion")
        self._from_start = asked in ("", "0") or request.flag("sendInitialEvents")
        self._initial = request.flag("sendInitialEvents")
        self._bookmarks = request.flag("allowWatchBookmarks")
        self._at = store.version if self._from_start else int(asked)
        self._told = self._at
        self._end = time.monotonic() + int(request.one("timeoutSeconds") or 3600)

    def seconds_left(self) -> float:
        return self._end - time.monotonic()

    async def wait(self) -> None:
        """Wait until there may be changes, or it is time for a bookmark."""
        limit = min(_BOOKMARK_EVERY, max(self.seconds_left(), 0.001))
        try:
            await asyncio.wait_for(self._store.wait(), limit)
        except TimeoutError:
            return

    def first(self) -> bytes:
        if not self._from_start:
            self._store.since(self._at)
            return b""
        target = self._target
        items = [f for f in self._store.all(target.kind, target.namespace) if self._wanted(f)]
        mark = {"k8s.io/initial-events-end": "true"}
        end = self._bookmark({"annotations": mark}) if self._initial else b""
        return b"".join(_line("ADDED", f) for f in items) + end

    def news(self) -> bytes:
        """The changes since then, as lines; raises RefusedError with 410."""
        changes = self._store.since(self._at)
        self._at = max(self._at, self._store.version)
        sent = b"".join(self._event(change) for change in changes)
        if sent:
            self._told = self._at
        elif self._bookmarks and self._told != self._at:
            self._told = self._at
            return self._bookmark({})
        return sent

    def _event(self, change: Change) -> bytes:
        meta = change.object["metadata"]
        if change.kind is not self._target.kind:
            return b""
        if self._target.namespace not in ("", meta.get("namespace", "")):
            return b""
        if self._target.name not in ("", meta["name"]):
            return b""
        is_meant = self._wanted(change.object)
        was_meant = change.before is not None and self._wanted(change.before)
        if change.type == "MODIFIED" and is_meant != was_meant:
            return _line("ADDED" if is_meant else "DELETED", change.object)
        return _line(change.type, change.object) if is_meant else b""

    def _bookmark(self, meta: Json) -> bytes:
        kind = self._target.kind
        head = {"kind": kind.name, "apiVersion": kind.group_version}
        return _line("BOOKMARK", {**head, "metadata": {"resourceVersion": str(self._at), **meta}})


def _line(what: str, found: Json) -> bytes:
    return json.dumps({"type": what, "object": found}, separators=(",", ":")).encode() + b"\n"


_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update"}


def _verb(request: Request, target: Target) -> str:
    """The verb as in access rules; raises RefusedError with 405."""
    if request.method == "GET":
        if request.flag("watch"):
            return "watch"
        return "get" if target.name else "list"
    if request.method == "DELETE":
        return "delete" if target.name else "deletecollection"
    if request.method not in _VERBS:
        raise status.RefusedError(405, "MethodNotAllowed", "the server does not allow this method")
    return _VERBS[request.method]


def _chosen(request: Request) -> Callable[[Json], bool]:
    return chosen(request.one("labelSelector"), request.one("fieldSelector"))


def _body(request: Request) -> Json:
    try:
        if request.body.startswith(protobuf.MAGIC):
            return protobuf.review(request.body)
        return json.loads(request.body)
    except ValueError as mistake:
        raise status.RefusedError(
            400, "BadRequest", f"couldn't get version/kind: {mistake}"
        ) from None


def _options(request: Request) -> Json:
    body = json.loads(request.body) if request.body else {}
    query = {k: v[-1] for k, v in request.query.items()}
    chosen_ = {k: body.get(k, query.get(k)) for k in ("propagationPolicy", "gracePeriodSeconds")}
    return {**body, **{k: v for k, v in chosen_.items() if v is not None}}


def _grace(pod: Json, asked: int | str | None) -> int:
    """The grace period of a pod in seconds; 0 if nothing of it runs on a node."""
    if not pod["spec"].get("nodeName") or pod["status"]["phase"] in ("Succeeded", "Failed"):
        return 0
    own = pod["spec"].get("terminationGracePeriodSeconds", 30)
    wanted = own if asked is None else int(asked)
    left = pod["metadata"].get("deletionGracePeriodSeconds", wanted)
    return min(wanted, left) if deleting(pod) else wanted


def _merge(old: Json, patch: Json) -> None:
    for key, value in patch.items():
        if value is None:
            old.pop(key, None)
        elif isinstance(value, dict) and isinstance(old.get(key), dict):
            _merge(old[key], value)
        else:
            old[key] = value
