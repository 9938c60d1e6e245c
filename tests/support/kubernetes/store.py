"""The double's etcd: objects, their versions, the history of changes, and who waits for changes."""

import asyncio
import copy
import datetime
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.kubernetes import status
from tests.support.kubernetes.kinds import EVENT, NAMESPACE, POD, Kind

Json = dict[str, Any]


def now() -> str:
    """The time as objects carry it, in whole seconds."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Change:
    """One thing that happened; `before` is the object as it was, None where it was made."""

    version: int
    kind: Kind
    type: str
    object: Json
    before: Json | None
    at: float
    """Seconds of the epoch."""


class Store:
    """Objects by kind and place.

    Used by one event loop only; kept objects are never altered in place.
    """

    def __init__(self) -> None:
        self.version = 1000
        self.oldest = 1000
        """The oldest version that a watch can begin at."""
        self.history: list[Change] = []
        self._objects: dict[Kind, dict[tuple[str, str], Json]] = {}
        self._changed = asyncio.Event()

    # ---- reading ----------------------------------------------------------------------

    def all(self, kind: Kind, namespace: str = "") -> list[Json]:
        """Objects of a kind, of one namespace or of all, in the order of their names."""
        kept = self._objects.get(kind, {})
        return [kept[place] for place in sorted(kept) if namespace in ("", place[0])]

    def everything(self) -> Iterator[tuple[Kind, Json]]:
        for kind, kept in list(self._objects.items()):
            for found in list(kept.values()):
                yield kind, found

    def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        return self._objects.get(kind, {}).get((namespace, name))

    def need(self, kind: Kind, namespace: str, name: str) -> Json:
        """The object; raises RefusedError with 404."""
        found = self.get(kind, namespace, name)
        if found is None:
            raise status.not_found(kind, name)
        return found

    def by_uid(self) -> dict[str, Json]:
        return {found["metadata"]["uid"]: found for _, found in self.everything()}

    async def wait(self) -> None:
        """Wait until something changes."""
        await self._changed.wait()

    def since(self, version: int) -> list[Change]:
        """What happened after a version; raises RefusedError with 410 where that is forgotten."""
        if version < self.oldest:
            raise status.expired(version, self.oldest)
        first = len(self.history)
        while first and self.history[first - 1].version > version:
            first -= 1
        return self.history[first:]

    def forget(self) -> None:
        """Compact: watches can begin only at the present version or later."""
        self.oldest = self.version
        self.history.clear()

    def restore(self) -> None:
        """Restore a backup: versions continue from an older one.

        Like etcd without `--bump-revision`: a watch at a future version
        is accepted, and silent until then.
        """
        self.version -= 500
        self.forget()

    # ---- writing ----------------------------------------------------------------------

    def create(self, kind: Kind, made: Json, *, dry: bool = False) -> Json:
        """Add an object; its metadata is completed.

        Raises RefusedError: 409, or 404 for the namespace.
        """
        made = copy.deepcopy(made)
        meta = made.setdefault("metadata", {})
        place = (meta.get("namespace", ""), meta["name"])
        self._check_place(kind, *place)
        if place in self._objects.setdefault(kind, {}):
            raise status.exists(kind, place[1])
        meta.setdefault("uid", str(uuid.uuid4()))
        meta["creationTimestamp"] = now()
        if kind is not EVENT:
            meta["generation"] = 1
        made = {"kind": kind.name, "apiVersion": kind.group_version, **made}
        return made if dry else self._keep(kind, place, made, None)

    def _check_place(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        home = self.need(NAMESPACE, "", namespace)
        if home["metadata"].get("deletionTimestamp"):
            raise status.RefusedError(
                403,
                "Forbidden",
                f'{kind.resource} "{name}" is forbidden: unable to create new content in '
                f"namespace {namespace} because it is being terminated",
                {"name": name, "kind": kind.plural},
            )

    def change(self, kind: Kind, old: Json, how: Callable[[Json], object]) -> Json:
        """Change an object by a function on a copy; nothing happens if there is no difference.

        An object that is being deleted is removed once it has no finalizers.
        """
        meta = old["metadata"]
        place = (meta.get("namespace", ""), meta["name"])
        kept = self._objects.get(kind, {}).get(place)
        if kept is None or kept["metadata"]["uid"] != meta["uid"]:
            return old
        new = copy.deepcopy(kept)
        how(new)
        if new == kept:
            return kept
        if new.get("spec") != kept.get("spec"):
            new["metadata"]["generation"] = kept["metadata"].get("generation", 1) + 1
        new = self._keep(kind, place, new, kept)
        if self._is_over(kind, new):
            self._drop(kind, place)
        return new

    def _is_over(self, kind: Kind, found: Json) -> bool:
        meta = found["metadata"]
        held = meta.get("finalizers") or (kind is POD and meta.get("deletionGracePeriodSeconds"))
        return bool(meta.get("deletionTimestamp")) and not held

    def delete(self, kind: Kind, found: Json, finalizer: str = "", grace: int = 0) -> Json | None:
        """Begin a deletion; returns the object as it is now, None if it is already gone."""

        def mark(new: Json) -> None:
            meta = new["metadata"]
            shorter = grace < meta.get("deletionGracePeriodSeconds", grace + 1)
            if not meta.get("deletionTimestamp") or shorter:
                meta["deletionTimestamp"] = meta.get("deletionTimestamp") or now()
                meta["deletionGracePeriodSeconds"] = grace
            if finalizer and finalizer not in meta.get("finalizers", []):
                meta["finalizers"] = [*meta.get("finalizers", []), finalizer]

        meta = found["metadata"]
        if not finalizer and not grace and not meta.get("finalizers"):
            self._drop(kind, (meta.get("namespace", ""), meta["name"]))
            return None
        return self.change(kind, found, mark)

    def _keep(self, kind: Kind, place: tuple[str, str], new: Json, before: Json | None) -> Json:
        self._objects[kind][place] = new
        return self._tell(kind, "MODIFIED" if before else "ADDED", new, before)

    def _drop(self, kind: Kind, place: tuple[str, str]) -> None:
        gone = self._objects[kind].pop(place, None)
        if gone is not None:
            self._tell(kind, "DELETED", copy.deepcopy(gone), gone)

    def _tell(self, kind: Kind, what: str, found: Json, before: Json | None) -> Json:
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        self.history.append(Change(self.version, kind, what, found, before, time.time()))
        self.wake()
        return found

    def wake(self) -> None:
        """Wake everybody who waits for a change."""
        waiting, self._changed = self._changed, asyncio.Event()
        waiting.set()

    # ---- events -----------------------------------------------------------------------

    def event(
        self, kind: Kind, about: Json, reason: str, message: str, *, by: str, warning: bool = False
    ) -> None:
        """Record an Event about an object; a repeated one is only counted."""
        meta = about["metadata"]
        namespace = meta.get("namespace", "default")
        for old in self.all(EVENT, namespace):
            same = old["involvedObject"]["uid"] == meta["uid"] and old["reason"] == reason
            if same and old["message"] == message:
                self.change(EVENT, old, _count)
                return
        place = {"name": f"{meta['name']}.{self.version + 1:016x}", "namespace": namespace}
        target = {"kind": kind.name, "namespace": namespace, "name": meta["name"]}
        known = {"uid": meta["uid"], "apiVersion": kind.group_version}
        told: Json = {"reason": reason, "message": message, "source": {"component": by}}
        times = {"firstTimestamp": now(), "lastTimestamp": now(), "count": 1}
        rest = {"eventTime": None, "reportingComponent": by, "reportingInstance": ""}
        level = {"type": "Warning" if warning else "Normal"}
        place_now = self.get(NAMESPACE, "", namespace)
        if place_now is None or place_now["metadata"].get("deletionTimestamp"):
            return
        head = {"metadata": place, "involvedObject": {**target, **known}}
        self.create(EVENT, {**head, **told, **times, **level, **rest})


def _count(event: Json) -> None:
    event["count"] += 1
    event["lastTimestamp"] = now()


# ---- parts of objects -------------------------------------------------------------------


def owner(kind: Kind, of: Json) -> Json:
    """The owner reference for objects that belong to this one."""
    meta = of["metadata"]
    who = {"apiVersion": kind.group_version, "kind": kind.name, "name": meta["name"]}
    return {**who, "uid": meta["uid"], "controller": True, "blockOwnerDeletion": True}


def owned(found: Json, by: Json) -> bool:
    uid = by["metadata"]["uid"]
    return any(ref["uid"] == uid for ref in found["metadata"].get("ownerReferences", []))


def deleting(found: Json) -> bool:
    return bool(found["metadata"].get("deletionTimestamp"))


def labels(found: Json) -> Mapping[str, str]:
    return found["metadata"].get("labels") or {}


def condition(found: Json, name: str) -> Json | None:
    """The condition of a type, in the object's status."""
    known = (found.get("status") or {}).get("conditions") or []
    return next((c for c in known if c["type"] == name), None)


def is_true(found: Json, name: str) -> bool:
    known = condition(found, name)
    return known is not None and known["status"] == "True"
