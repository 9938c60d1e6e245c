"""Asks the kernel for RDMA counters by netlink: optional ones, which have no file, and
those of single queue pairs.
"""

import os
import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import Optional

from rankdeck_agent.text import clean_text
from rankdeck_agent.values import Value

# linux include/uapi/rdma/rdma_netlink.h, include/uapi/linux/netlink.h
_NETLINK_RDMA, _NLDEV = 20, 5
_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3
_GET, _QP_GET, _STAT_GET, _STAT_GET_STATUS = 1, 10, 17, 24
_DEV_INDEX, _DEV_NAME, _PORT_INDEX = 1, 2, 3
_RES_QP, _LQPN, _RQPN = 19, 21, 22
_QP_TYPE, _QP_STATE, _PID = 26, 27, 28
_STAT_MODE, _STAT_RES = 74, 75
_COUNTER, _COUNTER_ID = 77, 79
_HWCOUNTERS, _NAME, _VALUE, _DYNAMIC = 80, 82, 83, 95
_TYPE_BITS = 0x3FFF
"""Mask: the type without the flags for nested attributes and byte order."""
_HEAD = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_PATIENCE = 2.0
_BUFFER = 1 << 18
_MOST = 4096
"""Most answers to one request, and most counters in one answer."""
_MODES = {1: "auto", 2: "manual"}
_TYPES = {2: "RC", 3: "UC", 4: "UD", 8: "raw", 9: "XRC", 10: "XRC", 255: "driver"}
_STATES = {0: "RESET", 1: "INIT", 2: "RTR", 3: "RTS", 4: "SQD", 5: "SQE", 6: "ERR"}
Attributes = list[tuple[int, bytes]]


class QueuePairs(Value):
    """A counter set to which queue pairs are bound."""

    port: int
    id: int
    mode: str
    """auto, manual or none."""
    pid: Optional[int]
    """The process whose queue pairs it counts; None if it is not bound by process."""
    numbers: tuple[int, ...]
    """Numbers of the queue pairs (lqpn)."""
    values: Mapping[str, int]
    """Kernel name of a counter -> number."""


class HeldPair(Value):
    """A queue pair that a process holds."""

    pid: int
    number: int
    remote: Optional[int]
    """Number of the one at the other end; None if it has none."""
    kind: str
    """RC, UD, …"""
    state: str
    """RTS (ready to send), RTR, INIT, ERR, …"""


class RdmaNetlink:
    """A netlink socket to the kernel's RDMA devices; every method raises OSError.

    Use it from one thread.
    """

    def __init__(self, asked: Optional[socket.socket] = None) -> None:
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        self._socket = asked or socket.socket(socket.AF_NETLINK, kind, _NETLINK_RDMA)
        self._socket.settimeout(_PATIENCE)
        self._number = 0

    def close(self) -> None:
        self._socket.close()

    def devices(self) -> dict[str, int]:
        """Name of each RDMA device -> its number in the kernel."""
        answers = map(dict, self._ask(_GET, _DUMP))
        return {_text(a[_DEV_NAME]): _whole(a[_DEV_INDEX]) for a in answers if _DEV_NAME in a}

    def optional(self, device: int, port: int) -> dict[str, bool]:
        """Name of each optional counter of a port -> whether it is switched on."""
        found: dict[str, bool] = {}
        for answer in self._ask(_STAT_GET_STATUS, 0, (_DEV_INDEX, device), (_PORT_INDEX, port)):
            for row in _hwcounters(dict(answer)):
                if _DYNAMIC in row and _NAME in row:
                    found[_text(row[_NAME])] = bool(row[_DYNAMIC][:1].strip(b"\0"))
        return found

    def counters(self, device: int, port: int) -> dict[str, int]:
        """Kernel name -> value, for all counters of a port that are
        switched on, even those without a file.
        """
        answers = self._ask(_STAT_GET, 0, (_DEV_INDEX, device), (_PORT_INDEX, port))
        return {k: v for answer in answers for k, v in _values(dict(answer)).items()}

    def queue_pairs(self, device: int) -> list[QueuePairs]:
        """The counter sets of a device that count single queue pairs."""
        wanted = ((_DEV_INDEX, device), (_STAT_RES, _RES_QP))
        answers = self._ask(_STAT_GET, _DUMP, *wanted)
        return [one for answer in answers for one in _bound(answer)]

    def held_pairs(self, device: int) -> list[HeldPair]:
        """The queue pairs of a device that processes hold, as far as the kernel tells us."""
        answers = self._ask(_QP_GET, _DUMP, (_DEV_INDEX, device))
        return [one for answer in answers for one in _held(answer)]

    def _ask(self, command: int, flags: int, *wanted: tuple[int, int]) -> list[Attributes]:
        """Send one request; returns its answers."""
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
                    error = -struct.unpack_from("=i", part)[0] if len(part) >= 4 else 0
                    if error:
                        raise OSError(error, os.strerror(error))
                    return found
                found.append(list(parse_netlink_attributes(part)))
            if found and not flags:
                break
        return found


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """`(type, sequence number, payload)` of each netlink message in an answer."""
    at = 0
    while at + _HEAD.size <= len(data):
        size, kind, _, number, _ = _HEAD.unpack_from(data, at)
        if size < _HEAD.size:
            return
        yield kind, number, data[at + _HEAD.size : at + size]
        at += (size + 3) & ~3


