"""The Roles that docs/kubernetes.md gives, for users of the double."""

import copy
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]
DOCS = Path(__file__).resolve().parents[3] / "docs" / "kubernetes.md"


def documented(heading: str) -> list[Json]:
    """The objects of the YAML block under a heading of docs/kubernetes.md."""
    after = DOCS.read_text().partition(f"## {heading}\n")[2]
    block = after.partition("```yaml\n")[2].partition("```")[0]
    return list(yaml.safe_load_all(block))


def smallest_role(namespace: str = "default", without: str = "", more: str = "") -> Json:
    """The smallest Role, in this namespace; `without` removes and `more` adds
    one right, written as `delete jobs`.
    """
    (role,) = copy.deepcopy(documented("The smallest Role"))
    role["metadata"]["namespace"] = namespace
    verb, _, resource = without.partition(" ")
    role["rules"] = [one for rule in role["rules"] for one in _single(rule)]
    role["rules"] = [
        r for r in role["rules"] if (r["verbs"], r["resources"]) != ([verb], [resource])
    ]
    if more:
        verb, _, resource = more.partition(" ")
        role["rules"].append({"apiGroups": ["*"], "resources": [resource], "verbs": [verb]})
    return role


def _single(rule: Json) -> list[Json]:
    """The same rights, split into rules of one verb and one resource."""
    return [
        {**rule, "resources": [resource], "verbs": [verb]}
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
