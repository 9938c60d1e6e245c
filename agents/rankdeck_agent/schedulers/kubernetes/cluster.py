"""`cluster check`, `list` and `watch`: print rights, nodes and jobs of
a Kubernetes cluster as lines of JSON. `watch` runs until stdin ends.
"""

import queue
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Callable, Optional, Union

from rankdeck_agent.job.cancel import run_limited as ask_program
from rankdeck_agent.schedulers.kubernetes.api import Api
from rankdeck_agent.schedulers.kubernetes.json_values import Object, object_rows
from rankdeck_agent.schedulers.kubernetes.kubectl_errors import (
    ApiError,
    ProxyError,
    describe_api_refusal,
)
from rankdeck_agent.schedulers.kubernetes.kubectl_proxy import Proxy
from rankdeck_agent.schedulers.kubernetes.objects import (
    BY_NAME,
    JOB,
    MPIJOB,
    SCHEDULING,
    JobKind,
    ask_version,
    event_message,
    event_uid,
    find_kueue,
    list_job_kinds,
    parse_object_time,
    part_of_object,
    string_value,
    too_old,
)
from rankdeck_agent.schedulers.kubernetes.rows import (
    Holder,
    PodUse,
    holder_row,
    is_outermost,
    job_row,
    lacks_pods,
    node_row,
    parent_job,
    pod_use,
)
from rankdeck_agent.schedulers.kubernetes.watch import LISTED, TROUBLE, Watch, start_watch_thread
from rankdeck_agent.text import parse_json_table, plain_line, print_json_line
from rankdeck_agent.values import Value

MOST_NODES, MOST_JOBS = 20_000, 5_000
NODES, PODS, EVENTS = "nodes", "pods", "events"
ALL_NAMESPACES = "*"


