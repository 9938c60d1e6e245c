"""InfiniBand and RoCE ports: link state, rate, and every counter of the kernel,
from files or netlink, under its kernel name.
"""

import errno
import json
import os
import re
import socket
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Callable, Optional

from rankdeck_agent.collectors.base import BlindError, Reading, parse_unsigned
from rankdeck_agent.files import Tree, clean_text, failure_reason
from rankdeck_agent.rdma_counters import BYTES, SUMS, TOPS, TWINS, WRAPS
from rankdeck_agent.text import print_complaint

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
"""Mask: the type without the flags for nested attributes and byte order."""
_HEAD = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_PATIENCE = 2.0
_BUFFER = 1 << 18
_MOST = 4096
"""Most answers to one request, and most counters in one answer."""
_MODES = {1: "auto", 2: "manual"}

Attributes = list[tuple[int, bytes]]


@dataclass(frozen=True)
class QueuePairs:
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


def _whole(data: bytes) -> int:
    return int.from_bytes(data, sys.byteorder)


def _text(data: bytes) -> str:
    return clean_text(data.partition(b"\0")[0].decode("utf-8", "replace"))


_NOT_BOUND = (
    "rankdeck-agent: {}: no queue pair is bound to a counter. As root, "
    "`rdma statistic qp set link {}/1 auto pid on` has the driver count new ones for each process"
)


def main(device: str) -> int:
    """`rdma-queue-pairs`: print the counters of queue pairs, one JSON
    object per line; returns the exit code.

    `device`: an RDMA device, "" for all. Keys: device, port, counter,
    mode, pid, command, queue_pairs, values.
    """
    try:
        kernel = RdmaNetlink()
        known = kernel.devices()
        if device and device not in known:
            raise FileNotFoundError(0, f"no RDMA device {clean_text(device)!r} here")
        for name, index in known.items():
            if device in ("", name):
                _print_all(name, kernel.queue_pairs(index))
    except FileNotFoundError as error:
        return print_complaint(f"rankdeck-agent: {error.strerror or ''}", 1)
    except OSError as error:
        why = f"the kernel was asked for RDMA counters: {failure_reason(error)}"
        return print_complaint(f"rankdeck-agent: {why}", 1)
    return 0 if known else print_complaint("rankdeck-agent: no RDMA device on this machine", 0)


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
        return clean_text(
            Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        )
    except OSError:
        return None


BASE = "sys/class/infiniband"
_PORT_LIMIT = 64
_COUNTER_LIMIT = 256
_GID_LIMIT = 8
_MAPPED = re.compile(r"0000:0000:0000:0000:0000:ffff:([0-9a-f]{4}):([0-9a-f]{4})")


SATURATED = "saturated at {}: counts no more, perfquery -R clears it"
"""Why an RDMA counter is not used: it reached its maximum.

The metrics that include it go on without it.
"""


@dataclass
class RdmaCounter:
    """One counter and its state."""

    path: str
    """Its file; "" if it has none and is read by netlink."""
    metric: str
    kernel_name: str
    top: int = 0
    """The value at which it saturates; 0: it does not."""
    wraps: bool = False
    """Whether it has 32 bits and wraps around."""
    value: Optional[int] = None
    """The last number, with the wrap-arounds added; None if it could not be read."""
    held: int = 0
    """The last number that could be read; if saturated, the maximum."""
    raw: int = 0
    """The last number as read, for counters that wrap."""
    laps: int = 0
    """How often it has wrapped around."""
    failures: int = 0
    """Failed readings in a row."""
    asked: float = 0.0
    """When it was last read (monotonic seconds)."""
    error: Optional[ValueError] = None
    """Why it could not be read; a BlindError if it is saturated."""
    ever: bool = False
    """Whether it could ever be read."""
    summed: bool = False
    """Whether it is part of sums."""
    base: int = 0
    """Its value when it joined sums that had been reported without
    it: only growth after that counts.
    """


Sum = tuple[str, list[tuple[RdmaCounter, int]]]
"""A common metric and the counters, each with its factor, that add up to it."""


@dataclass
class Port:
    """One port; or a whole device (`number` ""), if its driver counts per device."""

    device: str
    number: str
    counters: list[RdmaCounter] = field(default_factory=list[RdmaCounter])
    bytes: list[Sum] = field(default_factory=list[Sum])
    sums: list[Sum] = field(default_factory=list[Sum])

    @property
    def key(self) -> str:
        """The device in metrics: `mlx5_0/1`, or `mlx5_0` for a whole device."""
        return f"{self.device}/{self.number}" if self.number else self.device

    @property
    def path(self) -> str:
        """The folder in /sys, relative to the root."""
        base = f"{BASE}/{self.device}"
        return f"{base}/ports/{self.number}" if self.number else base


