"""GPUs of all vendors under one set of metrics: NVIDIA through
NVML, AMD, Intel and Jetson from /sys.
"""

import contextlib
from typing import Optional

from rankdeck_agent.collectors import nvidia
from rankdeck_agent.collectors.amd import AMD_METRICS, Amd
from rankdeck_agent.collectors.base import BootMemory, Reading, own_memory
from rankdeck_agent.collectors.gpu_cards import LOOK_AGAIN
from rankdeck_agent.collectors.intel import INTEL_METRICS, Intel
from rankdeck_agent.collectors.jetson import JETSON_METRICS, Jetson
from rankdeck_agent.collectors.pcie import PCI_ADDRESS
from rankdeck_agent.gpu_release import STOPPED
from rankdeck_agent.system_files import Tree

_HIDDEN = (
    "the driver has {} on the PCI bus and lists none to this process: may it open /dev/nvidia0 "
    "(permissions, the device cgroup of a job or container)?"
)
_DRIVERS_GPUS = ("proc/driver/nvidia/gpus", "sys/bus/pci/drivers/nvidia")
"""Folders with an entry per GPU; in a container the first has only the container's own."""


class GpuCollector:
    """Load, memory, heat, power and faults of NVIDIA, AMD, Intel and Jetson GPUs."""

    name = "gpu"
    lane = "gpu"
    period = 0.0
    metrics: tuple[str, ...] = tuple(
        dict.fromkeys(
            (*nvidia.METRICS, "gpu.on_bus", *AMD_METRICS, *INTEL_METRICS, *JETSON_METRICS)
        )
    )

    def __init__(self, root: str = "/", memory: Optional[BootMemory] = None) -> None:
        self.doing = ""
        self._root = root
        self._memory = memory or own_memory(root)
        self._tree = Tree(root)
        self._looked = -LOOK_AGAIN
        self._on_bus = 0
        self._answered: set[str] = set()
        self.released = False
        """Set from another thread: nothing of a GPU may be held open, so nothing is read."""
        self._nvidia: Optional[nvidia.Nvidia] = None
        self._amd = Amd(root, "amd" if nvidia.has_nvidia_driver(root) else "", self._memory)
        self._intel = Intel(root, self._memory)
        self._jetson = Jetson(root)

    def collect(self, now: float) -> Reading:
        if self.released:
            return self._release()
        if now - self._looked >= LOOK_AGAIN:
            self._looked = now
            # A Jetson has the driver's files, but NVML cannot read its GPU.
            there = nvidia.has_nvidia_driver(self._root) and not self._jetson.look(now)
            if self._nvidia is None and there:
                self._nvidia = nvidia.Nvidia(self._memory)
            there_now = on_bus(self._tree) if self._nvidia else 0
            if self._nvidia and 0 < self._on_bus < there_now:
                self._nvidia.start_again()
            self._on_bus = there_now

        self.doing = "NVML"
        reading = self._nvidia.collect(now) if self._nvidia else Reading()
        if self._on_bus:
            reading.put("gpu.on_bus", self._on_bus)
            _fail_hidden(reading, self._on_bus)
        self.doing = "amdgpu"
        self._amd.collect(reading, now)
        self.doing = "xe, i915"
        others = self._nvidia or self._amd.cards
        self._intel.collect(reading, now, "intel" if others else "")
        self.doing = "Tegra"
        self._jetson.collect(reading, now)

        # Most numbers are not read for every sample: those that were read once are not absent.
        self._answered.update(reading.values)
        here = others or self._intel.cards or self._jetson.load
        if not here:
            # The last one has gone: nothing more of it is awaited.
            self._answered.clear()
        reading.pending |= self._answered - reading.values.keys()
        # Without a GPU, do not wake a thread for every sample.
        self.period = 0.0 if here else LOOK_AGAIN
        self.doing = ""
        return reading

    def _release(self) -> Reading:
        """Close all that is open of the GPUs; what was read before is not known meanwhile."""
        if self._nvidia:
            self._nvidia.start_again()
        for tree in (self._tree, self._amd.tree, self._intel.tree, self._jetson.tree):
            tree.close()
        reading = Reading()
        reading.failed = dict.fromkeys(sorted(self._answered - {"gpu.answer"}), STOPPED)
        return reading

    def close(self) -> None:
        """End the process that talks to NVML."""
        if self._nvidia:
            self._nvidia.close()


def _fail_hidden(reading: Reading, there: int) -> None:
    """Mark all metrics as failed if the driver answers but lists no GPU: what
    may not be seen is not known to be well.
    """
    answered = "gpu.driver" in reading.inventory
    listed = {"gpu.lost", "gpu.used"} & {*reading.values, *reading.pending, *reading.failed}
    if answered and not listed:
        why = _HIDDEN.format("1 GPU" if there == 1 else f"{there} GPUs")
        reading.failed.update(dict.fromkeys(sorted({*nvidia.METRICS} - {"gpu.answer"}), why))


def on_bus(tree: Tree) -> int:
    """How many GPUs the NVIDIA driver has on the PCI bus; 0 if not known."""
    for folder in _DRIVERS_GPUS:
        with contextlib.suppress(OSError):
            found = [name for name in tree.names(folder) if PCI_ADDRESS.fullmatch(name)]
            if found:
                return len(found)
    return 0
