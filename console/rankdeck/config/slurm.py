"""The `slurm:` section of cluster and job files: what a job asks of Slurm, in the words of sbatch.

Options are kept as words; `args` is kept as JSON. A switch that is on is kept as "", one that is off as "no".
"""

import json
import re
from collections.abc import Callable, Mapping

from rankdeck.config.document import Entry

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MEMORY = re.compile(r"\d{1,12}(?:\.\d+)?[KMGTkmgt]?")
_TASKS = re.compile(
    r"\d{1,7}(?:-\d{1,7}(?::\d{1,7})?)?(?:,\d{1,7}(?:-\d{1,7}(?::\d{1,7})?)?)*(?:%\d{1,7})?"
)
_GPUS = re.compile(r"(?:[A-Za-z0-9_.+-]+:)?\d{1,4}(?:,[A-Za-z0-9_.+-]+:\d{1,4})*")
_TIME = re.compile(r"\d+(?:-\d+(?::\d+){0,2}|(?::\d+){0,2})|UNLIMITED|INFINITE")
OFF = "no"
"""A switch that is off, where that is not the same as left out."""
HET = "a job of several different parts (hetjob) is not supported: submit each part as a job of its own, or the whole with sbatch"
OCI = (
    "Slurm's own `--container` is not supported: its bundle alone says what is mounted, so the ranks could not write their"
    " output, and a node without oci.conf silently runs the command outside of it; use `container:` with apptainer,"
    " podman or enroot (Pyxis)"
)
"""By Slurm's Containers Guide, known limitations, read for 24.05 and 26.05."""
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
"""What users of sbatch may look for here, and where it is."""


def read_options(entry: Entry, *, job: bool) -> dict[str, str]:
    """The options by name; mistakes are in `entry.problems`. A job file may not name the login node."""
    only_cluster = ("login", "rpcs_per_minute") if job else ()
    refused = {
        **REFUSED,
        **{key: f"belongs into the cluster file: `slurm: {{{key}: …}}`" for key in only_cluster},
    }
    known = [key for key in _READERS if key not in only_cluster]
    found: dict[str, str] = {}
    for key, value in entry.section(known, refused=refused).items():
        if not value.raw.isprintable():
            value.report("holds a control character; it must be one line")
            continue
        found[key] = _READERS[key](value)
    return found


def _word(entry: Entry) -> str:
    return entry.word()


def _matching(shape: re.Pattern[str], what: str) -> Callable[[Entry], str]:
    def read(entry: Entry) -> str:
        text = entry.word()
        if text and not shape.fullmatch(text):
            entry.report(f"`{text[:60]}` is not {what}")
            return ""
        return text

    return read


def _count(most: int) -> Callable[[Entry], str]:
    return lambda entry: str(entry.integer(1, least=1, most=most))


def _switch(entry: Entry) -> str:
    return "" if entry.truth() else OFF


def _exclusive(entry: Entry) -> str:
    """`true`, or whom the node may be shared with."""
    if entry.kind == "bool":
        return _switch(entry)
    return "" if entry.kind == "null" else entry.choice(("user", "mcs", "topo"))


def _arguments(entry: Entry) -> str:
    """Further arguments of sbatch, each one word that begins with `-`."""
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
_node_set = _word
_READERS: Mapping[str, Callable[[Entry], str]] = {
    "login": _matching(_HOST, "the name of a host"),
    "rpcs_per_minute": _count(6000),
    "mpi": _matching(re.compile(r"[A-Za-z0-9_./]{1,60}"), "a plug-in of `srun --mpi=list`"),
    "partition": _word,
    "account": _word,
    "qos": _word,
    "time": _matching(_TIME, "a time as Slurm has it: MM, HH:MM:SS or D-HH:MM:SS, in quotes"),
    "constraint": _word,
    "reservation": _word,
    "exclusive": _exclusive,
    "requeue": _switch,
    "preflight": _switch,
    "gpus": _matching(_GPUS, "a number of GPUs of each node: 8, or with their type a100:8"),
    "cpus-per-task": _count(4096),
    "cpus-per-gpu": _count(4096),
    "mem": _matching(_MEMORY, "an amount of memory: 64G"),
    "mem-per-cpu": _matching(_MEMORY, "an amount of memory: 64G"),
    "mem-per-gpu": _matching(_MEMORY, "an amount of memory: 64G"),
    "gres": _word,
    "licenses": _word,
    "nodelist": _node_set,
    "exclude": _node_set,
    "dependency": _word,
    "array": _matching(_TASKS, "a set of tasks: 0-7, 1,3,5 or 0-99%10"),
    "signal": _word,
    "begin": _word,
    "deadline": _word,
    "nice": _word,
    "hint": _word,
    "comment": _word,
    "args": _arguments,
}
"""Every option, in the order in which they are listed to the user."""
