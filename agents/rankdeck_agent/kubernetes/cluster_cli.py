"""`cluster check`, `list` and `watch`: rights, nodes and jobs of a Kubernetes cluster, as lines of JSON.

The configuration is one line on stdin: {"context": …, "namespace": …}. `watch` ends with stdin.
"""

import json
import queue
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Optional, Union

from rankdeck_agent.job.journal import plain, table
from rankdeck_agent.kubernetes.api import LISTED, TROUBLE, Api, ApiError, Watch, each
from rankdeck_agent.kubernetes.cluster_view import NODES, PODS, ClusterView
from rankdeck_agent.kubernetes.kinds import KUEUE, Kind, kind_of, part, served, serves
from rankdeck_agent.kubernetes.pods import Object, text_of
from rankdeck_agent.kubernetes.proxy import Proxy, ProxyError, end_tidily, refusal
from rankdeck_agent.kubernetes.rights import ask, needed

PERIOD = 1.0
"""Seconds between two looks at what changed."""
BACKOFF = (2.0, 5.0, 15.0, 30.0)
_VERSION_LIMIT = 15.0
_NOT_OVER = "status.phase!=Succeeded,status.phase!=Failed"
_LONGEST = 65536
News = "tuple[Union[str, Kind], str, Object]"


def main(argv: "list[str]") -> int:
    """Run one command; returns its exit status."""
    end_tidily()
    verb = argv[0] if len(argv) == 1 else ""
    config = table(sys.stdin.readline(_LONGEST)) or {}
    if verb not in _VERBS:
        print("rankdeck: usage: cluster check|list|watch", file=sys.stderr)
        return 2
    return _VERBS[verb](text_of(config, "context"), text_of(config, "namespace", 63))


def _say(row: Object) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


# ---- check ------------------------------------------------------------------------------


def check(context: str, namespace: str) -> int:
    """One object: everything that could be found out, and in `trouble` what stopped it."""
    found: Object = {"kubectl": kubectl_version(), "context": context or _current_context()}
    try:
        with Proxy(context) as proxy:
            found["namespace"] = namespace = namespace or proxy.namespace()
            found |= about(proxy.api, namespace)
    except ProxyError as error:
        found["trouble"] = str(error)
    except ApiError as error:
        found["trouble"] = refusal(error)
    _say(found)
    return 0


def about(api: Api, namespace: str) -> Object:
    """Version of the server, kinds of jobs that it has, and rights; raises ApiError."""
    version = api.request("GET", "/version")
    kinds = served(api)
    return {
        "server": text_of(version, "gitVersion", 60),
        "kinds": [kind.name for kind in kinds],
        "kueue": serves(api, KUEUE),
        "rights": [ask(api, namespace, right) for right in needed(kinds)],
    }


def kubectl_version() -> str:
    """`v1.36.4`; "" where there is no kubectl."""
    found = table(_kubectl("version", "--client", "--output=json"))
    return text_of(part(found, "clientVersion"), "gitVersion", 60)


def _current_context() -> str:
    return plain(_kubectl("config", "current-context").strip(), 253)


