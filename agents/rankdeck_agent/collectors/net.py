"""Network interfaces: bytes, errors, link and speed."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from rankdeck_agent.collectors.base import Reading, whole
from rankdeck_agent.files import Tree, clean

_VIRTUAL = re.compile(
    r"(?:lo|veth.*|docker.*|br-.*|cni.*|cali.*|flannel.*|virbr.*|vnet.*|ifb.*|tap.*|tun.*|dummy.*|sit\d*"
    r"|ip6?tnl.*|ip6?gre.*|gre.*|erspan.*|ip_vti.*|ip6_vti.*|kube-.*|nodelocaldns|vxlan.*|lxc.*|podman.*)"
)
_COLUMNS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("net.rx", (0,)),
    ("net.tx", (8,)),
    ("net.errors", (2, 10)),
    ("net.drops", (3, 11)),
    ("net.frame_errors", (5,)),
    ("net.fifo_errors", (4, 12)),
    ("net.carrier_errors", (14,)),
)
"""Metric -> which of the sixteen numbers in /proc/net/dev add up to it."""
_STATISTICS: Mapping[int, tuple[str, ...]] = {
    0: ("rx_bytes",),
    2: ("rx_errors",),
    3: ("rx_dropped", "rx_missed_errors"),
    4: ("rx_fifo_errors",),
    5: ("rx_length_errors", "rx_over_errors", "rx_crc_errors", "rx_frame_errors"),
    8: ("tx_bytes",),
    10: ("tx_errors",),
    11: ("tx_dropped",),
    12: ("tx_fifo_errors",),
    14: ("tx_carrier_errors", "tx_aborted_errors", "tx_window_errors", "tx_heartbeat_errors"),
}
"""The same numbers in /sys/class/net/*/statistics (linux net/core/net-procfs.c adds them up so)."""
_COUNTERS = tuple(metric for metric, _ in _COLUMNS)
_FILES = (("net.mtu", "mtu"), ("net.carrier_changes", "carrier_changes"))
_LIMIT = 64
_SELDOM = 10.0
"""Seconds. Asking for the speed takes a lock of the kernel and a word with the driver."""
_IDENTITY_EVERY = 60.0


class NetCollector:
    """Counters and link of every interface that is, or stands for, a cable."""

    name = "net"
    lane = "proc"
    period = 0.0
    metrics: tuple[str, ...] = (
        *_COUNTERS,
        "net.up",
        "net.speed",
        *(metric for metric, _ in _FILES),
    )

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._physical: dict[str, bool] = {}
        self._seldom: dict[str, Seldom] = {}
        self._identified = -_IDENTITY_EVERY
        self._inventory: dict[str, str] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        reading.attempt(_COUNTERS, lambda: self._interfaces(reading, now))
        reading.inventory = self._inventory
        return reading

    def _interfaces(self, reading: Reading, now: float) -> None:
        chosen = [row for row in self._rows() if self._wanted(row[0])][:_LIMIT]
        for name, numbers in chosen:
            _put_counters(reading, name, numbers)
            self.doing = name
            reading.attempt(
                ("net.up", "net.speed"),
                lambda n=name: self._link(reading, n, now),
                name,
            )
        self.doing = ""
        names = [name for name, _ in chosen]
        self._seldom = {n: s for n, s in self._seldom.items() if n in names}
        if now - self._identified >= _IDENTITY_EVERY:
            self._identified = now
            self._inventory = _identities(self._tree, names)

    def _rows(self) -> "list[tuple[str, list[int]]]":
        """`(interface, its sixteen numbers)`, from /sys where /proc has none."""
        try:
            return parse_net_dev(self._read())
        except OSError:
            names = [name for name in self._tree.names("sys/class/net") if clean(name) == name]
            if not names:
                raise
        return [(name, self._statistics(name)) for name in names if self._wanted(name)]

    def _read(self) -> bytes:
        try:
            return self._tree.read("proc/self/net/dev")
        except OSError:
            return self._tree.read("proc/net/dev")

    def _statistics(self, name: str) -> list[int]:
        """The sixteen numbers; none where the interface does not tell all that are used."""
        numbers = [0] * 16
        try:
            for column, files in _STATISTICS.items():
                paths = [f"sys/class/net/{name}/statistics/{file}" for file in files]
                numbers[column] = sum(whole(self._tree.read(path)) for path in paths)
        except (OSError, ValueError):
            return []
        return numbers

    def _wanted(self, name: str) -> bool:
        if not _VIRTUAL.fullmatch(name):
            return True
        if name not in self._physical:
            if len(self._physical) > 1000:
                self._physical.clear()
            self._physical[name] = self._tree.exists(f"sys/class/net/{name}/device")
        return self._physical[name]

    def _link(self, reading: Reading, name: str, now: float) -> None:
        state = self._tree.text(f"sys/class/net/{name}/operstate")
        up = state == "up" or (state == "unknown" and self._carrier(name))
        reading.put("net.up", int(up), name)
        seldom = self._seldom.get(name)
        if seldom is None or now - seldom.asked >= _SELDOM or up != seldom.up:
            seldom = self._seldom[name] = self._ask(name, now, up=up)
        for metric, value in seldom.values.items():
            reading.put(metric, value, name)
        for metric, error in seldom.errors.items():
            reading.fail((metric,), error, name)

    def _carrier(self, name: str) -> bool:
        return self._tree.maybe(f"sys/class/net/{name}/carrier") == "1"

    def _ask(self, name: str, now: float, *, up: bool) -> "Seldom":
        base = f"sys/class/net/{name}"
        seldom = Seldom(now, up)
        for metric, file in _FILES:
            try:
                seldom.values[metric] = whole(self._tree.read(f"{base}/{file}"))
            except (OSError, ValueError) as error:  # noqa: PERF203  each for itself
                seldom.errors[metric] = error
        speed = self._speed(f"{base}/speed") if up else None
        if speed:
            seldom.values["net.speed"] = speed
        return seldom

    def _speed(self, file: str) -> Optional[int]:
        try:
            return whole(self._tree.read(file)) * 1_000_000
        except (OSError, ValueError):
            # -1 or EINVAL: the driver knows none, as with most virtual cards.
            return None


@dataclass
class Seldom:
    """What an interface said when it was last asked for more than its counters."""

    asked: float
    up: bool
    values: dict[str, int] = field(default_factory=dict[str, int])
    errors: dict[str, Exception] = field(default_factory=dict[str, Exception])


def _identities(tree: Tree, names: Sequence[str]) -> dict[str, str]:
    """Driver, RDMA device and kind of each interface, as far as it has them."""
    found: dict[str, str] = {}
    for name in names:
        base = f"sys/class/net/{name}"
        rows = {
            "driver": tree.link(f"{base}/device/driver"),
            "rdma": " ".join(_listed(tree, f"{base}/device/infiniband")),
            "kind": "wifi" if tree.exists(f"{base}/phy80211") else "",
        }
        found.update({f"net.{name}.{k}": clean(v) for k, v in rows.items() if v})
    return found


def _listed(tree: Tree, folder: str) -> list[str]:
    try:
        return tree.names(folder)[:4]
    except OSError:
        return []


def parse_net_dev(data: bytes) -> list[tuple[str, list[int]]]:
    """`(interface, its sixteen numbers)`; lines of another shape are left out."""
    found: list[tuple[str, list[int]]] = []
    for line in data.decode("utf-8", "replace").splitlines():
        name, colon, rest = line.rpartition(":")
        fields = rest.split()
        name = name.strip()
        if colon and _plausible(name, fields):
            found.append((name, [int(f) for f in fields[:16]]))
    return found


def _plausible(name: str, fields: Sequence[str]) -> bool:
    if not name or clean(name) != name or "/" in name or len(fields) < 16:
        return False
    return all(f.isdecimal() and f.isascii() and len(f) <= 20 for f in fields[:16])


def _put_counters(reading: Reading, name: str, numbers: Sequence[int]) -> None:
    for metric, columns in _COLUMNS if numbers else ():
        reading.put(metric, sum(numbers[c] for c in columns), name)
