"""The `kubernetes:` section of cluster and job files: every option, its shape and its limits.

Options are kept as words; a list or a table is kept as JSON, which `backends/kubernetes_manifest.py` reads.
"""

import json
import re
from collections.abc import Callable, Mapping

from rankdeck.config.document import Entry

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_QUANTITY = re.compile(r"\d{1,18}(\.\d{1,9})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_CONTEXT = re.compile(r"[^\s-]\S{0,252}")
_YEAR = 366 * 86400
TOLERATION_KEYS = ("key", "operator", "value", "effect", "seconds")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
CLEANUPS = ("running", "all", "none")


def read_options(entry: Entry, *, job: bool) -> dict[str, str]:
    """The options by name; mistakes are in `entry.problems`. A job file may not name the login node."""
    refused = {"login": "belongs into the cluster file: `kubernetes: {login: HOST}`"} if job else {}
    known = [key for key in _READERS if key not in refused]
    return {
        key: _READERS[key](value) for key, value in entry.section(known, refused=refused).items()
    }


# ---- shapes -----------------------------------------------------------------------------


def _matching(shape: re.Pattern[str], what: str) -> Callable[[Entry], str]:
    def read(entry: Entry) -> str:
        text = entry.text()
        if entry.kind == "str" and not shape.fullmatch(text):
            entry.report(f"`{text[:60]}` is not {what}")
            return ""
        return text

    return read


def _count(least: int, most: int) -> Callable[[Entry], str]:
    return lambda entry: str(entry.integer(least, least=least, most=most))


def _choice(*known: str) -> Callable[[Entry], str]:
    return lambda entry: entry.choice(known)


def _truth(entry: Entry) -> str:
    return "true" if entry.truth() else ""


def _quantity(entry: Entry) -> str:
    word = entry.word()
    if not word or not _QUANTITY.fullmatch(word):
        if entry.kind in ("str", "int", "float"):
            entry.report(f"`{word[:60]}` is not a quantity; write it as 1, 500m, 64Gi")
        return ""
    return word


def _folder(entry: Entry) -> str:
    text = entry.text()
    if entry.kind == "str" and not (text.startswith("/") and text.isprintable()):
        entry.report(f"`{text[:60]}` is not a path that begins with /")
        return ""
    return text


def _table(read: Callable[[Entry], str]) -> Callable[[Entry], str]:
    """Keys as labels and resources have, each with a value that `read` takes."""

    def table(entry: Entry) -> str:
        fields = entry.fields()
        for key, value in fields.items():
            if not _KEY.fullmatch(key):
                value.report(f"`{key[:60]}` is not a name as Kubernetes has: prefix/name or name")
        return json.dumps({key: read(value) for key, value in fields.items()})

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
    """A toleration as the API has it; `seconds` is its tolerationSeconds."""
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


_label = _matching(_LABEL, "a name as Kubernetes has: a-z, 0-9 and `-`, 63 at most")
_name = _matching(_NAME, "a name as Kubernetes has: a-z, 0-9, `-` and `.`")
_value = _matching(_VALUE, "a value of a label")
_SHAPES = {"key": _matching(_KEY, "the key of a taint"), "value": _value}

_READERS: Mapping[str, Callable[[Entry], str]] = {
    "login": _matching(re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"), "the name of a host"),
    "context": _matching(_CONTEXT, "the name of a context in kubectl's configuration"),
    "namespace": _label,
    "queue": _name,
    "logs": _name,
    "gpus": _count(0, 1024),
    "resources": _table(_quantity),
    "shm": _quantity,
    "node_selector": _table(_value),
    "exclude": _excluded,
    "tolerations": _tolerations,
    "priority": _name,
    "pull_policy": _choice("Always", "IfNotPresent", "Never"),
    "pull_secrets": _names,
    "service_account": _name,
    "host_network": _truth,
    "ssh_path": _folder,
    "port": _count(1, 65535),
    "cleanup": _choice(*CLEANUPS),
    "ttl": _count(0, _YEAR),
}
"""Every option, in the order in which they are listed to the user."""
