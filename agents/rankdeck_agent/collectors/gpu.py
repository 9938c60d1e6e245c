"""NVIDIA GPUs, through NVML."""

import importlib
import os
from dataclasses import dataclass, field
from typing import Any, Callable

from rankdeck_agent.collectors.base import Reading
from rankdeck_agent.files import clean

_DRIVER = (
    "/proc/driver/nvidia/version",
    "/dev/nvidiactl",
    "/dev/dxg",
    "/dev/nvhost-ctrl",
)
_LOOK_AGAIN = 60.0
_PERIOD = 2.0
_LIMIT = 64

Library = Any
Handle = Any
"""The module pynvml and what it gives have no types."""


@dataclass(frozen=True)
class Call:
    """One question to the driver and the metrics that its answer gives."""

    metrics: tuple[str, ...]
    ask: Callable[[Library, Any], tuple[float, ...]]
    every: float


_CALLS = (
    Call(("gpu.used",), lambda n, h: (n.nvmlDeviceGetUtilizationRates(h).gpu,), 0),
    Call(("gpu.mem_used", "gpu.mem_total"), lambda n, h: _memory(n, h), 0),
    Call(
        ("gpu.temp",),
        lambda n, h: (n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU),),
        0,
    ),
    Call(("gpu.power",), lambda n, h: (n.nvmlDeviceGetPowerUsage(h) / 1e3,), 0),
    Call(
        ("gpu.clock",),
        lambda n, h: (n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM) * 1e6,),
        0,
    ),
    Call(
        ("gpu.power_limit",),
        lambda n, h: (n.nvmlDeviceGetEnforcedPowerLimit(h) / 1e3,),
        30,
    ),
    Call(("gpu.ecc_uncorrected",), lambda n, h: (_ecc(n, h),), 30),
)


def _memory(nvml: Library, handle: Handle) -> tuple[float, ...]:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return memory.used, memory.total


def _ecc(nvml: Library, handle: Handle) -> float:
    kind, span = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    return nvml.nvmlDeviceGetTotalEccErrors(handle, kind, span)


@dataclass
class Device:
    """One GPU. The handle stays: a lost GPU must not give its number to the next."""

    index: str
    handle: Handle
    unsupported: set[int] = field(default_factory=set[int])
    """Calls that the driver will never answer for this device."""
    answers: dict[int, tuple[float, tuple[float, ...]]] = field(
        default_factory=dict[int, tuple[float, tuple[float, ...]]]
    )


class GpuCollector:
    """Load, memory, temperature, power and errors of every NVIDIA GPU."""

    name = "gpu"
    lane = "gpu"
    period = _PERIOD
    metrics: tuple[str, ...] = tuple(
        metric for call in _CALLS for metric in call.metrics
    )

    def __init__(self, root: str = "/", library: str = "pynvml") -> None:
        self.doing = ""
        self._root = root
        self._name = library
        self._nvml: Library = None
        self._looked = -_LOOK_AGAIN
        self._devices: list[Device] = []
        self._inventory: dict[str, str] = {}
        self._why = ""

    def collect(self, now: float) -> Reading:
        reading = Reading()
        if not self._devices and now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            self._look()
            self.period = _PERIOD if self._devices else _LOOK_AGAIN
        if self._why:
            reading.fail(self.metrics, ValueError(self._why))
        reading.inventory = self._inventory
        for device in self._devices:
            self._read(reading, device, now)
        self.doing = ""
        return reading

    def _look(self) -> None:
        # With another root this is not the machine whose driver we could ask.
        if self._root != "/" or not any(map(os.path.exists, _DRIVER)):
            return
        self._why = ""
        try:
            self._nvml = self._nvml or importlib.import_module(self._name)
        except ImportError:
            self._why = (
                "a driver is loaded, but the agent was built without nvidia-ml-py"
            )
            return
        try:
            self._find(self._nvml)
        except self._nvml.NVMLError as error:
            self._why = f"NVML: {clean(str(error), 100)}"

    def _find(self, nvml: Library) -> None:
        self.doing = "the driver"
        nvml.nvmlInit()
        self._inventory = {"gpu.driver": _text(nvml.nvmlSystemGetDriverVersion())}
        for number in range(min(nvml.nvmlDeviceGetCount(), _LIMIT)):
            self.doing = f"GPU {number}"
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            self._inventory.update(_identity(nvml, number, handle))
            self._devices.append(Device(str(number), handle))

    def _read(self, reading: Reading, device: Device, now: float) -> None:
        for number, call in enumerate(_CALLS):
            if number in device.unsupported:
                continue
            self.doing = f"GPU {device.index}, {call.metrics[0]}"
            asked, answer = device.answers.get(number, (-1e9, ()))
            if now - asked < call.every:
                self._put(reading, device, call, answer)
                continue
            try:
                answer = call.ask(self._nvml, device.handle)
            except self._nvml.NVMLError as error:
                self._refused(reading, device, number, error)
                continue
            device.answers[number] = (now, answer)
            self._put(reading, device, call, answer)

    def _put(
        self, reading: Reading, device: Device, call: Call, answer: tuple[float, ...]
    ) -> None:
        for metric, value in zip(call.metrics, answer):
            reading.put(metric, value, device.index)

    def _refused(
        self, reading: Reading, device: Device, number: int, error: Exception
    ) -> None:
        nvml = self._nvml
        never = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        if getattr(error, "value", None) in never:
            device.unsupported.add(number)
            return
        why = ValueError(f"NVML: {clean(str(error), 100)}")
        reading.fail(_CALLS[number].metrics, why, device.index)


def _identity(nvml: Library, number: int, handle: Handle) -> dict[str, str]:
    rows: tuple[tuple[str, Callable[[], object]], ...] = (
        ("model", lambda: nvml.nvmlDeviceGetName(handle)),
        ("uuid", lambda: nvml.nvmlDeviceGetUUID(handle)),
        ("pci", lambda: nvml.nvmlDeviceGetPciInfo(handle).busId),
    )
    found: dict[str, str] = {}
    for what, ask in rows:
        try:
            found[f"gpu.{number}.{what}"] = _text(ask())
        except nvml.NVMLError:  # noqa: PERF203  each question for itself
            continue
    return found


def _text(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return clean(text)
