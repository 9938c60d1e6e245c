"""What the parts of a GPU did between two looks: NVML's GPM, on Hopper and later, without DCGM."""

from collections.abc import Mapping
from typing import Any, Optional

from rankdeck_agent.collectors.nvidia_calls import Handle, Library, UnsupportedError

_MIB = 1 << 20
_ROWS: tuple[tuple[int, str, float], ...] = (
    (1, "gpu.active", 1),
    (2, "gpu.sm_active", 1),
    (5, "gpu.tensor_active", 1),
    (10, "gpu.dram_active", 1),
    (20, "gpu.pcie_tx", _MIB),
    (21, "gpu.pcie_rx", _MIB),
    (60, "gpu.nvlink_rx", _MIB),
    (61, "gpu.nvlink_tx", _MIB),
)
"""Number of the metric in nvml.h, ours, factor to base units."""
METRICS = tuple(metric for _, metric, _ in _ROWS)


class Activity:
    """Keeps the last sample of one GPU. Not used from two threads."""

    def __init__(self) -> None:
        self._before: Any = None
        self._supported: Optional[bool] = None

    def read(self, nvml: Library, handle: Handle) -> Mapping[str, float]:
        """Means since the last call, nothing the first time; raises UnsupportedError, NVMLError."""
        if self._supported is None:
            # A library too old for it has no such name.
            ask = getattr(nvml, "nvmlGpmQueryDeviceSupport", None)
            self._supported = bool(ask and ask(handle).isSupportedDevice)
        if not self._supported:
            raise UnsupportedError
        before, self._before = self._before, None
        sample = nvml.nvmlGpmSampleAlloc()
        try:
            self._before = nvml.nvmlGpmSampleGet(handle, sample)
            return _between(nvml, before, sample) if before is not None else {}
        finally:
            if self._before is None:
                nvml.nvmlGpmSampleFree(sample)
            if before is not None:
                nvml.nvmlGpmSampleFree(before)


def _between(nvml: Library, before: object, now: object) -> Mapping[str, float]:
    asked = nvml.c_nvmlGpmMetricsGet_t()
    asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
    asked.numMetrics, asked.sample1, asked.sample2 = len(_ROWS), before, now
    for place, (number, _, _) in enumerate(_ROWS):
        asked.metrics[place].metricId = number
    nvml.nvmlGpmMetricsGet(asked)
    answers = zip(_ROWS, asked.metrics)
    return {row[1]: answer.value * row[2] for row, answer in answers if answer.nvmlReturn == 0}
