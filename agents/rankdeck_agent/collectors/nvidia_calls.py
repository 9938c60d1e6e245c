"""The calls to NVML: which metrics each gives, in base units, and how often it is made.

Also the activity of the parts of a GPU between two readings, without DCGM: by NVML's GPM on
Hopper and later, by byte counters on earlier GPUs.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

from rankdeck_agent.collectors import pcie
from rankdeck_agent.values import Value

Library = Any
Handle = Any
"""The module pynvml and what it returns have no types."""
Number = float

LOAD, HEAT, CARE = 2.0, 10.0, 30.0
"""Seconds between two calls: for values that change fast, slowly, seldom."""
NOT_HERE = frozenset({3, 13, 21, 25, 26})
"""NVML errors (not supported, no such function, no data, other version,
deprecated) after which a call is never made again.
"""
GONE = frozenset({1, 9, 18})
"""NVML errors (not initialised, driver not loaded, library and driver differ)
after which NVML must be started again.
"""
LOST = 15
RESET_REQUIRED = 16
INVALID_ARGUMENT = 2
_OTHER_SPELLING = frozenset({13, 25, 26})
_LINKS = 36
_FIELD_TYPES: Mapping[int, str] = {
    0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal",
}  # fmt: skip
_NO_INSTANCE = 0xFFFFFFFF
_REGISTERED = 3
ABSURD = 200
"""Degrees from which on a limit is none."""


class UnsupportedError(Exception):
    """This GPU, driver or library has no such thing."""


class Call(Value):
    """One call to the driver and the metrics that it gives, in the order of its answer."""

    metrics: tuple[str, ...]
    every: float
    """Seconds between two calls."""
    ask: Callable[[Library, Handle], Sequence[Number]]


def nvml_error_number(error: BaseException) -> int:
    """NVML's number of an error; 999 (unknown) if it has none."""
    value = getattr(error, "value", 999)
    return value if isinstance(value, int) else 999


def ask_first_known(nvml: Library, handle: Handle, *ways: tuple[str, tuple[Any, ...]]) -> Any:  # noqa: ANN401 - NVML has no types
    """The answer of the first (function, arguments) that library and driver both
    know; raises UnsupportedError, NVMLError.
    """
    for name, arguments in ways:
        ask = getattr(nvml, name, None)
        if ask is None:
            continue
        try:
            return ask(handle, *arguments)
        except nvml.NVMLError as error:
            if nvml_error_number(error) not in _OTHER_SPELLING:
                raise
    raise UnsupportedError


def _used(nvml: Library, handle: Handle) -> Sequence[Number]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return rates.gpu, rates.memory


def read_gpu_memory(nvml: Library, handle: Handle) -> Sequence[Number]:
    """`(used, total, reserved)` in bytes, as nvidia-smi counts:
    reserved memory is neither used nor free.

    The older call includes reserved memory in `used`; then the result is only `(used, total)`.
    """
    name = "nvmlDeviceGetMemoryInfo"
    newer = getattr(nvml, "nvmlMemory_v2", 0x02000028)
    found = ask_first_known(nvml, handle, (name, (newer,)), (name, ()))
    reserved = (found.reserved,) if hasattr(found, "reserved") else ()
    return (found.used, found.total, *reserved)


def _temperature(nvml: Library, handle: Handle) -> Sequence[Number]:
    names = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
    return (ask_first_known(nvml, handle, *((name, (0,)) for name in names)),)


def _margin(nvml: Library, handle: Handle) -> Sequence[Number]:
    name, slowdown = "nvmlDeviceGetMarginTemperature", 1
    try:
        return (ask_first_known(nvml, handle, (name, ())),)
    except (nvml.NVMLError, UnsupportedError) as error:
        if not isinstance(error, UnsupportedError) and nvml_error_number(error) not in NOT_HERE:
            raise
    limit = nvml.nvmlDeviceGetTemperatureThreshold(handle, slowdown)
    if not 0 < limit < ABSURD:
        # No limit is set.
        raise UnsupportedError
    return (limit - _temperature(nvml, handle)[0],)


def _reasons(nvml: Library, handle: Handle) -> Sequence[Number]:
    name = "nvmlDeviceGetCurrentClocks{}Reasons"
    ways = ((name.format(word), ()) for word in ("Event", "Throttle"))
    return (ask_first_known(nvml, handle, *ways),)


