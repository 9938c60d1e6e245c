"""`cluster namespaces`: prints the namespaces of a Kubernetes cluster, and in which
of them this user may list jobs, as one line of JSON.
"""

import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Optional

from rankdeck_agent.schedulers.kubernetes.api import Api
from rankdeck_agent.schedulers.kubernetes.cluster import ALL_NAMESPACES, Right, ask_right
from rankdeck_agent.schedulers.kubernetes.json_values import Object, object_rows
from rankdeck_agent.schedulers.kubernetes.kubectl_errors import (
    ApiError,
    ProxyError,
    describe_api_refusal,
)
from rankdeck_agent.schedulers.kubernetes.kubectl_proxy import Proxy
from rankdeck_agent.schedulers.kubernetes.objects import JOB, part_of_object, string_value
from rankdeck_agent.text import parse_json_table, print_json_line

MOST = 500
"""Most namespaces; of each the server is asked."""
_AT_ONCE = 8
_LIMIT = 15.0
_SEE = Right("see", "list", JOB.plural, JOB.group, JOB.name)


def list_namespaces(context: str, namespace: str, also: str = "") -> int:
    """Print {"namespaces": [{"name", "allowed"}, …], "current": …, "every": whether all
    namespaces may be seen at once, "why": why not all are listed}, or a `trouble`.

    `also`: a name to ask about too, if this user may not list namespaces.
    """
    try:
        with Proxy(context) as proxy:
            current = namespace or proxy.namespace()
            names, why = _names(proxy.api, context, (current, also))
            every = bool(ask_right(proxy.api, ALL_NAMESPACES, _SEE)["allowed"])
            allowed = dict.fromkeys(names, True) if every else _allowed(proxy.api, names)
    except (ProxyError, ApiError) as error:
        print_json_line({"trouble": describe_api_refusal(error)})
        return 0
    rows = [{"name": name, "allowed": allowed[name]} for name in names]
    print_json_line({"namespaces": rows, "current": current, "every": every, "why": why})
    return 0


def _names(api: Api, context: str, known: "tuple[str, str]") -> "tuple[list[str], str]":
    """(names in order, why these are not all, or "").

    Who may not list namespaces is told those of the contexts of the same cluster.
    """
    why = ""
    try:
        found = {_name(one) for one in api.items("/api/v1/namespaces", {})[0]}
    except ApiError as error:
        if error.status != 403:
            raise
        found = {*context_namespaces(_configuration(), context), *known}
        why = "you may not list namespaces: these are those of your kubeconfig"
    names = sorted(found - {"", ALL_NAMESPACES})
    if len(names) > MOST:
        why = f"the first {MOST} of {len(names)}"
    return names[:MOST], why


def _name(found: Object) -> str:
    return string_value(part_of_object(found, "metadata"), "name", 63)


def _allowed(api: Api, names: "list[str]") -> "dict[str, bool]":
    def may_see(name: str) -> bool:
        return bool(ask_right(api, name, _SEE)["allowed"])

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return dict(zip(names, threads.map(may_see, names)))


def context_namespaces(configuration: Optional[Object], context: str) -> "Iterable[str]":
    """The namespaces that a kubeconfig names for the cluster of this context ("": the current)."""
    found = configuration or {}
    context = context or string_value(found, "current-context", 253)
    rows = object_rows(found.get("contexts"))
    bodies = {string_value(row, "name", 253): part_of_object(row, "context") for row in rows}
    cluster = string_value(bodies.get(context, {}), "cluster", 253)
    for body in bodies.values():
        if cluster and string_value(body, "cluster", 253) == cluster:
            yield string_value(body, "namespace", 63) or "default"


def _configuration() -> Optional[Object]:
    """What kubectl is configured with, without its secrets; None if it does not say."""
    try:
        done = subprocess.run(
            ("kubectl", "config", "view", "--output=json"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_LIMIT,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_json_table(done.stdout.decode("utf-8", "replace"))
