"""The TCP sockets of processes: who is connected to whom, who seeks whom, who listens."""

import os
import re
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_MOST_BYTES = 1 << 20
_OPEN, _SEEKS, _LISTENS = "01", "02", "0A"
"""States of a TCP socket in /proc/net/tcp."""
_SOCKET = re.compile(r"socket:\[(\d+)\]$")
_MOST_ENDS, _MOST_FILES = 16, 4096


class TcpSocket(NamedTuple):
    """One TCP socket of a network; addresses are `address:port`."""

    inode: int
    state: str
    own: str
    peer: str
    """"" if it has none."""
    user: int


def read_tcp_sockets(pid: str) -> "Iterator[TcpSocket]":
    """The TCP sockets of the network of this process (`self`: our own)."""
    for name in ("tcp", "tcp6"):
        try:
            text = (_PROC / pid / "net" / name).read_text(errors="replace")[:_MOST_BYTES]
        except OSError:
            continue
        for line in text.splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[9].isdigit():
                peer = "" if words[2].endswith(":0000") else _address(words[2])
                yield TcpSocket(int(words[9]), words[3], _address(words[1]), peer, int(words[7]))


def socket_inode(target: str) -> int:
    """The inode of a socket by the target of a link in /proc/PID/fd; 0 if that is none."""
    match = _SOCKET.match(target)
    return int(match[1]) if match else 0


def find_listening_users(port: int) -> "set[int]":
    """The user ids whose processes listen at this TCP port, in the network of this process."""
    listens = (one for one in read_tcp_sockets("self") if one.state == _LISTENS)
    return {one.user for one in listens if one.own.endswith(f":{port}")}


def list_connections(ranks: "Mapping[int, Iterable[int]]") -> "dict[int, dict[str, list[str]]]":
    """Rank -> {"own": its own ends, "peers": the other ends, "seeks": where it tries to connect} of
    the connections of these ranks with their processes; {} of a rank that has many: it has long met
    the others. The sockets of each network are read once.
    """
    networks: dict[str, list[TcpSocket]] = {}
    found: dict[int, dict[str, list[str]]] = {}
    for rank, pids in ranks.items():
        mine = [one for pid in pids for one in _sockets_of(pid, networks)]
        linked = [one for one in mine if one.state == _OPEN]
        ends = {
            "own": sorted({one.own for one in linked}),
            "peers": sorted({one.peer for one in linked}),
            "seeks": sorted({one.peer for one in mine if one.state == _SEEKS}),
        }
        found[rank] = {} if max(map(len, ends.values())) > _MOST_ENDS else ends
    return found


def _sockets_of(pid: int, networks: "dict[str, list[TcpSocket]]") -> "list[TcpSocket]":
    """The sockets of a process, if it still runs; `networks` keeps those that were read."""
    inodes: set[int] = set()
    try:
        network = os.readlink(f"{_PROC}/{pid}/ns/net")
        names = os.listdir(f"{_PROC}/{pid}/fd")[:_MOST_FILES]  # noqa: PTH208
    except OSError:
        return []
    for name in names:
        with suppress(OSError):  # it may close one meanwhile
            inodes.add(socket_inode(os.readlink(f"{_PROC}/{pid}/fd/{name}")))
    if network not in networks:
        networks[network] = list(read_tcp_sockets(str(pid)))
    return [one for one in networks[network] if one.inode and one.inode in inodes]


def _address(text: str) -> str:
    host, _, port = text.partition(":")
    words = struct.pack(
        f"={len(host) // 8}I", *(int(host[i : i + 8], 16) for i in range(0, len(host), 8))
    )
    if len(words) == 16 and words[:12] == b"\0" * 10 + b"\xff\xff":
        words = words[12:]
    name = socket.inet_ntop(socket.AF_INET if len(words) == 4 else socket.AF_INET6, words)
    return f"{name}:{int(port, 16)}" if len(words) == 4 else f"[{name}]:{int(port, 16)}"
