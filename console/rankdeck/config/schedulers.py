"""The `slurm:` and `kubernetes:` sections of cluster and job files:
every option, its syntax and its limits.

Options are stored as words, lists and tables as JSON. A switch of Slurm is
stored as "" if it is on, as "no" if off.
"""

import json
import re
from collections.abc import Callable, Mapping

from rankdeck.config.document import Entry
from rankdeck.config.kubernetes_policies import (
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
)
from rankdeck.model.cluster import LOCAL, Cluster

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MEMORY = re.compile(r"\d{1,12}(?:\.\d+)?[KMGTkmgt]?")
_TASKS = re.compile(
    r"\d{1,7}(?:-\d{1,7}(?::\d{1,7})?)?(?:,\d{1,7}(?:-\d{1,7}(?::\d{1,7})?)?)*(?:%\d{1,7})?"
)
_GPUS = re.compile(r"(?:[A-Za-z0-9_.+-]+:)?\d{1,4}(?:,[A-Za-z0-9_.+-]+:\d{1,4})*")
_TIME = re.compile(r"\d+(?:-\d+(?::\d+){0,2}|(?::\d+){0,2})|UNLIMITED|INFINITE")
OFF = "no"
"""Value of a switch that is off, if that is not the same as leaving it out."""
HET = "a job of several different parts (hetjob) is not supported: submit each part as a job of its own, or the whole with sbatch"
OCI = (
    "Slurm's own `--container` is not supported: its bundle alone says what is mounted, so the ranks could not write their"
    " output, and a node without oci.conf silently runs the command outside of it; use `container:` with apptainer,"
    " podman or enroot (Pyxis)"
)
"""According to the known limitations in Slurm's Containers Guide, versions 24.05 and 26.05."""
REFUSED = {
    "nodes": "belongs into the job itself: `nodes: N` beside `slurm:`",
    "ntasks-per-node": "belongs into the job itself: `ranks_per_node: N` beside `slurm:`",
    "ntasks": "belongs into the job itself: `nodes: N` and `ranks_per_node: N`",
    "job-name": "is the name of the job: `job: NAME`",
    "output": "is set by Rankdeck: every rank has files of its own",
    "error": "is set by Rankdeck: every rank has files of its own",
    "chdir": "is `workdir:` of the job itself",
    "gpus-per-node": "is called `gpus` here: GPUs of each node, `gpus: 8` or `gpus: a100:8`",
    "container-image": "is `container:` of the job itself",
    "container": OCI,
    "hetjob": HET,
    "het-group": HET,
}
"""Option of sbatch that is not allowed here -> where the job file has it, or why it is refused."""


def slurm_options(entry: Entry, *, job: bool) -> dict[str, str]:
    """Name -> value of each option; mistakes are in `entry.problems`.

    Some are only for cluster files, not `job`.
    """
    only_cluster = ("login", "rpcs_per_minute") if job else ()
    refused = {
        **REFUSED,
        **{key: f"belongs into the cluster file: `slurm: {{{key}: …}}`" for key in only_cluster},
    }
    known = [key for key in _SLURM if key not in only_cluster]
    found: dict[str, str] = {}
    for key, value in entry.section(known, refused=refused).items():
        if not value.raw.isprintable():
            value.report("holds a control character; it must be one line")
            continue
        found[key] = _SLURM[key](value)
    return found


def _word_like(shape: re.Pattern[str], what: str) -> Callable[[Entry], str]:
    def read(entry: Entry) -> str:
        text = entry.word()
        if text and not shape.fullmatch(text):
            entry.report(f"`{text[:60]}` is not {what}")
            return ""
        return text

    return read


def _count(least: int, most: int) -> Callable[[Entry], str]:
    return lambda entry: str(entry.integer(least, least=least, most=most))


def _switch(entry: Entry) -> str:
    return "" if entry.truth() else OFF


def _exclusive(entry: Entry) -> str:
    """`true` or `false`, or with whom the node may be shared."""
    if entry.kind == "bool":
        return _switch(entry)
    return "" if entry.kind == "null" else entry.choice(("user", "mcs", "topo"))


