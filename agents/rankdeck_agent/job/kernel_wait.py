"""What a process waits for in the kernel: its system call, with the file, the file system or the
peer that it is about.
"""

import os
import platform
import struct
from pathlib import Path
from typing import Any, NamedTuple, Optional

from rankdeck_agent.job.processes import read_own_state, read_proc_word
from rankdeck_agent.job.tcp_sockets import read_tcp_sockets, socket_inode
from rankdeck_agent.text import plain_line

_PROC = Path("/proc")
_MOST_BYTES = 1 << 20
_X86 = {
    0: "read", 1: "write", 7: "poll", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv",
    20: "writev", 23: "select", 35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto",
    45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock",
    74: "fsync", 75: "fdatasync", 202: "futex", 230: "clock_nanosleep", 232: "epoll_wait",
    247: "waitid", 257: "openat", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait",
    288: "accept4",
}  # fmt: skip
_ARM = {
    22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 56: "openat", 63: "read",
    64: "write", 65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64", 72: "pselect6",
    73: "ppoll", 82: "fsync", 83: "fdatasync", 95: "waitid", 98: "futex", 101: "nanosleep",
    115: "clock_nanosleep", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom",
    211: "sendmsg", 212: "recvmsg", 242: "accept4", 260: "wait4",
}  # fmt: skip
_CALLS = {"x86_64": _X86, "aarch64": _ARM}
"""Kind of machine -> number of a system call -> its name; only of calls that may wait."""
_OF_FILE = frozenset(
    ("read", "write", "pread64", "pwrite64", "readv", "writev", "ioctl", "fcntl", "flock", "fsync",
     "fdatasync", "connect", "accept", "accept4", "sendto", "recvfrom", "sendmsg", "recvmsg")
)  # fmt: skip
"""Calls whose first argument is a file descriptor."""

Row = dict[str, Any]


class _Mount(NamedTuple):
    place: str
    kind: str
    source: str


def describe_wait(pid: int) -> Row:
    """Facts of what its main thread waits for, each if it is known: `state` (as in /proc), `call`,
    `file`, `kind` and `source` of the file system it lies on, `peer` (address:port).
    """
    found: Row = {"state": read_own_state(pid)}
    words = read_proc_word(_PROC / str(pid) / "syscall").split()
    names = _CALLS.get(platform.machine(), {})
    if len(words) != 9 or not words[0].isdigit() or int(words[0]) not in names:
        return found
    call = found["call"] = names[int(words[0])]
    arguments = [int(word, 16) for word in words[1:7]]
    if call in _OF_FILE:
        found.update(_of_descriptor(pid, arguments[0]))
    elif call in ("poll", "ppoll") and arguments[1] == 1:
        found.update(_of_descriptor(pid, _polled(pid, arguments[0])))
    elif call == "openat":
        found.update(_of_file(pid, _string(pid, arguments[1])))
    elif call in ("epoll_wait", "epoll_pwait"):
        found.update(_of_epoll(pid, arguments[0]))
    return found


def _of_descriptor(pid: int, number: int) -> Row:
    try:
        target = os.readlink(f"{_PROC}/{pid}/fd/{number}")
    except OSError:
        return {}
    inode = socket_inode(target)
    if inode:
        peers = (one.peer for one in read_tcp_sockets(str(pid)) if one.inode == inode)
        peer = next(peers, "")
        return {"peer": peer} if peer else {}
    if target.startswith("/"):
        return _of_file(pid, target)
    return {"file": plain_line(target.partition(":")[0], 40)}  # a pipe, an event


def _of_epoll(pid: int, number: int) -> Row:
    """The peer, if it is the only one for which the process waits."""
    try:
        text = (_PROC / str(pid) / "fdinfo" / str(number)).read_text(errors="replace")
    except OSError:
        return {}
    watched = [line.split()[1] for line in text.splitlines()[:200] if line.startswith("tfd:")]
    peers = {_of_descriptor(pid, int(one)).get("peer") for one in watched if one.isdigit()} - {None}
    return {"peer": peers.pop()} if len(peers) == 1 else {}


def _of_file(pid: int, path: str) -> Row:
    if not path:
        return {}
    row: Row = {"file": plain_line(path, 300)}
    mount = _mount_of(pid, path)
    if mount:
        row.update(kind=mount.kind, source=mount.source)
    return row


def _mount_of(pid: int, path: str) -> Optional[_Mount]:
    try:
        text = (_PROC / str(pid) / "mountinfo").read_text(errors="replace")[:_MOST_BYTES]
    except OSError:
        return None
    found: Optional[_Mount] = None
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) < 5 or len(rest) < 2:
            continue
        place = fields[4].replace("\\040", " ")
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if inside and (found is None or len(place) >= len(found.place)):
            found = _Mount(place, plain_line(rest[0], 30), plain_line(rest[1], 100))
    return found


def _memory(pid: int, address: int, size: int) -> bytes:
    try:
        with (_PROC / str(pid) / "mem").open("rb", 0) as memory:
            return os.pread(memory.fileno(), size, address)
    except (OSError, OverflowError):
        return b""


def _polled(pid: int, address: int) -> int:
    data = _memory(pid, address, 4)
    return int(struct.unpack("=i", data)[0]) if len(data) == 4 else -1


def _string(pid: int, address: int) -> str:
    # A page at most: the next one may not be mapped.
    data = _memory(pid, address, 4096 - address % 4096)
    return data.partition(b"\0")[0].decode("utf-8", "replace")
