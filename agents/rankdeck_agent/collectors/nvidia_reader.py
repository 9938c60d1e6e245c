"""The process that talks to NVIDIA's driver: when the driver hangs, only this process hangs."""

import importlib
import json
import os
import struct
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional

from rankdeck_agent.collectors import nvidia_calls, pcie
from rankdeck_agent.collectors.base import SHARED_MEMORY, Reading, memory_in_use
from rankdeck_agent.collectors.nvidia_calls import (
    CALLS,
    GONE,
    HEAT,
    INVALID_ARGUMENT,
    LOAD,
    LOST,
    METRICS,
    NOT_HERE,
    RESET_REQUIRED,
    Call,
    GpuActivity,
    Handle,
    Library,
    UnsupportedError,
    list_compute_processes,
    nvml_error_number,
    process_use,
    read_gpu_memory,
)
from rankdeck_agent.descriptors import wait_readable
from rankdeck_agent.text import clean_text, print_complaint
from rankdeck_agent.values import Record, field

GPU_LIMIT = 64
_INSTANCES = 64
BOARD = struct.Struct("=d120s")
"""(since when the driver is being asked, in monotonic seconds, 0
if it is not; what it is asked).
"""
_UNIFIED = ("GB10", "Thor", "Orin")
"""Parts of the names of chips whose GPU shares the machine's memory:
NVML does not know how much there is.
"""


class StatusPage:
    """A shared file that says what the driver is being asked; the agent
    can read it even if we are stuck.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._since = 0.0
        self.slowest = 0.0

    def asking(self, what: str) -> None:
        """Note that the driver is being asked for `what` from now on."""
        self._since = time.monotonic()
        self._write(self._since, what)

    def idle(self) -> None:
        """Note that the driver has answered; keeps the longest time in `slowest`."""
        self.slowest = max(self.slowest, time.monotonic() - self._since)
        self._write(0.0, "")

    def _write(self, since: float, what: str) -> None:
        os.pwrite(self._handle, BOARD.pack(since, what.encode()[:120]), 0)


class NvmlDevice(Record):
    """One GPU. Its number stays with its UUID: no other GPU gets the number of a lost one."""

    number: str
    name: str
    handle: Handle = None
    """None if the driver no longer gives a handle."""
    gone: str = "the driver lists it no more"
    """Why there is no handle."""
    refused: int = LOST
    """NVML's number of that error."""
    unsupported: set[int] = field(default_factory=set[int])
    """Indexes in CALLS of calls that this GPU does not support."""
    due: dict[int, float] = field(default_factory=dict[int, float])
    """Index in CALLS (-1: activity and MIG) -> when it is due, in monotonic seconds."""
    failed: dict[str, str] = field(default_factory=dict[str, str])
    mig: str = ""
    wants_reset: set[int] = field(default_factory=set[int])
    """Indexes in CALLS of calls that fail until the GPU is reset."""
    activity: Optional[GpuActivity] = field(default_factory=GpuActivity)
    """None if the GPU cannot report its activity."""
    parts: dict[int, GpuActivity] = field(default_factory=dict[int, GpuActivity])
    """Number of a MIG instance -> its activity."""
    parts_tell: bool = True
    """Whether its MIG instances can report their activity."""

    @property
    def unified(self) -> bool:
        """Whether the GPU shares the machine's memory."""
        return any(word in self.name for word in _UNIFIED)


