"""Lists of nodes that a site has already (hostfiles, inventories, groups, tables
of schedulers), read for a cluster file.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from rankdeck.config.ansible_inventories import (
    GROUP_KEYS,
    read_ansible_ini,
    read_ansible_json,
    read_ansible_yaml,
)
from rankdeck.config.document import NODE_NAME, finish_document, parse_document
from rankdeck.config.listed_nodes import ListedNode, ListRow, ListRows, list_mistake, read_count
from rankdeck.model.nodeset import expand_nodes, fold_nodes
from rankdeck.values import Value, replace

_GROUP = re.compile(r"(?:^|[,!^])@[^,!&^\s]+")
"""A group of ClusterShell by its name. One that is left out leaves out no node
of the file: its own line has them.
"""
_LOCAL = frozenset({"localhost", "ip6-localhost", "ip6-loopback", "broadcasthost"})


def _words(text: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, words) of each line that is not empty, without comments."""
    for number, line in enumerate(text.split("\n"), 1):
        if words := line.partition("#")[0].split():
            yield number, words


_SLOTS = ("slots", "slot", "cpus", "cpu", "count")


def _hostfile(text: str, _: Path) -> ListRows:
    """Open MPI: `host slots=4`; MPICH and Intel MPI: `host:4`; both: a host
    on several lines has as many slots.
    """
    for number, words in _words(text.replace("=", " = ")):
        user, _at, host = words[0].rpartition("@")
        name, _colon, behind = host.partition(":")
        told = {
            key.lower(): value
            for key, sign, value in zip(words[1:], words[2:], words[3:], strict=False)
            if sign == "="
        }
        slots = next((read_count(told[key]) for key in _SLOTS if key in told), 0)
        user = user or told.get("user") or told.get("username", "")
        slots = slots or read_count(behind.partition(":")[0]) or 1
        yield ListRow(number, name, ListedNode("", slots=slots, user=user))


def _hosts(text: str, _: Path) -> ListRows:
    """`/etc/hosts`: an address, a name, other names.

    Addresses of the machine itself are left out.
    """
    for number, words in _words(text):
        address = ip_address(words[0].partition("%")[0])
        local = address.is_loopback or address.is_multicast or address.is_link_local
        local = local or address.is_unspecified
        if len(words) > 1 and not local and words[1] not in _LOCAL:
            yield ListRow(number, words[1], ListedNode("", address=words[0]))


def _genders(text: str, _: Path) -> ListRows:
    """genders(3): a node set, then attributes."""
    for number, words in _words(text):
        yield ListRow(number, words[0])


def _groups(text: str, _: Path) -> ListRows:
    """Groups of ClusterShell: `name: node set`.

    What is the group of others (`@gpu`) adds no node.
    """
    for number, words in _words(text):
        for one in " ".join(words).partition(":")[2].split():
            yield from _bare_set(number, one)


def _bare_set(line: int, text: str) -> ListRows:
    """A node set without the groups that it names."""
    if bare := _GROUP.sub("", text).strip(","):
        yield ListRow(line, bare)


def _sinfo(text: str, _: Path) -> ListRows:
    """What sinfo prints: the column of node sets, and that of CPUs if there is one."""
    for number, row in _table(text, ("NODELIST", "HOSTNAMES")):
        slots = read_count(row.get("CPUS", "").rstrip("+"))
        yield ListRow(number, row.get("NODELIST") or row["HOSTNAMES"], ListedNode("", slots=slots))


def _kubectl(text: str, _: Path) -> ListRows:
    """What `kubectl get nodes` prints, also with `-o wide` and `-o name`."""
    for number, (word, *more) in _words(text):
        if word.startswith("node/") and not more:
            yield ListRow(number, word.partition("/")[2])
    for number, row in _table(text, ("NAME",)):
        address = row.get("INTERNAL-IP", "")
        address = "" if address.startswith("<") else address
        yield ListRow(number, row["NAME"], ListedNode("", address=address))


