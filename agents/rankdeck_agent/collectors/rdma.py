"""InfiniBand and RoCE ports: every counter the kernel offers, under the kernel's own name."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from rankdeck_agent.collectors.base import Reading, whole
from rankdeck_agent.files import Tree, clean, reason

BASE = "sys/class/infiniband"
_LOOK_AGAIN = 10.0
_TRIES = 3
"""A file that fails this often in a row is asked again only every `_REST` seconds."""
_REST = 60.0
_PORT_LIMIT = 64
_COUNTER_LIMIT = 256
_RATE = re.compile(r"(\d{1,5}(?:\.\d+)?) Gb/sec")
_WORDS = 4
"""The kernel counts the data of a port in words of four bytes."""

# Kernel name -> factor; of several rows the first whose names exist is used.
_RX: tuple[Mapping[str, int], ...] = (
    {"port_rcv_data": _WORDS},
    {"rx_bytes": 1},
    {"ip4InOctets": 1, "ip6InOctets": 1},
)
_TX: tuple[Mapping[str, int], ...] = (
    {"port_xmit_data": _WORDS},
    {"tx_bytes": 1},
    {"ip4OutOctets": 1, "ip6OutOctets": 1},
)
# Without *_cqe_error: they count what every ordinary end of a program flushes.
_ERRORS_PLAIN = (  # noqa: SIM905
    "symbol_error link_error_recovery link_downed port_rcv_errors port_rcv_remote_physical_errors "
    "port_xmit_discards port_xmit_constraint_errors port_rcv_constraint_errors "
    "local_link_integrity_errors excessive_buffer_overrun_errors "
    "req_transport_retries_exceeded req_rnr_retries_exceeded rx_icrc_encapsulated "
    "max_retry_exceeded unrecoverable_err local_qp_op_err remote_access_err rx_roce_errors "
    "retry_exceeded_err retry_rnr_exceeded_err send_err "
    "tcpInProtoErrors tcpInOptErrors InOptErrors InProtoErrors rxVlanErrors ip4InDiscards ip6InDiscards "
    "rdma_read_wr_err rdma_write_wr_err retrans_timeout_events unresponsive_remote_events"
).split()
_ERRORS: tuple[str, ...] = (*_ERRORS_PLAIN, "CRC errors")
_RETRANSMITTED_PLAIN = (  # noqa: SIM905
    "local_ack_timeout_err packet_seq_err out_of_sequence implied_nak_seq_err duplicate_request "
    "roce_adp_retrans to_retransmits seq_err_naks_rcvd oos_drop_count dup_req retrans_pkts "
    "tcpRetransSegs RetransSegs RTO completer_retry_err out_of_seq_request rcvd_seq_err"
).split()
_RETRANSMITTED: tuple[str, ...] = (
    *_RETRANSMITTED_PLAIN,
    "Nak Sequence Error",
    "Nak Sequence Error Implied",
    "Rcvd Out of order packets",
)
_SUMS = (("rdma.errors", _ERRORS), ("rdma.retx", _RETRANSMITTED))
_BYTES = (("rdma.rx", _RX), ("rdma.tx", _TX))


@dataclass
class Counter:
    """One file: how it answered so far."""

    path: str
    metric: str
    kernel_name: str
    value: Optional[int] = None
    failures: int = 0
    asked: float = 0.0
    error: str = ""
    ever: bool = False


@dataclass
class Port:
    """One port, or a whole device where the driver counts per device (`number` "")."""

    device: str
    number: str
    counters: list[Counter] = field(default_factory=list[Counter])

    @property
    def key(self) -> str:
        return f"{self.device}/{self.number}" if self.number else self.device

    @property
    def path(self) -> str:
        base = f"{BASE}/{self.device}"
        return f"{base}/ports/{self.number}" if self.number else base


class RdmaCollector:
    """State, rate and counters of every port under /sys/class/infiniband."""

    name = "rdma"
    lane = "rdma"
    period = 0.0
    metrics: tuple[str, ...] = tuple(
        f"rdma.{n}" for n in ("up", "rate", "rx", "tx", "errors", "retx")
    )

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._looked = -_LOOK_AGAIN
        self._ports: list[Port] = []
        self._inventory: dict[str, str] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            reading.attempt(self.metrics, self._look)
        reading.inventory = self._inventory
        for port in self._ports:
            self.doing = port.key
            self._link(reading, port)
            for counter in port.counters:
                self._read(reading, port.key, counter, now)
            _summarise(reading, port)
        self.doing = ""
        return reading

    def _look(self) -> None:
        known = {p.key: {c.path: c for c in p.counters} for p in self._ports}
        ports = find_ports(self._tree)
        for port in ports:
            old = known.get(port.key, {})
            port.counters = [old.get(c.path, c) for c in port.counters]
        if [p.key for p in ports] != [p.key for p in self._ports]:
            self._inventory = _inventory(self._tree, ports)
        self._ports = ports
        self.period = 0.0 if ports else _LOOK_AGAIN

    def _link(self, reading: Reading, port: Port) -> None:
        if not port.number:
            return
        reading.attempt(("rdma.up",), lambda: self._state(reading, port), port.key)
        reading.attempt(("rdma.rate",), lambda: self._rate(reading, port), port.key)

    def _state(self, reading: Reading, port: Port) -> None:
        state = self._tree.text(f"{port.path}/state")
        number, colon, _ = state.partition(":")
        if not colon or not number.isdecimal():
            raise ValueError(f"not a state: {clean(state, 40)!r}")
        reading.put("rdma.up", int(number == "4"), port.key)

    def _rate(self, reading: Reading, port: Port) -> None:
        text = self._tree.text(f"{port.path}/rate")
        found = _RATE.match(text)
        if found is None:
            raise ValueError(f"not a rate: {clean(text, 40)!r}")
        reading.put("rdma.rate", float(found.group(1)) * 1e9, port.key)

    def _read(self, reading: Reading, key: str, counter: Counter, now: float) -> None:
        # Some firmware writes to the kernel log at each refused reading: ask it seldom.
        if counter.failures < _TRIES or now - counter.asked >= _REST:
            self._ask(counter, now)
        if counter.value is not None:
            reading.put(counter.metric, counter.value, key)
        elif counter.error:
            reading.fail((counter.metric,), ValueError(counter.error), key)

    def _ask(self, counter: Counter, now: float) -> None:
        counter.asked = now
        try:
            data = self._tree.read(counter.path)
            counter.value = None if data.startswith(b"N/A") else whole(data)
        except (OSError, ValueError) as error:
            counter.value, counter.error = None, reason(error)
            counter.failures += 1
            return
        counter.failures, counter.error = (
            (0 if counter.value is not None else _TRIES),
            "",
        )
        counter.ever = counter.ever or counter.value is not None


def find_ports(tree: Tree) -> list[Port]:
    """The ports of this machine, each with its counters not yet read."""
    found: list[Port] = []
    for device in tree.names(BASE):
        if clean(device) != device:
            continue
        numbers = [n for n in tree.names(f"{BASE}/{device}/ports") if n.isdecimal()]
        for number in ("", *numbers):
            port = Port(device, number)
            port.counters = _counters(tree, port)
            if number or port.counters:
                found.append(port)
    return found[:_PORT_LIMIT]


def _counters(tree: Tree, port: Port) -> list[Counter]:
    found: list[Counter] = []
    taken: set[str] = set()
    for folder in ("counters", "hw_counters"):
        for name in tree.names(f"{port.path}/{folder}"):
            metric = f"rdma.{folder}.{clean(name).replace('/', '?')}"
            if metric not in taken:
                taken.add(metric)
                found.append(Counter(f"{port.path}/{folder}/{name}", metric, name))
    return found[:_COUNTER_LIMIT]


def _summarise(reading: Reading, port: Port) -> None:
    by_name = {c.kernel_name: c for c in reversed(port.counters)}
    for metric, rows in _BYTES:
        for row in rows:
            present = {n: f for n, f in row.items() if n in by_name and by_name[n].ever}
            if present:
                _put_sum(
                    reading,
                    port.key,
                    metric,
                    [(by_name[n], f) for n, f in present.items()],
                )
                break
    for metric, names in _SUMS:
        # A file that never answered is not part of the sum; one that stopped spoils it.
        present = [(by_name[n], 1) for n in names if n in by_name and by_name[n].ever]
        if present:
            _put_sum(reading, port.key, metric, present)


def _put_sum(
    reading: Reading, key: str, metric: str, parts: list[tuple[Counter, int]]
) -> None:
    total = 0
    for counter, factor in parts:
        if counter.value is None:
            why = f"{counter.kernel_name}: {counter.error or 'no number'}"
            reading.fail((metric,), ValueError(why), key)
            return
        total += counter.value * factor
    reading.put(metric, total, key)


def _inventory(tree: Tree, ports: list[Port]) -> dict[str, str]:
    found: dict[str, str] = {}
    for port in ports:
        rows = (
            ("fw", f"{BASE}/{port.device}/fw_ver"),
            ("type", f"{BASE}/{port.device}/hca_type"),
            ("board", f"{BASE}/{port.device}/board_id"),
            ("link", f"{port.path}/link_layer"),
            ("netdev", f"{port.path}/gid_attrs/ndevs/0"),
        )
        for what, path in rows if port.number else ():
            text = tree.maybe(path)
            if text:
                found[f"rdma.{port.key}.{what}"] = clean(text)
    return found