class NvmlReader:
    """Makes the calls that are due, one `round` after the other.

    Raises NVMLError if NVML cannot be started.
    """

    def __init__(self, nvml: Library, board: StatusPage, known: Mapping[str, str]) -> None:
        self._nvml = nvml
        self._board = board
        self._answered: set[str] = set()
        self.devices: list[NvmlDevice] = []
        self.inventory: dict[str, str] = {}
        self._look(dict(known))

    def _look(self, known: dict[str, str]) -> None:
        nvml = self._nvml
        self._board.asking("NVML to start")
        nvml.nvmlInit()
        self.inventory["gpu.driver"] = _text(nvml.nvmlSystemGetDriverVersion())

        seen: set[str] = set()
        refused: list[tuple[int, Any]] = []
        for index in range(min(nvml.nvmlDeviceGetCount(), GPU_LIMIT)):
            self._board.asking(f"which GPU {index} is")
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = _text(nvml.nvmlDeviceGetUUID(handle))
            except nvml.NVMLError as error:
                # This GPU fell off the bus: go on with the others.
                if nvml_error_number(error) in GONE:
                    raise
                refused.append((index, error))
                continue

            number = known.get(uuid) or _free(str(index), known.values())
            known[uuid] = number
            seen.add(uuid)
            identity = {**self._identity(handle, number, uuid), f"gpu.{number}.index": str(index)}
            self.inventory.update(identity)
            name = identity.get(f"gpu.{number}.model", "")
            self.devices.append(NvmlDevice(number, name, handle))

        for uuid, number in known.items():
            if uuid not in seen:
                self.inventory[f"gpu.{number}.uuid"] = uuid
                self.devices.append(_missing(number, refused.pop(0)[1] if refused else None))

        for index, error in refused:
            number = _free(str(index), [device.number for device in self.devices])
            self.devices.append(_missing(number, error))
        self._board.idle()

    def _identity(self, handle: Handle, number: str, uuid: str) -> dict[str, str]:
        nvml = self._nvml
        rows: tuple[tuple[str, Callable[[], object]], ...] = (
            ("model", lambda: nvml.nvmlDeviceGetName(handle)),
            ("pci", lambda: nvml.nvmlDeviceGetPciInfo(handle).busId),
            ("serial", lambda: nvml.nvmlDeviceGetSerial(handle)),
            ("vbios", lambda: nvml.nvmlDeviceGetVbiosVersion(handle)),
            ("persistence", lambda: nvml.nvmlDeviceGetPersistenceMode(handle)),
        )
        found = {f"gpu.{number}.uuid": uuid}
        for what, ask in rows:
            try:
                found[f"gpu.{number}.{what}"] = _text(ask())
            except (nvml.NVMLError, AttributeError):  # noqa: PERF203  each question for itself
                continue
        return found

    def round(self, now: float) -> Reading:
        """Make the calls that are due; `now` in monotonic seconds.

        Raises NVMLError if NVML must be started again.
        """
        reading = Reading()
        self._board.slowest = 0.0
        for device in self.devices:
            self._device(reading, device, now)
            reading.failed.update(device.failed)
        reading.put("gpu.answer", round(self._board.slowest, 4))
        self._answered |= set(reading.values)
        reading.pending = self._answered - set(reading.values)
        reading.inventory = self.inventory
        return reading

    def _device(self, reading: Reading, device: NvmlDevice, now: float) -> None:
        if device.handle is None:
            needs_reset = device.refused == RESET_REQUIRED
            reading.put("gpu.lost", int(device.refused in _IS_LOST), device.number)
            reading.put("gpu.reset_required", int(needs_reset), device.number)
            device.failed = {f"gpu.used/{device.number}": device.gone}
            return

        lost = False
        for number, call in enumerate(CALLS):
            if number in device.unsupported or now < device.due.get(number, 0.0):
                continue
            if device.unified and call.metrics == pcie.METRICS:
                # A placeholder of generation 1 with one lane: such a GPU has no slot.
                continue
            device.due[number] = now + call.every - LOAD / 2
            lost = self._ask(reading, device, number, call) == LOST
            if lost:
                # All other calls would fail too, and each may take long.
                device.failed = _lost(device, "GPU is lost")
                break

        reading.put("gpu.lost", int(lost), device.number)
        reading.put("gpu.reset_required", int(bool(device.wants_reset)), device.number)
        if not lost and now >= device.due.get(-1, 0.0):
            device.due[-1] = now + HEAT
            self._instances(reading, device)
            self._activity(reading, device)

    def _ask(self, reading: Reading, device: NvmlDevice, number: int, call: Call) -> int:
        """Make one call; returns NVML's number of the error, or 0."""
        nvml, error = self._nvml, 0
        keys = [f"{metric}/{device.number}" for metric in call.metrics]
        self._board.asking(f"GPU {device.number}, {call.metrics[0]}")
        try:
            answer = call.ask(nvml, device.handle)
            reading.put_all(dict(zip(call.metrics, answer)), device.number)
            _drop(device.failed, keys)
            device.failed.update(
                {key: reading.failed[key] for key in keys if key in reading.failed}
            )
        except (UnsupportedError, AttributeError):
            device.unsupported.add(number)
        except nvml.NVMLError as refused:
            error = nvml_error_number(refused)
            if error in GONE:
                raise
            self._refused(reading, device, number, call, refused)
        finally:
            self._board.idle()
        (device.wants_reset.add if error == RESET_REQUIRED else device.wants_reset.discard)(number)
        return error

    def _refused(
        self,
        reading: Reading,
        device: NvmlDevice,
        number: int,
        call: Call,
        error: Any,  # noqa: ANN401 - NVML has no types
    ) -> None:
        if nvml_error_number(error) not in NOT_HERE:
            for metric in call.metrics:
                device.failed[f"{metric}/{device.number}"] = _why(error)
            return
        device.unsupported.add(number)
        if call.metrics[0] == "gpu.mem_used" and device.unified:
            device.unsupported.discard(number)
            self.inventory[f"gpu.{device.number}.memory"] = SHARED_MEMORY
            sizes = memory_in_use(Path("/proc/meminfo").read_bytes())
            reading.put_all(dict(zip(call.metrics, sizes)), device.number)

    def _instances(self, reading: Reading, device: NvmlDevice) -> None:
        """Memory of each MIG instance. When the MIG mode has changed, all calls are tried again."""
        nvml, names, numbers = self._nvml, list[str](), list[int]()
        self._board.asking(f"GPU {device.number}, MIG")
        try:
            on = nvml.nvmlDeviceGetMigMode(device.handle)[0]
            for instance in _instances(nvml, device.handle) if on else ():
                names.append(_text(nvml.nvmlDeviceGetName(instance)).rpartition(" ")[2])
                numbers.append(nvml.nvmlDeviceGetGpuInstanceId(instance))
                sizes = zip(
                    ("gpu.mig_mem_used", "gpu.mig_mem_total"), read_gpu_memory(nvml, instance)
                )
                reading.put_all(dict(sizes), f"{device.number}:{numbers[-1]}")
        except (nvml.NVMLError, UnsupportedError, AttributeError):
            on = 0
        finally:
            self._board.idle()

        self._parts(reading, device, numbers)

        mig = " ".join(names) or ("on, no instances" if on else "")
        if mig != device.mig:
            device.mig, device.unsupported = mig, set()
            device.activity, device.parts_tell = device.activity or GpuActivity(), True
            self.inventory = {**self.inventory, f"gpu.{device.number}.mig": mig or "off"}

    def _parts(self, reading: Reading, device: NvmlDevice, numbers: Sequence[int]) -> None:
        """Activity of each MIG instance since the last time, if the GPU can report it."""
        nvml = self._nvml
        for gone in set(device.parts) - set(numbers):
            device.parts.pop(gone).close(nvml)
        for number in dict.fromkeys(numbers) if device.parts_tell else ():
            part = device.parts.setdefault(number, GpuActivity(number))
            try:
                self._measure(reading, device, part, f"{device.number}:{number}")
            except UnsupportedError:
                device.parts_tell = False

    def _activity(self, reading: Reading, device: NvmlDevice) -> None:
        """Activity of the GPU's parts since the last time."""
        if device.activity is None:
            return
        keys = [f"{metric}/{device.number}" for metric in nvidia_calls.ACTIVITY]
        try:
            why = self._measure(reading, device, device.activity, device.number)
        except UnsupportedError:
            device.activity = None
            return
        _drop(device.failed, keys)
        if why:
            device.failed.update(dict.fromkeys(keys, why))

    def _measure(
        self, reading: Reading, device: NvmlDevice, activity: GpuActivity, key: str
    ) -> str:
        """Store the activity of a GPU or an instance; returns why it cannot be read now, or "".

        Raises UnsupportedError.
        """
        nvml = self._nvml
        self._board.asking(f"GPU {key}, activity")
        try:
            reading.put_all(activity.read(nvml, device.handle), key)
        except AttributeError as error:
            raise UnsupportedError from error
        except nvml.NVMLError as error:
            if nvml_error_number(error) in GONE:
                raise
            if nvml_error_number(error) in NOT_HERE:
                raise UnsupportedError from error
            return _why(error)
        finally:
            self._board.idle()
        return ""

    def tell_processes(self) -> int:
        """Print the processes that compute on every GPU, once; returns the exit code."""
        found: list[dict[str, Any]] = []
        for device in self.devices:
            if device.handle is None:
                continue
            self._board.asking(f"GPU {device.number}, processes")
            use = process_use(self._nvml, device.handle)
            found += [
                {
                    "gpu": device.number,
                    "instance": instance,
                    "pid": pid,
                    "bytes": size if size >= 0 else None,
                    "use": use.get(pid),
                }
                for pid, size, instance in list_compute_processes(self._nvml, device.handle)
            ]
        self._board.idle()
        print(json.dumps(found), flush=True)
        return 0