def _find_ports(tree: Tree, exclude: Sequence[str] = ()) -> list[Port]:
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
    for index, gid in _gids(tree, port):
        found[f"rdma.{port.key}.gid.{index}"] = gid
    return found


def _gids(tree: Tree, port: Port) -> list[tuple[str, str]]:
    """`(index, "RoCE v2 192.168.0.4 eth0")` of each GID, to choose NCCL_IB_GID_INDEX from."""
    found: list[tuple[str, str]] = []
    ethernet = tree.maybe(f"{port.path}/link_layer") == "Ethernet"
    indexes = (n for n in tree.names(f"{port.path}/gids") if n.isdecimal())
    for index in sorted(indexes, key=int):
        gid = tree.maybe(f"{port.path}/gids/{index}") or ""
        if not gid.strip("0:") or len(found) >= _GID_LIMIT:
            continue
        kind = tree.maybe(f"{port.path}/gid_attrs/types/{index}") or ""
        # RoCE v1 cannot be routed: not useful where there is v2.
        if ethernet and kind.endswith("RoCE v1"):
            continue
        device = tree.maybe(f"{port.path}/gid_attrs/ndevs/{index}") or ""
        found.append((index, clean_text(" ".join(filter(None, (kind, gid_address(gid), device))))))
    return found


def gid_address(gid: str) -> str:
    """The GID, or the IPv4 address that it contains."""
    found = _MAPPED.fullmatch(gid)
    if found is None:
        return gid
    return socket.inet_ntoa(bytes.fromhex(found.group(1) + found.group(2)))


_LOOK_AGAIN = 10.0
_WHO_AGAIN = 300.0
_LINK_PERIOD = 5.0
"""Seconds between two readings of state and rate, for which a driver has to ask the firmware."""
_COUNTER_PERIOD = 10.0
_TRIES = 3
"""A file that fails this often in a row is read only every `_REST` seconds."""
_REST = 60.0
_REFUSED = frozenset({errno.EINVAL, errno.EIO, errno.EREMOTEIO, errno.EOPNOTSUPP})
"""Errors with which drivers refuse counters that the firmware does not give to this function."""
_RATE = re.compile(r"(\d{1,5}(?:\.\d+)?) Gb/sec(?: \((\d{1,2})X)?")
_STATE = re.compile(r"(\d{1,2}):")
_WRAP = 1 << 32
_TOP_64 = (1 << 64) - 1
_ACTIVE = 4
_NOTHING: Mapping[str, int] = {}
_LINK = ("rdma.up", "rdma.phys_state", "rdma.rate", "rdma.lanes")