def _kubectl(*words: str) -> str:
    try:
        done = subprocess.run(
            ("kubectl", *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_LIMIT,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


# ---- list -------------------------------------------------------------------------------


def list_jobs(context: str, namespace: str) -> int:
    """The jobs of the namespace as they are now; why not, as `trouble`."""
    try:
        with Proxy(context) as proxy:
            namespace = namespace or proxy.namespace()
            told = about(proxy.api, namespace)
            _say({"about": {**told, "namespace": namespace}})
            view = ClusterView(all_pods=False)
            for what, path, params in places(namespace, told["kinds"], _allowed(told["rights"])):
                if isinstance(what, Kind):
                    view.take(what, LISTED, {"items": proxy.api.items(path, params)[0]})
            for row in view.take_changes():
                _say(row)
    except ProxyError as error:
        _say({"trouble": str(error)})
    except ApiError as error:
        _say({"trouble": refusal(error)})
    return 0


# ---- watch ------------------------------------------------------------------------------


def watch(context: str, namespace: str) -> int:
    """Tell of nodes and jobs until stdin ends; what goes wrong is told too and tried again."""
    over = threading.Event()
    threading.Thread(target=_await_end, args=(over,), daemon=True).start()
    failures = 0
    while not over.is_set():
        began = time.monotonic()
        why = _watch_once(context, namespace, over)
        if over.is_set():
            break
        failures = 0 if time.monotonic() - began > BACKOFF[-1] else failures
        _say({"trouble": why})
        over.wait(BACKOFF[min(failures, len(BACKOFF) - 1)])
        failures += 1
    return 0


def _await_end(over: threading.Event) -> None:
    while sys.stdin.readline(_LONGEST):
        pass
    over.set()


def _watch_once(context: str, namespace: str, over: threading.Event) -> str:
    """Watch until stdin ends or kubectl does; why, in a sentence."""
    try:
        with Proxy(context) as proxy:
            namespace = namespace or proxy.namespace()
            told = about(proxy.api, namespace)
            _say({"about": {**told, "namespace": namespace}})
            return _follow(proxy, namespace, told, over)
    except ProxyError as error:
        return str(error)
    except ApiError as error:
        return refusal(error)


def _follow(proxy: Proxy, namespace: str, told: Object, over: threading.Event) -> str:
    news: queue.Queue[tuple[Union[str, Kind], str, Object]] = queue.Queue()
    may_see = _allowed(told["rights"])
    view = ClusterView(all_pods=may_see("devices"))
    watches = [
        (what, Watch(proxy.api, path, params))
        for what, path, params in places(namespace, told["kinds"], may_see)
    ]
    for what, one in watches:
        each(one, _to(news, what))
    troubles: dict[object, str] = {}
    waiting: set[object] = {what for what, _ in watches} or {None}
    try:
        while not over.is_set() and proxy.alive:
            waiting -= _take_all(news, view, troubles)
            for row in view.take_changes():
                _say(row)
            if not waiting:
                _say({"ready": True})
                waiting = {None}
    finally:
        for _, one in watches:
            one.close()
    return "kubectl proxy has ended"


May = Callable[..., bool]
"""`may(need, kind)`: whether this user has all rights that a feature needs for this kind of jobs."""


def _allowed(rights: "list[Object]") -> May:
    def may(need: str, kind: str = "") -> bool:
        asked = [row for row in rights if row["need"] == need and row["kind"] in ("", kind)]
        return all(row["allowed"] for row in asked)

    return may


def places(
    namespace: str, kinds: "list[str]", may: May
) -> "list[tuple[Union[str, Kind], str, dict[str, str]]]":
    """What can be watched with these rights: NODES, PODS or a kind, its path and parameters."""
    found: list[tuple[Union[str, Kind], str, dict[str, str]]] = []
    if may("fleet"):
        found.append((NODES, "/api/v1/nodes", {}))
    if may("devices"):
        found.append((PODS, "/api/v1/pods", {"fieldSelector": _NOT_OVER}))
    elif may("follow"):
        path = f"/api/v1/namespaces/{namespace}/pods"
        found.append((PODS, path, {"fieldSelector": _NOT_OVER}))
    known = [kind for name in kinds if (kind := kind_of(name))]
    seen = [kind for kind in known if may("see", kind.name)]
    return [*found, *((kind, kind.path(namespace), {}) for kind in seen)]


def _to(news: "queue.Queue[Any]", what: "Union[str, Kind]") -> "Callable[[str, Object], None]":
    return lambda event, found: news.put((what, event, found))


def _take_all(
    news: "queue.Queue[Any]", view: ClusterView, troubles: "dict[object, str]"
) -> "set[object]":
    """Take what comes within a period; returns what was listed. A trouble is said once, and once when it is over."""
    deadline = time.monotonic() + PERIOD
    listed: set[object] = set()
    while (left := deadline - time.monotonic()) > 0:
        what, event, found = _next(news, left)
        if what is None:
            break
        if event == TROUBLE:
            _trouble(troubles, what, refusal(ApiError(**found)))
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
        _say({"trouble": next(filter(None, troubles.values()), "")})


_VERBS: "dict[str, Callable[[str, str], int]]" = {"check": check, "list": list_jobs, "watch": watch}