class KubernetesView:
    """The nodes, pods, jobs and warnings of a cluster, from events of watches in any
    order; `take_changes` returns what to send.
    """

    def __init__(self, *, all_pods: bool) -> None:
        self._all_pods = all_pods
        self._nodes: dict[str, Object] = {}
        self._uses: dict[str, PodUse] = {}
        self._on: dict[str, dict[str, PodUse]] = {}
        """Node -> uid -> pod on it."""
        self._jobs: dict[tuple[str, str], Object] = {}
        """(kind, `namespace/name`) -> row."""
        self._holders: dict[tuple[str, str], dict[str, PodUse]] = {}
        """What holds devices and is no job (its `key`) -> uid -> pod of it."""
        self._above: dict[tuple[str, str], tuple[str, str]] = {}
        """A job that is a part of another -> that one, both as in `_jobs`."""
        self._short: set[tuple[str, str]] = set()
        """Jobs that lack pods."""
        self._warnings: dict[tuple[str, str], tuple[float, str]] = {}
        """What an event is about, as in `_jobs` -> (its time, its text); the newest of each."""
        self._stuck: dict[str, dict[str, str]] = {}
        """`namespace/name` of a job -> uid of a pod that does not start -> the newest warning."""
        self._changed: set[str] = set()
        self._changed_jobs: set[tuple[str, str]] = set()
        self._printed: dict[object, Object] = {}

    def take(self, what: "str | JobKind", event: str, found: Object) -> None:
        """Handle an event of a watch; `what`: NODES, PODS, EVENTS or a kind of jobs.

        LISTED has all objects.
        """
        if what == EVENTS:
            for one in object_rows(found.get("items")) if event == LISTED else [found]:
                self._warn(one)
        elif event == LISTED:
            self._list(what, object_rows(found.get("items")))
        else:
            self._one(what, found, gone=event == "DELETED")

    def _list(self, what: "str | JobKind", found: "Sequence[Object]") -> None:
        for key in self._keys(what) - {_key(what, one) for one in found}:
            self._drop(what, key)
        for one in found:
            self._one(what, one, gone=False)

    def _keys(self, what: "str | JobKind") -> "set[str]":
        if isinstance(what, JobKind):
            return {name for kind, name in self._jobs if kind == what.name}
        return set(self._nodes if what == NODES else self._uses)

    def _one(self, what: "str | JobKind", found: Object, *, gone: bool) -> None:
        key = _key(what, found)
        if isinstance(what, JobKind):
            inner = not is_outermost(found)
            if inner and len(self._above) < MOST_JOBS:
                self._above[what.name, key] = parent_job(found)
            self._take_job(what, key, None if gone or inner else found)
        elif gone:
            self._drop(what, key)
        elif what == PODS:
            self._take_pod(key, pod_use(found))
        elif key and (key in self._nodes or len(self._nodes) < MOST_NODES):
            self._nodes[key] = _without_images(found)
            self._changed.add(key)

    def _drop(self, what: "str | JobKind", key: str) -> None:
        if isinstance(what, JobKind):
            self._take_job(what, key, None)
        elif what == PODS:
            self._take_pod(key, None)
        elif self._nodes.pop(key, None) is not None:
            self._changed.add(key)

    def _take_job(self, kind: JobKind, name: str, found: Optional[Object]) -> None:
        key = (kind.name, name)
        if found is None:
            if self._jobs.pop(key, None) is not None:
                self._changed_jobs.add(key)
        elif key in self._jobs or len(self._jobs) < MOST_JOBS:
            self._jobs[key] = job_row(kind, found)
            (self._short.add if lacks_pods(kind, found) else self._short.discard)(key)
            self._changed_jobs.add(key)

    def _warn(self, event: Object) -> None:
        """Note a warning about a job or a part of it: why its controller could not create pods,
        or why a pod does not start.
        """
        about = part_of_object(event, "involvedObject")
        message = event_message(event)
        if not message:
            return
        said = f"{string_value(event, 'reason', 63)}: {message}"
        use = self._uses.get(event_uid(event))
        if use is not None and use.starts and use.job and event.get("reason") != SCHEDULING:
            self._stuck.setdefault(use.job, {})[event_uid(event)] = said
            self._changed_jobs |= self._named(use.job)
        key = (
            string_value(about, "kind", 63),
            f"{string_value(about, 'namespace')}/{string_value(about, 'name')}",
        )
        key = self._above.get(key, key)
        times = (event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
        at = next(filter(None, map(parse_object_time, times)), 0.0)
        known = key in self._warnings or len(self._warnings) < MOST_JOBS
        if key[0] in BY_NAME and known and at >= self._warnings.get(key, (0.0, ""))[0]:
            self._warnings[key] = (at, said)
            self._changed_jobs.add(key)

    def _named(self, job: str) -> "set[tuple[str, str]]":
        """The jobs of any kind that are called so, `namespace/name`."""
        return {(kind, job) for kind in BY_NAME} & self._jobs.keys()

    def _take_pod(self, uid: str, use: Optional[PodUse]) -> None:
        before = self._uses.pop(uid, None)
        if before is not None:
            if (use is None or not use.starts) and self._stuck.get(before.job, {}).pop(uid, ""):
                self._changed_jobs |= self._named(before.job)
            self._on.get(before.node, {}).pop(uid, None)
            self._changed.add(before.node)
        concerned = [one.holder for one in (before, use) if one is not None and one.holder]
        for holder in {one.key: one for one in concerned}.values():
            self._hold(holder, uid, use)
        if use is not None and uid:
            self._uses[uid] = use
            self._on.setdefault(use.node, {})[uid] = use
            self._changed.add(use.node)

    def _hold(self, holder: Holder, uid: str, use: Optional[PodUse]) -> None:
        key = holder.key
        if key not in self._holders and len(self._holders) >= MOST_JOBS:
            return
        pods = self._holders.setdefault(key, {})
        pods.pop(uid, None)
        if use is not None and use.holder is not None and use.holder.key == key:
            pods[uid] = use
        if pods:
            self._jobs[key] = holder_row(holder, pods.values())
        else:
            del self._holders[key]
            self._jobs.pop(key, None)
        self._changed_jobs.add(key)

    def take_changes(self) -> "list[Object]":
        """Rows {"node": …}, {"job": …} of what changed since the last call,
        and {"node_gone": …}, {"job_gone": …}.
        """
        changes = [*self._node_changes(self._changed), *self._job_changes(self._changed_jobs)]
        self._changed, self._changed_jobs = set(), set()
        return changes

    def _node_changes(self, names: Iterable[str]) -> Iterable[Object]:
        for name in sorted(names):
            node = self._nodes.get(name)
            uses = self._on.get(name, {}).values()
            row = None if node is None else node_row(node, uses, all_pods=self._all_pods)
            yield from self._news(name, {"node": row} if row else {"node_gone": name})

    def _job_changes(self, keys: "Iterable[tuple[str, str]]") -> Iterable[Object]:
        for key in sorted(keys):
            row = self._jobs.get(key)
            if row:
                row = {**row, "why": row["why"] or self._why(key)}
            yield from self._news(key, {"job": row} if row else {"job_gone": list(key)})

    def _why(self, key: "tuple[str, str]") -> str:
        """What keeps the pods of a job, as in `_jobs`, from being created or from starting."""
        refused = self._warnings[key][1] if key in self._short & self._warnings.keys() else ""
        return refused or next(iter(self._stuck.get(key[1], {}).values()), "")

    def _news(self, key: object, row: Object) -> Iterable[Object]:
        """The row, if it differs from the one sent before."""
        before = self._printed.get(key)
        gone = "node_gone" in row or "job_gone" in row
        if row == before or (gone and before is None):
            return
        if gone:
            del self._printed[key]
        else:
            self._printed[key] = row
        yield row


def _key(what: "str | JobKind", found: Object) -> str:
    meta = part_of_object(found, "metadata")
    if what == PODS:
        return string_value(meta, "uid", 64)
    name = string_value(meta, "name")
    return name if what == NODES else f"{string_value(meta, 'namespace')}/{name}"


def _without_images(node: Object) -> Object:
    """The parts of a node that are shown; its list of images can be most of the object."""
    status = part_of_object(node, "status")
    kept = ("conditions", "capacity", "allocatable", "addresses", "nodeInfo")
    return {
        "metadata": {"name": part_of_object(node, "metadata").get("name")},
        "spec": {key: part_of_object(node, "spec").get(key) for key in ("taints", "unschedulable")},
        "status": {key: status.get(key) for key in kept},
    }


REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Right(Value):
    """A verb on a resource, and the feature of Rankdeck that needs it."""

    need: str
    """launch, tidy, see, follow, events, inspect, cancel, force, fleet, devices."""
    verb: str
    resource: str
    group: str = ""
    kind: str = ""
    """The kind of jobs for which it is needed; "" for all."""
    everywhere: bool = False
    """Whether it is needed in all namespaces."""

    @property
    def words(self) -> str:
        """`create jobs.batch`."""
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {name}" + (" of all namespaces" if self.everywhere else "")


def _each(need: str, verbs: str, resource: str, kind: str = "") -> "list[Right]":
    return [Right(need, verb, resource, kind=kind) for verb in verbs.split()]


EXEC = tuple(_each("inspect", "get create", "pods/exec"))
"""What `kubectl exec` needs: servers and versions of kubectl ask for one of these, or for both."""
_ALWAYS = (
    *_each("launch", "create", "configmaps"),
    *_each("launch", "create", "services", JOB.name),
    *_each("tidy", "patch", "configmaps"),
    *_each("tidy", "patch", "services", JOB.name),
    *_each("follow", "get list watch", "pods"),
    *_each("follow", "get", "pods/log"),
    *_each("events", "list watch", "events"),
    *EXEC,
    *_each("cancel", "list delete", "services"),
    *_each("cancel", "list delete", "configmaps"),
    *_each("force", "delete", "pods"),
    Right("fleet", "list", "nodes", everywhere=True),
    Right("fleet", "watch", "nodes", everywhere=True),
    Right("devices", "list", "pods", everywhere=True),
    Right("devices", "watch", "pods", everywhere=True),
)
_OF_A_KIND = (("see", "list"), ("see", "watch"), ("cancel", "delete"))
_STARTED = (JOB, MPIJOB)


def needed_rights(kinds: Iterable[JobKind]) -> "tuple[Right, ...]":
    """The rights that Rankdeck needs on a server that has these kinds of jobs."""
    found: list[Right] = []
    for kind in kinds:
        asked = (("launch", "create"), *_OF_A_KIND) if kind in _STARTED else _OF_A_KIND
        found += [Right(need, verb, kind.plural, kind.group, kind.name) for need, verb in asked]
    return (*found, *_ALWAYS)


def ask_right(api: Api, namespace: str, right: Right) -> Object:
    """Ask the server whether this user has a right; returns a row with `allowed`, and `why` if not.

    Raises ApiError.
    """
    resource, _, sub = right.resource.partition("/")
    attributes = {"verb": right.verb, "group": right.group, "resource": resource}
    if sub:
        attributes["subresource"] = sub
    if not right.everywhere and namespace != ALL_NAMESPACES:
        attributes["namespace"] = namespace
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    status = part_of_object(api.request("POST", REVIEWS, body=body), "status")
    allowed = status.get("allowed") is True
    return {
        "need": right.need,
        "kind": right.kind,
        "what": right.words,
        "allowed": allowed,
        "why": "" if allowed else string_value(status, "reason", 300),
    }


PERIOD = 1.0
"""Seconds between two reports of changes."""
BACKOFF = (2.0, 5.0, 15.0, 30.0)
_VERSION_LIMIT = 15.0
_NOT_OVER = "status.phase!=Succeeded,status.phase!=Failed"
LONGEST_LINE = 65536


# ---- check ------------------------------------------------------------------------------


def check_cluster(context: str, namespace: str) -> int:
    """Print one object with everything that could be found out;
    `trouble` says what failed, if anything.
    """
    found: Object = {"kubectl": kubectl_version(), "context": context or _current_context()}
    try:
        with Proxy(context) as proxy:
            found["namespace"] = namespace = namespace or proxy.namespace()
            found.update(describe_server(proxy.api, namespace))
    except (ProxyError, ApiError) as error:
        found["trouble"] = describe_api_refusal(error)
    print_json_line(found)
    return 0


def describe_server(api: Api, namespace: str) -> Object:
    """The server's version, the kinds of jobs that it has, and the
    user's rights; raises ApiError.
    """
    version = ask_version(api)
    kinds = list_job_kinds(api)
    return {
        "server": string_value(version, "gitVersion", 60),
        "trouble": too_old(version),
        "kinds": [kind.name for kind in kinds],
        "kueue": find_kueue(api) is not None,
        "rights": [ask_right(api, namespace, right) for right in needed_rights(kinds)],
    }


def kubectl_version() -> str:
    """kubectl's version, like `v1.36.4`; "" if there is no kubectl."""
    found = parse_json_table(_kubectl("version", "--client", "--output=json"))
    return string_value(part_of_object(found, "clientVersion"), "gitVersion", 60)


def _current_context() -> str:
    return plain_line(_kubectl("config", "current-context"), 253)


def _kubectl(*words: str) -> str:
    why, wrote = ask_program(("kubectl", *words), _VERSION_LIMIT)
    return "" if why else wrote


# ---- list -------------------------------------------------------------------------------


def list_jobs(context: str, namespace: str) -> int:
    """Print the jobs of the namespace once, or a `trouble` that says why not."""
    try:
        with Proxy(context) as proxy:
            namespace = namespace or proxy.namespace()
            cluster = describe_server(proxy.api, namespace)
            print_json_line({"about": {**cluster, "namespace": namespace}})
            view = KubernetesView(all_pods=False)
            for what, path, params in watched_places(
                namespace, cluster["kinds"], _near(namespace, cluster["rights"])
            ):
                if what != NODES:
                    view.take(what, LISTED, {"items": proxy.api.items(path, params)[0]})
            for row in view.take_changes():
                print_json_line(row)
    except (ProxyError, ApiError) as error:
        print_json_line({"trouble": describe_api_refusal(error)})
    return 0


# ---- watch ------------------------------------------------------------------------------


def watch_cluster(context: str, namespace: str) -> int:
    """Print rows of nodes and jobs until stdin ends; after an error
    print a `trouble` and try again.
    """
    over = threading.Event()
    threading.Thread(target=_await_end, args=(over,), daemon=True).start()
    failures = 0
    while not over.is_set():
        began = time.monotonic()
        why = _watch_once(context, namespace, over)
        if over.is_set():
            break
        failures = 0 if time.monotonic() - began > BACKOFF[-1] else failures
        print_json_line({"trouble": why})
        over.wait(BACKOFF[min(failures, len(BACKOFF) - 1)])
        failures += 1
    return 0


def _await_end(over: threading.Event) -> None:
    while sys.stdin.readline(LONGEST_LINE):
        pass
    over.set()


def _watch_once(context: str, namespace: str, over: threading.Event) -> str:
    """Watch until stdin ends or kubectl fails; returns why it failed, in a sentence."""
    try:
        with Proxy(context) as proxy:
            namespace = namespace or proxy.namespace()
            cluster = describe_server(proxy.api, namespace)
            print_json_line({"about": {**cluster, "namespace": namespace}})
            return _follow(proxy, namespace, cluster, over)
    except (ProxyError, ApiError) as error:
        return describe_api_refusal(error)


def _follow(proxy: Proxy, namespace: str, cluster: Object, over: threading.Event) -> str:
    news: queue.Queue[tuple[Union[str, JobKind], str, Object]] = queue.Queue()
    may_see = _allowed(cluster["rights"])
    view = KubernetesView(all_pods=may_see("devices"))
    watches = [
        (what, Watch(proxy.api, path, params))
        for what, path, params in watched_places(namespace, cluster["kinds"], may_see)
    ]
    for what, one in watches:
        start_watch_thread(one, _to(news, what))
    troubles: dict[object, str] = {}
    waiting: set[object] = {what for what, _ in watches} or {None}
    try:
        while not over.is_set() and proxy.alive:
            waiting -= _take_all(news, view, troubles)
            for row in view.take_changes():
                print_json_line(row)
            if not waiting:
                print_json_line({"ready": True})
                waiting = {None}
    finally:
        for _, one in watches:
            one.close()
    return "kubectl proxy has ended"


May = Callable[..., bool]
"""`may(need, kind)`: whether this user has all rights that a
feature needs for this kind of jobs.
"""


def _allowed(rights: "list[Object]") -> May:
    def may(need: str, kind: str = "") -> bool:
        asked = [row for row in rights if row["need"] == need and row["kind"] in ("", kind)]
        return all(row["allowed"] for row in asked)

    return may


def _near(namespace: str, rights: "list[Object]") -> May:
    """Like `_allowed`, but without the pods of other namespaces, unless all are asked for."""
    allowed = _allowed(rights)
    far = () if namespace == ALL_NAMESPACES else ("devices",)

    def may(need: str, kind: str = "") -> bool:
        return need not in far and allowed(need, kind)

    return may


def watched_places(
    namespace: str, kinds: "list[str]", may: May
) -> "list[tuple[Union[str, JobKind], str, dict[str, str]]]":
    """What can be watched with these rights: (NODES, PODS, EVENTS or a kind of
    jobs; its API path; request parameters).

    `namespace`: ALL_NAMESPACES for all.
    """
    found: list[tuple[Union[str, JobKind], str, dict[str, str]]] = []
    if may("fleet"):
        found.append((NODES, "/api/v1/nodes", {}))
    inside = "" if namespace == ALL_NAMESPACES else namespace
    below = f"/api/v1/namespaces/{inside}" if inside else "/api/v1"
    if may("devices"):
        found.append((PODS, "/api/v1/pods", {"fieldSelector": _NOT_OVER}))
    elif may("follow"):
        found.append((PODS, f"{below}/pods", {"fieldSelector": _NOT_OVER}))
    known = [BY_NAME[name] for name in kinds if name in BY_NAME]
    seen = [kind for kind in known if may("see", kind.name)]
    found += [(kind, kind.path(inside), {}) for kind in seen]
    if may("events"):
        # After the jobs, so that it is known which of them are parts of others.
        found.append((EVENTS, f"{below}/events", {"fieldSelector": "type=Warning"}))
    return found


def _to(news: "queue.Queue[Any]", what: "Union[str, JobKind]") -> "Callable[[str, Object], None]":
    return lambda event, found: news.put((what, event, found))


def _take_all(
    news: "queue.Queue[Any]", view: KubernetesView, troubles: "dict[object, str]"
) -> "set[object]":
    """Handle what arrives within PERIOD; returns what was listed.

    Prints a trouble once, and once when it is over.
    """
    deadline = time.monotonic() + PERIOD
    listed: set[object] = set()
    while time.monotonic() < deadline:
        what, event, found = _next(news, max(0.0, deadline - time.monotonic()))
        if what is None:
            break
        if event == TROUBLE:
            _trouble(troubles, what, describe_api_refusal(ApiError(**found)))
            continue
        if event == LISTED:
            listed.add(what)
            _trouble(troubles, what, "")
        view.take(what, event, found)
    return listed


def _next(news: "queue.Queue[Any]", limit: float) -> "tuple[Optional[Any], str, Object]":
    try:
        return news.get(timeout=limit)
    except queue.Empty:
        return None, "", {}


def _trouble(troubles: "dict[object, str]", what: object, why: str) -> None:
    if troubles.get(what, "") != why:
        troubles[what] = why
        print_json_line({"trouble": next(filter(None, troubles.values()), "")})
