"""The RDMA ports of a machine: which there are, and who they are."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Optional

from rankdeck_agent.collectors.rdma_names import TOPS, WRAPS
from rankdeck_agent.files import Tree, clean

BASE = "sys/class/infiniband"
_PORT_LIMIT = 64
_COUNTER_LIMIT = 256
_GID_LIMIT = 8
_MAPPED = re.compile(r"0000:0000:0000:0000:0000:ffff:([0-9a-f]{4}):([0-9a-f]{4})")


@dataclass
class Counter:
    """One file: how it answered so far."""

    path: str
    metric: str
    kernel_name: str
    top: int = 0
    """The number at which it sticks; 0: none."""
    wraps: bool = False
    value: Optional[int] = None
    raw: int = 0
    laps: int = 0
    failures: int = 0
    asked: float = 0.0
    error: str = ""
    ever: bool = False


Sum = tuple[str, list[tuple[Counter, int]]]
"""A common metric and the counters, each with its factor, that add up to it."""


@dataclass
class Port:
    """One port, or a whole device where the driver counts per device (`number` "")."""

    device: str
    number: str
    counters: list[Counter] = field(default_factory=list[Counter])
    bytes: list[Sum] = field(default_factory=list[Sum])
    sums: list[Sum] = field(default_factory=list[Sum])

    @property
    def key(self) -> str:
        return f"{self.device}/{self.number}" if self.number else self.device

    @property
    def path(self) -> str:
        base = f"{BASE}/{self.device}"
        return f"{base}/ports/{self.number}" if self.number else base


def find_ports(tree: Tree, exclude: Sequence[str] = ()) -> list[Port]:
    """The ports of this machine, each with its counters not yet read."""
    found: list[Port] = []
    for device in tree.names(BASE):
        if clean(device) != device or excluded(device, exclude):
            continue
        numbers = [n for n in tree.names(f"{BASE}/{device}/ports") if n.isdecimal()]
        for number in ("", *numbers):
            port = Port(device, number)
            port.counters = _counters(tree, port)
            if number or port.counters:
                found.append(port)
    return found[:_PORT_LIMIT]


def excluded(device: str, patterns: Sequence[str]) -> bool:
    """Whether the configuration says to leave a device alone."""
    return any(fnmatchcase(device, pattern) for pattern in patterns)


def _counters(tree: Tree, port: Port) -> list[Counter]:
    found: list[Counter] = []
    taken: set[str] = set()
    for folder in ("counters", "hw_counters"):
        for name in tree.names(f"{port.path}/{folder}"):
            metric = f"rdma.{folder}.{clean(name).replace('/', '?')}"
            if metric in taken:
                continue
            taken.add(metric)
            top = TOPS.get(name, 0) if folder == "counters" else 0
            wraps = folder == "hw_counters" and name in WRAPS
            path = f"{port.path}/{folder}/{name}"
            found.append(Counter(path, metric, name, top, wraps))
    return found[:_COUNTER_LIMIT]


def inventory(root: str, ports: Iterable[Port], exclude: Sequence[str]) -> dict[str, str]:
    """Firmware, type, GIDs and network device of each port."""
    # A tree of its own: what is read once need not stay open.
    tree = Tree(root)
    found: dict[str, str] = {}
    for device in tree.names(BASE):
        if excluded(device, exclude):
            found[f"rdma.{clean(device)}.excluded"] = "by the agent's configuration"
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
    found = {f"rdma.{port.key}.{what}": clean(t) for what, t in texts.items() if t}
    for index, gid in _gids(tree, port):
        found[f"rdma.{port.key}.gid.{index}"] = gid
    return found


def _gids(tree: Tree, port: Port) -> list[tuple[str, str]]:
    """`(index, "RoCE v2 192.168.0.4 eth0")`: what an engineer picks NCCL_IB_GID_INDEX from."""
    found: list[tuple[str, str]] = []
    indexes = (n for n in tree.names(f"{port.path}/gids") if n.isdecimal())
    for index in sorted(indexes, key=int):
        gid = tree.maybe(f"{port.path}/gids/{index}") or ""
        if not gid.strip("0:") or len(found) >= _GID_LIMIT:
            continue
        kind = tree.maybe(f"{port.path}/gid_attrs/types/{index}") or ""
        # Version 1 does not cross a router: nobody wants it where there is version 2.
        if kind.endswith("RoCE v1") and _ethernet(tree, port):
            continue
        device = tree.maybe(f"{port.path}/gid_attrs/ndevs/{index}") or ""
        found.append((index, clean(" ".join(filter(None, (kind, address(gid), device))))))
    return found


def _ethernet(tree: Tree, port: Port) -> bool:
    return tree.maybe(f"{port.path}/link_layer") == "Ethernet"


def address(gid: str) -> str:
    """A GID as it is usually written: an IPv4 address where it stands for one."""
    found = _MAPPED.fullmatch(gid)
    if found is None:
        return gid
    number = int(found.group(1) + found.group(2), 16)
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
