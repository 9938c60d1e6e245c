"""Collects events from the kernel log: lines that match a pattern; a
flood of lines becomes a few events.
"""

import errno
import os
import time
from collections import Counter
from functools import partial
from itertools import islice
from typing import Callable, Optional

from rankdeck_agent.collectors.base import BlindError, Reading
from rankdeck_agent.collectors.pcie import is_as_built
from rankdeck_agent.kernel_lines import Found, KernelLines, find_link_limit
from rankdeck_agent.kernel_records import open_ring, raw_records
from rankdeck_agent.machine import read_boot_time
from rankdeck_agent.rules.events import event_kind
from rankdeck_agent.system_files import Tree
from rankdeck_agent.wire import Event

_RING = "dev/kmsg"
_RECORD = 8192
_AT_ONCE = 2000
"""Most records read for one sample.

The rest stays in the ring buffer, and until it is read `kernel.events` is pending.
"""
_TRY_AGAIN = 60.0
_RECENT = 600.0
"""Seconds before the start of the agent from which `info` events are still sent;
other events are sent while they count.
"""
_SAME = 5.0
"""Seconds in which equal lines about the same device become one event."""
_BURST = 30
_PER_SECOND = 0.5
_LATE = 64
_LEVELS = ("info", "ok", "warn", "bad")

Key = tuple[str, Optional[int], str, Optional[int]]
"""(kind, number of an Xid, device, link)."""


class Folding:
    """Lets events through until there are too many; reports later how many it dropped.

    The last event of each kind and device is never dropped: a server that
    answers again, a link that is up again.
    """

    def __init__(self) -> None:
        self._last: dict[Key, tuple[str, float]] = {}
        self._late: dict[tuple[Key, str], Event] = {}
        """(key, level) -> event that waits: a milder event does not replace a worse one."""
        self._folded: Counter[str] = Counter()
        self._room = float(_BURST)
        self._now: Optional[float] = None

    def add(self, found: Found, at: float) -> list[Event]:
        """The events to send for one line, at most one."""
        key = (found.kind, found.xid, found.device, found.link)
        level, before = self._last.get(key, ("", -1e9))
        if len(self._last) >= 1024:
            self._last.clear()
        self._last[key] = (found.level, at)
        if level == found.level and 0 <= at - before < _SAME:
            self._folded[found.kind] += 1
            return []

        event = Event(
            at, found.level, f"kernel.{found.kind}", found.text, found.device, found.xid, found.link
        )
        if self._room < 1:
            self._keep(key, found.kind, event)
            return []
        # There is room only after the events that waited have been sent.
        self._room -= 1
        return [event]

    def rest(self) -> list[Event]:
        """All events that wait, at once: for the old lines, which are read only once."""
        events = list(self._late.values())
        self._late.clear()
        return events

    def due(self, now: float) -> list[Event]:
        """The events that waited and may be sent now; `now` in monotonic seconds."""
        passed = 0.0 if self._now is None else now - self._now
        self._now = now
        self._room = min(float(_BURST), self._room + passed * _PER_SECOND)
        events: list[Event] = []
        while self._late and self._room >= 1:
            self._room -= 1
            events.append(self._late.pop(next(iter(self._late))))
        if self._folded and not self._late and self._room >= 1:
            self._room -= 1
            parts = ", ".join(f"{n} × {kind}" for kind, n in self._folded.most_common(8))
            text = f"more lines of the same in the kernel log: {parts}"
            self._folded.clear()
            events.append(Event(time.time(), "info", "kernel.log", text))
        return events

    def _keep(self, key: Key, kind: str, event: Event) -> None:
        """Have an event wait, in place of those that it makes outdated."""
        for level in _LEVELS if event.level == "ok" else (event.level, "ok"):
            if self._late.pop((key, level), None):
                self._folded[kind] += 1
        self._late[key, event.level] = event
        if len(self._late) > _LATE:
            # Drop the oldest of the mildest: a flood must not hide a serious event.
            del self._late[min(self._late, key=lambda one: _LEVELS.index(one[1]))]
            self._folded[kind] += 1