def _clock(kind: int) -> Callable[[Library, Handle], Sequence[Number]]:
    return lambda n, h: (n.nvmlDeviceGetClockInfo(h, kind) * 1e6,)


def _ecc(kind: int, span: int) -> Callable[[Library, Handle], Sequence[Number]]:
    return lambda n, h: (n.nvmlDeviceGetTotalEccErrors(h, kind, span),)


def _sram(nvml: Library, handle: Handle) -> Sequence[Number]:
    if not hasattr(nvml, "c_nvmlEccSramErrorStatus_v1_t"):
        raise UnsupportedError
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(handle, nvml.byref(status))
    return (int(bool(status.bThresholdExceeded)),)


def _remapped(nvml: Library, handle: Handle) -> Sequence[Number]:
    corrected, uncorrected, pending, failed = nvml.nvmlDeviceGetRemappedRows(handle)
    return corrected, uncorrected, int(bool(pending)), int(bool(failed))


def _retired(nvml: Library, handle: Handle) -> Sequence[Number]:
    single, double = 0, 1
    return (
        sum(len(nvml.nvmlDeviceGetRetiredPages(handle, cause)) for cause in (single, double)),
        nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle),
    )


def read_nvlink_states(nvml: Library, handle: Handle) -> list[int]:
    """For each NVLink of the GPU: 1 if it is up, otherwise 0;
    raises UnsupportedError, NVMLError.
    """
    found: list[int] = []
    for link in range(_LINKS):
        try:
            found.append(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except nvml.NVMLError as error:  # noqa: PERF203  each link for itself
            if not link and nvml_error_number(error) != INVALID_ARGUMENT:
                raise
            if nvml_error_number(error) not in NOT_HERE | {INVALID_ARGUMENT}:
                raise
            break
    if not found:
        raise UnsupportedError
    return found


def _links(nvml: Library, handle: Handle) -> Sequence[Number]:
    found = read_nvlink_states(nvml, handle)
    return len(found), sum(found)


# Field numbers of CRC, replay and recovery errors: totals, or per link
# on newer GPUs; NVLink 5 has others.
_LINK_TOTALS = (38, 45, 52, 59)
_LINK_ERRORS = ((161, 162, 163), (208, 211, 214))


def _link_errors(nvml: Library, handle: Handle) -> Sequence[Number]:
    found = read_field_values(nvml, handle, _LINK_TOTALS)
    for fields in _LINK_ERRORS if not found else ():
        many = len(read_nvlink_states(nvml, handle))
        found = read_field_values(nvml, handle, [(f, n) for f in fields for n in range(many)])
        if found:
            break
    if not found:
        raise UnsupportedError
    return (sum(found.values()),)


def _fabric(nvml: Library, handle: Handle) -> Sequence[Number]:
    if not hasattr(nvml, "c_nvmlGpuFabricInfo_v2_t"):
        raise UnsupportedError
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, nvml.byref(info))
    if not info.state:
        raise UnsupportedError
    # The status of the registration is valid only once it is complete.
    return info.state, info.status if info.state == _REGISTERED else 0, info.healthMask


def _licensed(nvml: Library, handle: Handle) -> Sequence[Number]:
    found = nvml.nvmlDeviceGetGridLicensableFeatures(handle)
    count = min(found.licensableFeaturesCount, len(found.gridLicensableFeatures))
    if not found.isGridLicenseSupported or not count:
        raise UnsupportedError
    return (int(any(f.featureState for f in found.gridLicensableFeatures[:count])),)


def _pcie(nvml: Library, handle: Handle) -> Sequence[Number]:
    width = nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)
    if not width:
        # A virtual function has no link of its own.
        raise UnsupportedError
    return (
        nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
        nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
        width,
        nvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
    )


def list_compute_processes(nvml: Library, handle: Handle) -> list[tuple[int, int, Optional[int]]]:
    """`(pid, bytes, MIG instance)` of each process that computes on the GPU;
    -1 bytes if the driver does not know.
    """
    names = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2")
    found = ask_first_known(nvml, handle, *((name, ()) for name in names))
    return [
        (p.pid, -1 if p.usedGpuMemory is None else p.usedGpuMemory, _instance(p)) for p in found
    ]


def _instance(process: Any) -> Optional[int]:  # noqa: ANN401 - NVML has no types
    number = getattr(process, "gpuInstanceId", _NO_INSTANCE)
    return None if number in (None, _NO_INSTANCE) else number


_PARTS = (("sm", "smUtil"), ("memory", "memUtil"), ("encoder", "encUtil"), ("decoder", "decUtil"))


