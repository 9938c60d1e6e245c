"""What the parts of a GPU did between two looks, without DCGM: NVML's GPM on Hopper and later, counters of bytes before."""

import time
from collections.abc import Mapping
from typing import Any, Optional

from rankdeck_agent.collectors.nvidia_calls import Handle, Library, UnsupportedError, answers

_MIB = 1 << 20
_ROWS: tuple[tuple[int, str, float], ...] = (
    (1, "gpu.active", 1),
    (2, "gpu.sm_active", 1),
    (3, "gpu.sm_occupancy", 1),
    (5, "gpu.tensor_active", 1),
    (10, "gpu.dram_active", 1),
    (11, "gpu.fp64_active", 1),
    (12, "gpu.fp32_active", 1),
    (13, "gpu.fp16_active", 1),
    (20, "gpu.pcie_tx", _MIB),
    (21, "gpu.pcie_rx", _MIB),
    (60, "gpu.nvlink_rx", _MIB),
    (61, "gpu.nvlink_tx", _MIB),
)
"""Number of the metric in nvml.h (nvmlGpmMetricId_t), ours, factor to base units."""
METRICS = tuple(metric for _, metric, _ in _ROWS)
_ALL_LINKS = 0xFFFFFFFF
_COUNTS: tuple[tuple[Any, str, float, int], ...] = (
    ((138, _ALL_LINKS), "gpu.nvlink_tx", 1024, 0),
    ((139, _ALL_LINKS), "gpu.nvlink_rx", 1024, 0),
    (197, "gpu.pcie_tx", 1, 1 << 32),
    (198, "gpu.pcie_rx", 1, 1 << 32),
)
"""Field value in nvml.h (NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_*, _PCIE_COUNT_*_BYTES) and its scope, metric, bytes of one,
where it begins again (0: nowhere)."""


class Activity:
    """Keeps the last sample of one GPU, or of one instance of a divided one. Not used from two threads."""

    def __init__(self, instance: Optional[int] = None) -> None:
        self._instance = instance
        self._before: Any = None
        self._supported: Optional[bool] = None
        self._counted: Optional[Counted] = None if instance is not None else Counted()

    def read(self, nvml: Library, handle: Handle) -> Mapping[str, float]:
        """Means since the last call, nothing the first time; raises UnsupportedError, NVMLError.

        `handle` is that of the whole GPU, for an instance too.
        """
        if self._supported is None:
            # A library too old for it has no such name.
            ask = getattr(nvml, "nvmlGpmQueryDeviceSupport", None)
            self._supported = bool(ask and ask(handle).isSupportedDevice)
        if self._supported:
            return self._sampled(nvml, handle)
        if self._counted is None:
            raise UnsupportedError
        return self._counted.read(nvml, handle)

    def _sampled(self, nvml: Library, handle: Handle) -> Mapping[str, float]:
        before, self._before = self._before, None
        sample = nvml.nvmlGpmSampleAlloc()
        try:
            self._before = self._sample(nvml, handle, sample)
            return _between(nvml, before, sample) if before is not None else {}
        finally:
            if self._before is None:
                nvml.nvmlGpmSampleFree(sample)
            if before is not None:
                nvml.nvmlGpmSampleFree(before)

    def _sample(self, nvml: Library, handle: Handle, sample: object) -> object:
        if self._instance is None:
            return nvml.nvmlGpmSampleGet(handle, sample)
        return nvml.nvmlGpmMigSampleGet(handle, self._instance, sample)

    def close(self, nvml: Library) -> None:
        """Give the last sample back: the instance is gone."""
        before, self._before = self._before, None
        if before is not None:
            nvml.nvmlGpmSampleFree(before)


def _between(nvml: Library, before: object, now: object) -> Mapping[str, float]:
    asked = nvml.c_nvmlGpmMetricsGet_t()
    asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
    asked.numMetrics, asked.sample1, asked.sample2 = len(_ROWS), before, now
    for place, (number, _, _) in enumerate(_ROWS):
        asked.metrics[place].metricId = number
    nvml.nvmlGpmMetricsGet(asked)
    found = zip(_ROWS, asked.metrics)
    return {row[1]: answer.value * row[2] for row, answer in found if answer.nvmlReturn == 0}


class Counted:
    """Bytes over NVLink and PCIe from counters: Volta to Ada, which have no GPM."""

    def __init__(self) -> None:
        self._wanted = _COUNTS
        self._before: dict[str, float] = {}
        self._at = 0.0

    def read(self, nvml: Library, handle: Handle) -> Mapping[str, float]:
        """Bytes a second since the last call; raises UnsupportedError, NVMLError."""
        numbers = answers(nvml, handle, [row[0] for row in self._wanted])
        self._wanted = tuple(row for row in self._wanted if row[0] in numbers)
        if not self._wanted:
            raise UnsupportedError
        now = time.monotonic()
        found = {
            metric: _grown(self._before[metric], numbers[field], wrap) * size / (now - self._at)
            for field, metric, size, wrap in self._wanted
            if metric in self._before and now > self._at
        }
        self._at = now
        self._before = {metric: numbers[field] for field, metric, _, _ in self._wanted}
        return {metric: rate for metric, rate in found.items() if rate >= 0}


def _grown(before: float, now: float, wrap: int) -> float:
    """How much a counter grew; below 0 where it was cleared."""
    # From the upper half to the lower it went round; anywhere else it was cleared.
    return now - before + (wrap if wrap and before - now > wrap // 2 else 0)
