"""Finds the RDMA ports of this machine in /sys and describes them: firmware, type,
GIDs, network devices.
"""

import re
import socket
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from rankdeck_agent.collectors.rdma_ports import BASE, Port, RdmaCounter
from rankdeck_agent.rdma_counters import TOPS, WRAPS
from rankdeck_agent.rdma_gids import read_gids
from rankdeck_agent.system_files import Tree
from rankdeck_agent.text import clean_text

_PORT_LIMIT = 64
_COUNTER_LIMIT = 256
_GID_LIMIT = 8
_MAPPED = re.compile(r"0000:0000:0000:0000:0000:ffff:([0-9a-f]{4}):([0-9a-f]{4})")


def find_rdma_ports(tree: Tree, exclude: Sequence[str] = ()) -> list[Port]:
    """The ports of this machine with their counters, which are not read yet."""
    found: list[Port] = []
    for device in tree.names(BASE):
        if (
            clean_text(device) != device
            or is_excluded_device(device, exclude)
            or _unassigned(tree, device)
        ):
            continue
        numbers = [n for n in tree.names(f"{BASE}/{device}/ports") if n.isdecimal()]
        for number in ("", *numbers):
            port = Port(device, number)
            port.counters = _counters(tree, port)
            if number or port.counters:
                found.append(port)
    return found[:_PORT_LIMIT]


def _unassigned(tree: Tree, device: str) -> bool:
    """Whether it is a virtual function to which nobody has given a
    GUID: its ports are never ACTIVE.
    """
    guid = tree.maybe(f"{BASE}/{device}/node_guid")
    return bool(guid and not guid.strip("0:")) and tree.exists(f"{BASE}/{device}/device/physfn")


def is_excluded_device(device: str, patterns: Sequence[str]) -> bool:
    """Whether the configuration excludes this device."""
    return any(fnmatchcase(device, pattern) for pattern in patterns)


def _counters(tree: Tree, port: Port) -> list[RdmaCounter]:
    found: list[RdmaCounter] = []
    taken: set[str] = set()
    for folder in ("counters", "counters_ext", "hw_counters"):
        for name in tree.names(f"{port.path}/{folder}"):
            metric = f"rdma.{folder}.{clean_text(name).replace('/', '?')}"
            if metric in taken:
                continue
            taken.add(metric)
            top = TOPS.get(name, 0) if folder == "counters" else 0
            wraps = folder == "hw_counters" and name in WRAPS
            path = f"{port.path}/{folder}/{name}"
            found.append(RdmaCounter(path, metric, name, top, wraps))
    return found[:_COUNTER_LIMIT]


def describe_ports(root: str, ports: Iterable[Port], exclude: Sequence[str]) -> dict[str, str]:
    """Firmware, type, GIDs and network device of each port."""
    # A separate tree: files that are read once need not stay open.
    tree = Tree(root)
    found: dict[str, str] = {}
    for device in tree.names(BASE):
        if is_excluded_device(device, exclude):
            found[f"rdma.{clean_text(device)}.excluded"] = "by the agent's configuration"
    for port in ports:
        found.update(_identity(tree, port) if port.number else {})
    tree.close()
    return found


def _identity(tree: Tree, port: Port) -> dict[str, str]:
    rows = (
        ("fw", f"{BASE}/{port.device}/fw_ver"),
        ("type", f"{BASE}/{port.device}/hca_type"),
        ("board", f"{BASE}/{port.device}/board_id"),
        ("link", f"{port.path}/link_layer"),
        ("netdev", f"{port.path}/gid_attrs/ndevs/0"),
    )
    texts = {what: tree.maybe(path) for what, path in rows}
    if tree.exists(f"{BASE}/{port.device}/device/physfn"):
        texts["kind"] = "vf"
    found = {f"rdma.{port.key}.{what}": clean_text(t) for what, t in texts.items() if t}
    ethernet = texts["link"] == "Ethernet"
    entries = read_gids(Path(tree.path(port.path)))
    # RoCE v1 cannot be routed: not useful where there is v2.
    useful = [one for one in entries if not (ethernet and one.kind.endswith("RoCE v1"))]
    for entry in useful[:_GID_LIMIT]:
        words = filter(None, (entry.kind, gid_address(entry.gid), entry.device))
        found[f"rdma.{port.key}.gid.{entry.number}"] = clean_text(" ".join(words))
    return found


def gid_address(gid: str) -> str:
    """The GID, or the IPv4 address that it contains."""
    found = _MAPPED.fullmatch(gid)
    if found is None:
        return gid
    return socket.inet_ntoa(bytes.fromhex(found.group(1) + found.group(2)))