def process_use(nvml: Library, handle: Handle) -> dict[int, dict[str, int]]:
    """Pid -> part (sm, memory, encoder, decoder) -> percent, from its newest
    sample; empty if the driver has no samples.
    """
    try:
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, 0)
    except (nvml.NVMLError, AttributeError):
        # "Not found": nothing ran lately; "not supported": the GPU has MIG instances.
        return {}
    ordered = sorted(samples, key=lambda sample: sample.timeStamp)
    return {s.pid: {ours: getattr(s, theirs) for ours, theirs in _PARTS} for s in ordered}


def read_field_values(nvml: Library, handle: Handle, fields: Sequence[Any]) -> dict[Any, Number]:
    """Field -> value, for the fields that this GPU supports;
    raises NVMLError for any other error.
    """
    found: dict[Any, Number] = {}
    for field, value in zip(fields, nvml.nvmlDeviceGetFieldValues(handle, list(fields))):
        if value.nvmlReturn == 0:
            found[field] = getattr(value.value, _FIELD_TYPES[value.valueType])
        elif value.nvmlReturn not in NOT_HERE | {INVALID_ARGUMENT}:
            raise nvml.NVMLError(value.nvmlReturn)
    return found


def _field(metric: str, every: float, factor: float, *numbers: int) -> Call:
    """A call for the first of several field numbers that the GPU supports, times `factor`."""

    def ask(nvml: Library, handle: Handle) -> Sequence[Number]:
        found = read_field_values(nvml, handle, numbers)
        for number in numbers:
            if number in found:
                return (found[number] * factor,)
        raise UnsupportedError

    return Call((metric,), every, ask)


_MEMORY_DEGREES = _field("gpu.mem_temp", HEAT, 1, 82)
_MEMORY_LIMIT = 2
"""NVML_TEMPERATURE_THRESHOLD_MEM_MAX"""


def _memory_heat(nvml: Library, handle: Handle) -> Sequence[Number]:
    """Temperature of the memory, and how far it is below its own limit if it has one."""
    degrees = _MEMORY_DEGREES.ask(nvml, handle)[0]
    try:
        limit = nvml.nvmlDeviceGetTemperatureThreshold(handle, _MEMORY_LIMIT)
    except nvml.NVMLError as error:
        if nvml_error_number(error) not in NOT_HERE:
            raise
        return (degrees,)
    return (degrees, limit - degrees) if 0 < limit < ABSURD else (degrees,)


CALLS: tuple[Call, ...] = (
    Call(("gpu.used", "gpu.mem_busy"), LOAD, _used),
    Call(("gpu.mem_used", "gpu.mem_total", "gpu.mem_reserved"), LOAD, read_gpu_memory),
    Call(("gpu.temp",), LOAD, _temperature),
    Call(("gpu.power",), LOAD, lambda n, h: (n.nvmlDeviceGetPowerUsage(h) / 1e3,)),
    Call(("gpu.clock",), LOAD, _clock(1)),
    Call(("gpu.throttle_reasons",), LOAD, _reasons),
    Call(("gpu.clock_mem",), HEAT, _clock(2)),
    Call(("gpu.margin",), HEAT, _margin),
    Call(("gpu.mem_temp", "gpu.mem_margin"), HEAT, _memory_heat),
    Call(("gpu.encoder",), HEAT, lambda n, h: (n.nvmlDeviceGetEncoderUtilization(h)[0],)),
    Call(("gpu.decoder",), HEAT, lambda n, h: (n.nvmlDeviceGetDecoderUtilization(h)[0],)),
    Call(("gpu.jpeg",), CARE, lambda n, h: (n.nvmlDeviceGetJpgUtilization(h)[0],)),
    Call(("gpu.optical_flow",), CARE, lambda n, h: (n.nvmlDeviceGetOfaUtilization(h)[0],)),
    Call(("gpu.vgpu_licensed",), CARE, _licensed),
    Call(("gpu.energy",), HEAT,
         lambda n, h: (n.nvmlDeviceGetTotalEnergyConsumption(h) / 1e3,)),
    Call(("gpu.power_limit",), CARE,
         lambda n, h: (n.nvmlDeviceGetEnforcedPowerLimit(h) / 1e3,)),
    # Nanoseconds since the driver was loaded; 75 is the older counter of policy violations.
    _field("gpu.throttle_thermal", CARE, 1e-9, 270, 75),
    _field("gpu.throttle_soft", CARE, 1e-9, 269),
    _field("gpu.throttle_power", CARE, 1e-9, 74),
    _field("gpu.throttle_brake", CARE, 1e-9, 271),
    _field("gpu.recovery", CARE, 1, 230),
    Call(("gpu.ecc_corrected",), CARE, _ecc(0, 0)),
    Call(("gpu.ecc_uncorrected",), CARE, _ecc(1, 0)),
    Call(("gpu.ecc_uncorrected_ever",), CARE, _ecc(1, 1)),
    Call(("gpu.ecc_threshold",), CARE, _sram),
    Call(("gpu.remap_corrected", "gpu.remap_uncorrected", "gpu.remap_pending",
          "gpu.remap_failed"), CARE, _remapped),
    Call(("gpu.retired", "gpu.retired_pending"), CARE, _retired),
    Call(("gpu.nvlinks", "gpu.nvlinks_active"), CARE, _links),
    Call(("gpu.nvlink_errors",), CARE, _link_errors),
    Call(("gpu.fabric", "gpu.fabric_status", "gpu.fabric_health"), CARE, _fabric),
    Call(pcie.METRICS, CARE, _pcie),
    Call(("gpu.pcie_replays",), CARE, lambda n, h: (n.nvmlDeviceGetPcieReplayCounter(h),)),
    Call(("gpu.processes",), CARE, lambda n, h: (len({p[0] for p in list_compute_processes(n, h)}),)),
)  # fmt: skip

