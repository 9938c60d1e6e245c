"""InfiniBand and RoCE ports: every counter the kernel offers, under the kernel's own name."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Callable

from rankdeck_agent.collectors.base import Reading, whole
from rankdeck_agent.collectors.rdma_names import BYTES, SUMS
from rankdeck_agent.collectors.rdma_ports import Counter, Port, find_ports, inventory
from rankdeck_agent.files import Tree, clean, reason

_LOOK_AGAIN = 10.0
_WHO_AGAIN = 300.0
_LINK_PERIOD = 5.0
"""Seconds; each driver asks the firmware for state and rate."""
_COUNTER_PERIOD = 10.0
_TRIES = 3
"""A file that fails this often in a row is asked again only every `_REST` seconds."""
_REST = 60.0
_RATE = re.compile(r"(\d{1,5}(?:\.\d+)?) Gb/sec(?: \((\d{1,2})X)?")
_STATE = re.compile(r"(\d{1,2}):")
_WRAP = 1 << 32
_TOP_64 = (1 << 64) - 1
_ACTIVE = 4
_LINK = ("rdma.up", "rdma.phys_state", "rdma.rate", "rdma.lanes")


class RdmaCollector:
    """State, rate and counters of every port under /sys/class/infiniband.

    Bytes at every beat, links and counters at their own periods: in between they are pending.
    """

    name = "rdma"
    lane = "rdma"
    period = 0.0
    metrics: tuple[str, ...] = (
        *_LINK,
        *(metric for metric, _ in BYTES),
        *(metric for metric, _ in SUMS),
    )

    def __init__(self, root: str = "/", exclude: Sequence[str] = ()) -> None:
        self.doing = ""
        self._root = root
        self._exclude = exclude
        self._tree = Tree(root)
        self._due = {"look": 0.0, "who": 0.0, "link": 0.0, "counters": 0.0}
        self._ports: list[Port] = []
        self._inventory: dict[str, str] = {}
        self._answered: set[str] = set()
        self._failed: dict[str, dict[str, str]] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        if self._is_due("look", now, _LOOK_AGAIN):
            part = Reading()
            part.attempt(self.metrics, lambda: self._look(now))
            self._failed["look"] = part.failed
        if self._is_due("link", now, _LINK_PERIOD):
            self._take(reading, "link", self._link)
        all_counters = self._is_due("counters", now, _COUNTER_PERIOD)
        if all_counters:
            self._take(reading, "counters", lambda r, p: self._counters(r, p, now))
        self._take(reading, "bytes", lambda r, p: self._bytes(r, p, now, all_counters))
        for failed in self._failed.values():
            reading.failed.update(failed)
        self._answered |= set(reading.values)
        reading.pending |= self._answered - set(reading.values)
        reading.inventory = self._inventory
        self.doing = ""
        return reading

    def _is_due(self, what: str, now: float, period: float) -> bool:
        if now < self._due[what]:
            return False
        # A little early rather than a whole beat late.
        self._due[what] = now + period - 0.25
        return True

    def _look(self, now: float) -> None:
        known = {p.key: {c.path: c for c in p.counters} for p in self._ports}
        ports = find_ports(self._tree, self._exclude)
        for port in ports:
            old = known.get(port.key, {})
            port.counters = [old.get(c.path, c) for c in port.counters]
            _arrange(port)
        changed = [p.key for p in ports] != list(known)
        self._ports = ports
        self.period = 0.0 if ports else _LOOK_AGAIN
        if changed or self._is_due("who", now, _WHO_AGAIN):
            self._inventory = inventory(self._root, ports, self._exclude)
        if changed:
            self._due["link"] = self._due["counters"] = 0.0

    def _take(self, reading: Reading, what: str, read: Callable[[Reading, Port], None]) -> None:
        """Read one kind of thing from every port; what failed is told until the next time."""
        part = Reading()
        for port in self._ports:
            self.doing = port.key
            read(part, port)
        reading.values.update(part.values)
        self._failed[what] = part.failed

    def _link(self, reading: Reading, port: Port) -> None:
        if not port.number:
            return
        for metrics, read in ((_LINK[:1], self._state), (_LINK[1:2], self._phys),
                              (_LINK[2:], self._rate)):  # fmt: skip
            reading.attempt(metrics, partial(read, reading, port), port.key)

    def _state(self, reading: Reading, port: Port) -> None:
        number = _number(self._tree.text(f"{port.path}/state"))
        reading.put("rdma.up", int(number == _ACTIVE), port.key)

    def _phys(self, reading: Reading, port: Port) -> None:
        number = _number(self._tree.text(f"{port.path}/phys_state"))
        reading.put("rdma.phys_state", number, port.key)

    def _rate(self, reading: Reading, port: Port) -> None:
        text = self._tree.text(f"{port.path}/rate")
        found = _RATE.match(text)
        if found is None:
            raise ValueError(f"not a rate: {clean(text, 40)!r}")
        reading.put("rdma.rate", float(found.group(1)) * 1e9, port.key)
        if found.group(2):
            reading.put("rdma.lanes", int(found.group(2)), port.key)

    def _counters(self, reading: Reading, port: Port, now: float) -> None:
        for counter in port.counters:
            self._ask(counter, now)
            if counter.value is not None:
                reading.put(counter.metric, counter.value, port.key)
            elif counter.error:
                reading.fail((counter.metric,), ValueError(counter.error), port.key)
        _arrange(port)
        for metric, parts in port.sums:
            _put_sum(reading, port.key, metric, parts)

    def _bytes(self, reading: Reading, port: Port, now: float, fresh: bool) -> None:
        for metric, parts in port.bytes:
            for counter, _ in () if fresh else parts:
                self._ask(counter, now)
            _put_sum(reading, port.key, metric, parts)

    def _ask(self, counter: Counter, now: float) -> None:
        # Some firmware writes to the kernel log at each refused reading: ask it seldom.
        if counter.failures >= _TRIES and now - counter.asked < _REST:
            return
        counter.asked = now
        try:
            data = self._tree.read(counter.path)
            number = None if data.startswith(b"N/A") else whole(data)
        except (OSError, ValueError) as error:
            counter.value, counter.error = None, reason(error)
            counter.failures += 1
            return
        if number is None:
            counter.value, counter.error, counter.failures = None, "", _TRIES
            return
        counter.failures, counter.ever = 0, True
        _store(counter, number)


def _store(counter: Counter, number: int) -> None:
    if counter.top and number in (counter.top, _TOP_64):
        counter.value = None
        counter.error = f"saturated at {number}: it counts no more; clear it with perfquery -R"
        return
    counter.error = ""
    if counter.wraps:
        # From the upper half to the lower: it went round. Anywhere else: it was cleared.
        if number < counter.raw:
            round_again = counter.raw - number > _WRAP // 2
            counter.laps = counter.laps + 1 if round_again else 0
        counter.raw = number
        number += counter.laps * _WRAP
    counter.value = number


def _number(text: str) -> int:
    found = _STATE.match(text)
    if found is None:
        raise ValueError(f"not a state: {clean(text, 40)!r}")
    return int(found.group(1))


def _arrange(port: Port) -> None:
    """Which counters make up each common metric. One that never answered is in no sum."""
    by_name = {c.kernel_name: c for c in reversed(port.counters) if c.ever}
    port.bytes = [(metric, parts) for metric, rows in BYTES if (parts := _first_row(by_name, rows))]
    sums = ((metric, [(by_name[n], 1) for n in names if n in by_name]) for metric, names in SUMS)
    port.sums = [(metric, parts) for metric, parts in sums if parts]


def _first_row(
    by_name: Mapping[str, Counter], rows: Sequence[Mapping[str, int]]
) -> list[tuple[Counter, int]]:
    for row in rows:
        parts = [(by_name[name], factor) for name, factor in row.items() if name in by_name]
        if parts:
            return parts
    return []


def _put_sum(reading: Reading, key: str, metric: str, parts: Sequence[tuple[Counter, int]]) -> None:
    total = 0
    for counter, factor in parts:
        if counter.value is None:
            # One that stopped spoils the sum: less than there was would look fine.
            why = f"{counter.kernel_name}: {counter.error or 'no number'}"
            reading.fail((metric,), ValueError(why), key)
            return
        total += counter.value * factor
    reading.put(metric, total, key)