class RdmaCollector:
    """State, rate and counters of every port under /sys/class/infiniband.

    Bytes are read for every sample, links and counters less often: in between they are pending.
    """

    name = "rdma"
    lane = "rdma"
    period = 0.0
    metrics: tuple[str, ...] = (
        *_LINK,
        *(metric for metric, _ in BYTES),
        *(metric for metric, _ in SUMS),
    )

    def __init__(
        self,
        root: str = "/",
        exclude: Sequence[str] = (),
        kernel: Optional[Callable[[], RdmaNetlink]] = None,
    ) -> None:
        self.doing = ""
        self._root = root
        self._exclude = exclude
        self._tree = Tree(root)
        self._due = {"look": 0.0, "who": 0.0, "link": 0.0, "counters": 0.0}
        self._ports: list[Port] = []
        self._inventory: dict[str, str] = {}
        self._answered: set[str] = set()
        self._parts: dict[str, Reading] = {}
        """The last reading of each kind of data."""
        # Below another root the ports are of another machine, whose kernel cannot be asked.
        self._optional = Optionals(kernel or RdmaNetlink) if kernel or root == "/" else None

    def collect(self, now: float) -> Reading:
        reading = Reading()
        if self._is_due("look", now, _LOOK_AGAIN):
            part = Reading()
            part.attempt(self.metrics, lambda: self._look(now))
            self._parts["look"] = part
        if self._is_due("link", now, _LINK_PERIOD):
            self._take(reading, "link", self._link)

        all_counters = self._is_due("counters", now, _COUNTER_PERIOD)
        if all_counters:
            self._take(reading, "counters", lambda r, p: self._counters(r, p, now))
        self._take(reading, "bytes", lambda r, p: self._bytes(r, p, now, all_counters))

        for part in self._parts.values():
            reading.take_failures(part)

        self._answered |= set(reading.values)
        if not self._ports:
            # The last one has gone: nothing more of it is awaited.
            self._answered.clear()
        reading.pending |= self._answered - set(reading.values)
        reading.inventory = self._inventory
        self.doing = ""
        return reading

    def _is_due(self, what: str, now: float, period: float) -> bool:
        if now < self._due[what]:
            return False
        # Rather a little early than a whole sample late.
        self._due[what] = now + period - 0.25
        return True

    def _look(self, now: float) -> None:
        before = {p.key: p.counters for p in self._ports}
        known = {key: {c.path: c for c in counters} for key, counters in before.items()}
        ports = _find_ports(self._tree, self._exclude)
        for port in ports:
            old = known.get(port.key, {})
            port.counters = [old.get(c.path, c) for c in port.counters]
            port.counters += [c for c in before.get(port.key, ()) if not c.path]
            _arrange(port)

        changed = [p.key for p in ports] != list(known)
        self._ports = ports
        self.period = 0.0 if ports else _LOOK_AGAIN
        if changed or self._is_due("who", now, _WHO_AGAIN):
            self._inventory = describe_ports(self._root, ports, self._exclude)
        if changed:
            self._due["link"] = self._due["counters"] = 0.0

    def _take(self, reading: Reading, what: str, read: Callable[[Reading, Port], None]) -> None:
        """Read one kind of data from every port; failures stay in the
        samples until it is read again.
        """
        part = Reading()
        for port in self._ports:
            self.doing = port.key
            read(part, port)
        reading.values.update(part.values)
        self._parts[what] = part

    def _link(self, reading: Reading, port: Port) -> None:
        if not port.number:
            return
        reading.measure("rdma.up", lambda: int(self._state(port, "state") == _ACTIVE), port.key)
        reading.measure("rdma.phys_state", lambda: self._state(port, "phys_state"), port.key)
        reading.attempt(("rdma.rate", "rdma.lanes"), lambda: self._rate(reading, port), port.key)

    def _state(self, port: Port, file: str) -> int:
        text = self._tree.text(f"{port.path}/{file}")
        found = _STATE.match(text)
        if found is None:
            raise ValueError(f"not a state: {clean_text(text, 40)!r}")
        return int(found.group(1))

    def _rate(self, reading: Reading, port: Port) -> None:
        text = self._tree.text(f"{port.path}/rate")
        found = _RATE.match(text)
        if found is None:
            raise ValueError(f"not a rate: {clean_text(text, 40)!r}")
        reading.put("rdma.rate", float(found.group(1)) * 1e9, port.key)
        if found.group(2):
            reading.put("rdma.lanes", int(found.group(2)), port.key)

    def _counters(self, reading: Reading, port: Port, now: float) -> None:
        optional = self._optional.read(port, now) if self._optional else _NOTHING
        _adopt(port, optional)
        for counter in port.counters:
            if counter.path:
                self._ask(counter, now)
            if counter.value is not None:
                reading.put(counter.metric, counter.value, port.key)
            elif counter.error:
                reading.fail((counter.metric,), counter.error, port.key)
        _arrange(port)
        for metric, parts in port.sums:
            _put_sum(reading, port.key, metric, parts)

    def _bytes(self, reading: Reading, port: Port, now: float, fresh: bool) -> None:
        for metric, parts in port.bytes:
            for counter, _ in () if fresh else parts:
                self._ask(counter, now)
            _put_sum(reading, port.key, metric, parts)

    def _ask(self, counter: RdmaCounter, now: float) -> None:
        # Some firmware writes to the kernel log at each failed reading: read seldom.
        if counter.failures >= _TRIES and now - counter.asked < _REST:
            return
        counter.asked = now
        try:
            data = self._tree.read(counter.path)
            number = None if data.startswith(b"N/A") else parse_unsigned(data)
        except (OSError, ValueError) as error:
            why = failure_reason(error)
            if isinstance(error, OSError) and error.errno in _REFUSED:
                device = counter.path[len(BASE) + 1 :].partition("/")[0]
                why += f"; if it never counts: `rdma_exclude: [{device}]` leaves the device out"
            counter.value, counter.error = None, ValueError(why)
            counter.failures += 1
            return
        if number is None:
            counter.value, counter.error, counter.failures = None, None, _TRIES
            return
        counter.failures, counter.ever = 0, True
        _store(counter, number)


