"""One node as the console knows it."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from rankdeck.model.health import Health, Reason
from rankdeck.model.notice import Ack
from rankdeck.model.text import clean
from rankdeck.state import intake
from rankdeck.state.judging import Judgement
from rankdeck.state.series import Ring, rates
from rankdeck_agent.rules.explain import Finding
from rankdeck_agent.rules.facts import Expected
from rankdeck_agent.wire import METRICS, Event, Hello, Sample

Number = int | float
POINTS = 240
DEVICE_POINTS = 120
CHARTED_DEVICES = 16
EVENTS = 100
GAP = 15.0
"""Seconds without a reading after which a rate is not worth giving; 3 intervals if longer."""
FIRST = 100.0
"""The same, while a metric came only once: some come every half minute."""
EPOCH = 1e9
"""A node's stamp below this is no wall time: its clock is not judged."""

TOTALS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "cpu.used": max, "mem.used": max, "gpu.used": lambda v: sum(v) / len(v), "gpu.mem_used": sum, "gpu.temp": max,
    "gpu.power": sum, "net.rx": sum, "net.tx": sum, "rdma.rx": sum, "rdma.tx": sum, "disk.read": sum, "disk.write": sum,
}  # fmt: skip
"""Charted metrics, and what is drawn for the node as a whole."""
BY_DEVICE = frozenset(
    {"gpu.used", "gpu.temp", "gpu.power", "net.rx", "net.tx", "rdma.rx", "rdma.tx"}
)
_COUNTERS = frozenset(
    name for name, metric in METRICS.items() if metric.kind == "counter"
)
_LINKS = ("rdma.up", "net.up")


