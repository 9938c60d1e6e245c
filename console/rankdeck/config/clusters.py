"""Cluster files: the nodes and how to reach them, the site's broker and
Prometheus; and the agents' broker accounts.
"""

import difflib
import ipaddress
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from rankdeck import plugins
from rankdeck.config import document
from rankdeck.config.document import (
    Entry,
    finish_document,
    load_document,
    read_text,
    take_text,
    write_on_one_line,
)
from rankdeck.config.files import (
    expand_path,
    read_regular,
    real_path,
    replace_file,
    write_user_file,
)
from rankdeck.config.foreign_files import CLUSTER_FILE, foreign_named
from rankdeck.config.listed_nodes import ListedNode
from rankdeck.config.node_sources import read_source
from rankdeck.config.schedulers import section_names, section_reader
from rankdeck.config.user import asks_for, may_run, no_secrets, require_trust
from rankdeck.errors import BrokerError, ConfigError, Problem
from rankdeck.model.capabilities import SCHEDULED, capabilities_of
from rankdeck.model.cluster import LOCAL, Access, Broker, Cluster, Metrics, Node, Switch, Transport
from rankdeck.model.series import GROUPS, NAMES, is_offered
from rankdeck.schedulers.slurm.allocations import allocation_here
from rankdeck.values import replace

METRICS_KEYS = (
    "url", "ca_file", "user", "password_env", "password_file", "token_env", "token_file", "label",
    "gpu_label", "labels", "interval", "export",
)  # fmt: skip
METRICS_SCHEMES = {"http": (False, 80), "https": (True, 443)}
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PATH = re.compile(r"[A-Za-z0-9._~/-]{0,200}")
_ONE_OF = ("password_env", "password_file", "token_env", "token_file")
_INSTEAD = "use `user` with `password_file: FILE`, or `token_file: FILE`"


def read_metrics(entry: Entry) -> Metrics | None:
    """The site's Prometheus in this section, None if it names none;
    mistakes are in `entry.problems`.
    """
    table = entry.section(METRICS_KEYS, (), no_secrets(_INSTEAD))
    if "url" not in table:
        if set(table) != {"export"}:
            entry.report("`url` is missing")
        return None
    host, port, tls, path = document.read_url(table["url"], METRICS_SCHEMES, _INSTEAD)
    if not _PATH.fullmatch(path):
        table["url"].report("its path may hold letters, digits and `._~/-`")
    _one_login(table)
    asks_for(table, ("ca_file", "password_file", "token_file"), f"{host}:{port}")
    texts = {key: take_text(table, key) for key in ("ca_file", *_ONE_OF)}
    return Metrics(
        host=host,
        port=port,
        tls=tls,
        path=path.rstrip("/").removesuffix("/api/v1"),
        user=document.read_user_name(table["user"]) if "user" in table else "",
        label=_label(table, "label", "instance"),
        gpu_label=_label(table, "gpu_label", "Hostname"),
        labels=_labels(table["labels"]) if "labels" in table else {},
        interval=table["interval"].number(30, least=1, most=600) if "interval" in table else 30.0,
        **texts,
    )


def read_export(entry: Entry) -> tuple[str, ...]:
    """What `rankdeck export` shall serve, in the same section; mistakes are in `entry.problems`."""
    words = entry.fields().get("export")
    for word in words.items() if words else ():
        text = word.word()
        if text not in GROUPS and not is_offered(text):
            close = difflib.get_close_matches(text, (*GROUPS, *NAMES), 1)
            hint = f"did you mean `{close[0]}`? " if close else ""
            word.report(
                f"`{text[:60]}` is neither a group of series nor a series; {hint}"
                f"groups are {', '.join(sorted(GROUPS))}; series are listed in docs/prometheus.md"
            )
    return words.words() if words else ()


def _one_login(table: Mapping[str, Entry]) -> None:
    given = [key for key in _ONE_OF if key in table]
    if len(given) > 1:
        table[given[1]].report(f"give `{given[0]}` or `{given[1]}`, not both")
    passwords = [key for key in given if key.startswith("password")]
    if passwords and "user" not in table:
        table[passwords[0]].report("a password needs `user`")
    if "user" in table and not passwords:
        table["user"].report(f"a user needs a password: {_INSTEAD}")


