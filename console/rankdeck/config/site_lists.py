"""Lists of nodes that a site has already (hostfiles, inventories, groups, tables
of schedulers), read for a cluster file.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from itertools import product
from pathlib import Path
from typing import Any

from rankdeck.config.document import Entry, finish_document, parse_document
from rankdeck.errors import ConfigError, Problem
from rankdeck.model.nodeset import expand_nodes, fold_nodes
from rankdeck.model.text import Table, as_list, as_table, read_table

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_RANGE = re.compile(r"\[([^\[\]:]+):([^\[\]:]+)\]")
"""A range of Ansible, `[01:16]` or `[a:f]`."""
_GROUP = re.compile(r"@[^,\s]+,?")
"""A group of ClusterShell by its name."""
_MOST_HOSTS = 100_000
_LOCAL = frozenset({"localhost", "ip6-localhost", "ip6-loopback", "broadcasthost"})


@dataclass(frozen=True, slots=True)
class ListedNode:
    """A node as its list has it; what the list does not say is "" or 0."""

    name: str
    address: str = ""
    port: int = 0
    slots: int = 0
    user: str = ""


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a list: a node set and what is said of its nodes."""

    line: int
    nodes: str
    said: ListedNode = ListedNode("")


Rows = Iterator[_Row]


def _words(text: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, words) of each line that is not empty, without comments."""
    for number, line in enumerate(text.split("\n"), 1):
        if words := line.partition("#")[0].split():
            yield number, words


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0


def _hostfile(text: str, _: Path) -> Rows:
    """Open MPI: `host slots=4`; MPICH and Intel MPI: `host:4`; both: a host
    on several lines has as many slots.
    """
    for number, words in _words(text):
        user, _at, host = words[0].rpartition("@")
        name, _colon, behind = host.partition(":")
        told = next((_count(word[6:]) for word in words[1:] if word.startswith("slots=")), 0)
        yield _Row(number, name, ListedNode("", slots=told or _count(behind) or 1, user=user))


def _hosts(text: str, _: Path) -> Rows:
    """`/etc/hosts`: an address, a name, other names.

    Addresses of the machine itself are left out.
    """
    for number, words in _words(text):
        address = ip_address(words[0].partition("%")[0])
        local = address.is_loopback or address.is_multicast or address.is_link_local
        if len(words) > 1 and not local and words[1] not in _LOCAL:
            yield _Row(number, words[1], ListedNode("", address=words[0]))


def _genders(text: str, _: Path) -> Rows:
    """genders(3): a node set, then attributes."""
    for number, words in _words(text):
        yield _Row(number, words[0])


def _groups(text: str, _: Path) -> Rows:
    """Groups of ClusterShell: `name: node set`.

    What is the group of others (`@gpu`) adds no node.
    """
    for number, words in _words(text):
        named = _GROUP.sub("", " ".join(words).partition(":")[2])
        for one in named.split():
            if bare := one.strip(","):
                yield _Row(number, bare)


def _table(column: str) -> Callable[[str, Path], Rows]:
    """A reader of what a scheduler prints: one column has the node sets."""

    def read(text: str, _: Path) -> Rows:
        place, slots = -1, -1
        for number, words in _words(text):
            heads = [word.upper() for word in words]
            if column in heads:
                place = heads.index(column)
                slots = heads.index("CPUS") if "CPUS" in heads else -1
            elif 0 <= place < len(words):
                told = _count(words[slots]) if 0 <= slots < len(words) else 0
                yield _Row(number, words[place], ListedNode("", slots=told))

    return read


def _ansible_ini(text: str, file: Path) -> Rows:
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        if not bare or bare.startswith(("#", ";")):
            continue
        if bare.startswith("["):
            section = bare.strip("[]")
        elif not section.endswith((":vars", ":children")):
            try:
                name, *variables = shlex.split(bare, comments=True)
            except ValueError as error:
                raise _mistake(file, number, f"not a line of an inventory: {error}") from error
            pairs = (one.partition("=") for one in variables)
            said = _of_ansible({key: value for key, _, value in pairs})
            yield from (_Row(number, one, said) for one in _ranges(name))


def _of_ansible(variables: Mapping[str, str]) -> ListedNode:
    """What an inventory's variables say of a host."""

    def told(*names: str) -> str:
        return next((variables[name] for name in names if variables.get(name)), "")

    return ListedNode(
        "",
        address=told("ansible_host", "ansible_ssh_host"),
        port=_count(told("ansible_port", "ansible_ssh_port")),
        user=told("ansible_user", "ansible_ssh_user"),
    )


