"""Nodes that a cluster file does not list but names a source for (`nodes:
{from: …}`), asked whenever the file is read.

Sources are groups of ClusterShell, Slurm, an Ansible inventory,
and lists in files (`site_lists.py`).
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rankdeck.config.document import Entry, read_text
from rankdeck.config.files import expand_path
from rankdeck.config.site_lists import FORMATS, SiteList, read_inventory, read_site_list
from rankdeck.config.user import may_read, may_use
from rankdeck.errors import ConfigError, RankdeckError, suggest_or_list
from rankdeck.model.nodeset import expand_nodes
from rankdeck.model.safe_text import clean_line

LIMIT = 15.0
"""Seconds that a source may take to answer."""
_MOST = 16 << 20
_ONE_GROUP = r"@(?:[\w.-]{1,60}:)?(?:[\w.-]{1,60}|\*)"
_GROUPS = re.compile(rf"{_ONE_GROUP}(?:[,!&^]{_ONE_GROUP})*", re.ASCII)
"""Nothing else: ClusterShell may pass the name of a group to a shell."""
_PARTITION = re.compile(r"\w[\w.-]{0,59}", re.ASCII)
_ANSIBLE = "ansible-inventory"
_OF_ANSIBLE = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_INVENTORY_UNPARSED_FAILED": "1"}
"""Variables for it: no colours; an inventory that it cannot read is an error, not an empty one."""
NO_FOLDER = (
    "a folder is read by ansible-inventory, which is not installed here: name one of its files"
)


class SourceError(RankdeckError):
    """A source gave no nodes; the text says why."""


def read_source(entry: Entry) -> SiteList | None:
    """The nodes of the source that this entry names; None if there are none: a
    mistake, or the user has not agreed.
    """
    kind, _, what = entry.text().strip().partition(" ")
    if kind not in SOURCES:
        entry.report(f"`{kind[:60]}` is no source of nodes{suggest_or_list(kind, SOURCES)}")
        return None
    try:
        return SOURCES[kind](entry, what.strip())
    except SourceError as error:
        entry.report(f"{kind}: {error}")
    except ConfigError as error:
        entry.report(f"{kind}: {error.problems[0]}")
    return None


def _clush(_: Entry, groups: str) -> SiteList:
    if not _GROUPS.fullmatch(groups):
        raise SourceError(
            f"`{groups[:60]}` is no group: write `clush @GROUP`, `@SOURCE:GROUP` or several with"
            " `,`, `!`, `&` or `^` between"
        )
    said = ask_program((sys.executable, "-m", "ClusterShell.CLI.Nodeset", "-e", groups), "nodeset")
    return _listed(said.replace(" ", "\n"), "hostfile", groups, f"{groups} has no nodes")


def _slurm(_: Entry, partition: str) -> SiteList:
    if partition and not _PARTITION.fullmatch(partition):
        raise SourceError(f"`{partition[:60]}` is no partition")
    of = ("-p", partition) if partition else ()
    said = ask_program((*_SINFO, *of), "sinfo")
    return _listed(_allocated_first(said), "sinfo", "sinfo", "sinfo names no nodes")


_SINFO = ("sinfo", "-N", "-o", "%N %c")


def _allocated_first(said: str) -> str:
    """The lines of sinfo, those of the nodes of the allocation first in which we run (`salloc`)."""
    try:
        own = frozenset(expand_nodes(os.environ.get(_NODELIST, "")))
    except ValueError:
        own = frozenset[str]()
    head, *rows = said.splitlines() or [""]
    return "\n".join([head, *sorted(rows, key=lambda row: row.split(" ")[0] not in own)])


SLURM_JOB_VARIABLE, _NODELIST = "SLURM_JOB_ID", "SLURM_JOB_NODELIST"
"""Variables that Slurm sets inside an allocation."""
JOB_NUMBER = re.compile(r"[0-9]{1,11}(?:_[0-9]{1,9})?\Z")


def _allocation(_: Entry, number: str) -> SiteList:
    """The nodes of a Slurm job of the user, else of the allocation in which we run."""
    number = number or os.environ.get(SLURM_JOB_VARIABLE, "")
    if not JOB_NUMBER.match(number):
        where = "start inside `salloc`, or name a job of yours that runs: `allocation 4711`"
        raise SourceError(f"there is no allocation here ({SLURM_JOB_VARIABLE} is not set): {where}")
    nodes = ask_program(
        ("squeue", "-h", "-j", number, "-t", "RUNNING", "-o", "%N"), "squeue"
    ).strip()
    if not nodes:
        raise SourceError(f"job {number} does not run: it has no nodes")
    said = ask_program((*_SINFO, "-n", nodes), "sinfo")
    return _listed(said, "sinfo", "sinfo", f"sinfo does not know the nodes of job {number}")


def _ansible(entry: Entry, what: str) -> SiteList | None:
    named, _, group = what.partition(" ")
    file = _file(entry, named)
    if not shutil.which(_ANSIBLE):
        if file.is_dir():
            raise SourceError(NO_FOLDER)
        if not may_read(entry, str(file), Path()):
            return None
        return read_inventory(file, read_text(file, _MOST), group.strip())
    if not may_use(entry, f"has {_ANSIBLE} read {file}, which may run programs", _bytes_of(file)):
        return None
    return read_ansible_inventory(file, group.strip())


def _of_file(form: str) -> Callable[[Entry, str], SiteList | None]:
    """A source that is a list in a file."""

    def read(entry: Entry, named: str) -> SiteList | None:
        file = _file(entry, named)
        if not may_read(entry, str(file), Path()):
            return None
        return read_site_list(file, read_text(file, _MOST), form)

    return read


_ASKED = ("ansible", "json", "sinfo", "kubectl")
"""Formats of what programs print, and those that `ansible` reads."""
SOURCES: Mapping[str, Callable[[Entry, str], SiteList | None]] = {
    "clush": _clush,
    "slurm": _slurm,
    "allocation": _allocation,
    "ansible": _ansible,
    **{form: _of_file(form) for form in FORMATS if form not in _ASKED},
}
"""Word before the blank in `from: …` -> how what is behind it is asked."""


def read_ansible_inventory(file: Path, group: str = "") -> SiteList:
    """The hosts of an Ansible inventory, as ansible-inventory tells them.

    Raises SourceError, ConfigError.
    """
    words = (_ANSIBLE, "-i", str(file), "--list")
    try:
        said = ask_program(words, _ANSIBLE)
    except SourceError as error:
        raise SourceError(f"{error} (`{shlex.join(words)}` says more)") from error
    return read_inventory(file, said, group)


def has_ansible() -> bool:
    """Whether the program is there that reads inventories as Ansible does."""
    return shutil.which(_ANSIBLE) is not None


def ask_program(words: Sequence[str], name: str) -> str:
    """What a program prints; it is called `name` to people. Raises SourceError."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8", **_OF_ANSIBLE},
        )
    except FileNotFoundError as error:
        raise SourceError(f"`{name}` is not installed here") from error
    except OSError as error:
        raise SourceError(f"`{name}` cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"`{name}` gave no answer within {LIMIT:g} s") from error
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = clean_line(lines[-1], 300) if lines else f"exit status {done.returncode}"
        raise SourceError(f"`{name}` says: {why}")
    return done.stdout[:_MOST].decode("utf-8", "replace")


def _listed(said: str, form: str, name: str, nothing: str) -> SiteList:
    if not said.strip():
        raise SourceError(nothing)
    return read_site_list(Path(name), said, form)


def _file(entry: Entry, named: str) -> Path:
    if not named:
        raise SourceError("it needs the name of a file")
    return (Path(entry.file).parent / expand_path(named)).absolute()


def _bytes_of(file: Path) -> bytes:
    """The content to which the user agrees; of a folder, only its name."""
    return read_text(file, _MOST).encode() if file.is_file() else b""