def _label(table: Mapping[str, Entry], key: str, usual: str) -> str:
    word = take_text(table, key, usual) or usual
    return word if _is_label(table.get(key), word) else usual


def _is_label(entry: Entry | None, word: str) -> bool:
    if _LABEL.fullmatch(word):
        return True
    if entry is not None:
        entry.report(f"`{word[:60]}` is not the name of a label: letters, digits and `_`")
    return False


def _labels(entry: Entry) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in entry.fields().items():
        word = value.word()
        if not word.isprintable() or len(word) > 200:
            value.report("the value of a label is one line of at most 200 characters")
        elif _is_label(value, key):
            found[key] = word
    return found


KEYS = (
    "cluster", "nodes", "ssh", "broker", "backend", "network", "environment", "expect",
    "rdma_exclude", "simulate", *SCHEDULED, "switches", "metrics",
)  # fmt: skip
NODE_KEYS = ("name", "address", "port", "slots", "gpus", "rdma", "interface", "leaf", "python")
SOURCE_KEYS = ("from", *(key for key in NODE_KEYS if key not in ("name", "address")))
SSH_KEYS = (
    "user", "identity", "known_hosts", "config", "python", "connect_limit", "patience", "logins", "transport", "folder",
)  # fmt: skip
_OF_NODE = "`port` belongs to a node: `- {name: n1, port: 2222}`"
_ELSEWHERE = {
    **{key: f"`{key}` belongs into `ssh:`" for key in SSH_KEYS},
    **{key: f"`{key}` belongs to a node: `- {{name: n1, {key}: …}}`" for key in NODE_KEYS},
    "context": "`context` belongs into `kubernetes:`",
    "namespace": "`namespace` belongs into `kubernetes:`",
    "login": "`login` belongs into `slurm:`",
}
"""Key that is known, but not at the top -> where it belongs."""
_OF_SSH = {key: f"`{key}` belongs into `ssh:`, or for single nodes into ~/.ssh/config" for key in ("user", "identity", "known_hosts")}  # fmt: skip
BROKER_KEYS = (
    "url", "ca_file", "username", "password_env", "password_file", "agents_file", "reach",
    "sample_period",
)  # fmt: skip
SWITCH_KEYS = (
    "name", "address", "port", "tls", "ca_file", "user", "password_env", "ports",
)  # fmt: skip
SCHEMES = {"mqtt": (False, 1883), "mqtts": (True, 8883)}
SIMULATED = (
    "gpu", "gpu:hot", "gpu:ecc", "gpu:lost", "gpu:xid79", "gpu:nvlink", "gpu:pcie", "gpu:hang",
    "rdma", "rdma:down", "rdma:flap", "rdma:retx", "rdma:errors",
)  # fmt: skip
"""What the agent can simulate, healthy or faulty; with `@NODE` after it: only on that node."""
COUNTED = ("gpu_count", "rdma_count", "rdma_rate_gbps", "net_speed_gbps")
"""Keys of `expect` that are numbers."""
EXPECTED = (*COUNTED, "gpu_model", "gpu_driver", "rdma_fw", "mounts")


def read_cluster(path: Path) -> Cluster:
    """The cluster in `path`; raises ConfigError with every mistake,
    UntrustedError without consent.
    """
    with foreign_named(path, CLUSTER_FILE):
        root = load_document(path)
        cluster = cluster_from(root)
        require_trust(root)
        finish_document(root)
    return cluster


