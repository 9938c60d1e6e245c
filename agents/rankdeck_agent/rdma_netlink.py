"""RDMA counters that have no file: mlx5's optional ones, and those of queue pairs, asked of the kernel by netlink."""

import json
import os
import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from rankdeck_agent.files import clean, reason

# linux include/uapi/rdma/rdma_netlink.h, include/uapi/linux/netlink.h
_NETLINK_RDMA, _NLDEV = 20, 5
_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3
_GET, _STAT_GET, _STAT_GET_STATUS = 1, 17, 24
_DEV_INDEX, _DEV_NAME, _PORT_INDEX = 1, 2, 3
_RES_QP, _LQPN = 19, 21
_QP_TYPE, _PID = 26, 28
_STAT_MODE, _STAT_RES = 74, 75
_COUNTER, _COUNTER_ID = 77, 79
_HWCOUNTERS, _NAME, _VALUE, _DYNAMIC = 80, 82, 83, 95
_TYPE_BITS = 0x3FFF
"""Without the marks for nested attributes and byte order."""
_HEAD = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_PATIENCE = 2.0
_BUFFER = 1 << 18
_MOST = 4096
"""Answers to one question, and counters in one answer."""
_MODES = {1: "auto", 2: "manual"}

Attributes = list[tuple[int, bytes]]


@dataclass(frozen=True)
class QueuePairs:
    """A counter that queue pairs are bound to, and what it counts."""

    port: int
    id: int
    mode: str
    """auto, or manual."""
    pid: Optional[int]
    """Of the process whose queue pairs it counts; None if it is bound by other things."""
    numbers: tuple[int, ...]
    """Of the queue pairs (lqpn)."""
    values: Mapping[str, int]
    """Kernel name -> number."""


class RdmaNetlink:
    """A socket to the kernel's RDMA devices; raises OSError everywhere. Used from one thread."""

    def __init__(self, asked: Optional[socket.socket] = None) -> None:
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        self._socket = asked or socket.socket(socket.AF_NETLINK, kind, _NETLINK_RDMA)
        self._socket.settimeout(_PATIENCE)
        self._number = 0

    def close(self) -> None:
        self._socket.close()

    def devices(self) -> dict[str, int]:
        """Name of each RDMA device -> the number by which the kernel is asked."""
        answers = map(dict, self._ask(_GET, _DUMP))
        return {_text(a[_DEV_NAME]): _whole(a[_DEV_INDEX]) for a in answers if _DEV_NAME in a}

    def optional(self, device: int, port: int) -> dict[str, bool]:
        """The counters of a port that must be switched on -> whether they are."""
        found: dict[str, bool] = {}
        for answer in self._ask(_STAT_GET_STATUS, 0, (_DEV_INDEX, device), (_PORT_INDEX, port)):
            for row in _hwcounters(dict(answer)):
                if _DYNAMIC in row and _NAME in row:
                    found[_text(row[_NAME])] = bool(row[_DYNAMIC][:1].strip(b"\0"))
        return found

    def counters(self, device: int, port: int) -> dict[str, int]:
        """All counters of a port that are on, files or not."""
        answers = self._ask(_STAT_GET, 0, (_DEV_INDEX, device), (_PORT_INDEX, port))
        return {k: v for answer in answers for k, v in _values(dict(answer)).items()}

    def queue_pairs(self, device: int) -> list[QueuePairs]:
        """What is counted for single queue pairs of a device."""
        wanted = ((_DEV_INDEX, device), (_STAT_RES, _RES_QP))
        answers = self._ask(_STAT_GET, _DUMP, *wanted)
        return [one for answer in answers for one in _bound(answer)]

    def _ask(self, command: int, flags: int, *wanted: tuple[int, int]) -> list[Attributes]:
        self._number += 1
        body = b"".join(_ATTRIBUTE.pack(8, kind) + struct.pack("=I", n) for kind, n in wanted)
        kind = (_NLDEV << 10) + command
        size = _HEAD.size + len(body)
        head = _HEAD.pack(size, kind, _REQUEST | flags, self._number, 0)
        self._socket.send(head + body)
        found: list[Attributes] = []
        while len(found) < _MOST:
            for kind, number, part in _messages(self._socket.recv(_BUFFER)):
                if number != self._number:
                    continue
                if kind in (_ERROR, _DONE):
                    _refused(part)
                    return found
                found.append(list(attributes(part)))
            if found and not flags:
                break
        return found


