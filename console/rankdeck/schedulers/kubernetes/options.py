"""The `kubernetes:` section of cluster and job files: every option, its syntax and its limits."""

import json
import re
from collections.abc import Callable, Mapping

from rankdeck.config.document import NODE_NAME, Entry
from rankdeck.config.schedulers import count_reader
from rankdeck.model.cluster import LOCAL
from rankdeck.schedulers.kubernetes.policies import (
    CALLED,
    LABEL_KEY,
    named_fields,
    read_annotations,
    read_label_value,
    read_labels,
    read_launcher,
    read_patches,
    read_pod_security,
    read_quantity,
    read_requests,
    read_security,
    text_reader,
)

NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_CONTEXT = re.compile(r"[^\s-]\S{0,252}")
_YEAR = 366 * 86400
TOLERATION_KEYS = ("key", "operator", "value", "effect", "seconds")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
CLEANUPS = ("running", "all", "none")


def kubernetes_options(entry: Entry, *, job: bool) -> dict[str, str]:
    """Name -> value of each option; mistakes are in `entry.problems`.

    A job file must not name the login node.
    """
    refused = {key: f"`{key}` is called {name} here" for key, name in CALLED.items()}
    if job:
        refused["login"] = "belongs into the cluster file: `kubernetes: {login: HOST}`"
    known = [key for key in _KUBERNETES if key not in refused]
    table = entry.section(known, refused=refused)
    found = {key: _KUBERNETES[key](value) for key, value in table.items()}
    if found.get("login") == LOCAL:
        del found["login"]  # as without one: kubectl runs on this machine
    return found


def _choice(*known: str) -> Callable[[Entry], str]:
    return lambda entry: entry.choice(known)


def _truth(entry: Entry) -> str:
    return "true" if entry.truth() else ""


def _folder(entry: Entry) -> str:
    text = entry.text()
    if entry.kind == "str" and not (text.startswith("/") and text.isprintable()):
        entry.report(f"`{text[:60]}` is not a path that begins with /")
        return ""
    return text


def _table(read: Callable[[Entry], str]) -> Callable[[Entry], str]:
    """A reader of a table whose keys are names of labels or
    resources, and whose values `read` reads.
    """

    def table(entry: Entry) -> str:
        return json.dumps({key: read(value) for key, value in named_fields(entry).items()})

    return table


def _names(entry: Entry) -> str:
    """One name, or a list of them."""
    items = list(entry.items()) if entry.kind == "seq" else [entry]
    return json.dumps([_name(item) for item in items])


def _excluded(entry: Entry) -> str:
    return ",".join(json.loads(_names(entry)))


def _tolerations(entry: Entry) -> str:
    return json.dumps([_toleration(item) for item in entry.items()])


def _toleration(entry: Entry) -> dict[str, str | int]:
    """A toleration in the API's form; `seconds` becomes tolerationSeconds."""
    table = entry.section(TOLERATION_KEYS)
    found: dict[str, str | int] = {}
    for key in ("key", "value"):
        if key in table:
            found[key] = _SHAPES[key](table[key])
    usual = "Equal" if "value" in table else "Exists"
    found["operator"] = (
        table["operator"].choice(("Exists", "Equal"), usual) if "operator" in table else usual
    )
    if found["operator"] == "Exists" and "value" in table:
        table["value"].report("has no effect with `operator: Exists`")
    if "effect" in table:
        found["effect"] = table["effect"].choice(EFFECTS)
    if "seconds" in table:
        found["tolerationSeconds"] = table["seconds"].integer(most=_YEAR)
        if found.get("effect") != "NoExecute":
            table["seconds"].report("has no effect without `effect: NoExecute`")
    return found


_label = text_reader(NAMESPACE, "a name as Kubernetes has: a-z, 0-9 and `-`, 63 at most")
_name = text_reader(_NAME, "a name as Kubernetes has: a-z, 0-9, `-` and `.`")
_SHAPES = {"key": text_reader(LABEL_KEY, "the key of a taint"), "value": read_label_value}
_KUBERNETES: Mapping[str, Callable[[Entry], str]] = {
    "login": text_reader(NODE_NAME, "the name of a host"),
    "context": text_reader(_CONTEXT, "the name of a context in kubectl's configuration"),
    "namespace": _label,
    "queue": _name,
    "logs": _name,
    "gpus": count_reader(0, 1024),
    "resources": _table(read_quantity),
    "requests": read_requests,
    "launcher": read_launcher,
    "shm": read_quantity,
    "node_selector": _table(read_label_value),
    "exclude": _excluded,
    "tolerations": _tolerations,
    "priority": _name,
    "scheduler": _name,
    "runtime_class": _name,
    "labels": read_labels,
    "annotations": read_annotations,
    "pod_security": read_pod_security,
    "security": read_security,
    "pull_policy": _choice("Always", "IfNotPresent", "Never"),
    "pull_secrets": _names,
    "service_account": _name,
    "host_network": _truth,
    "ssh_path": _folder,
    "port": count_reader(1, 65535),
    "cleanup": _choice(*CLEANUPS),
    "ttl": count_reader(0, _YEAR),
    "patch": read_patches,
}
"""Every option, in the order in which they are listed to the user."""