def _missing(number: str, error: Any) -> NvmlDevice:  # noqa: ANN401 - NVML has no types
    """A GPU without a handle; `error`: the NVMLError when its handle was
    asked for, None if it was not listed.
    """
    if error is None:
        return NvmlDevice(number, "")
    return NvmlDevice(number, "", gone=_why(error), refused=nvml_error_number(error))


def _instances(nvml: Library, handle: Handle) -> Iterable[Handle]:
    for index in range(min(nvml.nvmlDeviceGetMaxMigDeviceCount(handle), _INSTANCES)):
        try:
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError as error:  # noqa: PERF203  a place without instance
            if nvml_error_number(error) not in {6, INVALID_ARGUMENT}:
                raise


def _lost(device: NvmlDevice, why: str) -> dict[str, str]:
    asked = (
        call
        for number, call in enumerate(CALLS)
        if call.every == LOAD and number not in device.unsupported
    )
    return {f"{m}/{device.number}": f"NVML: {why}" for call in asked for m in call.metrics}


def _drop(table: dict[str, str], keys: Sequence[str]) -> None:
    for key in keys if table else ():
        table.pop(key, None)


def _free(wanted: str, taken: Iterable[str]) -> str:
    """`wanted` if it is not taken, else the first number that is free."""
    numbers = set(taken)
    return next(n for n in (wanted, *map(str, range(2 * GPU_LIMIT))) if n not in numbers)


