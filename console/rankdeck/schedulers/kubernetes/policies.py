"""What a site asks of every pod, in the `kubernetes:` section: labels, security
contexts, requests, and a patch of the manifest.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from rankdeck.config.document import Entry, raw_value
from rankdeck.errors import suggest_word

LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
QUANTITY = re.compile(r"\d{1,18}(\.\d{1,9})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
OURS = "rankdeck/"
"""Labels and annotations that begin so tell Rankdeck which objects are whose."""
_TAKEN = (
    "app.kubernetes.io/managed-by",
    "job-name",
    "controller-uid",
    "batch.kubernetes.io/",
    "training.kubeflow.org/",
)
"""Labels that Rankdeck or a controller sets; those that end with `/` are prefixes."""
_BOTH = (
    "appArmorProfile",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "seLinuxOptions",
    "seccompProfile",
    "windowsOptions",
)
POD_SECURITY = (
    *_BOTH,
    "fsGroup",
    "fsGroupChangePolicy",
    "seLinuxChangePolicy",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "sysctls",
)
SECURITY = (
    *_BOTH,
    "allowPrivilegeEscalation",
    "capabilities",
    "privileged",
    "procMount",
    "readOnlyRootFilesystem",
)
"""Fields of the securityContext of a pod and of a container, as of Kubernetes 1.36."""
CALLED = {
    "securityContext": "`security` for the container and `pod_security` for the pod",
    "schedulerName": "`scheduler`",
    "runtimeClassName": "`runtime_class`",
    "priorityClassName": "`priority`",
    "priorityClass": "`priority`",
    "priority_class": "`priority`",
    "nodeSelector": "`node_selector`",
    "serviceAccountName": "`service_account`",
    "imagePullPolicy": "`pull_policy`",
    "imagePullSecrets": "`pull_secrets`",
    "hostNetwork": "`host_network`",
    "ttlSecondsAfterFinished": "`ttl`",
    "limits": "`resources`",
}
"""What Kubernetes calls something -> what it is called here."""


def read_quantity(entry: Entry) -> str:
    """A quantity such as 500m; "" after a report."""
    word = entry.word()
    if word and QUANTITY.fullmatch(word):
        return word
    if entry.kind in ("str", "int", "float"):
        entry.report(f"`{word[:60]}` is not a quantity; write it as 1, 500m, 64Gi")
    return ""


def named_fields(entry: Entry) -> dict[str, Entry]:
    """The fields of a table whose keys are names of labels or
    resources; other keys are reported.
    """
    fields = entry.fields()
    for key, value in fields.items():
        if not LABEL_KEY.fullmatch(key):
            value.report(f"`{key[:60]}` is not a name as Kubernetes has: prefix/name or name")
    return fields


def text_reader(shape: re.Pattern[str], what: str) -> Callable[[Entry], str]:
    """A reader of a text of this shape; "" after a report that it is not `what`."""

    def read(entry: Entry) -> str:
        text = entry.text()
        if entry.kind == "str" and not shape.fullmatch(text):
            entry.report(f"`{text[:60]}` is not {what}")
            return ""
        return text

    return read


read_label_value = text_reader(LABEL_VALUE, "a value of a label")
"""Reads the value of a label."""


def read_labels(entry: Entry) -> str:
    """Labels of all objects and pods, as JSON."""
    fields = named_fields(entry)
    _refuse_own(fields, (OURS, *_TAKEN))
    return json.dumps({key: read_label_value(value) for key, value in fields.items()})


def read_annotations(entry: Entry) -> str:
    """Annotations of all objects and pods, as JSON."""
    fields = named_fields(entry)
    _refuse_own(fields, (OURS,))
    return json.dumps({key: value.text() for key, value in fields.items()})


def _refuse_own(fields: dict[str, Entry], taken: tuple[str, ...]) -> None:
    for key, value in fields.items():
        if any(key == one or (one.endswith("/") and key.startswith(one)) for one in taken):
            value.report(f"`{key[:60]}` is set by Rankdeck or by Kubernetes itself")


def read_pod_security(entry: Entry) -> str:
    """The securityContext of a pod, as JSON."""
    elsewhere = dict.fromkeys(SECURITY, "is of a container: write it below `security`")
    return _security(entry, POD_SECURITY, elsewhere)


def read_security(entry: Entry) -> str:
    """The securityContext of a container, as JSON."""
    elsewhere = dict.fromkeys(POD_SECURITY, "is of a pod: write it below `pod_security`")
    return _security(entry, SECURITY, elsewhere)


def _security(entry: Entry, known: tuple[str, ...], elsewhere: Mapping[Any, str]) -> str:
    fields = entry.section(known, refused=elsewhere)
    return json.dumps({key: raw_value(value) for key, value in fields.items()})


def read_requests(entry: Entry) -> str:
    """What a container requests if that is not its limit, as JSON.

    Only for resources that can be shared.
    """
    fields = named_fields(entry)
    for key, value in fields.items():
        if "/" in key or key.startswith("hugepages-"):
            value.report("is given whole or not at all: name it in `resources` or `gpus` only")
    return json.dumps({key: read_quantity(value) for key, value in fields.items()})


def read_launcher(entry: Entry) -> str:
    """The resources of the launcher of an MPIJob, as a container has them, as JSON."""
    table = entry.section(("resources", "requests"))
    made: dict[str, object] = {}
    if "resources" in table:
        limits = named_fields(table["resources"])
        made["limits"] = {key: read_quantity(value) for key, value in limits.items()}
    if "requests" in table:
        made["requests"] = json.loads(read_requests(table["requests"]))
    return json.dumps(made)


PATCHED = ("Job", "MPIJob", "Service", "ConfigMap", "Pod")
"""Kinds of objects that a patch may name; `Pod`: the template of every pod."""
_DIRECTIVES = ("$patch",)


def read_patches(entry: Entry) -> str:
    """A strategic merge patch, or a list of them, as JSON: [{"place":
    FILE:LINE, "kind": KIND or "", "patch": …}].
    """
    items = list(entry.items()) if entry.kind == "seq" else [entry]
    return json.dumps([one for one in map(_patch, items) if one])


def _patch(entry: Entry) -> dict[str, object]:
    fields = entry.fields()
    kind = fields.pop("kind", None)
    fields.pop("apiVersion", None)  # that of the object, whatever a copied patch says
    name = kind.choice(PATCHED) if kind is not None else ""
    for key, value in fields.items():
        if key not in _PATCHABLE.get(name, _WORKLOAD):
            hint = suggest_word(key, _PATCHABLE.get(name, _WORKLOAD))
            what = f"a {name}" if name else "a Job or MPIJob (without `kind`)"
            value.report(f"`{key[:60]}` is not a part of {what} that can be patched{hint}")
        _refuse_directives(value)
    place = f"{entry.file}:{entry.node.start_mark.line + 1}"
    return {"place": place, "kind": name, "patch": {k: raw_value(v) for k, v in fields.items()}}


_WORKLOAD = ("metadata", "spec")
_PATCHABLE = {"ConfigMap": ("metadata", "data", "binaryData", "immutable")}


def _refuse_directives(entry: Entry) -> None:
    """Report the directives of a strategic merge that are not known
    here, and wrong values of `$patch`.
    """
    if entry.kind == "seq":
        for item in entry.items():
            _refuse_directives(item)
    if entry.kind != "map":
        return
    for key, value in entry.fields().items():
        if key in _DIRECTIVES:
            value.choice(("delete", "replace"))
        elif key.startswith("$"):
            value.report(f"`{key[:60]}` is not known here: write `$patch: delete` or `replace`")
        _refuse_directives(value)