def parse_netlink_attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """`(type, payload)` of each netlink attribute; an incomplete last one is left out."""
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        size, kind = _ATTRIBUTE.unpack_from(data, at)
        if size < _ATTRIBUTE.size or at + size > len(data):
            return
        yield kind & _TYPE_BITS, data[at + _ATTRIBUTE.size : at + size]
        at += (size + 3) & ~3


def _hwcounters(answer: Mapping[int, bytes]) -> Iterator[Mapping[int, bytes]]:
    for _, entry in list(parse_netlink_attributes(answer.get(_HWCOUNTERS, b"")))[:_MOST]:
        yield dict(parse_netlink_attributes(entry))


def _values(answer: Mapping[int, bytes]) -> dict[str, int]:
    rows = [row for row in _hwcounters(answer) if _NAME in row and _VALUE in row]
    return {_text(row[_NAME]): _whole(row[_VALUE]) for row in rows}


def _bound(answer: Attributes) -> Iterator[QueuePairs]:
    """The counter sets in one message of a dump."""
    for _, entry in parse_netlink_attributes(dict(answer).get(_COUNTER, b"")):
        row = dict(parse_netlink_attributes(entry))
        pairs = [
            dict(parse_netlink_attributes(pair))
            for _, pair in parse_netlink_attributes(row.get(_RES_QP, b""))
        ]
        yield QueuePairs(
            port=_whole(row.get(_PORT_INDEX, b"")),
            id=_whole(row.get(_COUNTER_ID, b"")),
            mode=_MODES.get(_whole(row.get(_STAT_MODE, b"")), "none"),
            pid=_whole(row[_PID]) if _PID in row else None,
            numbers=tuple(_whole(pair[_LQPN]) for pair in pairs if _LQPN in pair),
            values=_values(row),
        )


def _held(answer: Attributes) -> Iterator[HeldPair]:
    """The queue pairs in one message of a dump; those of the kernel have no process."""
    for _, entry in parse_netlink_attributes(dict(answer).get(_RES_QP, b"")):
        row = dict(parse_netlink_attributes(entry))
        if _PID in row and _LQPN in row:
            kind, state = (_whole(row.get(part, b"")) for part in (_QP_TYPE, _QP_STATE))
            yield HeldPair(
                pid=_whole(row[_PID]),
                number=_whole(row[_LQPN]),
                remote=_whole(row[_RQPN]) if _RQPN in row else None,
                kind=_TYPES.get(kind, str(kind)),
                state=_STATES.get(state, str(state)),
            )


def _whole(data: bytes) -> int:
    return int.from_bytes(data, sys.byteorder)


def _text(data: bytes) -> str:
    return clean_text(data.partition(b"\0")[0].decode("utf-8", "replace"))