def _ranges(name: str) -> Iterator[str]:
    """The node sets of a host pattern of Ansible: its ranges of numbers as they
    are written here, letters one by one.
    """
    parts: list[list[str]] = []
    at = 0
    for found in _RANGE.finditer(name):
        first, last = found.groups()
        letters = len(first) == len(last) == 1 and first.isalpha() and last.isalpha()
        span = (
            [chr(one) for one in range(ord(first), ord(last) + 1)]
            if letters
            else [f"[{first}-{last}]"]
        )
        parts += [[name[at : found.start()]], span]
        at = found.end()
    for chosen in product(*parts, [name[at:]]):
        yield "".join(chosen)


def _yaml(text: str, file: Path) -> Rows:
    """An inventory of Ansible, or groups of ClusterShell (a table of
    tables: source, group, node set).
    """
    root = parse_document(file, text)
    for entry in root.fields().values():
        if any(key in entry.fields() for key in ("hosts", "children", "vars")):
            yield from _ansible_group(entry)
        else:
            for group in entry.fields().values():
                sets = group.words() if group.kind == "seq" else (group.word(),)
                yield from (_Row(_line_of(group), one) for one in sets if not one.startswith("@"))
    finish_document(root)


def _ansible_group(group: Entry) -> Rows:
    table = group.fields() if group.kind == "map" else {}
    hosts = table.get("hosts")
    for name, entry in hosts.fields().items() if hosts is not None and hosts.kind == "map" else ():
        values = entry.fields() if entry.kind == "map" else {}
        said = _of_ansible({key: value.raw for key, value in values.items()})
        yield from (_Row(_line_of(entry), one, said) for one in _ranges(name))
    children = table.get("children")
    for child in (
        children.fields().values() if children is not None and children.kind == "map" else ()
    ):
        yield from _ansible_group(child)


def _line_of(entry: Entry) -> int:
    return entry.node.start_mark.line + 1


@dataclass(frozen=True, slots=True)
class ListFormat:
    """A kind of list: how it is called, how it is read, and by what its first lines are known."""

    words: str
    read: Callable[[str, Path], Rows]
    known: re.Pattern[str]
    adds: bool = False
    """Whether a host on several lines has the slots of all."""


FORMATS: Mapping[str, ListFormat] = {
    "ansible": ListFormat("an Ansible inventory", _ansible_ini, re.compile(r"^\s*\[[^\]\n]+\]\s*$|\sansible_\w+=", re.MULTILINE)),
    "sinfo": ListFormat("a table of sinfo", _table("NODELIST"), re.compile(r"^.*\bNODELIST\b", re.MULTILINE)),
    "kubectl": ListFormat("a table of kubectl get nodes", _table("NAME"), re.compile(r"^NAME\s+STATUS\s+ROLES", re.MULTILINE)),
    "hosts": ListFormat("a hosts file", _hosts, re.compile(r"^\s*(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f:]*::?[0-9A-Fa-f:]*)(?:%\S+)?\s+[A-Za-z]", re.MULTILINE)),
    "yaml": ListFormat("an inventory or groups in YAML", _yaml, re.compile(r"^[\w-]+:\s*(?:#.*)?\n\s+[\w@*-]+:", re.MULTILINE)),
    "groups": ListFormat("groups of ClusterShell", _groups, re.compile(r"^[\w@-]+:\s+\S", re.MULTILINE)),
    "hostfile": ListFormat("an MPI hostfile", _hostfile, adds=True, known=re.compile(r"^\s*[^#\s=]+(?:\s+(?:max[_-]?)?slots\s*=.*)?\s*(?:#.*)?$", re.MULTILINE)),
    "genders": ListFormat("a genders file", _genders, re.compile(r"^\s*\S+\s+\S", re.MULTILINE)),
}  # fmt: skip
"""Format -> how it is read, in the order in which a list is looked at."""