class NodeState:
    """Read by everyone; written by Fleet alone."""

    installed = False
    """An installed agent said hello, and was not taken away since."""

    def __init__(
        self,
        name: str,
        expected: Expected,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.name = name
        self.hello: Hello | None = None
        self.values: dict[str, Mapping[str, Number]] = {}
        self.absent: frozenset[str] = frozenset()
        self.failed: dict[str, str] = {}
        self.rates: dict[str, dict[str, float]] = {}
        """Counters per second, by the node's clock."""
        self.attach = "not attached yet"
        self.failed_to_attach = False
        self.up = True
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self.skew: float | None = None
        """Seconds by which the node's clock is ahead of ours."""
        self.at = 0.0
        """Stamp of the newest sample, on the node's clock."""
        self.samples = 0
        """Samples taken in, ever."""
        self.seen_up: frozenset[tuple[str, str]] = frozenset()
        """(metric, device) of links that were up while we looked."""
        self._judgement = Judgement(expected)
        self._clock = clock
        self._wall = wall
        self._heard: float | None = None
        self._stamps: dict[str, tuple[float, float]] = {}
        self._intervals: dict[str, float] = {}
        self._rings: dict[tuple[str, str], Ring] = {}
        self._holes: tuple[object, object] = (None, None)
        self._overdue: dict[str, str] = {}
        self._stale = True
        self._judged_silent = True

    # ---- to read

    @property
    def health(self) -> Health:
        """Health as of now; silence counts from the moment it is noticed."""
        if self._stale or self.silent != self._judged_silent or self.silent:
            self._judge()
        return self._judgement.health

    def findings(self) -> tuple[Finding, ...]:
        """The 25 checks, each with its evidence."""
        _ = self.health
        return self._judgement.findings(self, self._clock())

    def held_s(self, reason: Reason) -> float | None:
        """Seconds since a reason began; None where nobody knows."""
        if reason.since is None:
            return None
        return max(0.0, self._clock() - reason.since)

    @property
    def uptime(self) -> float | None:
        """Seconds since the node was booted, by its own clock."""
        booted = self.hello.inventory.get("boot.at", "") if self.hello else ""
        number = intake.number_in(booted)
        return self.at - number if number and self.at > EPOCH else None

    @property
    def simulated(self) -> tuple[str, ...]:
        """Prefixes of metrics that are made up."""
        return self.hello.simulated if self.hello else ()

    @property
    def patience(self) -> float:
        """Seconds of silence after which the node is unknown."""
        return max(3.0, 3.0 * (self.hello.period if self.hello else 1.0))

    @property
    def silent(self) -> bool:
        heard = self.heard_s()
        return not self.up or heard is None or heard > self.patience

    @property
    def was_heard(self) -> bool:
        """Whether a sample ever came in."""
        return self._heard is not None

    def heard_s(self) -> float | None:
        """Seconds since the last sample came in; None: never."""
        return None if self._heard is None else max(0.0, self._clock() - self._heard)

    def value(self, metric: str, device: str = "") -> Number | None:
        return self.values.get(metric, {}).get(device)

    def rate(self, metric: str, device: str = "") -> float | None:
        """A counter per second; None after a reset, a gap, or one reading only."""
        return self.rates.get(metric, {}).get(device)

    def devices(self, metric: str) -> tuple[str, ...]:
        return tuple(self.values.get(metric, ()))

    def current(self, metric: str) -> Mapping[str, Number]:
        """Per device: values of a gauge, growth per second of a counter."""
        return (
            self.rates.get(metric, {})
            if metric in _COUNTERS
            else self.values.get(metric, {})
        )

    def worst(self, metric: str) -> Number | None:
        return max(self.current(metric).values(), default=None)

    def mean(self, metric: str) -> float | None:
        found = self.current(metric)
        return sum(found.values()) / len(found) if found else None

    def total(self, metric: str) -> Number | None:
        found = self.current(metric)
        return sum(found.values()) if found else None

    def series(self, metric: str, device: str = "") -> Sequence[tuple[float, float]]:
        """Points of a charted metric, oldest first; device "" is the node as a whole."""
        ring = self._rings.get((metric, device))
        return ring.points() if ring else ()

    # ---- to write (Fleet)

    def take_hello(self, raw: Hello) -> Event | None:
        """Keep who the node is; gives the event where it was booted since."""
        fresh, before = intake.hello(raw, self.name), self.hello
        if not fresh.up and self.hello:
            fresh = Hello(self.name, False, fresh.at, self.hello.boot, self.hello.agent,
                          self.hello.period, self.hello.inventory, self.hello.simulated, fresh.installed)  # fmt: skip
        self.hello, self.up, self._stale = fresh, fresh.up, True
        # Two agents of one name take turns: the other's hello does not make this one forgotten.
        self.installed = self.installed or fresh.installed
        if before and before.boot and fresh.boot and before.boot != fresh.boot:
            text = "the node was booted again"
            return self.take_event(Event(fresh.at, "warn", "node.reboot", text))
        return None

    def take_event(self, raw: Event) -> Event:
        """Keep what happened; gives it as it is kept."""
        event = intake.event(raw)
        self.events.append(event)
        self._judgement.hear(event)
        self._stale = True
        return event

    def set_notes(
        self,
        *,
        acks: tuple[Ack, ...] | None = None,
        drift: tuple[Reason, ...] | None = None,
        busy: bool | None = None,
    ) -> bool:
        """What others know of this node; gives whether it is new."""
        known = self._judgement
        before = (known.acks, known.drift, known.busy)
        known.acks = known.acks if acks is None else acks
        known.drift = known.drift if drift is None else drift
        known.busy = known.busy if busy is None else busy
        changed = (known.acks, known.drift, known.busy) != before
        self._stale = self._stale or changed
        return changed

    def take_as_lasting(self) -> None:
        """Judge what was wrong at two looks as if it had been watched for a minute."""
        self._judgement.take_as_lasting()
        self._stale = True

    def take_sample(self, sample: Sample) -> None:
        now, wall = self._clock(), self._wall()
        at = intake.number(sample.at)
        self._heard, self.up, self._stale = now, True, True
        self.at = at
        self.samples += 1
        self.skew = at - wall if at > EPOCH else None
        self._take_holes(sample)
        for metric, raw in islice(sample.values.items(), intake.METRICS):
            self._take_metric(metric, raw, at)

    def set_attach(self, text: str, *, failed: bool) -> None:
        self.attach, self.failed_to_attach, self._stale = text, failed, True

    def drop_stale(self) -> bool:
        """Forget metrics that stopped coming while the node goes on talking."""
        late = [
            m
            for m, (at, _) in self._stamps.items()
            if self.at - at > self._patience_for(m)
        ]
        for metric in late:
            self._forget(metric)
            if metric not in self.absent:
                self._overdue[metric] = self.failed[metric] = "no new reading"
            self._stale = True
        return bool(late)

    # ---- inside

    def _take_holes(self, sample: Sample) -> None:
        holes = (sample.absent, sample.failed)
        if holes == self._holes:
            return
        self._holes = holes
        self.absent = intake.names(sample.absent)
        self.failed = {**self._overdue, **intake.texts(sample.failed)}
        for metric in (*self.absent, *self.failed):
            if metric in self.values:
                self._forget(metric)

    def _forget(self, metric: str) -> None:
        self.values.pop(metric, None)
        self.rates.pop(metric, None)
        self._stamps.pop(metric, None)

    def _take_metric(self, metric: str, raw: Mapping[str, Number], at: float) -> None:
        before = self.values.get(metric)
        if before is None:
            if len(self.values) >= intake.METRICS or len(metric) > intake.NAME:
                return
            self._take_first(metric, raw, at)
            return
        if not (raw.keys() == before.keys() and intake.plain(raw)):
            raw = self._bounded(metric, raw)
        self.values[metric] = raw
        if metric in _LINKS and raw != before:
            self._note_links(metric, raw)
        then = self._stamps[metric][0]
        self._stamps[metric] = (at, then)
        if metric in _COUNTERS:
            self._take_rates(metric, before, at - then)
        if metric in TOTALS:
            self._chart(metric, at)
        if at - then > 0:
            self._intervals[metric] = at - then

    def _take_first(self, metric: str, raw: Mapping[str, Number], at: float) -> None:
        kept = self._bounded(metric, raw)
        if not kept or clean(metric, intake.NAME) != metric:
            return
        self.values[metric] = kept
        self._stamps[metric] = (at, at)
        if self._overdue.pop(metric, None):
            self.failed.pop(metric, None)
        if metric in _LINKS:
            self._note_links(metric, kept)
        if metric in TOTALS:
            self._chart(metric, at)

    def _bounded(self, metric: str, raw: Mapping[str, Number]) -> dict[str, Number]:
        """Clean numbers, fewer where the node has very many already."""
        others = sum(
            len(devices) for name, devices in self.values.items() if name != metric
        )
        room = max(0, intake.NUMBERS - others)
        return dict(islice(intake.numbers(raw).items(), room))

    def _take_rates(
        self, metric: str, before: Mapping[str, Number], seconds: float
    ) -> None:
        if 0 < seconds <= self._patience_for(metric):
            self.rates[metric] = rates(before, self.values[metric], seconds)
        else:
            self.rates.pop(metric, None)

    def _patience_for(self, metric: str) -> float:
        interval = self._intervals.get(metric)
        return FIRST if interval is None else max(GAP, 3.0 * min(interval, 600.0))

    def _note_links(self, metric: str, raw: Mapping[str, Number]) -> None:
        new = {
            (metric, device)
            for device, up in raw.items()
            if up and (metric, device) not in self.seen_up
        }
        if new and len(self.seen_up) < intake.DEVICES:
            self.seen_up |= new

    def _chart(self, metric: str, at: float) -> None:
        now = self.current(metric)
        if not now:
            return
        self._ring(metric, "", POINTS).add(at, TOTALS[metric](tuple(now.values())))
        if metric in BY_DEVICE:
            for device, value in islice(now.items(), CHARTED_DEVICES):
                ring = self._rings.get((metric, device))
                if ring is None and device and self._room_for(metric):
                    ring = self._ring(metric, device, DEVICE_POINTS)
                if ring is not None and device:
                    ring.add(at, value)

    def _room_for(self, metric: str) -> bool:
        return sum(1 for name, _ in self._rings if name == metric) <= CHARTED_DEVICES

    def _ring(self, metric: str, device: str, size: int) -> Ring:
        ring = self._rings.get((metric, device))
        if ring is None:
            ring = self._rings[metric, device] = Ring(size)
        return ring

    def _judge(self) -> None:
        self._judgement.judge(self, self._clock(), self._wall())
        self._stale, self._judged_silent = False, self.silent