def cluster_from(root: Entry) -> Cluster:
    """The cluster that a document describes; mistakes are in `root.problems`."""
    table = root.section(KEYS, ("cluster",), _ELSEWHERE)
    backend = _backend(table)
    if "nodes" not in table and not capabilities_of(backend).chooses_nodes:
        root.report("`nodes` is missing")
    nodes, user = _nodes(table["nodes"]) if "nodes" in table else ((), "")
    access = _access(table["ssh"]) if "ssh" in table else Access()
    return Cluster(
        name=document.read_name(table["cluster"]) if "cluster" in table else "",
        nodes=nodes,
        access=replace(
            access, user=access.user or user, allocation=_allocation_of(table, access.transport)
        ),
        broker=_broker(table["broker"]) if "broker" in table else None,
        metrics=read_metrics(table["metrics"]) if "metrics" in table else None,
        export=read_export(table["metrics"]) if "metrics" in table else (),
        switches=_switches(table["switches"], nodes) if "switches" in table else (),
        backend=backend,
        network=_network(table["network"]) if "network" in table else "",
        environment=document.read_variables(table["environment"]) if "environment" in table else {},
        expect=_expect(table["expect"]) if "expect" in table else {},
        rdma_exclude=table["rdma_exclude"].words() if "rdma_exclude" in table else (),
        simulate=_simulate(table["simulate"]) if "simulate" in table else (),
        options=_options(table, backend),
        file=root.file,
    )


def _backend(table: Mapping[str, Entry]) -> str:
    if "backend" not in table:
        return "ssh"
    return table["backend"].choice(plugins.plugin_names("backends"), "ssh")


def _options(table: Mapping[str, Entry], backend: str) -> dict[str, str]:
    known = section_names()
    for key in known:
        if key in table and key != backend:
            table[key].report(f"has no effect without `backend: {key}`")
    if backend not in known or backend not in table:
        return {}
    return section_reader(backend)(table[backend], job=False)


# ---- nodes ------------------------------------------------------------------------------


def _nodes(entry: Entry) -> tuple[tuple[Node, ...], str]:
    """The nodes, and the user that logs in to them if their source names one; else ""."""
    if entry.kind == "map":
        if "from" not in entry.fields():
            entry.report("expected a list: `- {name: n1, slots: 8}`, or `from:` with a source")
            return (), ""
        return _from_source(entry)
    return _listed(entry), ""


def _from_source(entry: Entry) -> tuple[tuple[Node, ...], str]:
    """The nodes that another list has; what the table says besides
    is so for all of them, and wins.
    """
    table = entry.section(SOURCE_KEYS, ("from",))
    found = read_source(table["from"]) if "from" in table else None
    if found is None:
        return (), ""
    common = _node_values(table)
    nodes = tuple(
        Node(
            name=one.name,
            address="" if one.address == LOCAL else one.address,
            here=one.address == LOCAL,
            **{**_said_of(one), **common},
        )
        for one in found.nodes
    )
    return nodes, found.users[0] if len(found.users) == 1 else ""


def _said_of(listed: ListedNode) -> dict[str, Any]:
    said = {"port": listed.port, "slots": listed.slots}
    return {key: value for key, value in said.items() if value}


def _listed(entry: Entry) -> tuple[Node, ...]:
    seen: dict[str, int] = {}
    nodes: list[Node] = []
    here = 0
    for item in entry.items():
        for node in _node_set(item):
            line = item.node.start_mark.line + 1
            if node.name in seen:
                item.report(f"node `{node.name}` is given twice; first on line {seen[node.name]}")
                continue
            seen[node.name] = line
            nodes.append(node)
            here += node.here
            if node.here and here > 1:
                item.report(f"only one node can have `address: {LOCAL}`: it is this machine")
    if not nodes and not entry.problems:
        entry.report("a cluster needs at least one node")
    return tuple(nodes)


def _node_set(item: Entry) -> tuple[Node, ...]:
    """The nodes of one line, which differ only in name and address."""
    if item.kind == "str":
        return tuple(Node(name=name) for name in document.read_node_names(item))
    if item.kind != "map":
        item.text()
        return ()
    table = item.section(NODE_KEYS, ("name",), _OF_SSH)
    found = document.read_node_names(table["name"]) if "name" in table else ()
    addresses = _paired(table, found)
    common = _node_values(table)
    return tuple(
        # To the other nodes, this machine has its name.
        Node(name=name, address="", here=True, **common)
        if address == LOCAL
        else Node(name=name, address=address, **common)
        for name, address in zip(found, addresses, strict=True)
    )


