"""The protocol of a collector, and the reading that it returns."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Callable, Protocol, Union

from rankdeck_agent.files import MISSING, clean, reason
from rankdeck_agent.wire import Event, Values

FAILED_LIMIT = 256
DEVICE_LIMIT = 1024
LARGEST = 1 << 64
_DIGITS = re.compile(rb"\s*(\d{1,20})\s*\Z")


class Reading:
    """What one collector read: `values` (metric -> device -> number) and `failed` (why not).

    A metric of the collector that is in neither, and not `pending`, is absent: this machine does
    not have it.
    """

    def __init__(self) -> None:
        self.values: Values = {}
        self.failed: dict[str, str] = {}
        self.pending: set[str] = set()
        """Metrics that need a second reading, such as shares of time."""
        self.trouble = ""
        """Why the collector as a whole is in trouble, one sentence, even if it has some numbers."""
        self.limited = False
        """Something failed because a permission is missing that not every site gives: no trouble."""
        self.inventory: Mapping[str, str] = {}
        self.events: list[Event] = []
        """What happened since the reading before; each event is sent once."""
        self.told = False
        """Whether a sample has included it."""

    def put(self, metric: str, value: Union[int, float], device: str = "") -> None:
        """Store a number in base units (wire.METRICS); one that is not finite counts as failed."""
        if not (math.isfinite(value) and abs(value) <= LARGEST):
            self._fail(metric, device, "not a number of 64 bits")
            return
        by_device = self.values.setdefault(metric, {})
        if len(by_device) < DEVICE_LIMIT:
            by_device[device] = value

    def fail(self, metrics: Iterable[str], error: BaseException, device: str = "") -> None:
        """Note why `metrics` could not be read; what the machine lacks stays absent."""
        if isinstance(error, OSError) and error.errno in MISSING:
            return
        for metric in metrics:
            self._fail(metric, device, reason(error))

    def _fail(self, metric: str, device: str, why: str) -> None:
        if len(self.failed) < FAILED_LIMIT:
            self.failed[f"{metric}/{device}" if device else metric] = why

    def attempt(self, metrics: Iterable[str], read: Callable[[], None], device: str = "") -> None:
        """Run one part of a collector: an error in it costs only `metrics`."""
        try:
            read()
        except (OSError, ValueError, IndexError, KeyError, ArithmeticError) as error:
            self.fail(metrics, error, device)

    def absent(self, metrics: Iterable[str]) -> set[str]:
        """Those of `metrics` that this reading says nothing about."""
        failed = {key.partition("/")[0] for key in self.failed}
        known = failed | self.pending
        return {m for m in metrics if m not in self.values and m not in known}


class Collector(Protocol):
    """Reads one kind of hardware. Collectors with the same `lane` share a thread, one after the other."""

    name: str
    lane: str
    period: float
    """Seconds from one reading to the next; 0: for every sample."""
    metrics: tuple[str, ...]
    """Names in wire.METRICS that it may return; it may return others too."""
    doing: str
    """What it is reading, for the sentence that says where it hangs."""

    def collect(self, now: float) -> Reading:
        """Read everything once; `now` is in seconds of a monotonic clock.

        Called in a thread of its own, never twice at once, and may block: after ten seconds the
        collector is reported as hanging, and samples go on without it. What cannot be read is
        noted in the reading; an exception counts as a failure of the whole collector.
        """
        ...


def whole(data: bytes) -> int:
    """The unsigned number that is all of `data`; raises ValueError."""
    found = _DIGITS.match(data)
    if found is None:
        raise ValueError(
            f"not a number: {clean(data[:40].decode('utf-8', 'replace').strip(), 40)!r}"
        )
    value = int(found.group(1))
    if value > LARGEST:
        raise ValueError("not a number of 64 bits")
    return value


def signed(data: bytes) -> int:
    """The number that is all of `data`, perhaps below zero; raises ValueError."""
    text = data.strip()
    return -whole(text[1:]) if text.startswith(b"-") else whole(text)
