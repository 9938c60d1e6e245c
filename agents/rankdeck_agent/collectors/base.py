"""The `Collector` protocol, and the `Reading` that a collector returns."""

import contextlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from rankdeck_agent.private_files import make_private_folder, read_json_table, replace_private
from rankdeck_agent.state_folder import agent_state_folder
from rankdeck_agent.system_files import MISSING, Tree
from rankdeck_agent.text import clean_text, failure_reason
from rankdeck_agent.wire import METRICS, Event, Sample, Values

if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object  # 3.6 and 3.7 have none

FAILED_LIMIT = 256
DEVICE_LIMIT = 1024
LARGEST = 1 << 64
_DIGITS = re.compile(rb"\s*(\d{1,20})\s*\Z")
_MEMORY = re.compile(
    rb"^(MemTotal|MemAvailable|SwapTotal|SwapFree|HardwareCorrupted):\s+(\d{1,15}) kB", re.MULTILINE
)
SHARED_MEMORY = "shared with the CPU; in use: by the whole machine"
"""Inventory of a GPU without memory of its own."""


_ANY = (-float(LARGEST), float(LARGEST))
_OF_UNIT = {
    "%": (0.0, 100.5),
    "C": (-100.0, 300.0),
    "W": (0.0, 100_000.0),
    "Hz": (0.0, 1e12),
    "B": (0.0, 2.0**60),
    "": (0.0, 2.0**32 - 2),
}
"""Unit -> least and most that a GPU can have; drivers that have no
number say one with all bits set.
"""
_GPU_LIMITS = {
    name: _OF_UNIT[metric.unit]
    for name, metric in METRICS.items()
    if name.startswith("gpu.") and metric.kind == "gauge" and metric.unit in _OF_UNIT
}
"""Metric -> what is a number for it and no sentinel."""


class BlindError(ValueError):
    """A number that cannot be seen though nothing is at fault: a saturated counter,
    a missing permission. The text says why.
    """


class Reading:
    """What one collector read.

    A metric of the collector that is not in `values`, `failed` or `pending` is absent: this machine
    does not have it.
    """

    def __init__(self) -> None:
        self.values: Values = {}
        """Metric -> device ("" for the whole node) -> number in base units."""
        self.failed: dict[str, str] = {}
        """`METRIC` or `METRIC/DEVICE` -> why it could not be read."""
        self.pending: set[str] = set()
        """Metrics that need a second reading first, such as shares of time."""
        self.trouble = ""
        """What is wrong with the collector as a whole, one sentence; "" if nothing.

        It may still have numbers.
        """
        self.blind: set[str] = set()
        """Those keys of `failed` whose error was a BlindError."""
        self.inventory: Mapping[str, str] = {}
        """Facts that seldom change, such as model and driver version."""
        self.events: list[Event] = []
        """What happened since the last reading; each event is sent once."""
        self.sampled = False
        """Whether a sample has included this reading."""

    def put(self, metric: str, value: Union[int, float], device: str = "") -> None:
        """Store a number in base units (wire.METRICS); a number that
        is not finite counts as failed.
        """
        if not (math.isfinite(value) and abs(value) <= LARGEST):
            self._fail(metric, device, "not a number of 64 bits")
            return
        least, most = _GPU_LIMITS.get(metric, _ANY)
        if not least <= value <= most:
            self._fail(metric, device, f"the driver has no number for it: it says {value:.16g}")
            return
        by_device = self.values.setdefault(metric, {})
        if len(by_device) < DEVICE_LIMIT:
            by_device[device] = value

    def put_all(self, numbers: Mapping[str, Union[int, float]], device: str = "") -> None:
        """Store several numbers of one device."""
        for metric, value in numbers.items():
            self.put(metric, value, device)

    def measure(self, metric: str, read: Callable[[], float], device: str = "") -> None:
        """Store the number that `read` returns; an error in it marks the metric as failed."""
        self.attempt((metric,), lambda: self.put(metric, read(), device), device)

    def add(self, part: "Reading") -> None:
        """Add the numbers of another reading, which must be of other devices."""
        for metric, by_device in part.values.items():
            self.values.setdefault(metric, {}).update(by_device)

    def fail(self, metrics: Iterable[str], error: BaseException, device: str = "") -> None:
        """Note why `metrics` could not be read. After "no such file" they stay absent instead."""
        if isinstance(error, OSError) and error.errno in MISSING:
            return
        for metric in metrics:
            self._fail(metric, device, failure_reason(error), blind=isinstance(error, BlindError))

    def _fail(self, metric: str, device: str, why: str, *, blind: bool = False) -> None:
        if len(self.failed) < FAILED_LIMIT:
            key = f"{metric}/{device}" if device else metric
            self.failed[key] = why
            if blind:
                self.blind.add(key)

    def say_cut(self, key: str, what: str, there: int, most: int) -> None:
        """Note that only `most` of the `there` devices are read, if there are
        more; `key`: one of rules.facts.CUT.
        """
        if there > most:
            self.failed[key] = f"{most} of {there} {what} are read"
            self.blind.add(key)

    def take_failures(self, other: "Reading") -> None:
        """Note what the other reading could not read, and why."""
        self.failed.update(other.failed)
        self.blind |= other.blind

    def as_sample(self, seq: int, at: float, absent: Iterable[str]) -> Sample:
        """The sample of this reading, before it is judged; `absent`:
        metrics that this machine does not have.
        """
        blind = tuple(sorted(self.blind))
        return Sample(seq, at, self.values, tuple(sorted(absent)), self.failed, blind=blind)

    def attempt(self, metrics: Iterable[str], read: Callable[[], None], device: str = "") -> None:
        """Run one part of a collector; an error in it marks only `metrics` as failed."""
        try:
            read()
        except (OSError, ValueError, IndexError, KeyError, ArithmeticError) as error:
            self.fail(metrics, error, device)

    def absent(self, metrics: Iterable[str]) -> set[str]:
        """Those of `metrics` that are in neither `values`, `failed` nor `pending`."""
        failed = {key.partition("/")[0] for key in self.failed}
        known = failed | self.pending
        return {m for m in metrics if m not in self.values and m not in known}