@dataclass(frozen=True, slots=True)
class SiteList:
    """The nodes of a list, in its order, each once."""

    format: str
    nodes: tuple[ListedNode, ...]

    @property
    def users(self) -> tuple[str, ...]:
        """The users that the list names, each once."""
        return tuple(dict.fromkeys(node.user for node in self.nodes if node.user))

    def cluster_table(self, cluster: str) -> dict[str, Any]:
        """The same as the table of a cluster file; nodes of which the
        same is said stand in one node set.
        """
        alike: dict[ListedNode, list[str]] = {}
        for node in self.nodes:
            # An address is that of one node.
            key = replace(node, name=node.name if node.address else "", user="")
            alike.setdefault(key, []).append(node.name)
        rows = [
            {
                "name": fold_nodes(names),
                **{key: value for key, value in _said(one).items() if value},
            }
            for one, names in alike.items()
        ]
        user = self.users[0] if len(self.users) == 1 else ""
        return {"cluster": cluster, "nodes": rows, **({"ssh": {"user": user}} if user else {})}


def _said(node: ListedNode) -> dict[str, str | int]:
    slots = node.slots if node.slots > 1 else 0
    return {"address": node.address, "port": node.port, "slots": slots}


def read_site_list(file: Path, text: str, form: str = "") -> SiteList:
    """The nodes in `text`, which is that of `file`; `form` is a key
    of FORMATS, "": seen from the text.

    Raises ConfigError, which names the line, if it is no such list or has no node.
    """
    chosen = form or next((name for name, one in FORMATS.items() if one.known.search(text)), "")
    if not chosen:
        raise _mistake(file, 1, f"not a list of nodes that is known here: {', '.join(FORMATS)}")
    found: dict[str, ListedNode] = {}
    try:
        for row in FORMATS[chosen].read(text, file):
            for name in _names(file, row):
                said = replace(row.said, name=name)
                known = found.get(name)
                found[name] = _joined(known, said, adds=FORMATS[chosen].adds) if known else said
    except ValueError as error:
        raise _mistake(file, 1, f"not {FORMATS[chosen].words}: {error}") from error
    if not found:
        raise _mistake(file, 1, f"{FORMATS[chosen].words} without any node")
    return SiteList(chosen, tuple(found.values()))


def read_inventory(file: Path, text: str, group: str = "") -> SiteList:
    """The hosts in what `ansible-inventory --list` prints of this file, of one group or all.

    Raises ConfigError.
    """
    try:
        tables = read_table(text.encode())
    except ValueError as error:
        raise _mistake(file, 1, f"ansible-inventory prints no JSON: {error}") from error
    variables = as_table(as_table(tables.get("_meta")).get("hostvars"))
    wanted = _hosts_of(tables, group or "all", frozenset())
    if not wanted:
        raise _mistake(file, 1, f"an Ansible inventory without any host in `{group or 'all'}`")
    found: list[ListedNode] = []
    for name in dict.fromkeys(wanted):
        if not _NAME.fullmatch(name):
            raise _mistake(file, 1, f"`{name[:60]}` is not the name of a node")
        told = {key: str(value) for key, value in as_table(variables.get(name)).items()}
        found.append(replace(_of_ansible(told), name=name))
    return SiteList("ansible", tuple(found))


def _hosts_of(tables: Table, group: str, above: frozenset[str]) -> list[str]:
    table = as_table(tables.get(group))
    found = [host for host in as_list(table.get("hosts"), _MOST_HOSTS) if isinstance(host, str)]
    for child in as_list(table.get("children"), _MOST_HOSTS):
        if isinstance(child, str) and child not in above:
            found += _hosts_of(tables, child, above | {group})
    return found


def _names(file: Path, row: _Row) -> Iterable[str]:
    try:
        names = expand_nodes(row.nodes)
    except ValueError as error:
        raise _mistake(file, row.line, str(error)) from error
    for name in names:
        if not _NAME.fullmatch(name):
            raise _mistake(file, row.line, f"`{name[:60]}` is not the name of a node")
    return names


def _joined(known: ListedNode, said: ListedNode, *, adds: bool) -> ListedNode:
    """What two lines say of a node: with `adds` the slots of both;
    of all else what was said first.
    """
    return ListedNode(
        known.name,
        known.address or said.address,
        known.port or said.port,
        known.slots + said.slots if adds else known.slots or said.slots,
        known.user or said.user,
    )


def _mistake(file: Path, line: int, text: str) -> ConfigError:
    return ConfigError([Problem(str(file), line, 1, "list", text)])