def _arguments(entry: Entry) -> str:
    """More arguments for sbatch, each one word that begins with `-`."""
    words = entry.words()
    for item, word in zip(entry.items(), words, strict=False):
        if not word.isprintable():
            item.report("holds a control character; it must be one line")
        if not word.startswith("-"):
            item.report(f"`{word[:60]}` is no option of sbatch: write `--name=value`")
        if word.split("=")[0] in ("--het-group", "--hetjob", "hetjob"):
            item.report(HET)
        if word.split("=")[0] in ("--container", "--container-id"):
            item.report(OCI)
        if word.split("=")[0] in _OURS:
            item.report(f"`{word[:60]}` is set by Rankdeck")
    return json.dumps(words)


_OURS = ("--output", "-o", "--error", "-e", "--wrap", "--parsable", "--open-mode", "--wait", "-W")
_SLURM: Mapping[str, Callable[[Entry], str]] = {
    "login": _word_like(_HOST, "the name of a host"),
    "rpcs_per_minute": _count(1, 6000),
    "mpi": _word_like(re.compile(r"[A-Za-z0-9_./]{1,60}"), "a plug-in of `srun --mpi=list`"),
    "partition": Entry.word,
    "account": Entry.word,
    "qos": Entry.word,
    "time": _word_like(_TIME, "a time as Slurm has it: MM, HH:MM:SS or D-HH:MM:SS, in quotes"),
    "constraint": Entry.word,
    "reservation": Entry.word,
    "exclusive": _exclusive,
    "requeue": _switch,
    "preflight": _switch,
    "gpus": _word_like(_GPUS, "a number of GPUs of each node: 8, or with their type a100:8"),
    "cpus-per-task": _count(1, 4096),
    "cpus-per-gpu": _count(1, 4096),
    "mem": _word_like(_MEMORY, "an amount of memory: 64G"),
    "mem-per-cpu": _word_like(_MEMORY, "an amount of memory: 64G"),
    "mem-per-gpu": _word_like(_MEMORY, "an amount of memory: 64G"),
    "gres": Entry.word,
    "licenses": Entry.word,
    "nodelist": Entry.word,
    "exclude": Entry.word,
    "dependency": Entry.word,
    "array": _word_like(_TASKS, "a set of tasks: 0-7, 1,3,5 or 0-99%10"),
    "signal": Entry.word,
    "begin": Entry.word,
    "deadline": Entry.word,
    "nice": Entry.word,
    "hint": Entry.word,
    "comment": Entry.word,
    "args": _arguments,
}
"""Every option, in the order in which they are listed to the user."""


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


# ---- shapes -----------------------------------------------------------------------------


def _matching(shape: re.Pattern[str], what: str) -> Callable[[Entry], str]:
    def read(entry: Entry) -> str:
        text = entry.text()
        if entry.kind == "str" and not shape.fullmatch(text):
            entry.report(f"`{text[:60]}` is not {what}")
            return ""
        return text

    return read


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


_label = _matching(NAMESPACE, "a name as Kubernetes has: a-z, 0-9 and `-`, 63 at most")
_name = _matching(_NAME, "a name as Kubernetes has: a-z, 0-9, `-` and `.`")
_SHAPES = {"key": _matching(LABEL_KEY, "the key of a taint"), "value": read_label_value}

_KUBERNETES: Mapping[str, Callable[[Entry], str]] = {
    "login": _matching(_HOST, "the name of a host"),
    "context": _matching(_CONTEXT, "the name of a context in kubectl's configuration"),
    "namespace": _label,
    "queue": _name,
    "logs": _name,
    "gpus": _count(0, 1024),
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
    "port": _count(1, 65535),
    "cleanup": _choice(*CLEANUPS),
    "ttl": _count(0, _YEAR),
    "patch": read_patches,
}
"""Every option, in the order in which they are listed to the user."""


def slurm_keeper_settings(cluster: Cluster) -> dict[str, object]:
    """How the agent asks Slurm: `environment`, and if the cluster file sets
    them `rpcs_per_minute` and `patience`.
    """
    calls = cluster.options.get("rpcs_per_minute")
    patience = cluster.access.patience
    return {
        "environment": dict(cluster.environment),
        **({"rpcs_per_minute": int(calls)} if calls else {}),
        **({"patience": patience} if patience > 1 else {}),
    }


SECTIONS = {"slurm": slurm_options, "kubernetes": kubernetes_options}
"""Section of a cluster or job file -> function that reads it."""
