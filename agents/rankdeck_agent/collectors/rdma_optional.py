"""Optional counters of an RDMA port, such as those of mlx5 for congestion."""

from collections.abc import Mapping
from typing import Callable, Optional

from rankdeck_agent.collectors.rdma_netlink import RdmaNetlink
from rankdeck_agent.collectors.rdma_ports import Port, RdmaCounter

_LOOK_AGAIN = 60.0
"""Seconds between two looks at which counters are switched on."""


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
            if now - self._looked.get(port.key, -_LOOK_AGAIN) >= _LOOK_AGAIN:
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


def adopt_optional_counters(port: Port, counters: Mapping[str, int]) -> None:
    """Add the optional counters to the port's counters; remove those that were switched off."""
    kept = {c.kernel_name: c for c in port.counters if not c.path}
    port.counters = [c for c in port.counters if c.path]
    for name, number in counters.items():
        metric = f"rdma.hw_counters.{name.replace('/', '?')}"
        counter = kept.get(name) or RdmaCounter("", metric, name)
        counter.value = counter.held = number
        counter.ever = True
        port.counters.append(counter)
