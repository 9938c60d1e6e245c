"""Ports of switches, as they were reported last; written by telemetry.gnmi alone."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rankdeck.model.cluster import Cluster
from rankdeck.state.series import rates

PATIENCE = 45.0
"""Seconds after which a report is old: a switch is asked for one every 10 seconds."""
COUNTERS = (
    "in-octets", "out-octets", "in-pkts", "out-pkts", "in-errors", "out-errors",
    "in-discards", "out-discards", "in-fcs-errors", "carrier-transitions",
)  # fmt: skip
"""Of openconfig-interfaces; `in` is what the switch takes in: what the node sends."""


@dataclass(frozen=True, slots=True)
class SwitchPort:
    """One port, and the RDMA port at the other end of its cable."""

    switch: str
    port: str
    node: str
    device: str
    """As in rdma.*: mlx5_0/1."""
    up: bool | None = None
    values: Mapping[str, int] = field(default_factory=dict[str, int])
    rates: Mapping[str, float] = field(default_factory=dict[str, float])
    at: float | None = None
    """When the counters came in, on the console's monotonic clock."""


def _unheard(switch: str, port: str, serves: str) -> SwitchPort:
    node, _, device = serves.partition(":")
    return SwitchPort(switch, port, node, device)


class Switches:
    """All ports that the cluster file names."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self.troubles: dict[str, str] = {}
        """Switch -> why nothing comes from it, one sentence."""
        self._clock = clock
        self._ports = {
            (switch.name, port): _unheard(switch.name, port, serves)
            for switch in cluster.switches
            for port, serves in switch.ports.items()
        }

    def ports(self) -> tuple[SwitchPort, ...]:
        """Every port; one that was not heard for long has neither state nor numbers."""
        return tuple(map(self._current, self._ports.values()))

    def of_node(self, node: str) -> tuple[SwitchPort, ...]:
        return tuple(port for port in self.ports() if port.node == node)

    def _current(self, port: SwitchPort) -> SwitchPort:
        if port.at is not None and self._clock() - port.at <= PATIENCE:
            return port
        return SwitchPort(port.switch, port.port, port.node, port.device)

    def apply(self, switch: str, port: str, up: bool | None, values: Mapping[str, int]) -> None:
        """Take in what a switch told of a port: its state, or counters, or both."""
        old = self._ports.get((switch, port))
        if old is None:
            return
        now = self._clock()
        self.troubles.pop(switch, None)
        fresh = {**old.values, **values}
        per_second = old.rates
        if "in-octets" in values and old.values and old.at is not None:
            per_second = rates(old.values, fresh, now - old.at)
        self._ports[switch, port] = SwitchPort(
            switch, port, old.node, old.device,
            old.up if up is None else up, fresh, per_second, now if values or old.at is None else old.at,
        )  # fmt: skip
