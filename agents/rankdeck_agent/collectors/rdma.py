"""InfiniBand and RoCE ports: link state, rate, and every counter of the kernel,
from files or netlink, under its kernel name.
"""

import errno
import re
from collections.abc import Mapping, Sequence
from typing import Callable, Optional

from rankdeck_agent.collectors.base import Reading, parse_unsigned
from rankdeck_agent.collectors.rdma_inventory import describe_ports, find_rdma_ports
from rankdeck_agent.collectors.rdma_netlink import RdmaNetlink
from rankdeck_agent.collectors.rdma_optional import Optionals, adopt_optional_counters
from rankdeck_agent.collectors.rdma_ports import (
    BASE,
    Port,
    RdmaCounter,
    arrange_rdma_sums,
    put_rdma_sum,
    store_rdma_number,
)
from rankdeck_agent.rdma_counters import BYTES, SUMS
from rankdeck_agent.system_files import Tree
from rankdeck_agent.text import clean_text, failure_reason

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
_BRIDGE = b"SMDL=SW_MNG"
_RATE = re.compile(r"(\d{1,5}(?:\.\d+)?) Gb/sec(?: \((\d{1,2})X)?")
_STATE = re.compile(r"(\d{1,2}):")
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
        self._bridges: dict[str, bool] = {}
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
        ports = find_rdma_ports(self._tree, self._exclude)
        for port in ports:
            old = known.get(port.key, {})
            port.counters = [old.get(c.path, c) for c in port.counters]
            port.counters += [c for c in before.get(port.key, ()) if not c.path]
            arrange_rdma_sums(port)

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
        adopt_optional_counters(port, optional)
        for counter in port.counters:
            if counter.path:
                self._ask(counter, now)
            if counter.value is not None:
                reading.put(counter.metric, counter.value, port.key)
            elif counter.error:
                reading.fail((counter.metric,), counter.error, port.key)
        arrange_rdma_sums(port)
        for metric, parts in port.sums:
            put_rdma_sum(reading, port.key, metric, parts)

    def _bytes(self, reading: Reading, port: Port, now: float, fresh: bool) -> None:
        for metric, parts in port.bytes:
            for counter, _ in () if fresh else parts:
                self._ask(counter, now)
            put_rdma_sum(reading, port.key, metric, parts)

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
                if not counter.ever and self._is_bridge(device):
                    counter.value, counter.error, counter.failures = None, None, _TRIES
                    return
                why += f"; if it never counts: `rdma_exclude: [{device}]` leaves the device out"
            counter.value, counter.error = None, ValueError(why)
            counter.failures += 1
            return
        if number is None:
            counter.value, counter.error, counter.failures = None, None, _TRIES
            return
        counter.failures, counter.ever = 0, True
        store_rdma_number(counter, number)

    def _is_bridge(self, device: str) -> bool:
        """Whether it only leads to the NVSwitches (HGX B200 and later): its product data say so.

        They are asked only after a refusal: some firmware answers slowly.
        """
        if device not in self._bridges:
            try:
                data = self._tree.once(f"{BASE}/{device}/device/vpd")
            except OSError:
                data = b""
            self._bridges[device] = _BRIDGE in data
        return self._bridges[device]