def _table(text: str, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows below the line of headings that has one of these columns.

    A value with blanks moves the columns right of it: the last column is the last word.
    """
    heads: list[str] = []
    for number, words in _words(text):
        upper = [word.upper() for word in words]
        if any(column in upper for column in columns):
            heads = upper
        elif heads and len(words) >= len(heads):
            row = dict(zip(heads, words, strict=False))
            yield number, {**row, heads[-1]: words[-1]} if heads[-1] in columns else row


def _yaml(text: str, file: Path) -> ListRows:
    """An inventory of Ansible, or groups of ClusterShell (a table of
    tables: source, group, node set).
    """
    root = parse_document(file, text)
    tables = [one.fields() for one in root.fields().values() if one.kind == "map"]
    if any(key in table for table in tables for key in GROUP_KEYS):
        return read_ansible_yaml(text, file)
    finish_document(root)
    return _yaml_groups(text, file)


def _yaml_groups(text: str, file: Path) -> ListRows:
    root = parse_document(file, text)
    for source in root.fields().values():
        for group in source.fields().values():
            sets = group.words() if group.kind == "seq" else (group.word(),)
            for one in sets:
                yield from _bare_set(group.node.start_mark.line + 1, one)
    finish_document(root)


class ListFormat(Value):
    """A kind of list: how it is called, how it is read, and by what its first lines are known."""

    words: str
    read: Callable[[str, Path], ListRows]
    known: re.Pattern[str]
    adds: bool = False
    """Whether a host on several lines has the slots of all."""


_HOSTFILE = (
    r"[^\S\n]*(?:[^\s#=@]+@)?[\w.\[\],-]+(?::\d+(?::\S+)?)?"
    r"(?:[^\S\n]+(?:slots?|cpus?|count|max[-_](?:slots|cpus)|(?:slots|cpu)[-_]max|user(?:name)?|binding|weight)"
    r"[^\S\n]*=[^\S\n]*[^\s#]+)*[^\S\n]*"
)
"""A line of a hostfile."""
_ADDRESS = r"(?:\d{1,3}(?:\.\d{1,3}){3}|(?=[0-9A-Fa-f]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:.]+(?:%\S+)?)"
FORMATS: Mapping[str, ListFormat] = {
    "json": ListFormat("an inventory in JSON", read_ansible_json, re.compile(r"\A\s*\{")),
    "ansible": ListFormat("an Ansible inventory", read_ansible_ini, re.compile(r"^[^\S\n]*\[[^:\]\s]+(?::\w+)?\][^\S\n]*(?:[#;].*)?$|\sansible_\w+=", re.MULTILINE)),
    "sinfo": ListFormat("a table of sinfo", _sinfo, re.compile(r"^.*\b(?:NODELIST|HOSTNAMES)\b", re.MULTILINE)),
    "kubectl": ListFormat("a table of kubectl get nodes", _kubectl, re.compile(r"^NAME\s+STATUS\s+ROLES|\A(?:node/\S+\s+)+\Z", re.MULTILINE)),
    "hosts": ListFormat("a hosts file", _hosts, re.compile(rf"^[^\S\n]*{_ADDRESS}[^\S\n]+(?![\w-]+[^\S\n]*=)[A-Za-z0-9]", re.MULTILINE)),
    "yaml": ListFormat("an inventory or groups in YAML", _yaml, re.compile(r"^[\w.-]+:[^\S\n]*(?:#.*)?\n(?:[^\S\n]*(?:#.*)?\n)*[^\S\n]+[\w@*.\[\]:-]+:|\A(?:[^\S\n]*(?:#.*)?\n)*(?:---.*\n|[\w.-]+:\s*\{)", re.MULTILINE)),
    "groups": ListFormat("groups of ClusterShell", _groups, re.compile(r"^[\w@.-]+:[^\S\n]+\S", re.MULTILINE)),
    "hostfile": ListFormat("an MPI hostfile", _hostfile, adds=True, known=re.compile(rf"\A\s*(?=\S)(?:(?:{_HOSTFILE})?(?:#.*)?(?:\n|\Z))+\Z")),
    "genders": ListFormat("a genders file", _genders, re.compile(r"^\s*[^\s#]", re.MULTILINE)),
}  # fmt: skip
"""Format -> how it is read, in the order in which a list is looked at."""
ANSIBLE_PLUGIN = re.compile(r"^plugin\s*:", re.MULTILINE)
"""In a file that says how a plug-in of Ansible finds the hosts."""
_NO_LISTS = (
    (re.compile(r"\A#!"), "this is a program, which is not started here: if it prints an inventory, write `PROGRAM --list | rankdeck nodes --import -`"),
    (re.compile(r"^\[Main\][^\S\n]*\n(?:.*\n){0,40}?(?:default|confdir|autodir|groupsdir)[^\S\n]*[:=]", re.MULTILINE), "this says where ClusterShell finds its groups: write `nodes: {from: clush @GROUP}` in a cluster file, or import the file of the groups"),
    (ANSIBLE_PLUGIN, "this names a plug-in of Ansible: install ansible-inventory, which asks it"),
)  # fmt: skip
"""What is no list itself but says where one is, and which way is left."""


class SiteList(Value):
    """The nodes of a list, in its order, each once."""

    format: str
    nodes: tuple[ListedNode, ...]

    @property
    def users(self) -> tuple[str, ...]:
        """The users that the list names, each once."""
        return tuple(dict.fromkeys(node.user for node in self.nodes if node.user))

    @property
    def access(self) -> dict[str, str]:
        """The user and the file of the key, if the nodes share them; as in `ssh:`."""
        keys = {node.identity for node in self.nodes}
        user = self.users[0] if len(self.users) == 1 else ""
        told = {"user": user, "identity": keys.pop() if len(keys) == 1 else ""}
        return {key: value for key, value in told.items() if value}

    def cluster_table(self, cluster: str) -> dict[str, Any]:
        """The same as the table of a cluster file; nodes of which the
        same is said stand in one node set.
        """
        alike: dict[ListedNode, list[str]] = {}
        for node in self.nodes:
            # An address is that of one node.
            key = replace(
                node, name=node.name if node.address else "", user="", identity="", lost=""
            )
            alike.setdefault(key, []).append(node.name)
        rows = [
            {
                "name": fold_nodes(names),
                **{key: value for key, value in _said(one).items() if value},
            }
            for one, names in alike.items()
        ]
        return {"cluster": cluster, "nodes": rows, **({"ssh": self.access} if self.access else {})}


def _said(node: ListedNode) -> dict[str, str | int]:
    slots = node.slots if node.slots > 1 else 0
    return {"address": node.address, "port": node.port, "slots": slots}


def read_site_list(file: Path, text: str, form: str = "") -> SiteList:
    """The nodes in `text`, which is that of `file`; `form` is a key
    of FORMATS, "": seen from the text.

    Raises ConfigError, which names the line, if it is no such list or has no node.
    """
    if not form and (why := next((why for known, why in _NO_LISTS if known.search(text)), "")):
        raise list_mistake(file, 1, why)
    chosen = form or next((name for name, one in FORMATS.items() if one.known.search(text)), "")
    if not chosen:
        raise list_mistake(file, 1, f"not a list of nodes that is known here: {', '.join(FORMATS)}")
    return _collected(chosen, file, lambda: FORMATS[chosen].read(text, file))


def read_inventory(file: Path, text: str, group: str = "") -> SiteList:
    """The hosts of an inventory of Ansible in INI, YAML or JSON, of one group or all.

    Raises ConfigError, which names the line, if it is none or has no host.
    """
    reader = read_ansible_ini
    if FORMATS["json"].known.search(text):
        reader = read_ansible_json
    elif FORMATS["yaml"].known.search(text):
        reader = read_ansible_yaml
    return _collected(
        "ansible", file, lambda: reader(text, file, group), f" in `{group}`" * bool(group)
    )


def _collected(form: str, file: Path, read: Callable[[], ListRows], where: str = "") -> SiteList:
    found: dict[str, ListedNode] = {}
    try:
        for row in read():
            for name in _names(file, row):
                said = replace(row.said, name=name)
                known = found.get(name)
                found[name] = _joined(known, said, adds=FORMATS[form].adds) if known else said
    except ValueError as error:
        raise list_mistake(file, 1, f"not {FORMATS[form].words}: {error}") from error
    if not found:
        raise list_mistake(file, 1, f"{FORMATS[form].words} without any node{where}")
    return SiteList(form, tuple(found.values()))


def _names(file: Path, row: ListRow) -> Iterable[str]:
    try:
        names = expand_nodes(row.nodes)
    except ValueError as error:
        raise list_mistake(file, row.line, str(error)) from error
    for name in names:
        if not NODE_NAME.fullmatch(name):
            raise list_mistake(file, row.line, f"`{name[:60]}` is not the name of a node")
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
        known.identity or said.identity,
        known.lost or said.lost,
    )
