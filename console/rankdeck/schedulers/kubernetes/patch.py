"""The `patch:` of a job or cluster: a strategic merge on the manifest,
as kubectl and kustomize do it. No I/O.

Tables are merged, `null` removes a field, lists whose elements have a name are merged by it, other
lists are replaced. `$patch: delete` removes an element, `$patch: replace` puts a table (or, as an
element, a list) in place of the old one.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, cast

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
"""Field with a list -> the field that names its elements (the first
that an element has), as in k8s.io/api.
"""
_JOBS = ("Job", "MPIJob")


def patch_objects(objects: Sequence[Object], patches: Sequence[Mapping[str, Any]]) -> list[Object]:
    """The objects with every patch of the option `patch` applied; raises
    LaunchError with the place of one that is wrong.
    """
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
        for template in pod_templates(one):
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


def pod_templates(one: Mapping[str, Any]) -> list[Object]:
    """The pod templates of a Job or MPIJob."""
    spec = one["spec"]
    roles = spec.get("mpiReplicaSpecs")
    if roles is None:
        return [spec["template"]] if "template" in spec else []
    return [role["template"] for role in roles.values()]


def table_or_empty(value: Any) -> Object:  # noqa: ANN401 - a part of a manifest, of any shape
    """The value if it is a table, else an empty one."""
    return cast("Object", value) if isinstance(value, dict) else {}


def _rows(value: Any) -> list[Object]:  # noqa: ANN401 - as above
    rows = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Object", row) for row in rows if isinstance(row, dict)]


def _needed(one: Object) -> Object:
    """What a patch must not change: names, labels and annotations of ours,
    how many pods there are, what they run.
    """
    meta, spec = table_or_empty(one.get("metadata")), table_or_empty(one.get("spec"))
    found: Object = {f"metadata.{key}": meta.get(key) for key in ("name", "namespace")}
    found |= _ours(meta, "labels") | _ours(meta, "annotations")
    if one["kind"] not in _JOBS:
        return found
    counts = ("completionMode", "completions", "parallelism", "slotsPerWorker")
    found |= {f"spec.{key}": spec.get(key) for key in counts}
    roles: Object = table_or_empty(spec.get("mpiReplicaSpecs")) or {"pod": spec}
    for role, value in roles.items():
        row = table_or_empty(value)
        found[f"replicas of the {role}"] = row.get("replicas")
        found |= {f"{key} of the {role}": kept for key, kept in _needed_of_pod(row).items()}
    return found


def _needed_of_pod(row: Object) -> Object:
    template = table_or_empty(row.get("template"))
    pod = table_or_empty(template.get("spec"))
    boxes = [one for one in _rows(pod.get("containers")) if one.get("name") == "rank"]
    box: Object = boxes[0] if boxes else {}
    mounts = {str(mount.get("mountPath")) for mount in _rows(box.get("volumeMounts"))}
    return {
        **_ours(table_or_empty(template.get("metadata")), "labels"),
        "container `rank`": bool(box),
        "its command": box.get("command"),
        "its mount of /rankdeck": "/rankdeck" in mounts,
        "subdomain": pod.get("subdomain"),
    }


def _ours(meta: Object, field: str) -> Object:
    rows = table_or_empty(meta.get(field))
    return {f"{field} {key}": rows[key] for key in rows if key.startswith("rankdeck/")}


# ---- the merge --------------------------------------------------------------------------


def _merge(old: Object, patch: Object) -> None:
    if patch.get(_DIRECTIVE) == "replace":
        old.clear()
    for key, value in patch.items():
        if key == _DIRECTIVE:
            continue
        if value is None or table_or_empty(value).get(_DIRECTIVE) == "delete":
            old.pop(key, None)
        elif isinstance(value, dict):
            old[key] = table_or_empty(old.get(key))
            _merge(table_or_empty(old[key]), table_or_empty(cast("object", value)))
        elif isinstance(value, list) and key in _KEYS:
            old[key] = _merged_list(_rows(old.get(key)), _rows(value), _KEYS[key])
        else:
            old[key] = value


def _merged_list(old: list[Object], patch: list[Object], keys: tuple[str, ...]) -> list[Object]:
    """A list whose elements have names, with the elements of a patch
    merged into it; new ones come last.
    """
    if {_DIRECTIVE: "replace"} in patch:
        return [row for row in patch if row != {_DIRECTIVE: "replace"}]
    made = list(old)
    for row in patch:
        key = next((key for key in keys if key in row), "")
        there = next((one for one in made if key and one.get(key) == row[key]), None)
        if row.get(_DIRECTIVE) == "delete":
            made = [one for one in made if one is not there]
            continue
        if there is None:
            made.append({})
        _merge(made[-1] if there is None else there, row)
    return made