_UNKNOWN_ERROR = 999
_IS_LOST = frozenset({LOST, _UNKNOWN_ERROR})
"""Errors with which NVML gives no handle of a GPU that is lost; others say
that it may not be seen, or not now.
"""
_DO: Mapping[int, str] = {
    2: "it is not given to this process: a MIG or vGPU setup, or the device cgroup of a job or container",
    4: "this process may not see it: permissions of /dev/nvidia*, or the device cgroup of a job or container",
    10: "the GPU did not answer in time: see the kernel log for Xids",
    11: "its interrupts do not arrive: see the kernel log, the BIOS, `nvidia-smi`",
    18: "driver and library are of two versions: reboot, or reload the driver's modules; in a container: use the host's library",
}
"""NVML error -> what it means for the one who reads it, and what to do."""


def _why(error: BaseException) -> str:
    words = f"NVML: {clean_text(str(error), 100)}"
    what = _DO.get(nvml_error_number(error), "")
    return f"{words}: {what}" if what else words


def _text(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return clean_text(text)


def main(argv: Sequence[str]) -> int:
    """Print readings until standard input ends; returns the exit code.

    `argv`: the descriptor of the StatusPage, the pid of the agent. The first line on standard input
    is {"known": UUID -> number} or {"once": true} (print the processes instead).
    """
    if len(argv) != 2 or not argv[0].isdecimal():
        return print_complaint("nvml is started by the agent itself", 2)
    board = StatusPage(int(argv[0]))
    request = json.loads(sys.stdin.buffer.readline() or b"{}")
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return _give_up(
            "a driver is loaded, but there is no nvidia-ml-py for it: `pip install nvidia-ml-py` there"
        )
    try:
        reader = NvmlReader(nvml, board, request.get("known", {}))
        return reader.tell_processes() if request.get("once") else _serve(reader)
    except nvml.NVMLError as error:
        board.idle()
        return _give_up(_why(error))


def _serve(reader: NvmlReader) -> int:
    due = time.monotonic()
    while True:
        _say(reader.round(time.monotonic()))
        due += LOAD * (1 + (time.monotonic() - due) // LOAD)
        # Nothing more is written to standard input: it ends when the agent ends.
        if wait_readable([0], max(0.0, due - time.monotonic())):
            return 0


def _give_up(why: str) -> int:
    reading = Reading()
    reading.failed = dict.fromkeys((*METRICS, *nvidia_calls.ACTIVITY), why)
    _say(reading)
    return 1


def _say(reading: Reading) -> None:
    shape = {
        "values": reading.values,
        "failed": reading.failed,
        "pending": sorted(reading.pending),
        "inventory": dict(reading.inventory),
    }
    os.write(1, json.dumps(shape, separators=(",", ":")).encode() + b"\n")