def _paired(table: Mapping[str, Entry], found: tuple[str, ...]) -> tuple[str, ...]:
    nothing = ("",) * len(found)
    if "address" not in table:
        return nothing
    addresses = document.read_addresses(table["address"])
    if addresses and found and len(addresses) != len(found):
        table["address"].report(f"{len(addresses)} addresses for {len(found)} nodes")
    return addresses if len(addresses) == len(found) else nothing


def _node_values(table: Mapping[str, Entry]) -> dict[str, Any]:
    limits = {
        "port": (22, 1, 65535),
        "slots": (1, 1, 65536),
        "gpus": (0, 0, 1024),
        "rdma": (0, 0, 1024),
    }
    values: dict[str, Any] = {
        key: table[key].integer(default, least=least, most=most)
        for key, (default, least, most) in limits.items()
        if key in table
    }
    if "interface" in table:
        values["interface"] = document.read_interface(table["interface"])
    if "leaf" in table:
        values["leaf"] = document.read_name(table["leaf"])
    if "python" in table:
        values["pythons"] = _pythons(table["python"])
    return values


def _pythons(entry: Entry) -> tuple[str, ...]:
    """One Python, or several to try in order: names, paths, `~/…`,
    patterns such as /opt/*/bin/python3.
    """
    found = entry.words() if entry.kind == "seq" else (entry.word(),)
    for one in found:
        if not one or one.startswith("-") or not one.isprintable():
            entry.report("each Python is the name or path of a program on the node")
    return found


# ---- the rest ---------------------------------------------------------------------------


def _access(entry: Entry) -> Access:
    instead = "use a key (`identity: FILE`) or an SSH agent"
    table = entry.section(SSH_KEYS, refused={**no_secrets(instead), "port": _OF_NODE})
    limit = table["connect_limit"].number(10, least=1, most=600) if "connect_limit" in table else 10
    config = take_text(table, "config")
    text = None if config in ("", "none") else may_run(table["config"], config)
    asks_for(table, ("identity", "known_hosts"))
    return Access(
        user=document.read_user_name(table["user"]) if "user" in table else "",
        identity=take_text(table, "identity"),
        known_hosts=take_text(table, "known_hosts"),
        config=config,
        config_text=text,
        pythons=_pythons(table["python"]) if "python" in table else (),
        connect_limit=limit,
        waits=table["patience"].number(1, least=1, most=100) if "patience" in table else 1.0,
        logins=table["logins"].integer(1, least=1, most=1000) if "logins" in table else 0,
        folder=_folder(table["folder"]) if "folder" in table else "",
        transport=_transport(table["transport"]) if "transport" in table else None,
    )


def _allocation_of(table: Mapping[str, Entry], transport: Transport | None) -> str:
    """The number of the allocation whose nodes srun reaches; "" for other transports."""
    if transport is not Transport.SRUN:
        return ""
    nodes = table.get("nodes")
    source = nodes.fields().get("from") if nodes is not None and nodes.kind == "map" else None
    kind, _, number = (source.text() if source is not None else "").strip().partition(" ")
    if kind != "allocation":
        table["ssh"].report("`transport: srun` needs `nodes: {from: allocation}`")
    return number.strip() or allocation_here(os.environ)


def _folder(entry: Entry) -> str:
    folder = entry.text().rstrip("/")
    if not folder.startswith(("/", "~/")):
        entry.report("a path that begins with `/` or `~/`")
    return folder


def _transport(entry: Entry) -> Transport:
    words = tuple(one.value for one in Transport)
    return Transport(entry.choice(words, Transport.ASYNCSSH.value))


def _broker(entry: Entry) -> Broker | None:
    instead = "use `password_env: VARIABLE` or `password_file: FILE`"
    table = entry.section(BROKER_KEYS, refused=no_secrets(instead))
    if "url" not in table:
        entry.report("`url` is missing")
        return None
    host, port, tls, _ = document.read_url(table["url"], SCHEMES, instead)
    if "password_env" in table and "password_file" in table:
        entry.report("give `password_env` or `password_file`, not both")
    reach = table["reach"].choice(("direct", "ssh"), "direct") if "reach" in table else "direct"
    period = table["sample_period"].number(1, least=1, most=15) if "sample_period" in table else 0.0
    texts = {
        key: take_text(table, key)
        for key in (
            "ca_file",
            "username",
            "password_env",
            "password_file",
            "agents_file",
        )
    }
    if tls and reach == "ssh":
        entry.report("`reach: ssh` is for mqtt:// only; SSH encrypts it already")
    asks_for(table, ("ca_file", "password_file", "agents_file"), f"{host}:{port}")
    return Broker(host=host, port=port, tls=tls, reach=reach, sample_period=period, **texts)


