"""The `cluster` commands: questions about a Kubernetes cluster that the console asks.

The configuration is one line on stdin: {"context": …, "namespace": …};
for `namespaces` also `also`.
"""

import sys
from typing import Callable

from rankdeck_agent.schedulers.kubernetes.cluster import (
    LONGEST_LINE,
    check_cluster,
    list_jobs,
    watch_cluster,
)
from rankdeck_agent.schedulers.kubernetes.kubectl_proxy import end_tidily
from rankdeck_agent.schedulers.kubernetes.namespaces import list_namespaces
from rankdeck_agent.schedulers.kubernetes.objects import string_value
from rankdeck_agent.text import parse_json_table

_VERBS: "dict[str, Callable[..., int]]" = {
    "check": check_cluster,
    "list": list_jobs,
    "watch": watch_cluster,
    "namespaces": list_namespaces,
}
_KEYS = {"context": 253, "namespace": 63, "also": 63}
"""Key of the configuration -> most characters of its value."""


def main(argv: "list[str]") -> int:
    """Run one command; returns the exit code."""
    end_tidily()
    verb = argv[0] if len(argv) == 1 else ""
    config = parse_json_table(sys.stdin.readline(LONGEST_LINE)) or {}
    if verb not in _VERBS:
        print(f"rankdeck: usage: cluster {'|'.join(_VERBS)}", file=sys.stderr)
        return 2
    told = {key: string_value(config, key, most) for key, most in _KEYS.items()}
    also = {"also": told.pop("also")}
    return _VERBS[verb](**told, **(also if verb == "namespaces" else {}))