def _refused(part: bytes) -> None:
    error = -struct.unpack_from("=i", part)[0] if len(part) >= 4 else 0
    if error:
        raise OSError(error, os.strerror(error))


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """`(type, number of the question, rest)` of each message in an answer."""
    at = 0
    while at + _HEAD.size <= len(data):
        size, kind, _, number, _ = _HEAD.unpack_from(data, at)
        if size < _HEAD.size:
            return
        yield kind, number, data[at + _HEAD.size : at + size]
        at += (size + 3) & ~3


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """`(number, bytes)` of each netlink attribute; what is cut off at the end is left out."""
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        size, kind = _ATTRIBUTE.unpack_from(data, at)
        if size < _ATTRIBUTE.size or at + size > len(data):
            return
        yield kind & _TYPE_BITS, data[at + _ATTRIBUTE.size : at + size]
        at += (size + 3) & ~3


def _hwcounters(answer: Mapping[int, bytes]) -> Iterator[Mapping[int, bytes]]:
    for _, entry in list(attributes(answer.get(_HWCOUNTERS, b"")))[:_MOST]:
        yield dict(attributes(entry))


def _values(answer: Mapping[int, bytes]) -> dict[str, int]:
    rows = [row for row in _hwcounters(answer) if _NAME in row and _VALUE in row]
    return {_text(row[_NAME]): _whole(row[_VALUE]) for row in rows}


def _bound(answer: Attributes) -> Iterator[QueuePairs]:
    """The counters in one part of a list."""
    for _, entry in attributes(dict(answer).get(_COUNTER, b"")):
        row = dict(attributes(entry))
        pairs = [dict(attributes(pair)) for _, pair in attributes(row.get(_RES_QP, b""))]
        yield QueuePairs(
            port=_whole(row.get(_PORT_INDEX, b"")),
            id=_whole(row.get(_COUNTER_ID, b"")),
            mode=_MODES.get(_whole(row.get(_STAT_MODE, b"")), "none"),
            pid=_whole(row[_PID]) if _PID in row else None,
            numbers=tuple(_whole(pair[_LQPN]) for pair in pairs if _LQPN in pair),
            values=_values(row),
        )


def _whole(data: bytes) -> int:
    return int.from_bytes(data, sys.byteorder)


def _text(data: bytes) -> str:
    return clean(data.partition(b"\0")[0].decode("utf-8", "replace"))


_NOT_BOUND = (
    "rankdeck-agent: {}: no queue pair is bound to a counter. As root, "
    "`rdma statistic qp set link {}/1 auto pid on` has the driver count new ones for each process"
)


def main(device: str) -> int:
    """Print what is counted for queue pairs, one JSON object a line; the exit status.

    `device`: an RDMA device, "" for all. Keys: device, port, counter, mode, pid, command, queue_pairs, values.
    """
    try:
        kernel = RdmaNetlink()
        known = kernel.devices()
        if device and device not in known:
            raise FileNotFoundError(0, f"no RDMA device {clean(device)!r} here")
        for name, index in known.items():
            if device in ("", name):
                _print_all(name, kernel.queue_pairs(index))
    except OSError as error:
        print(f"rankdeck-agent: {_why(error)}", file=sys.stderr)
        return 1
    if not known:
        print("rankdeck-agent: no RDMA device on this machine", file=sys.stderr)
    return 0


def _why(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return error.strerror or ""
    return f"the kernel was asked for RDMA counters: {reason(error)}"


def _print_all(name: str, bound: list[QueuePairs]) -> None:
    if not bound:
        print(_NOT_BOUND.format(name, name), file=sys.stderr)
    for one in bound:
        row = {"device": name, "port": one.port, "counter": one.id, "mode": one.mode,
               "pid": one.pid, "command": _command(one.pid), "queue_pairs": one.numbers,
               "values": one.values}  # fmt: skip
        print(json.dumps(row))


def _command(pid: Optional[int]) -> Optional[str]:
    try:
        return clean(
            Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        )
    except OSError:
        return None
