"""Deletes dependents of deleted objects: Foreground, Background and Orphan; namespaces."""

from typing import Any

from tests.support.kubernetes.kinds import JOB, NAMESPACE, POD, Kind
from tests.support.kubernetes.store import Store, deleting, owned

Json = dict[str, Any]


def reconcile(store: Store) -> None:
    """Bring deletions one step further."""
    uids = store.by_uid()
    for kind, found in store.everything():
        held = found["metadata"].get("finalizers", [])
        if "orphan" in held:
            _release(store, found)
            _let_go(store, kind, found, "orphan")
        elif "foregroundDeletion" in held:
            _in_foreground(store, kind, found)
        elif kind is NAMESPACE and "kubernetes" in held:
            _empty(store, found)
        elif kind is not POD or not deleting(found):
            _if_abandoned(store, kind, found, uids)


def end(store: Store, kind: Kind, found: Json) -> None:
    """Delete an object as the garbage collector does: a pod with its own grace period."""
    grace = 0
    if kind is POD:
        runs = found["spec"].get("nodeName")
        runs = runs and found["status"]["phase"] not in ("Succeeded", "Failed")
        grace = found["spec"].get("terminationGracePeriodSeconds", 30) if runs else 0
    if not deleting(found):
        # Dependents of dependents are waited for as well.
        store.delete(kind, found, "foregroundDeletion" if kind is JOB else "", grace)


def _let_go(store: Store, kind: Kind, found: Json, finalizer: str) -> None:
    def change(new: Json) -> None:
        left = [name for name in new["metadata"]["finalizers"] if name != finalizer]
        new["metadata"]["finalizers"] = left

    store.change(kind, found, change)


def _release(store: Store, owner: Json) -> None:
    uid = owner["metadata"]["uid"]

    def change(new: Json) -> None:
        meta = new["metadata"]
        left = [ref for ref in meta["ownerReferences"] if ref["uid"] != uid]
        meta["ownerReferences"] = left
        if not left:
            del meta["ownerReferences"]

    for kind, found in store.everything():
        if owned(found, owner):
            store.change(kind, found, change)


def _in_foreground(store: Store, kind: Kind, owner: Json) -> None:
    left = [(k, f) for k, f in store.everything() if owned(f, owner)]
    if not left:
        _let_go(store, kind, owner, "foregroundDeletion")
    for each, found in left:
        end(store, each, found)


def _if_abandoned(store: Store, kind: Kind, found: Json, uids: dict[str, Json]) -> None:
    owners = found["metadata"].get("ownerReferences", [])
    if owners and not any(ref["uid"] in uids for ref in owners):
        end(store, kind, found)


def _empty(store: Store, namespace: Json) -> None:
    name = namespace["metadata"]["name"]

    def terminating(new: Json) -> None:
        new["status"]["phase"] = "Terminating"

    store.change(NAMESPACE, namespace, terminating)
    inside = [(k, f) for k, f in store.everything() if f["metadata"].get("namespace") == name]
    for kind, found in inside:
        end(store, kind, found)
    if not inside:
        _let_go(store, NAMESPACE, namespace, "kubernetes")