def _switches(entry: Entry, nodes: Sequence[Node]) -> tuple[Switch, ...]:
    known = {node.name for node in nodes}
    switches: dict[str, Switch] = {}
    for item in entry.items():
        switch = _switch(item, known)
        if switch.name in switches:
            item.report(f"switch `{switch.name}` is given twice; write all its ports in one entry")
        switches.setdefault(switch.name, switch)
    return tuple(switches.values())


def _switch(entry: Entry, known: set[str]) -> Switch:
    instead = "use `password_env: VARIABLE`"
    table = entry.section(SWITCH_KEYS, ("name", "ports"), no_secrets(instead))
    host = take_text(table, "address") or take_text(table, "name")
    asks_for(table, ("ca_file",), host)
    return Switch(
        name=document.read_name(table["name"]) if "name" in table else "",
        address=document.read_address(table["address"]) if "address" in table else "",
        port=table["port"].integer(9339, least=1, most=65535) if "port" in table else 9339,
        tls=table["tls"].truth(default=True) if "tls" in table else True,
        ca_file=take_text(table, "ca_file"),
        user=document.read_user_name(table["user"]) if "user" in table else "",
        password_env=take_text(table, "password_env"),
        ports=_switch_ports(table["ports"], known) if "ports" in table else {},
    )


def _switch_ports(entry: Entry, known: set[str]) -> dict[str, str]:
    ports: dict[str, str] = {}
    for port, value in entry.fields().items():
        text = value.text()
        node, _, device = text.partition(":")
        if text and (not device or node not in known):
            value.report(f"`{text[:60]}` is no port of a node here; write NODE:mlx5_0/1")
        elif text:
            ports[port] = text
    return ports


def _network(entry: Entry) -> str:
    text = entry.text()
    try:
        return str(ipaddress.ip_network(text)) if text else ""
    except ValueError:
        entry.report(f"`{text[:60]}` is not a network; write it as {_network_of(text)}")
        return ""


def _network_of(text: str) -> str:
    """The network of an address with the length of its prefix; an example for anything else."""
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        return "10.0.0.0/24"


def _expect(entry: Entry) -> dict[str, str | int | float]:
    """The values that health is compared with; numbers stay numbers."""
    values: dict[str, str | int | float] = {}
    for key, value in entry.fields().items():
        if meant := _misspelt(key):
            value.report(f"unknown key `{key[:60]}`; did you mean `{meant}`?")
        elif key in COUNTED and value.kind not in ("int", "float"):
            value.number(most=1e18)
        elif value.kind == "int":
            values[key] = value.integer(most=1 << 62)
        elif value.kind == "float":
            values[key] = value.number(most=1e18)
        elif value.kind == "seq":
            values[key] = ", ".join(value.words())
        else:
            values[key] = value.word()
    return values


def _misspelt(key: str) -> str:
    """The known key that `key` probably means, or "".

    Other keys are allowed: they are entries of the inventory.
    """
    close = difflib.get_close_matches(key[:60], EXPECTED, n=1, cutoff=0.85)
    return close[0] if close and key not in EXPECTED else ""


def _simulate(entry: Entry) -> tuple[str, ...]:
    return tuple(filter(None, map(_made_up, entry.items())))


def _made_up(entry: Entry) -> str:
    word = entry.text()
    known = word.partition("@")[0] in SIMULATED
    return word if known else entry.choice(SIMULATED)


ExpectedValue = str | int | float