LOG_CLOSED = {
    errno.EPERM: "the kernel log may not be read: set kernel.dmesg_restrict=0, or install the agent (it gets CAP_SYSLOG)",
    errno.EACCES: "the kernel log may not be read: add the user to the group of /dev/kmsg, often adm",
    errno.ENOENT: "there is no /dev/kmsg here, as in a container: what the kernel says of this node is not seen",
}
"""errno -> why `kernel.events` cannot be read.

A missing permission means fewer checks, not a fault of the node.
"""


class KernelLogCollector:
    """Events from /dev/kmsg, from the oldest line that the kernel still has."""

    name = "kernel"
    lane = "proc"
    period = 0.0
    metrics: tuple[str, ...] = ("kernel.events",)

    def __init__(
        self, root: str = "/", *, clock: Callable[[], float] = time.time, at_once: int = _AT_ONCE
    ) -> None:
        self.doing = ""
        self._at_once = at_once
        self._tree = Tree(root)
        self._clock = clock
        self._handle: Optional[int] = None
        self._tried = -_TRY_AGAIN
        self._refused: Optional[Exception] = None
        self._told_closed = False
        self._lines = KernelLines()
        self._folding = Folding()
        self._total = 0
        self._began = 0.0
        self._cut = b""
        """An incomplete last line: a recorded log is not divided into records."""
        self._caught_up = False

    def collect(self, now: float) -> Reading:
        reading = Reading()
        reading.events += self._folding.due(now)
        reading.attempt(self.metrics, lambda: self._read(reading, now))
        if reading.blind and not self._told_closed:
            self._told_closed = True
            why = reading.failed["kernel.events"]
            reading.events.append(Event(self._clock(), "info", "kernel.log", why))
        return reading

    def _read(self, reading: Reading, now: float) -> None:
        lost = partial(self._lost, reading)
        records = list(islice(raw_records(self._open(now), lost), self._at_once))
        if records:
            self._take(reading, b"".join(records), self._boot())
        if len(records) >= self._at_once:
            reading.pending.add("kernel.events")
            return
        if not self._caught_up:
            self._caught_up = True
            self._take(reading, b"\n", self._boot())
            reading.events += self._folding.rest()
        reading.put("kernel.events", self._total)

    def _lost(self, reading: Reading) -> None:
        text = "the kernel log was overwritten before it was read · some lines are lost"
        reading.events.append(Event(self._clock(), "warn", "kernel.log", text))

    def _open(self, now: float) -> int:
        """The log's descriptor.

        If opening it failed, raises that error again until the next try, after _TRY_AGAIN seconds.
        """
        if self._handle is not None:
            return self._handle
        if self._refused is not None and now - self._tried < _TRY_AGAIN:
            raise self._refused
        self._tried = now
        try:
            self._handle = open_ring(self._tree.path(_RING))
        except OSError as error:
            # A recording need not have one.
            here = self._tree.root == "/" or error.errno != errno.ENOENT
            why = LOG_CLOSED.get(error.errno or 0) if here else None
            self._refused = BlindError(why) if why else error
            raise self._refused from error
        self._began = self._clock()
        return self._handle

    def _boot(self) -> float:
        """Epoch seconds of the boot, from the kernel: so a line has the
        same time each time the agent starts.
        """
        return float(read_boot_time(self._tree) or self._clock() - time.monotonic())

    def _take(self, reading: Reading, data: bytes, boot: float) -> None:
        *lines, self._cut = (self._cut + data).split(b"\n")
        if len(self._cut) > _RECORD or not self._cut.strip():
            self._cut = b""
        for raw in lines:
            # Lines that begin with a space are further fields of the last record.
            if not raw or raw.startswith(b" "):
                continue
            line, found = self._lines.take(raw.decode("utf-8", "replace"))
            if line is None or found is None or self._is_harmless(found, line.message):
                continue
            at = self._clock() if line.since is None else boot + line.since
            kind = event_kind(f"kernel.{found.kind}")
            if at <= self._began - (_RECENT if found.level == "info" else kind.lasts):
                continue
            self._total += 1
            reading.events += self._folding.add(found, round(at, 3))

    def _is_harmless(self, found: Found, message: str) -> bool:
        """Whether the machine itself shows that nothing is wrong."""
        limit = find_link_limit(message) if found.kind == "pcie" else None
        try:
            return limit is not None and is_as_built(self._tree, limit)
        except (OSError, ValueError):
            return False

    def __del__(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