METRICS: tuple[str, ...] = (
    *(metric for call in CALLS for metric in call.metrics),
    "gpu.lost",
    "gpu.reset_required",
    "gpu.answer",
    "gpu.mig_mem_used",
    "gpu.mig_mem_total",
)


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
"""(number in nvml.h (nvmlGpmMetricId_t), our metric, factor to base units)."""
ACTIVITY = tuple(metric for _, metric, _ in _ROWS)
_ALL_LINKS = 0xFFFFFFFF
_COUNTS: tuple[tuple[Any, str, float, int], ...] = (
    ((138, _ALL_LINKS), "gpu.nvlink_tx", 1024, 0),
    ((139, _ALL_LINKS), "gpu.nvlink_rx", 1024, 0),
    (197, "gpu.pcie_tx", 1, 1 << 32),
    (198, "gpu.pcie_rx", 1, 1 << 32),
)
"""(field in nvml.h (NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_*, _PCIE_COUNT_*_BYTES) with its scope,
metric, bytes per count, value at which it wraps around or 0).
"""


class GpuActivity:
    """The activity of one GPU or of one MIG instance between two calls. Use it from one thread."""

    def __init__(self, instance: Optional[int] = None) -> None:
        self._instance = instance
        self._before: Any = None
        self._supported: Optional[bool] = None
        self._counted: Optional[Counted] = None if instance is not None else Counted()

    def read(self, nvml: Library, handle: Handle) -> Mapping[str, float]:
        """Metric -> mean since the last call; empty at the first call.
        Raises UnsupportedError, NVMLError.

        `handle` is of the whole GPU, even for an instance.
        """
        if self._supported is None:
            # Older libraries have no such function.
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
            if self._instance is None:
                self._before = nvml.nvmlGpmSampleGet(handle, sample)
            else:
                self._before = nvml.nvmlGpmMigSampleGet(handle, self._instance, sample)
            return _between(nvml, before, sample) if before is not None else {}
        finally:
            if self._before is None:
                nvml.nvmlGpmSampleFree(sample)
            if before is not None:
                nvml.nvmlGpmSampleFree(before)

    def close(self, nvml: Library) -> None:
        """Free the last sample, because the instance is gone."""
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
    """Bytes over NVLink and PCIe from counters, for GPUs without GPM (Volta to Ada)."""

    def __init__(self) -> None:
        self._wanted = _COUNTS
        self._before: dict[str, float] = {}
        self._at = 0.0

    def read(self, nvml: Library, handle: Handle) -> Mapping[str, float]:
        """Metric -> bytes per second since the last call; raises UnsupportedError, NVMLError."""
        numbers = read_field_values(nvml, handle, [row[0] for row in self._wanted])
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
    """How much a counter grew; below 0 if it was reset."""
    # From the upper half to the lower half: it wrapped around. Any other decrease: it was reset.
    return now - before + (wrap if wrap and before - now > wrap // 2 else 0)