def expect_block(values: Mapping[str, ExpectedValue], notes: Mapping[str, str]) -> str:
    """The `expect:` block as YAML; notes become comments."""
    if not values and not notes:
        return "expect: {}\n"
    lines = ["expect:" if values else "expect: {}"]
    for key, value in values.items():
        note = f"   # {notes[key]}" if key in notes else ""
        lines.append(f"  {key}: {write_on_one_line(value)}{note}")
    lines += [f"  # {key}: {note}" for key, note in notes.items() if key not in values]
    return "\n".join(lines) + "\n"


def with_block(text: str, new: str) -> str:
    """The text of a cluster file with its `expect:` block replaced by
    `new`, or `new` added at the end.
    """
    root = document.compose_document(text)
    lines = text.splitlines(keepends=True)
    if isinstance(root, yaml.MappingNode):
        for key, value in root.value:
            if key.value == "expect":
                first, last = key.start_mark.line, value.end_mark.line
                if value.end_mark.column:
                    last += 1
                last = _without_tail(lines, first, last)
                return "".join((*lines[:first], new, *lines[last:]))
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{end}\n{new}"


def _without_tail(lines: list[str], first: int, last: int) -> int:
    """The end of a block without the empty lines and unindented comments
    after it, which belong to what follows.
    """
    while last > first + 1 and (not lines[last - 1].strip() or lines[last - 1].startswith("#")):
        last -= 1
    return last


def write_block(path: Path, values: Mapping[str, ExpectedValue], notes: Mapping[str, str]) -> None:
    """Write these values into the `expect:` block of the cluster file,
    atomically; other entries of the block stay.

    Raises ConfigError if the file cannot be read or written, or the
    result would not be a valid cluster file.
    """
    path = real_path(path)
    before, text = read_cluster(path), read_text(path)
    document.parse_document(path, text)  # it may have changed in between
    made = with_block(text, expect_block({**before.expect, **values}, notes))
    try:
        with replace_file(path, mode=path.stat().st_mode & 0o777) as file:
            file.write(made.encode())
            file.flush()
            read_cluster(Path(file.name))
    except OSError as error:
        why = f"cannot be written: {error.strerror or error}"
        raise ConfigError([Problem(str(path), 1, 1, "file", why)]) from error


SIZE_LIMIT = 4 << 20


def read_accounts(path: str) -> Mapping[str, str]:
    """Name -> password of each agent's account; {} if there is no
    such file yet. Raises BrokerError.

    Called for each agent that starts, so the file is read again only if it has changed.
    """
    file = expand_path(path)
    try:
        seen = file.stat()
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return _read(file, path, (seen.st_dev, seen.st_ino, seen.st_ctime_ns, seen.st_size))


@lru_cache(1)
def _read(file: Path, path: str, version: tuple[int, ...]) -> Mapping[str, str]:
    del version
    try:
        text = read_regular(file, SIZE_LIMIT).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error
    pairs = (line.partition(":") for line in text.splitlines() if line.strip())
    accounts = {name: password for name, _, password in pairs}
    if hashed := [n for n, p in accounts.items() if p.startswith("$") or not p]:
        raise BrokerError(
            f"{path}: the password of {document.replace_unprintable(hashed[0][:60])} is missing or"
            " hashed; keep the plain text here and hash a copy for the broker"
            " (mosquitto_passwd -U)"
        )
    return MappingProxyType(accounts)


def _unreadable(path: str, error: Exception) -> BrokerError:
    why = getattr(error, "strerror", "") or error
    return BrokerError(f"cannot read the agents' accounts in {path}: {why}")


def with_new_accounts(accounts: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """`accounts`, with a random password for each name that has none."""
    from secrets import token_urlsafe  # loads OpenSSL, which reading a file does not need

    fresh = {name: token_urlsafe(24) for name in names if name not in accounts}
    return {**accounts, **fresh}


def write_accounts(path: str, accounts: Mapping[str, str]) -> None:
    """Replace the file atomically, readable only by its owner; raises BrokerError."""
    target = expand_path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_user_file(target, "".join(f"{name}:{word}\n" for name, word in accounts.items()))
    except OSError as error:
        raise BrokerError(
            f"cannot write the agents' accounts to {path}: {error.strerror or error}"
        ) from error
