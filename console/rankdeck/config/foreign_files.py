"""Files of other programs that are given in place of a cluster or job file: recognised, so that
one sentence says what they are and what to do. Nothing of them is used.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

import yaml

from rankdeck.config.document import compose_document, read_text
from rankdeck.config.site_lists import FORMATS, read_site_list
from rankdeck.errors import ConfigError, HostileFileError, Problem, UntrustedError
from rankdeck.values import Value

_START = "write a job file whose `command` starts it, with `launch: plain`, `mpi` or `torchrun`"


class ForeignKind(Value):
    """A kind of file of another program."""

    sign: re.Pattern[str]
    what: str
    do: str
    also: re.Pattern[str]
    """A second line that it has."""

    def is_in(self, text: str) -> bool:
        return bool(self.sign.search(text) and self.also.search(text))


def _kind(sign: str, what: str, do: str, also: str = "") -> ForeignKind:
    return ForeignKind(re.compile(sign, re.MULTILINE), what, do, re.compile(also, re.MULTILINE))


class OwnKind(Value):
    """What a file should have been, and what people give in its place."""

    name: str
    sign: re.Pattern[str]
    """A line that only such a file has."""
    others: tuple[ForeignKind, ...]
    keys: str
    lists: bool = False
    """Whether a list of nodes can be made into such a file."""


_OF_JOB = (
    _kind(r"^cluster[ \t]*:", "a cluster file", "give it with `-c`, and name a job file"),
    _kind(r"^#SBATCH\b", "a script of sbatch", "write a job file: its last command under `command`, what `#SBATCH` asks under `nodes`, `ranks_per_node` and `slurm`"),
    _kind(r"\A#!", "a script", _START),
    _kind(r"^services[ \t]*:", "a file of Docker Compose", "write a job file: `image` and `volumes` under `container`, `environment` under `env`"),
    _kind(r"^(?:num_nodes|resources)[ \t]*:", "a task of SkyPilot", "write a job file: `num_nodes` is `nodes` there, `run` is `command`, `envs` is `env`", r"^run[ \t]*:"),
    _kind(r"^\[(?:cli|component|torchx|dist)\b", "a configuration of TorchX", "write a job file with `launch: torchrun`, in YAML"),
    _kind(r"^(?:compute_environment|distributed_type|num_machines)[ \t]*:", "a configuration of Accelerate", "write a job file with `launch: torchrun`; `num_machines` is `nodes` there"),
)  # fmt: skip
_OF_CLUSTER = (
    _kind(r"^(?:job|launch)[ \t]*:", "a job file", "give it to `rankdeck run`; `-c` takes a cluster file"),
    _kind(r"^kind[ \t]*:[ \t]*Config\b", "a kubeconfig", "write a cluster file: `cluster: NAME`, `backend: kubernetes`, `kubernetes: {context: NAME}`"),
    _kind(r"^(?:ClusterName|SlurmctldHost|NodeName)=", "a slurm.conf", "write a cluster file: `cluster: NAME`, `backend: slurm`, `slurm: {login: HOST}`"),
    _kind(r"^[ \t]*(?:Host|Match)[ \t]+\S", "an ssh_config", "write a cluster file with the names of its hosts: `cluster: NAME`, `nodes: [gpu01, gpu02]`; ssh reads ~/.ssh/config by itself"),
)  # fmt: skip
JOB_FILE = OwnKind("job file", re.compile(r"^(?:job|launch)[ \t]*:", re.MULTILINE), _OF_JOB, "`job`, `launch` and `command`")  # fmt: skip
CLUSTER_FILE = OwnKind("cluster file", re.compile(r"^(?:cluster|ssh|broker|backend)[ \t]*:", re.MULTILINE), _OF_CLUSTER, "`cluster` and `nodes`", lists=True)  # fmt: skip
_ANY_KEY = re.compile(r"^[\"'{ ]{0,3}(?:job|launch|command|cluster|nodes|backend)\b[\"']?[ \t]*:", re.MULTILINE)  # fmt: skip
_NO_LIST = frozenset({"genders", "groups", "json"})
"""Formats that also fit texts that are no list of nodes."""


@contextmanager
def foreign_named(path: Path, *kinds: OwnKind) -> Generator[None]:
    """If reading the file in this block raises ConfigError and it is a file of another program,
    raise one that says so; only a file with mistakes is read again.
    """
    try:
        yield
    except (HostileFileError, UntrustedError):
        raise
    except ConfigError as error:
        if not error.problems or (why := _complaint(path, kinds)) is None:
            raise
        raise ConfigError([Problem(str(path), 1, 1, "file", why)]) from None


def _complaint(path: Path, kinds: tuple[OwnKind, ...]) -> str | None:
    """What the file is instead of one of these kinds; None if it seems to be one."""
    text = read_text(path)
    if not text.strip() or any(kind.sign.search(text) for kind in kinds):
        return None
    name = " or ".join(kind.name for kind in kinds)
    for kind in kinds:
        for other in kind.others:
            if other.is_in(text):
                return f"this is {other.what} and no {name}: {other.do}"
    if any(kind.lists for kind in kinds) and (words := _list_words(path, text)):
        return f"this is {words} and no {name}: `rankdeck nodes --import {quote(path.name)}` makes one of it"
    if _ANY_KEY.search(text) or not _is_table(text):
        return None
    return f"this is no {name}: it has none of {' or '.join(kind.keys for kind in kinds)}"


def _is_table(text: str) -> bool:
    try:
        return isinstance(compose_document(text), yaml.MappingNode)
    except yaml.YAMLError:
        return False


def _list_words(path: Path, text: str) -> str:
    """What kind of list of nodes this is; "" if it is none."""
    if re.search(r"^nodes[ \t]*:", text, re.MULTILINE):
        return ""
    try:
        form = read_site_list(path, text).format
    except ConfigError:
        return ""
    return "" if form in _NO_LIST else FORMATS[form].words
