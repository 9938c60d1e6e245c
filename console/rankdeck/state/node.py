"""The state of one node: its newest numbers, events and health."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import inf

from rankdeck.model.health import Ack, Health, Level, Reason, worst_of
from rankdeck.model.kubernetes import KubernetesNode
from rankdeck.model.text import clean
from rankdeck.rules.kubernetes import merged
from rankdeck.state import sanitize
from rankdeck.state.series import GAP, Chart, MetricValues, growth
from rankdeck_agent.rules.derive import derive
from rankdeck_agent.rules.explain import CheckResult, cover, explain
from rankdeck_agent.rules.facts import Expected, Facts, Memory
from rankdeck_agent.rules.judge import as_lasting, assess
from rankdeck_agent.wire import METRICS, Event, Hello, Sample


def mute(health: Health, acks: Sequence[Ack], now: float) -> Health:
    """The same reasons, the acknowledged ones marked and last; `now` is epoch seconds."""
    if not acks or not health.reasons:
        return health
    marked = tuple(_marked(reason, acks, now) for reason in health.reasons)
    ordered = tuple(sorted(marked, key=lambda r: r.acknowledged_until is not None))
    return replace(health, level=worst_of(ordered), reasons=ordered)


def _marked(reason: Reason, acks: Sequence[Ack], now: float) -> Reason:
    covering = [ack for ack in acks if ack.covers(reason.check, reason.device, reason.level, now)]
    if not covering:
        return reason
    last = max(covering, key=lambda ack: ack.until)
    return replace(reason, acknowledged_until=last.until, acknowledged_by=last.words)


Number = int | float
EVENTS = 100
EPOCH = 1e9
"""Epoch seconds below which a node's stamp is no wall time, so that its clock is not judged."""
STAMPS = 5
"""Samples in a row that must say alike by how much a clock is behind."""
ALIKE = 0.5
"""Seconds between the earliest and the latest of them; on a slow link they differ more."""

CHARTED = frozenset({"cpu.used", "net.rx", "net.tx", "rdma.rx", "rdma.tx"})
"""Metrics whose recent past is kept: those that a screen draws."""
_COUNTERS = frozenset(name for name, metric in METRICS.items() if metric.kind == "counter")
_LINKS = ("rdma.up", "net.up")


class _Skew:
    """By how many seconds a node's clock is ahead, from samples that each came just now."""

    def __init__(self) -> None:
        self.ahead: float | None = None
        self._stamps: deque[float] = deque(maxlen=STAMPS)

    def take(self, ahead: float | None) -> None:
        """Learn from one more sample; None where its stamp is no time.

        No sample comes before it was sent, but a slow link may hold it up: that a clock is behind
        is believed when several samples in a row say so alike.
        """
        if ahead is None:
            self.ahead = None
            return
        self._stamps.append(ahead)
        alike = len(self._stamps) == STAMPS and max(self._stamps) - min(self._stamps) < ALIKE
        if self.ahead is None or ahead > self.ahead or alike:
            self.ahead = max(self._stamps) if alike else ahead


