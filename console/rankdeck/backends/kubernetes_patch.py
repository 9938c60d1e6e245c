"""The `patch:` of a job or cluster: a strategic merge on the manifest, as kubectl and kustomize do it. No I/O.

Tables are merged, `null` removes a field, lists whose elements have a name are merged by it, other lists are replaced.
`$patch: delete` removes an element, `$patch: replace` puts a table (or, as an element, a list) in place of the old one.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from rankdeck.errors import LaunchError

Object = dict[str, Any]
_DIRECTIVE = "$patch"
_KEYS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("containers", "initContainers", "volumes", "env"), ("name",)),
    **dict.fromkeys(("imagePullSecrets", "resourceClaims", "schedulingGates"), ("name",)),
    "hostAliases": ("ip",),
    "ports": ("containerPort", "port"),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
}
"""Field with a list -> the field that names its elements (the first that an element has), as in k8s.io/api."""
_JOBS = ("Job", "MPIJob")


def patched(objects: Sequence[Object], patches: Sequence[Mapping[str, Any]]) -> list[Object]:
    """The objects with every patch of the option `patch` applied; raises LaunchError with the place of one that is wrong."""
    made = [copy.deepcopy(one) for one in objects]
    for patch in patches:
        meant = [one for one in made if _is_meant(one, patch["kind"])]
        if not meant:
            kinds = ", ".join(one["kind"] for one in made)
            raise LaunchError(
                "plan", f"{patch['place']}: patch: this job has no {patch['kind']}, only {kinds}"
            )
        for one in meant:
            _apply(one, patch)
    return made


def _is_meant(one: Object, kind: str) -> bool:
    if kind in ("", "Pod"):
        return one["kind"] in _JOBS
    return one["kind"] == kind


def _apply(one: Object, patch: Mapping[str, Any]) -> None:
    """Apply one patch to an object, and make sure that Rankdeck still finds what it needs in it."""
    before = _needed(one)
    if patch["kind"] == "Pod":
        for template in templates(one):
            _merge(template, patch["patch"])
    else:
        _merge(one, patch["patch"])
    after = _needed(one)
    lost = [what for what, value in before.items() if after.get(what) != value]
    if lost:
        raise LaunchError(
            "plan",
            f"{patch['place']}: patch: it changes {', '.join(lost)} of the {one['kind']}, by which"
            " Rankdeck runs and follows the job; leave that as it is",
        )


def templates(one: Mapping[str, Any]) -> list[Object]:
    """The pod templates of a Job or MPIJob."""
    spec = one["spec"]
    roles = spec.get("mpiReplicaSpecs")
    if roles is None:
        return [spec["template"]] if "template" in spec else []
    return [role["template"] for role in roles.values()]


def _needed(one: Object) -> Object:
    """What a patch must not change: names, labels and annotations of ours, how many pods there are, what they run."""
    meta = one.get("metadata") or {}
    spec = one.get("spec") or {}
    found: Object = {
        f"metadata.{key}": meta.get(key) for key in ("name", "namespace") if key in meta
    }
    found |= _ours(meta, "labels") | _ours(meta, "annotations")
    if one["kind"] not in _JOBS:
        return found
    found |= {
        f"spec.{key}": spec.get(key)
        for key in ("completionMode", "completions", "parallelism", "slotsPerWorker")
    }
    roles = spec.get("mpiReplicaSpecs") or {"": spec}
    for role, row in roles.items():
        found[f"{role}.replicas".lstrip(".")] = row.get("replicas")
        found |= {
            f"{key} of the {role or 'pod'}": value for key, value in _needed_of_pod(row).items()
        }
    return found


def _needed_of_pod(row: Mapping[str, Any]) -> Object:
    template = row.get("template") or {}
    pod = template.get("spec") or {}
    boxes = [box for box in pod.get("containers") or [] if box.get("name") == "rank"]
    box = boxes[0] if boxes else {}
    mounts = {mount["mountPath"] for mount in box.get("volumeMounts") or []}
    return {
        **_ours(template.get("metadata") or {}, "labels"),
        "container `rank`": bool(boxes),
        "its command": box.get("command"),
        "its mount of /rankdeck": "/rankdeck" in mounts,
        "subdomain": pod.get("subdomain"),
    }


def _ours(meta: Mapping[str, Any], field: str) -> Object:
    rows = meta.get(field) or {}
    return {f"{field} {key}": rows[key] for key in rows if key.startswith("rankdeck/")}


# ---- the merge --------------------------------------------------------------------------


def _merge(old: Object, patch: Mapping[str, Any]) -> None:
    if patch.get(_DIRECTIVE) == "replace":
        old.clear()
    for key, value in patch.items():
        if key == _DIRECTIVE:
            continue
        if value is None or (isinstance(value, dict) and value.get(_DIRECTIVE) == "delete"):
            old.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(old.get(key), dict):
                old[key] = {}
            _merge(old[key], value)
        elif isinstance(value, list) and key in _KEYS:
            old[key] = _merged_list(old.get(key) or [], value, _KEYS[key])
        else:
            old[key] = value


def _merged_list(old: list[Any], patch: list[Any], keys: tuple[str, ...]) -> list[Any]:
    rows = [row for row in patch if isinstance(row, dict)]
    if len(rows) < len(patch):
        return patch
    if any(set(row) == {_DIRECTIVE} and row[_DIRECTIVE] == "replace" for row in rows):
        return [row for row in rows if set(row) != {_DIRECTIVE}]
    made = list(old)
    for row in rows:
        key = next((key for key in keys if key in row), "")
        at = [n for n, one in enumerate(made) if key and one.get(key) == row[key]]
        if row.get(_DIRECTIVE) == "delete":
            made = [one for n, one in enumerate(made) if n not in at]
        elif at:
            _merge(made[at[0]], row)
        else:
            fresh: Object = {}
            _merge(fresh, row)
            made.append(fresh)
    return made
