"""Discovery: versions, groups and resources of the server, and the
part of OpenAPI that kubectl reads.
"""

from collections.abc import Iterable

from tests.support.kubernetes.kinds import VERBS, Kind

Json = dict
VERSION: Json = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2-double",
    "gitCommit": "0",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}


def answer(path: str, kinds: Iterable[Kind]) -> Json | str | None:
    """The answer to a discovery path; None for other paths."""
    known = list(kinds)
    groups = sorted({(k.group, k.version) for k in known if k.group} | {_REVIEWS})
    fixed = {
        "/version": VERSION,
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups(groups)},
        "/openapi/v3": {"paths": {p: {"serverRelativeURL": f"/openapi/v3/{p}"} for p in _paths(groups)}},
        "/healthz": "ok",
        "/readyz": "ok",
        "/livez": "ok",
    }  # fmt: skip
    if path in fixed:
        return fixed[path]
    for place in _paths(groups):
        mine = [k for k in known if _place(k.group, k.version) == place]
        if path == f"/{place}":
            return _resources(mine, place)
        if path == f"/openapi/v3/{place}":
            return _openapi(mine)
    return next((g for g in _groups(groups) if path == f"/apis/{g['name']}"), None)


_REVIEWS = ("authorization.k8s.io", "v1")


def _place(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _paths(groups: list[tuple[str, str]]) -> list[str]:
    return ["api/v1", *(_place(group, version) for group, version in groups)]


def _groups(groups: list[tuple[str, str]]) -> list[Json]:
    found: dict[str, list[Json]] = {}
    for group, version in groups:
        entry = {"groupVersion": f"{group}/{version}", "version": version}
        found.setdefault(group, []).append(entry)
    return [
        {"name": name, "versions": versions, "preferredVersion": versions[-1]}
        for name, versions in found.items()
    ]


def _resources(kinds: list[Kind], place: str) -> Json:
    listed: list[Json] = []
    for kind in kinds:
        about = {"namespaced": kind.namespaced, "kind": kind.name}
        listed.append(
            {
                "name": kind.plural,
                "singularName": kind.name.lower(),
                **about,
                "verbs": list(VERBS),
                "shortNames": list(kind.short),
            }
        )
        listed += [
            {"name": f"{kind.plural}/{sub}", "singularName": "", **about, "verbs": ["get", "patch"]}
            for sub in kind.subresources
        ]
    if place == _place(*_REVIEWS):
        listed = [
            {"name": name.lower() + "s", "singularName": "", "namespaced": False, "kind": name, "verbs": ["create"]}
            for name in ("SelfSubjectAccessReview", "SelfSubjectRulesReview")
        ]  # fmt: skip
    version = place.split("/", 1)[1]
    head = {"kind": "APIResourceList", "apiVersion": "v1"}
    return {**head, "groupVersion": version, "resources": listed}


def _openapi(kinds: list[Kind]) -> Json:
    """The part of OpenAPI that tells kubectl that the server validates fields."""
    paths = {}
    for kind in kinds:
        meant = {"group": kind.group, "version": kind.version, "kind": kind.name}
        checks = [{"name": "fieldValidation", "in": "query"}, {"name": "dryRun", "in": "query"}]
        operation = {"parameters": checks, "x-kubernetes-group-version-kind": meant}
        where = "namespaces/{namespace}/" if kind.namespaced else ""
        root = _place(kind.group, kind.version)
        paths[f"/{root}/{where}{kind.plural}/{{name}}"] = {"patch": operation}
    return {"openapi": "3.0.0", "info": {"title": "double", "version": "1"}, "paths": paths}
