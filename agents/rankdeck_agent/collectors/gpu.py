"""GPUs of every make under one set of names."""

import contextlib
import json
import os
import pwd
import re
import sys
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.collectors import amd, intel, jetson, nvidia
from rankdeck_agent.collectors.base import Reading
from rankdeck_agent.collectors.nvidia import present, running
from rankdeck_agent.files import Tree, clean, reason

_LOOK_AGAIN = 60.0


class GpuCollector:
    """Load, memory, heat, power and faults of every NVIDIA, AMD and Intel GPU, and of a Jetson's."""

    name = "gpu"
    lane = "gpu"
    period = 0.0
    metrics: tuple[str, ...] = tuple(
        dict.fromkeys(
            (*nvidia.METRICS, "gpu.on_bus", *amd.METRICS, *intel.METRICS, *jetson.METRICS)
        )
    )

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._root = root
        self._tree = Tree(root)
        self._looked = -_LOOK_AGAIN
        self._on_bus = 0
        self._answered: set[str] = set()
        self._nvidia: Optional[nvidia.Nvidia] = None
        self._amd = amd.Amd(root, "amd" if nvidia.present(root) else "")
        self._intel = intel.Intel(root)
        self._jetson = jetson.Jetson(root)

    def collect(self, now: float) -> Reading:
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            # A Jetson has the driver's files, but its library cannot read the GPU.
            there = nvidia.present(self._root) and not self._jetson.look(now)
            if self._nvidia is None and there:
                self._nvidia = nvidia.Nvidia()
            self._on_bus = on_bus(self._tree) if self._nvidia else 0
        self.doing = "NVML"
        reading = self._nvidia.collect(now) if self._nvidia else Reading()
        if self._on_bus:
            reading.put("gpu.on_bus", self._on_bus)
        self.doing = "amdgpu"
        self._amd.collect(reading, now)
        self.doing = "xe, i915"
        others = self._nvidia or self._amd.cards
        self._intel.collect(reading, now, "intel" if others else "")
        self.doing = "Tegra"
        self._jetson.collect(reading, now)
        # Most numbers are not read for every sample: those that came once are not absent.
        self._answered.update(reading.values)
        reading.pending |= self._answered - reading.values.keys()
        # There is no GPU: do not wake a thread for every sample.
        here = others or self._intel.cards or self._jetson.load
        self.period = 0.0 if here else _LOOK_AGAIN
        self.doing = ""
        return reading

    def close(self) -> None:
        """Let the process that asks NVML end."""
        if self._nvidia:
            self._nvidia.close()


_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_DRIVERS_GPUS = ("proc/driver/nvidia/gpus", "sys/bus/pci/drivers/nvidia")
"""Folders with an entry per GPU: the first shows a container only its own."""


def on_bus(tree: Tree) -> int:
    """How many GPUs the NVIDIA driver has on the PCI bus; 0: nobody knows."""
    for folder in _DRIVERS_GPUS:
        with contextlib.suppress(OSError):
            if found := [name for name in tree.names(folder) if _ADDRESS.fullmatch(name)]:
                return len(found)
    return 0


_COMMAND_LIMIT = 200


def main() -> int:
    """Print one JSON object a line: gpu, instance (MIG), pid, bytes, use (percent), user, command; the exit status."""
    if not present("/"):
        print("rankdeck-agent: no NVIDIA driver on this machine", file=sys.stderr)
        return 2
    try:
        found = running()
    except (OSError, ValueError) as error:
        print(f"rankdeck-agent: {reason(error)}", file=sys.stderr)
        return 1
    for row in found:
        print(json.dumps({**row, **_who(int(row["pid"]))}))
    return 0


def _who(pid: int) -> dict[str, Any]:
    """User and command of a process; None if it has gone or is another's."""
    folder = Path("/proc") / str(pid)
    try:
        words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").strip()
        command = clean(words.decode("utf-8", "replace"), _COMMAND_LIMIT)
        return {"user": _user(os.stat(folder).st_uid), "command": command}  # noqa: PTH116
    except OSError:
        return {"user": None, "command": None}


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