class NodeState:
    """Read by everyone; written by Fleet alone."""

    installed = False
    """Whether an installed agent has said hello and was not removed since."""
    first_heard: float | None = None
    """When the first sample came in, epoch seconds on our clock."""
    kubernetes: KubernetesNode | None = None
    """What the API server says of it; None where there is none, or it has not said anything yet."""

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
        self.attach = "not attached yet"
        self.failed_to_attach = False
        self.up = True
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self._skew = _Skew()
        self.at = 0.0
        """Stamp of the newest sample, on the node's clock."""
        self.samples = 0
        """Number of samples received."""
        self.seen_up: frozenset[tuple[str, str]] = frozenset()
        """(metric, device) of links that were up while we looked."""
        self._judgement = Judgement(expected)
        self._clock = clock
        self._wall = wall
        self._heard: float | None = None
        self._silent_from = -inf
        self._numbers = 0
        """Numbers kept, of all metrics together."""
        self._readings: dict[str, MetricValues] = {}
        self._charts: dict[str, Chart] = {}
        self._holes: tuple[object, object] = (None, None)
        self._overdue: dict[str, str] = {}
        self._stale = True
        self._judged_silent = True

    # ---- to read

    @property
    def health(self) -> Health:
        """Health now."""
        if self._stale or self.silent != self._judged_silent or self.silent:
            self._judge()
        return self._judgement.health

    def findings(self) -> tuple[CheckResult, ...]:
        """The 25 checks, each with its evidence."""
        _ = self.health
        return self._judgement.findings(self, self._clock())

    def held_s(self, reason: Reason) -> float | None:
        """Seconds since a reason began; None if that is not known."""
        if reason.since is None:
            return None
        return max(0.0, self._clock() - reason.since)

    @property
    def skew(self) -> float | None:
        """Seconds by which the node's clock is ahead of ours; None: nobody knows."""
        return self._skew.ahead

    @property
    def uptime(self) -> float | None:
        """Seconds since the node was booted, by its own clock."""
        booted = self.hello.inventory.get("boot.at", "") if self.hello else ""
        number = sanitize.number_in(booted)
        return self.at - number if number and self.at > EPOCH else None

    @property
    def simulated(self) -> tuple[str, ...]:
        """Prefixes of metrics that are simulated."""
        return self.hello.simulated if self.hello else ()

    @property
    def patience(self) -> float:
        """Seconds of silence after which the node is unknown."""
        return max(3.0, 3.0 * (self.hello.period if self.hello else 1.0))

    @property
    def silent(self) -> bool:
        return self._clock() > self._silent_from

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
        reading = self._readings.get(metric)
        return reading.rate(device) if reading and metric in _COUNTERS else None

    @property
    def rates(self) -> dict[str, dict[str, float]]:
        """Counters per second, by the node's clock."""
        each = {m: self.current(m) for m in self._readings if m in _COUNTERS}
        return {metric: dict(found) for metric, found in each.items() if found}

    def devices(self, metric: str) -> tuple[str, ...]:
        return tuple(self.values.get(metric, ()))

    def current(self, metric: str) -> Mapping[str, Number]:
        """Per device: values of a gauge, growth per second of a counter."""
        if metric not in _COUNTERS:
            return self.values.get(metric, {})
        reading = self._readings.get(metric)
        return reading.rates() if reading else {}

    def worst(self, metric: str) -> Number | None:
        return max(self.current(metric).values(), default=None)

    def mean(self, metric: str) -> float | None:
        found = self.current(metric)
        return sum(found.values()) / len(found) if found else None

    def total(self, metric: str) -> Number | None:
        found = self.current(metric)
        return sum(found.values()) if found else None

    def series(self, metric: str, device: str = "") -> Sequence[tuple[float, float]]:
        """Points of a charted metric, oldest first: readings of a gauge, growth of a counter."""
        chart = self._charts.get(metric)
        points = chart.points(device) if chart else []
        if metric not in _COUNTERS:
            return points
        reading = self._readings.get(metric)
        return growth(points, reading.patience if reading else GAP)

    # ---- to write (Fleet)

    def take_hello(self, raw: Hello) -> Event | None:
        """Take a hello; returns an event if the node was rebooted since the last one."""
        fresh, before = sanitize.hello(raw, self.name), self.hello
        if not fresh.up and self.hello:
            fresh = Hello(self.name, False, fresh.at, self.hello.boot, self.hello.agent,
                          self.hello.period, self.hello.inventory, self.hello.simulated, fresh.installed)  # fmt: skip
        self.hello, self.up, self._stale = fresh, fresh.up, True
        self._await_next()
        # Two agents of one name take turns: the other's hello does not make this one forgotten.
        self.installed = self.installed or fresh.installed
        if before and before.boot and fresh.boot and before.boot != fresh.boot:
            text = "the node was booted again"
            return self.take_event(Event(fresh.at, "warn", "node.reboot", text))
        return None

    def take_event(self, raw: Event) -> Event:
        """Take an event; returns it cleaned, as it is kept."""
        event = sanitize.event(raw)
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
        """Set what the fleet knows of this node; returns whether that is new."""
        known = self._judgement
        before = (known.acks, known.drift, known.busy)
        known.acks = known.acks if acks is None else acks
        known.drift = known.drift if drift is None else drift
        known.busy = known.busy if busy is None else busy
        changed = (known.acks, known.drift, known.busy) != before
        self._stale = self._stale or changed
        return changed

    def set_kubernetes(self, view: KubernetesNode) -> None:
        """Take what the API server says of the node now."""
        self.kubernetes, self._stale = view, True

    def take_as_lasting(self) -> None:
        """Judge what was wrong at two looks as if it had been watched for a minute."""
        self._judgement.take_as_lasting()
        self._stale = True

    def take_sample(self, sample: Sample) -> None:
        now, wall = self._clock(), self._wall()
        at = sanitize.number(sample.at)
        if self.first_heard is None:
            self.first_heard = wall
        self._heard, self.up, self._stale = now, True, True
        self._await_next()
        self.at = at
        self.samples += 1
        self._skew.take(at - wall if at > EPOCH else None)
        self._take_holes(sample)
        sane = sanitize.sane(sample.values)
        for metric, raw in islice(sample.values.items(), sanitize.METRICS):
            reading = self._readings.get(metric)
            if reading is None:
                self._take_first(metric, raw, at)
                continue
            if sane and (*raw,) == reading.names:
                if metric in _LINKS and raw != reading.numbers:
                    self._note_links(metric, raw)
                reading.take(raw, at)
                self.values[metric] = reading.numbers
            else:
                self._take_others(reading, metric, raw, at)

    def set_attach(self, text: str, *, failed: bool) -> None:
        self.attach, self.failed_to_attach, self._stale = text, failed, True

    def drop_stale(self) -> bool:
        """Drop metrics that are no longer sent while the node still sends others; returns whether any was."""
        late = [m for m, r in self._readings.items() if self.at - r.at > r.patience]
        for metric in late:
            self._forget(metric)
            if metric not in self.absent:
                self._overdue[metric] = self.failed[metric] = "no new reading"
            self._stale = True
        return bool(late)

    # ---- inside

    def _await_next(self) -> None:
        """Note from when on the node is silent."""
        heard = self._heard if self.up else None
        self._silent_from = -inf if heard is None else heard + self.patience

    def _take_holes(self, sample: Sample) -> None:
        holes = (sample.absent, sample.failed)
        if holes == self._holes:
            return
        self._holes = holes
        self.absent = sanitize.names(sample.absent)
        self.failed = {**self._overdue, **sanitize.texts(sample.failed)}
        for metric in (*self.absent, *self.failed):
            if metric in self.values:
                self._forget(metric)

    def _forget(self, metric: str) -> None:
        self._numbers -= len(self.values.pop(metric, ()))
        self._readings.pop(metric, None)

    def _take_first(self, metric: str, raw: Mapping[str, Number], at: float) -> None:
        odd = len(metric) > sanitize.NAME or clean(metric, sanitize.NAME) != metric
        if odd or len(self.values) >= sanitize.METRICS:
            return
        kept = self._bounded(metric, raw)
        if not kept:
            return
        self.values[metric] = kept
        chart = self._charts.setdefault(metric, Chart()) if metric in CHARTED else None
        self._readings[metric] = MetricValues(kept, at, chart, counts=metric in _COUNTERS)
        if self._overdue.pop(metric, None):
            self.failed.pop(metric, None)
        if metric in _LINKS:
            self._note_links(metric, kept)

    def _take_others(
        self, reading: MetricValues, metric: str, raw: Mapping[str, Number], at: float
    ) -> None:
        """Take numbers that must be checked, or that are of other devices than before."""
        kept = self._bounded(metric, raw)
        if metric in _LINKS:
            self._note_links(metric, kept)
        reading.take_others(kept, at)
        self.values[metric] = reading.numbers

    def _bounded(self, metric: str, raw: Mapping[str, Number]) -> dict[str, Number]:
        """Cleaned numbers; fewer if the node already has very many."""
        before = len(self.values.get(metric, ()))
        room = max(0, sanitize.NUMBERS - self._numbers + before)
        kept = dict(islice(sanitize.numbers(raw).items(), room))
        self._numbers += len(kept) - before
        return kept

    def _note_links(self, metric: str, raw: Mapping[str, Number]) -> None:
        new = {
            (metric, device)
            for device, up in raw.items()
            if up and (metric, device) not in self.seen_up
        }
        if new and len(self.seen_up) < sanitize.DEVICES:
            self.seen_up |= new

    def _judge(self) -> None:
        self._judgement.judge(self, self._clock(), self._wall())
        self._stale, self._judged_silent = False, self.silent


