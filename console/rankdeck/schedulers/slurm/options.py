"""The `slurm:` section of cluster and job files: every option, its syntax and its limits."""

import json
import re
from collections.abc import Callable, Mapping

from rankdeck.config.document import NODE_NAME, Entry
from rankdeck.config.schedulers import count_reader
from rankdeck.model.cluster import Cluster

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
    "login": _word_like(NODE_NAME, "the name of a host"),
    "rpcs_per_minute": count_reader(1, 6000),
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
    "cpus-per-task": count_reader(1, 4096),
    "cpus-per-gpu": count_reader(1, 4096),
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
