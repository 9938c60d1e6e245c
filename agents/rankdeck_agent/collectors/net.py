"""Network interfaces: bytes, errors, link and speed."""

import re
from collections.abc import Sequence
from typing import Optional

from rankdeck_agent.collectors.base import Reading, whole
from rankdeck_agent.files import Tree, clean

_VIRTUAL = re.compile(
    r"(?:lo|veth.*|docker.*|br-.*|cni.*|cali.*|flannel.*|virbr.*|vnet.*|ifb.*|tap.*|tun.*|dummy.*|sit\d*"
    r"|ip6?tnl.*|ip6?gre.*|gre.*|erspan.*|ip_vti.*|ip6_vti.*|kube-.*|nodelocaldns|vxlan.*|lxc.*|podman.*)"
)
_COUNTERS = ("net.rx", "net.tx", "net.errors", "net.drops")
_LIMIT = 64
_SPEED_EVERY = 10.0
"""Asking for the speed takes a lock of the kernel and a word with the driver."""


class NetCollector:
    """Counters and link of every interface that is, or stands for, a cable."""

    name = "net"
    lane = "proc"
    period = 0.0
    metrics: tuple[str, ...] = (*_COUNTERS, "net.up", "net.speed")

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._physical: dict[str, bool] = {}
        self._speeds: dict[str, tuple[float, Optional[int]]] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        reading.attempt(_COUNTERS, lambda: self._interfaces(reading, now))
        return reading

    def _interfaces(self, reading: Reading, now: float) -> None:
        rows = parse_net_dev(self._read())
        chosen = [row for row in rows if self._wanted(row[0])][:_LIMIT]
        for name, numbers in chosen:
            _put_counters(reading, name, numbers)
            self.doing = name
            reading.attempt(
                ("net.up", "net.speed"),
                lambda n=name: self._link(reading, n, now),
                name,
            )
        self.doing = ""

    def _read(self) -> bytes:
        try:
            return self._tree.read("proc/self/net/dev")
        except OSError:
            return self._tree.read("proc/net/dev")

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
        speed = self._speed(name, now) if up else None
        if speed is not None:
            reading.put("net.speed", speed, name)

    def _carrier(self, name: str) -> bool:
        return self._tree.maybe(f"sys/class/net/{name}/carrier") == "1"

    def _speed(self, name: str, now: float) -> Optional[int]:
        asked, speed = self._speeds.get(name, (-_SPEED_EVERY, None))
        if now - asked < _SPEED_EVERY:
            return speed
        try:
            speed = whole(self._tree.read(f"sys/class/net/{name}/speed")) * 1_000_000
        except (OSError, ValueError):
            # -1 or EINVAL: the driver knows none, as with most virtual cards.
            speed = None
        self._speeds[name] = (now, speed or None)
        return speed or None


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
    reading.put("net.rx", numbers[0], name)
    reading.put("net.tx", numbers[8], name)
    reading.put("net.errors", numbers[2] + numbers[10], name)
    reading.put("net.drops", numbers[3] + numbers[11], name)