WAITING = 100
"""Most events that wait to be judged; older ones are only listed."""


class Judgement:
    """Written by Fleet through the node that it belongs to."""

    def __init__(self, expected: Expected) -> None:
        self.health = Health(Level.UNKNOWN)
        self.acks: tuple[Ack, ...] = ()
        self.drift: tuple[Reason, ...] | None = None
        self.busy = False
        self._expected = expected
        self._memory = Memory()
        self._events: tuple[Event, ...] = ()

    def hear(self, event: Event) -> None:
        """Include this event in the next judgement."""
        self._events = (*self._events[-WAITING + 1 :], event)

    def judge(self, node: "NodeState", now: float, wall: float) -> Health:
        """Health now: `now` is the clock of silence, `wall` that of acknowledgements."""
        health, self._memory = assess(self._facts(node, now), self._memory)
        self._events = ()
        heard = node.was_heard and not node.silent
        tried = node.was_heard or node.failed_to_attach
        health = merged(health, node.kubernetes, heard=heard, tried=tried)
        self.health = mute(health, self.acks, wall)
        return self.health

    def take_as_lasting(self) -> None:
        """What held at two looks is judged as if it had been watched for a minute."""
        self._memory = as_lasting(self._memory)

    def findings(self, node: "NodeState", now: float) -> tuple[CheckResult, ...]:
        """The 25 checks with their evidence."""
        facts = self._facts(node, now)
        covered = cover(facts, self._memory.settled)
        if node.silent:
            covered = cover(Facts(now=now, absent=facts.absent), settled=False)
        return explain(facts, derive(facts), self._memory, covered, self.health.reasons)

    def _facts(self, node: "NodeState", now: float) -> Facts:
        hello = node.hello
        heard = node.heard_s()
        return Facts(
            now=now,
            at=node.at,
            up=node.up,
            heard_s=heard,
            patience=node.patience,
            attach=node.attach if node.failed_to_attach or heard is None else "",
            values=node.values,
            absent=node.absent,
            failed=node.failed,
            inventory=hello.inventory if hello else {},
            boot=hello.boot if hello else "",
            uptime=node.uptime,
            events=self._events,
            seen_up=node.seen_up,
            skew=node.skew,
            expected=self._expected,
            busy=self.busy,
            drift=self.drift,
        )
