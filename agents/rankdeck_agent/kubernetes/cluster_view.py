"""What the watches of nodes, pods and jobs have said, and the rows of it that changed."""

from collections.abc import Iterable
from typing import Optional

from rankdeck_agent.kubernetes.api import LISTED
from rankdeck_agent.kubernetes.kinds import Kind, part
from rankdeck_agent.kubernetes.nodes import PodUse, node_row, pod_use
from rankdeck_agent.kubernetes.pods import Object, rows_of, text_of
from rankdeck_agent.kubernetes.workloads import is_outermost, job_row

MOST_NODES, MOST_JOBS = 20_000, 5_000
NODES, PODS = "nodes", "pods"


class ClusterView:
    """Takes events of watches in any order; `take_changes` gives what to tell the console."""

    def __init__(self, *, all_pods: bool) -> None:
        self._all_pods = all_pods
        self._nodes: dict[str, Object] = {}
        self._uses: dict[str, PodUse] = {}
        self._on: dict[str, dict[str, PodUse]] = {}
        """Node -> pods on it."""
        self._jobs: dict[tuple[str, str], Object] = {}
        """Kind and `namespace/name` -> row."""
        self._changed: set[str] = set()
        self._changed_jobs: set[tuple[str, str]] = set()
        self._told: dict[object, Object] = {}

    def take(self, what: "str | Kind", event: str, found: Object) -> None:
        """Take an event: `what` is NODES, PODS or a kind of jobs; LISTED has all of them."""
        if event == LISTED:
            self._list(what, rows_of(found.get("items")))
        else:
            self._one(what, found, gone=event == "DELETED")

    def _list(self, what: "str | Kind", found: "list[Object]") -> None:
        for key in self._keys(what) - {_key(what, one) for one in found}:
            self._drop(what, key)
        for one in found:
            self._one(what, one, gone=False)

    def _keys(self, what: "str | Kind") -> "set[str]":
        if isinstance(what, Kind):
            return {name for kind, name in self._jobs if kind == what.name}
        return set(self._nodes if what == NODES else self._uses)

    def _one(self, what: "str | Kind", found: Object, *, gone: bool) -> None:
        key = _key(what, found)
        if isinstance(what, Kind):
            self._take_job(what, key, None if gone or not is_outermost(found) else found)
        elif gone:
            self._drop(what, key)
        elif what == PODS:
            self._take_pod(key, pod_use(found))
        elif key and (key in self._nodes or len(self._nodes) < MOST_NODES):
            self._nodes[key] = _without_images(found)
            self._changed.add(key)

    def _drop(self, what: "str | Kind", key: str) -> None:
        if isinstance(what, Kind):
            self._take_job(what, key, None)
        elif what == PODS:
            self._take_pod(key, None)
        elif self._nodes.pop(key, None) is not None:
            self._changed.add(key)

    def _take_job(self, kind: Kind, name: str, found: Optional[Object]) -> None:
        key = (kind.name, name)
        if found is None:
            if self._jobs.pop(key, None) is not None:
                self._changed_jobs.add(key)
        elif key in self._jobs or len(self._jobs) < MOST_JOBS:
            self._jobs[key] = job_row(kind, found)
            self._changed_jobs.add(key)

    def _take_pod(self, uid: str, use: Optional[PodUse]) -> None:
        before = self._uses.pop(uid, None)
        if before is not None:
            self._on.get(before.node, {}).pop(uid, None)
            self._changed.add(before.node)
        if use is not None and uid:
            self._uses[uid] = use
            self._on.setdefault(use.node, {})[uid] = use
            self._changed.add(use.node)

    def take_changes(self) -> "list[Object]":
        """Rows of nodes and jobs that differ from what was told of them, and of those that are gone."""
        told = [*self._node_changes(self._changed), *self._job_changes(self._changed_jobs)]
        self._changed, self._changed_jobs = set(), set()
        return told

    def _node_changes(self, names: Iterable[str]) -> Iterable[Object]:
        for name in sorted(names):
            node = self._nodes.get(name)
            uses = self._on.get(name, {}).values()
            row = None if node is None else node_row(node, uses, all_pods=self._all_pods)
            yield from self._news(name, {"node": row} if row else {"node_gone": name})

    def _job_changes(self, keys: "Iterable[tuple[str, str]]") -> Iterable[Object]:
        for key in sorted(keys):
            row = self._jobs.get(key)
            yield from self._news(key, {"job": row} if row else {"job_gone": list(key)})

    def _news(self, key: object, row: Object) -> Iterable[Object]:
        """The row, if it says anything new."""
        before = self._told.get(key)
        gone = "node_gone" in row or "job_gone" in row
        if row == before or (gone and before is None):
            return
        if gone:
            del self._told[key]
        else:
            self._told[key] = row
        yield row


def _key(what: "str | Kind", found: Object) -> str:
    meta = part(found, "metadata")
    if what == PODS:
        return text_of(meta, "uid", 64)
    name = text_of(meta, "name")
    return name if what == NODES else f"{text_of(meta, 'namespace')}/{name}"


def _without_images(node: Object) -> Object:
    """What is shown of it: kubelets tell of every image, which may be most of the object."""
    status = part(node, "status")
    kept = ("conditions", "capacity", "allocatable", "addresses", "nodeInfo")
    return {
        "metadata": {"name": part(node, "metadata").get("name")},
        "spec": {key: part(node, "spec").get(key) for key in ("taints", "unschedulable")},
        "status": {key: status.get(key) for key in kept},
    }
