"""GPUs of every make under one set of names."""

from typing import Optional

from rankdeck_agent.collectors import amd, nvidia, nvidia_calls
from rankdeck_agent.collectors.base import Reading

_LOOK_AGAIN = 60.0


class GpuCollector:
    """Load, memory, heat, power and faults of every NVIDIA and AMD GPU."""

    name = "gpu"
    lane = "gpu"
    period = 0.0
    metrics: tuple[str, ...] = tuple(dict.fromkeys((*nvidia_calls.METRICS, *amd.METRICS)))

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._root = root
        self._looked = -_LOOK_AGAIN
        self._nvidia: Optional[nvidia.Nvidia] = None
        self._amd = amd.Amd(root, "amd" if nvidia.present(root) else "")

    def collect(self, now: float) -> Reading:
        if self._nvidia is None and now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            self._nvidia = nvidia.Nvidia() if nvidia.present(self._root) else None
        self.doing = "NVML"
        reading = self._nvidia.collect(now) if self._nvidia else Reading()
        self.doing = "amdgpu"
        self._amd.collect(reading, now)
        # Nothing here: nothing is woken up for it at every beat.
        self.period = 0.0 if self._nvidia or self._amd.cards else _LOOK_AGAIN
        self.doing = ""
        return reading

    def close(self) -> None:
        """Let the process that asks NVML end."""
        if self._nvidia:
            self._nvidia.close()
