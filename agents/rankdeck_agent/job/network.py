"""The job network on this node: our address and interface in it, the RDMA ports that
lead there, and the tokens of a plan that stand for them.
"""

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Optional, Union

from rankdeck_agent.older_python import find_paths
from rankdeck_agent.text import plain_line
from rankdeck_agent.values import Value, replace
from rankdeck_agent.wire import ADDRESS_TOKEN, DEVICES_TOKEN, INTERFACE_TOKEN, NodePlan, ProcessPlan

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
_GET_ADDRESSES, _NEW_ADDRESS, _END, _ERROR = 22, 20, 3, 2
_REQUEST_ALL = 0x301
_HEAD, _OF_ADDRESS = struct.Struct("=IHHII"), struct.Struct("=BBBBI")
_ADDRESS, _LOCAL = 1, 2
_LIMIT = 5.0
_MOST_NAMED = 6
_LINK_LOCAL = 253
"""Scopes of addresses from this one on are only good on one link, or one machine."""


class NetworkError(Exception):
    """The node has no place in the job network; the text is a sentence."""


class OwnAddress(Value):
    """An address of this node."""

    interface: str
    address: Address


class NetworkPlace(Value):
    """What this node has in the job network."""

    address: str
    interface: str
    devices: str
    """The RDMA ports that lead there, and the interface, as UCX names them: `mlx5_0:1,eth1`."""


def own_addresses() -> list[OwnAddress]:
    """All addresses that other machines can use, as the kernel tells them; raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.settimeout(_LIMIT)
        asked = _OF_ADDRESS.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        link.send(_HEAD.pack(_HEAD.size + len(asked), _GET_ADDRESSES, _REQUEST_ALL, 1, 0) + asked)
        found: list[OwnAddress] = []
        while True:
            for kind, body in _messages(link.recv(1 << 16)):
                if kind in (_END, _ERROR):
                    return found
                one = _own_address(body) if kind == _NEW_ADDRESS else None
                found += [one] if one else []


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and body of each message of the kernel."""
    while len(data) >= _HEAD.size:
        size, kind, _, _, _ = _HEAD.unpack_from(data)
        yield kind, data[_HEAD.size : size]
        data = data[max(_HEAD.size, (size + 3) & ~3) :]


def _own_address(body: bytes) -> Optional[OwnAddress]:
    """The address in a message; None if it is only good on a link or on this machine."""
    _, _, _, scope, index = _OF_ADDRESS.unpack_from(body)
    parts = dict(_attributes(body[_OF_ADDRESS.size :]))
    packed = parts.get(_LOCAL) or parts.get(_ADDRESS)
    if packed is None or scope >= _LINK_LOCAL:
        return None
    try:
        return OwnAddress(socket.if_indextoname(index), ipaddress.ip_address(packed))
    except (OSError, ValueError):
        return None


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        size, kind = struct.unpack_from("=HH", data)
        yield kind, data[4:size]
        data = data[max(4, (size + 3) & ~3) :]


def find_network_place(network: str, interface: str, sys_tree: Path = Path("/sys")) -> NetworkPlace:
    """Our place in this network (CIDR), or on this interface, or both: the interface decides.

    Raises NetworkError, which names what is there.
    """
    try:
        known = own_addresses()
    except OSError as error:
        raise NetworkError(f"the addresses of this node cannot be read: {error}") from error
    inside = [one for one in known if _is_inside(one.address, network)]
    if interface:
        there = [one for one in known if one.interface == interface]
        mine = [one for one in there if one in inside] or there
    else:
        mine = inside
    if not mine:
        raise NetworkError(_absent(network, interface, known))
    names = [interface] if interface else list(dict.fromkeys(one.interface for one in mine))
    return NetworkPlace(
        str(mine[0].address), mine[0].interface, ",".join([*_rdma_ports(names, sys_tree), *names])
    )


def _is_inside(address: Address, network: str) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _absent(network: str, interface: str, known: list[OwnAddress]) -> str:
    lacking = f"interface {interface}" if interface else f"the job network {network}"
    rows = [f"{one.interface} {one.address}" for one in known[:_MOST_NAMED]]
    return plain_line(f"no address in {lacking}; there are: {', '.join(rows) or 'none'}", 300)


def _rdma_ports(interfaces: list[str], sys_tree: Path) -> list[str]:
    """The RDMA ports of these interfaces, and all of InfiniBand, which no Ethernet reaches."""
    found: list[str] = []
    for port in find_paths(sys_tree / "class/infiniband", "*/ports/*"):
        devices = {_first_line(file) for file in find_paths(port, "gid_attrs/ndevs/*")} - {""}
        if _first_line(port / "link_layer") == "InfiniBand" or devices & set(interfaces):
            found.append(f"{port.parent.parent.name}:{port.name}")
    return found


def _first_line(file: Path) -> str:
    try:
        return os.fsdecode(file.read_bytes()[:256]).partition("\n")[0]
    except OSError:  # an entry of the table that is not used cannot be read
        return ""


def fill_network(plan: NodePlan) -> tuple[NodePlan, str]:
    """The plan with our place in the job network filled in, and a sentence for the operator or "".

    A variable without a value is left out; raises NetworkError if a command needs it.
    """
    texts = [*plan.env.values(), *(word for one in plan.processes for word in _texts(one))]
    if not any(_has_token(text) for text in texts):
        return plan, ""
    try:
        place = find_network_place(plan.network, plan.interface)
    except NetworkError as error:
        if any(_has_token(word) for one in plan.processes for word in one.argv):
            raise
        lacking = [key for key, value in plan.env.items() if _has_token(value)]
        return _with_place(plan, None), f"{error}: {', '.join(lacking)} are not set"
    return _with_place(plan, place), ""


def _texts(process: ProcessPlan) -> list[str]:
    return [*process.argv, *process.env.values()]


def _has_token(text: str) -> bool:
    return any(token in text for token in (ADDRESS_TOKEN, INTERFACE_TOKEN, DEVICES_TOKEN))


def _with_place(plan: NodePlan, place: Optional[NetworkPlace]) -> NodePlan:
    def fill(text: str) -> str:
        if place is None:
            return text
        text = text.replace(ADDRESS_TOKEN, place.address)
        return text.replace(INTERFACE_TOKEN, place.interface).replace(DEVICES_TOKEN, place.devices)

    def filled(env: Mapping[str, str]) -> dict[str, str]:
        kept = {key: value for key, value in env.items() if place or not _has_token(value)}
        return {key: fill(value) for key, value in kept.items()}

    processes = tuple(
        replace(one, argv=tuple(map(fill, one.argv)), env=filled(one.env)) for one in plan.processes
    )
    return replace(plan, env=filled(plan.env), processes=processes)