class Optionals:
    """Optional counters of a port (mlx5's cc_*), switched on by `rdma
    statistic set link … optional-counters`.

    They have no files (linux drivers/infiniband/core/sysfs.c leaves them out). Netlink
    is asked for their values only if one is on.
    """

    def __init__(self, connect: Callable[[], RdmaNetlink] = RdmaNetlink) -> None:
        self._connect = connect
        self._kernel: Optional[RdmaNetlink] = None
        self._looked: dict[str, float] = {}
        self._on: dict[str, tuple[int, frozenset[str]]] = {}
        """Port -> (number of its device, names of the counters that are on)."""

    def read(self, port: Port, now: float) -> Mapping[str, int]:
        """Kernel name -> number; empty if none is on or the kernel cannot say.

        `now` in monotonic seconds.
        """
        if not port.number:
            return {}
        try:
            if now - self._looked.get(port.key, -_REST) >= _REST:
                self._looked[port.key] = now
                self._on[port.key] = self._look(port)
            device, names = self._on.get(port.key, (0, frozenset()))
            if not names or self._kernel is None:
                return {}
            counters = self._kernel.counters(device, int(port.number))
        except OSError:
            # An old kernel, or one without RDMA: as if there were no such counters.
            self._on.pop(port.key, None)
            return {}
        return {name: counters[name] for name in names if name in counters}

    def _look(self, port: Port) -> tuple[int, frozenset[str]]:
        self._kernel = self._kernel or self._connect()
        device = self._kernel.devices().get(port.device)
        if device is None:
            return 0, frozenset()
        states = self._kernel.optional(device, int(port.number))
        return device, frozenset(name for name, on in states.items() if on)


def _adopt(port: Port, counters: Mapping[str, int]) -> None:
    """Add the optional counters to the port's counters; remove those that were switched off."""
    kept = {c.kernel_name: c for c in port.counters if not c.path}
    port.counters = [c for c in port.counters if c.path]
    for name, number in counters.items():
        metric = f"rdma.hw_counters.{name.replace('/', '?')}"
        counter = kept.get(name) or RdmaCounter("", metric, name)
        counter.value = counter.held = number
        counter.ever = True
        port.counters.append(counter)


def _store(counter: RdmaCounter, number: int) -> None:
    if number == _TOP_64 and not counter.top:
        # ionic says this if the firmware gives no number
        # (ionic_hw_stats.c), others after a failed request.
        counter.value, counter.error = None, ValueError("the driver has no number for it")
        return
    if counter.top and number in (counter.top, _TOP_64):
        counter.value = None
        counter.error = BlindError(SATURATED.format(number))
        counter.held = number
        return
    counter.error = None
    if counter.wraps:
        # From the upper half to the lower half: it wrapped around. Any other decrease: a reset.
        if number < counter.raw:
            round_again = counter.raw - number > _WRAP // 2
            counter.laps = counter.laps + 1 if round_again else 0
        counter.raw = number
        number += counter.laps * _WRAP
    counter.value = counter.held = number


def _arrange(port: Port) -> None:
    """Decide which counters make up each common metric; a counter that
    could never be read is in no sum.
    """
    for counter in port.counters:
        if counter.ever and not counter.summed:
            counter.summed, counter.base = True, counter.held if port.sums else 0
    by_name = {c.kernel_name: c for c in reversed(port.counters) if c.ever}
    by_name = {n: c for n, c in by_name.items() if TWINS.get(n) not in by_name}
    both = ((metric, _first_row(by_name, rows)) for metric, rows in BYTES)
    port.bytes = [(metric, parts) for metric, parts in both if parts]
    sums = ((metric, [(by_name[n], 1) for n in names if n in by_name]) for metric, names in SUMS)
    port.sums = [(metric, parts) for metric, parts in sums if parts]


def _first_row(
    by_name: Mapping[str, RdmaCounter], rows: Sequence[Mapping[str, int]]
) -> list[tuple[RdmaCounter, int]]:
    for row in rows:
        parts = [(by_name[name], factor) for name, factor in row.items() if name in by_name]
        if parts:
            return parts
    return []


def _put_sum(
    reading: Reading, key: str, metric: str, parts: Sequence[tuple[RdmaCounter, int]]
) -> None:
    """Put a sum; a counter that can no longer be read stays in it with its last value.

    Fails only if all fail.
    """
    if any(counter.value is not None for counter, _ in parts):
        # A counter below its base was reset.
        grown = ((c.held - (c.base if c.held >= c.base else 0)) * factor for c, factor in parts)
        reading.put(metric, sum(grown), key)
        return
    counter, _ = parts[0]
    why = f"{counter.kernel_name}: {counter.error or 'no number'}"
    blind = isinstance(counter.error, BlindError)
    reading.fail((metric,), BlindError(why) if blind else ValueError(why), key)
