"""Inventories of Ansible (INI, YAML, JSON), read without Ansible: hosts with
the variables of their groups.

What only Ansible knows (group_vars, plug-ins, templates) is told by `ansible-inventory`, see
`node_sources.py`.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from rankdeck.config.document import Entry, finish_document, parse_document
from rankdeck.config.listed_nodes import ListedNode, ListRow, ListRows, list_mistake, read_count
from rankdeck.model.json_tables import Table, as_list, as_table, read_table
from rankdeck.model.nodeset import expand_nodes

_SECTION = re.compile(r"\[([^:\]\s]+)(?::(\w+))?\]\s*(?:[#;].*)?")
_RANGE = re.compile(r"\[([^\[\]:]+):([^\[\]:]+)(?::(\d{1,6}))?\]")
"""A range, `[01:16]`, `[0:30:10]` or `[a:f]`."""
_PORT = re.compile(r"([^:]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")
_TEMPLATE = "{{"
_MOST_HOSTS = 100_000
_ALL = "all"
GROUP_KEYS = ("hosts", "children", "vars")
_ARGUMENTS = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args")


@dataclass(slots=True)
class _Group:
    hosts: list[str] = field(default_factory=list[str])
    variables: dict[str, str] = field(default_factory=dict[str, str])
    children: list[str] = field(default_factory=list[str])


class _Inventory:
    """Groups and hosts with their variables, as far as the file says them."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._hosts: dict[str, dict[str, str]] = {}
        self._lines: dict[str, int] = {}

    def group(self, name: str) -> _Group:
        return self._groups.setdefault(name, _Group())

    def add(self, group: str, host: str, variables: Mapping[str, str], line: int = 1) -> None:
        """Note that a group has this host, and what is said of it there."""
        self.group(group).hosts.append(host)
        self._hosts.setdefault(host, {}).update(variables)
        self._lines.setdefault(host, line)

    def rows(self, group: str) -> ListRows:
        """The hosts of a group, each once, with what their groups and they themselves say."""
        names = self._hosts if group == _ALL else dict.fromkeys(self._below(group, frozenset()))
        above = self._parents()
        depths: dict[str, int] = {}
        of_host: dict[str, set[str]] = {}
        for name, one in self._groups.items():
            for host in one.hosts:
                of_host.setdefault(host, set()).add(name)
        for host in names:
            chain = _ancestors({_ALL} | of_host.get(host, set()), above)
            variables: dict[str, str] = {}
            # A group wins over those that it is in, the last by name over its equals.
            for name in sorted(chain, key=lambda one: (_depth(one, above, depths), one)):
                variables.update(self.group(name).variables)
            said = node_said({**variables, **self._hosts[host]})
            yield ListRow(self._lines[host], host, said)

    def _below(self, group: str, above: frozenset[str]) -> Iterator[str]:
        yield from self.group(group).hosts
        for child in self.group(group).children:
            if child not in above:
                yield from self._below(child, above | {group})

    def _parents(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name, group in self._groups.items():
            for child in group.children:
                found.setdefault(child, set()).add(name)
        return found


def _ancestors(groups: set[str], above: Mapping[str, set[str]]) -> set[str]:
    found, left = set[str](), list(groups)
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += above.get(one, ())
    return found


def _depth(group: str, above: Mapping[str, set[str]], known: dict[str, int]) -> int:
    """How far a group is below `all`, by the longest way."""
    if group not in known:
        known[group] = 0 if group == _ALL else 1  # also ends a circle
        deepest = max((_depth(one, above, known) for one in above.get(group, ())), default=0)
        known[group] = 0 if group == _ALL else deepest + 1
    return known[group]


def node_said(variables: Mapping[str, str]) -> ListedNode:
    """What an inventory's variables say of a host."""

    def told(*names: str) -> str:
        words = (variables.get(name, "") for name in names)
        return next((word for word in words if word and _TEMPLATE not in word), "")

    local = told("ansible_connection") == "local"
    return ListedNode(
        "",
        address="local" if local else told("ansible_host", "ansible_ssh_host"),
        port=read_count(told("ansible_port", "ansible_ssh_port")),
        user=told("ansible_user", "ansible_ssh_user"),
        identity=told("ansible_ssh_private_key_file", "ansible_private_key_file"),
        lost=_lost(variables),
    )


def _lost(variables: Mapping[str, str]) -> str:
    """What a cluster file cannot say of this host."""
    wanted = (
        "ansible_host",
        "ansible_ssh_host",
        "ansible_port",
        "ansible_ssh_port",
        "ansible_user",
        "ansible_ssh_user",
    )
    for name in wanted:
        if _TEMPLATE in variables.get(name, ""):
            return f"{name} is a template, which only Ansible can fill: say it in ~/.ssh/config"
    for name in _ARGUMENTS:
        if words := variables.get(name, "").strip():
            return f"{name} is `{words[:120]}`: say it in ~/.ssh/config"
    return ""


# ---- INI


def read_ansible_ini(text: str, file: Path, group: str = "") -> ListRows:
    """The hosts of an inventory in INI, of one group or all.

    Raises ConfigError, and ValueError for a range that is none.
    """
    inventory = _Inventory()
    name, kind = "ungrouped", ""
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        if not bare or bare.startswith(("#", ";")):
            continue
        if section := _SECTION.fullmatch(bare):
            name, kind = section[1], section[2] or ""
            if kind not in ("", "vars", "children"):
                raise list_mistake(file, number, f"`:{kind}` is no kind of section")
            inventory.group(name)
        elif kind == "vars":
            key, _, value = bare.partition("=")
            inventory.group(name).variables[key.strip()] = _bare(value)
        elif kind == "children":
            inventory.group(name).children.append(bare.partition("#")[0].strip())
        else:
            _add_line(inventory, name, bare, (file, number))
    return inventory.rows(group or _ALL)


def _bare(value: str) -> str:
    """A value of a section of variables, without quotes and comment."""
    try:
        words = shlex.split(value, comments=True)
    except ValueError:
        return value.strip()
    return " ".join(words)


def _add_line(inventory: _Inventory, group: str, line: str, at: tuple[Path, int]) -> None:
    try:
        name, *variables = shlex.split(line, comments=True)
        pairs = (one.partition("=") for one in variables)
        said = {key: value for key, _, value in pairs}
        hosts, port = _without_port(name)
        for host in _hosts_in(hosts):
            inventory.add(group, host, {**port, **said}, at[1])
    except ValueError as error:
        raise list_mistake(*at, f"not a line of an inventory: {error}") from error


def _without_port(name: str) -> tuple[str, dict[str, str]]:
    """The hosts of `HOSTS:PORT`, and the port as a variable."""
    bare = _RANGE.sub("", name)
    found = _PORT.fullmatch(bare)
    if found is None:
        return name, {}
    return name[: -len(found[2]) - 1], {"ansible_port": found[2]}


def _hosts_in(pattern: str) -> Iterator[str]:
    """The names that a host pattern stands for; raises ValueError."""
    parts: list[list[str]] = []
    at = 0
    for found in _RANGE.finditer(pattern):
        first, last, step = found.groups()
        if len(first) == len(last) == 1 and first.isalpha() and last.isalpha():
            span = [chr(one) for one in range(ord(first), ord(last) + 1, max(int(step or 1), 1))]
        else:
            span = list(expand_nodes(f"[{first}-{last}/{step or 1}]"))
        parts += [[pattern[at : found.start()]], span]
        at = found.end()
    if _product_of(parts) > _MOST_HOSTS:
        raise ValueError(f"more than {_MOST_HOSTS} hosts")
    for chosen in product(*parts, [pattern[at:]]):
        yield "".join(chosen)


def _product_of(parts: list[list[str]]) -> int:
    count = 1
    for part in parts:
        count *= len(part)
    return count


# ---- YAML


def read_ansible_yaml(text: str, file: Path, group: str = "") -> ListRows:
    """The hosts of an inventory in YAML, of one group or all; raises ConfigError."""
    root = parse_document(file, text)
    inventory = _Inventory()
    for name, entry in root.fields().items():
        _add_group(inventory, name, entry)
    finish_document(root)
    return inventory.rows(group or _ALL)


def _add_group(inventory: _Inventory, name: str, entry: Entry) -> None:
    table = _fields(entry)
    group = inventory.group(name)
    if "vars" in table:
        group.variables.update({key: value.raw for key, value in _fields(table["vars"]).items()})
    if "hosts" in table:
        for pattern, of_host in _fields(table["hosts"]).items():
            _add_pattern(inventory, name, pattern, of_host)
    if "children" in table:
        for child, below in _fields(table["children"]).items():
            group.children.append(child)
            _add_group(inventory, child, below)


def _add_pattern(inventory: _Inventory, group: str, pattern: str, entry: Entry) -> None:
    variables = {key: value.raw for key, value in _fields(entry).items()}
    try:
        hosts, port = _without_port(pattern)
        for host in _hosts_in(hosts):
            inventory.add(group, host, {**port, **variables}, entry.node.start_mark.line + 1)
    except ValueError as error:
        entry.report(f"`{pattern[:60]}` names no hosts: {error}")


def _fields(entry: Entry) -> dict[str, Entry]:
    """The fields of a table; {} for anything else, such as a group without a word."""
    return entry.fields() if entry.kind == "map" else {}


# ---- JSON, as ansible-inventory and dynamic inventories print it


def read_ansible_json(text: str, file: Path, group: str = "") -> ListRows:
    """The hosts in what `ansible-inventory --list` or a dynamic inventory prints,
    of one group or all; raises ConfigError.
    """
    try:
        tables = read_table(text.encode())
    except ValueError as error:
        raise list_mistake(file, 1, f"no inventory in JSON: {error}") from error
    inventory = _Inventory()
    of_host = as_table(as_table(tables.get("_meta")).get("hostvars"))
    for name in _in_order(tables):
        _add_table(inventory, name, tables[name], of_host)
    return inventory.rows(group or _ALL)


def _in_order(tables: Table) -> Iterator[str]:
    """The names of all groups; those that `all` begins with first."""
    left, seen = [_ALL], set[str]()
    while left:
        name = left.pop(0)
        if name in tables and name not in seen:
            seen.add(name)
            yield name
            children = as_list(as_table(tables[name]).get("children"), _MOST_HOSTS)
            left = [one for one in children if isinstance(one, str)] + left
    yield from (name for name in tables if name not in seen and name != "_meta")


def _add_table(inventory: _Inventory, name: str, value: object, of_host: Table) -> None:
    table = as_table(value)
    group = inventory.group(name)
    group.variables.update(_words(as_table(table.get("vars"))))
    group.children += [
        one for one in as_list(table.get("children"), _MOST_HOSTS) if isinstance(one, str)
    ]
    # A dynamic inventory may say a group as the list of its hosts alone.
    hosts = table.get("hosts") if table else value
    for host in as_list(hosts, _MOST_HOSTS):
        if isinstance(host, str):
            inventory.add(name, host, _words(as_table(of_host.get(host))))


def _words(table: Table) -> dict[str, str]:
    return {key: str(value) for key, value in table.items() if isinstance(value, (str, int))}
