"""The collectors, in the order in which their numbers are joined."""

from collections.abc import Sequence
from functools import partial
from typing import Callable

from rankdeck_agent.collectors.base import Collector, Reading
from rankdeck_agent.collectors.cgroup import CgroupCollector
from rankdeck_agent.collectors.cpu import CpuCollector
from rankdeck_agent.collectors.disk import DiskCollector
from rankdeck_agent.collectors.edac import EdacCollector
from rankdeck_agent.collectors.gpu import GpuCollector
from rankdeck_agent.collectors.hung_tasks import TaskCollector
from rankdeck_agent.collectors.kernel_log import KernelLogCollector
from rankdeck_agent.collectors.kernel_tables import KernelTableCollector
from rankdeck_agent.collectors.memory import MemoryCollector
from rankdeck_agent.collectors.net import EthtoolCollector, NetCollector
from rankdeck_agent.collectors.nvme import NvmeCollector, NvmeHealthCollector
from rankdeck_agent.collectors.raid import RaidCollector
from rankdeck_agent.collectors.rdma import RdmaCollector
from rankdeck_agent.collectors.sensors import HeatCollector, PiCollector, SensorCollector

COLLECTORS: tuple[Callable[..., Collector], ...] = (
    CpuCollector,
    MemoryCollector,
    NetCollector,
    DiskCollector,
    KernelLogCollector,
    HeatCollector,
    PiCollector,
    EdacCollector,
    CgroupCollector,
    NvmeCollector,
    RaidCollector,
    TaskCollector,
    KernelTableCollector,
    EthtoolCollector,
    SensorCollector,
    NvmeHealthCollector,
    RdmaCollector,
    GpuCollector,
)


def make_collectors(
    root: str = "/", simulate: Sequence[str] = (), seed: str = "", rdma_exclude: Sequence[str] = ()
) -> list[Collector]:
    """All collectors for the machine under `root`; those that
    `simulate` names return simulated numbers.

    `seed` is the node's name (a simulated fault may be for one node only). `rdma_exclude` goes to
    the RDMA collector. Raises ValueError if `simulate` cannot be understood.
    """
    made_up = choose_simulated(simulate, seed)
    made = [
        make(root, rdma_exclude) if make is RdmaCollector else make(root) for make in COLLECTORS
    ]
    real = [c for c in made if c.name not in made_up]
    return real + [make() for make in made_up.values()]


def choose_simulated(entries: Sequence[str], node: str) -> dict[str, Callable[[], Collector]]:
    """Name of a collector that this node simulates -> how to make it.

    `entries` as in the cluster file: `gpu`, `gpu:hot`, `gpu:hot@node7`. Raises ValueError if one
    cannot be understood, or if this agent was built without simulated devices.
    """
    if not entries:
        return {}
    try:
        from rankdeck_simulator.devices import SIMULATED, choose_simulations
    except ImportError as error:
        raise ValueError(
            "this agent has no simulated devices: it was built without them"
        ) from error
    chosen = choose_simulations(entries, node)
    return {name: partial(SIMULATED[name], node, faults) for name, faults in chosen.items()}


__all__ = ["COLLECTORS", "Collector", "Reading", "choose_simulated", "make_collectors"]