class Collector(Protocol):
    """Reads one kind of hardware."""

    name: str
    lane: str
    """Name of the thread: collectors with the same lane run one after the other in it."""
    period: float
    """Seconds from one reading to the next; 0: for every sample."""
    metrics: tuple[str, ...]
    """Metrics (wire.METRICS) of this kind of hardware: one that a reading lacks counts as absent.

    A reading may hold others too.
    """
    doing: str
    """What it is reading now; shown if it hangs."""

    def collect(self, now: float) -> Reading:
        """Read everything once; `now` is in seconds of a monotonic clock.

        Called in the thread of the lane, never twice at once. It may block: samples are sent
        without it, and after ten seconds the agent reports the collector as hanging. Note with
        `Reading.fail` what cannot be read; an exception marks all metrics of the collector as
        failed.
        """
        ...  # noqa: PIE790 - ruff does not see that this is a protocol


def parse_unsigned(data: bytes) -> int:
    """`data` as an unsigned number; raises ValueError if it is anything else."""
    found = _DIGITS.match(data)
    if found is None:
        raise ValueError(
            f"not a number: {clean_text(data[:40].decode('utf-8', 'replace').strip(), 40)!r}"
        )
    value = int(found.group(1))
    if value > LARGEST:
        raise ValueError("not a number of 64 bits")
    return value


def parse_signed(data: bytes) -> int:
    """`data` as a number with or without a minus sign; raises ValueError if it is anything else."""
    text = data.strip()
    return -parse_unsigned(text[1:]) if text.startswith(b"-") else parse_unsigned(text)


class BootMemory:
    """Names of devices, kept in a file for one boot: an agent that starts
    again calls each as the one before did.
    """

    def __init__(self, path: Path, boot: str) -> None:
        self._path, self._boot = path, boot

    def recall(self, kind: str, most: int = DEVICE_LIMIT) -> dict[str, str]:
        """Identity of a device of this kind -> its name, at most `most`; empty after a
        reboot, or if the file cannot be read.
        """
        known = read_json_table(self._path)
        names: Any = known.get(kind) if known.get("boot") == self._boot else None
        if not isinstance(names, dict):
            return {}
        pairs: Iterable[Any] = islice(names.items(), most)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        return {one: name for one, name in pairs if isinstance(one, str) and isinstance(name, str)}

    def keep(self, kind: str, names: Mapping[str, str]) -> None:
        """Keep these names; a folder that cannot be written costs only the memory."""
        known = read_json_table(self._path)
        others = known if known.get("boot") == self._boot else {}
        with contextlib.suppress(OSError):
            make_private_folder(self._path.parent)
            shape = {**others, "boot": self._boot, kind: dict(names)}
            replace_private(self._path, json.dumps(shape).encode())


def own_memory(root: str, what: str = "devices") -> Optional[BootMemory]:
    """What is kept of this machine under this name; None for the recording of another."""
    boot = Tree("/").maybe("proc/sys/kernel/random/boot_id") if root == "/" else None
    if not boot:
        return None
    return BootMemory(agent_state_folder() / f"{what}.{os.uname().nodename}", boot)


class KeptNames:
    """Gives each device a name once: none gets the name of another that has gone.

    Used from one thread.
    """

    def __init__(self, kind: str, memory: Optional[BootMemory]) -> None:
        self._kind, self._memory = kind, memory
        self._names = memory.recall(kind) if memory else dict[str, str]()
        """Identity of a device -> its name."""

    def name(self, identity: str, wanted: Iterable[str]) -> str:
        """The name of the device with this identity (UUID, serial, address); a new one
        gets the first of `wanted` that is free.

        Raises LookupError if none is free.
        """
        known = self._names.get(identity)
        if known is None:
            taken = set(self._names.values())
            known = next((name for name in wanted if name not in taken), None)
            if known is None:
                raise LookupError(f"no name is left for {clean_text(identity, 80)}")
            self._names[identity] = known
            if self._memory:
                self._memory.keep(self._kind, self._names)
        return known


def pick_evenly(names: Sequence[str], count: int) -> Sequence[str]:
    """At most `count` of the names, evenly distributed."""
    return names[:: max(1, len(names) // count)][:count]


def memory_sizes(meminfo: bytes) -> dict[bytes, int]:
    """Name of a row of /proc/meminfo -> bytes, for the rows that are used."""
    return {name: int(size) * 1024 for name, size in _MEMORY.findall(meminfo)}


def memory_in_use(meminfo: bytes) -> tuple[int, int]:
    """(bytes in use, bytes in all) of the machine, as for a GPU without
    memory of its own; raises KeyError.
    """
    sizes = memory_sizes(meminfo)
    return sizes[b"MemTotal"] - sizes[b"MemAvailable"], sizes[b"MemTotal"]
