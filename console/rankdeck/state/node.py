"""The state of one node: its newest numbers and their recent past, its events and health."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from rankdeck.model.health import UNHEARD, Ack
from rankdeck.model.safe_text import clean_line
from rankdeck.state import sanitize
from rankdeck.state.clock_skew import ClockSkew
from rankdeck.state.metric_values import GAP, Chart, MetricValues, Number, counter_growth
from rankdeck_agent.rules.levels import SUMMARY, Expected, Health, Reason
from rankdeck_agent.wire import METRICS, Event, HealthReport, Hello, Sample

if TYPE_CHECKING:
    from rankdeck.model.scheduler_node import SchedulerNode
    from rankdeck.state.judgement import NewestReport, NodeJudgement
    from rankdeck_agent.rules.coverage import CheckResult
    from rankdeck_agent.rules.facts import Facts


EVENTS = 100
EPOCH = 1e9
"""A stamp below this is not wall time: the node's clock is not judged by it."""
DRIFT = 0.05
"""A node is judged again when its clock has moved by this many seconds."""
RIGHT = 0.25
"""A clock that is off by less than this is right (seconds): half of the
smallest threshold of the rule for clocks.
"""

CHARTED = frozenset({"cpu.used", "gpu.used", "net.rx", "net.tx", "rdma.rx", "rdma.tx"})
"""Metrics whose recent past is kept: those that a screen draws."""
_COUNTERS = frozenset(name for name, metric in METRICS.items() if metric.kind == "counter")
_LINKS = ("rdma.up", "net.up")
_NONE = frozenset[str]()
_NO_LINKS = frozenset[tuple[str, str]]()
REBOOT = "node.reboot"
"""An event that the console detects itself: an agent does not
know about the boot before its own.
"""
HEARTBEATS, LATE = 1.5, 4.0
"""A node is unknown after HEARTBEATS heartbeats and LATE seconds of
silence: 19 s with a heartbeat every 10 s.
"""
ASKED = 2.0
"""Seconds that the first full sample may take after it was requested."""
GONE = 5.0
"""The numbers of the last full sample are shown for this many seconds."""


class NodeState:
    """The state of one node. Read by everyone; written only by Fleet."""

    # There are thousands of them.
    __slots__ = (
        "_charts", "_clock", "_expected", "_heard", "_holes", "_judged_silent", "_judged_skew", "_kept_judgement", "_numbers",
        "_overdue", "_readings", "_sampled", "_skew", "_stale_from", "_swept_at", "_wall", "_wanted_since", "absent", "at", "attach", "blind",
        "events",
        "failed", "failed_to_attach", "first_heard", "head_behind", "hello", "in_scheduler", "installed", "name", "samples", "seen_up",
        "silent_from", "up", "values",
    )  # fmt: skip

    def __init__(
        self, name: str, expected: Expected, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self.name = name
        self.head_behind = 0.0
        """Seconds by which the console's own clock is behind that of most nodes; set by Fleet."""
        self.hello: Hello | None = None
        self.installed = False
        """Whether an installed agent has sent a hello and was not removed since."""
        self.attach, self.failed_to_attach = "not attached yet", False
        """A sentence on whether this console could start the node's
        agent, and whether it could not.
        """
        self.events: tuple[Event, ...] = ()
        """The newest events, oldest first."""
        self.in_scheduler: SchedulerNode | None = None
        """What its scheduler reports about it; None if there is none, it
        does not know the node, or before its first report.
        """
        self.seen_up: frozenset[tuple[str, str]] = _NO_LINKS
        """(metric, device) of links that this console has seen up."""
        self._expected = expected
        self._kept_judgement: NodeJudgement | None = None
        self._skew = ClockSkew()
        self._clock, self._wall = clock, wall
        self._charts: dict[str, Chart] = {}
        self._begin_unheard()
        self._forget_all()

    def _begin_unheard(self) -> None:
        """Initial values, for a node that has not sent anything."""
        self.up = True
        self.at = 0.0
        """Stamp of the newest sample, on the node's clock."""
        self.samples = 0
        """Number of samples received."""
        self.first_heard: float | None = None
        """When the first message arrived, epoch seconds on the console's clock."""
        self.silent_from = -inf
        """Monotonic time of the console after which the node is
        silent, if no more messages come.
        """
        self._heard: float | None = None
        self._sampled: float | None = None
        """When the newest sample arrived, monotonic time of the console."""
        self._wanted_since: float | None = None
        """Since when full samples are requested (monotonic time); None: they are not."""
        self._judged_skew: float | None = None
        self._judged_silent = False

    def _forget_all(self) -> None:
        """Forget the numbers of full samples; charts keep their past."""
        self.values: dict[str, Mapping[str, Number]] = {}
        self.absent = _NONE
        self.failed: dict[str, str] = {}
        self.blind = _NONE
        self._readings: dict[str, MetricValues] = {}
        self._overdue: dict[str, str] = {}
        self._swept_at = self._stale_from = -inf
        """Two times on the node's clock (which may step back): of the last search for old
        numbers, and up to which none can be old.
        """
        self._numbers = 0
        """How many numbers are kept, of all metrics together."""
        self._holes: tuple[object, ...] = ()

    # ---- to read

    @property
    def inventory(self) -> Mapping[str, str]:
        """What its agent said of it when it began; {} before that."""
        return self.hello.inventory if self.hello else {}

    @property
    def health(self) -> Health:
        """Health according to the last judgement."""
        return self._kept_judgement.health if self._kept_judgement else UNHEARD

    @property
    def silenced(self) -> Ack | None:
        """The acknowledgement that silences the whole node; None if it is not silenced."""
        acks = self._kept_judgement.acks if self._kept_judgement else ()
        return next((one for one in acks if not one.check), None)

    @property
    def _judgement(self) -> "NodeJudgement":
        """Made at first use, so that the first screen does not wait for the rules."""
        if self._kept_judgement is None:
            from rankdeck.state.judgement import NodeJudgement

            self._kept_judgement = NodeJudgement(self._expected)
        return self._kept_judgement

    @property
    def _newest_report(self) -> "NewestReport | None":
        """The newest health report of the agent; None if there is none for its newest message."""
        return self._kept_judgement.newest if self._kept_judgement else None

    def findings(self) -> "tuple[CheckResult, ...]":
        """The results of the checks, each with its evidence."""
        return self._judgement.findings(self._facts(), silent=self.silent)

    @property
    def older_expectations(self) -> bool:
        """Whether its agent judges by a different `expect:` than that of the cluster file."""
        return self._judgement.older_expectations()

    @property
    def moves(self) -> bool:
        """Whether the health may change with time alone, without a new message."""
        return self._judgement.moves(silent=self._judged_silent)

    @property
    def detailed(self) -> bool:
        """Whether there is a full sample, and not only the few numbers of the health message."""
        return bool(self.values)

    def summary(self, metric: str) -> float | None:
        """The one number that lists show for a metric; see `SUMMARY` in `rules/levels.py`.

        None if there is none.
        """
        newest = self._newest_report
        known = newest.report.numbers.get(metric) if newest and not newest.remembered else None
        # An agent of another version may not send this number.
        return SUMMARY[metric].of(self.current) if known is None else known

    def lacks(self, metric: str) -> bool:
        """Whether a metric, or a device of it, could not be read."""
        if any(name.partition("/")[0] == metric for name in self.failed):
            return True
        newest = self._newest_report
        return not self.values and newest is not None and metric in newest.report.failed

    def has(self, metric: str) -> bool:
        """Whether the metric has a summary number, or could not be read."""
        return self.summary(metric) is not None or self.lacks(metric)

    def held_s(self, reason: Reason) -> float | None:
        """Seconds since a reason began; None if that is not known."""
        if reason.since is None:
            return None
        return max(0.0, self._clock() - reason.since)

    @property
    def ahead(self) -> float | None:
        """Seconds by which the node's clock is ahead of the console's; None: not known."""
        return self._skew.ahead

    @property
    def skew(self) -> float | None:
        """Seconds by which the node's clock is wrong; None: not known.

        The error of the console's own is taken off.
        """
        return None if self.ahead is None else self.ahead - self.head_behind

    @property
    def uptime(self) -> float | None:
        """Seconds since the node was booted, by its own clock."""
        booted = self.inventory.get("boot.at", "")
        number = sanitize.number_in(booted)
        return self.at - number if number and self.at > EPOCH else None

    @property
    def simulated(self) -> tuple[str, ...]:
        """Prefixes of metrics that are simulated."""
        return self.hello.simulated if self.hello else ()

    @property
    def patience(self) -> float:
        """Seconds of silence after which the node is unknown."""
        newest = self._newest_report
        if newest is None or self._wanted_since is not None:
            return max(3.0, 3.0 * (self.hello.period if self.hello else 1.0))
        return HEARTBEATS * newest.report.heartbeat + LATE

    @property
    def silent(self) -> bool:
        """Whether nothing has come from the node for longer than its `patience`, or ever."""
        return self._clock() > self.silent_from

    @property
    def _was_missed(self) -> bool:
        """Whether it is silent, or was silent at the last judgement."""
        return self._judged_silent or self.silent

    @property
    def was_heard(self) -> bool:
        """Whether a sample or a health message ever arrived."""
        return self._heard is not None

    @property
    def heard_at(self) -> float:
        """When it was heard last, monotonic time of the console; -inf: never."""
        return -inf if self._heard is None else self._heard

    def heard_s(self) -> float | None:
        """Seconds since the last sample or health message arrived; None: never."""
        return None if self._heard is None else max(0.0, self._clock() - self._heard)

    def value(self, metric: str, device: str = "") -> Number | None:
        """The newest reading of a metric in a full sample, in its own
        unit; of a counter, its count.
        """
        return self.values.get(metric, {}).get(device)

    def rate(self, metric: str, device: str = "") -> float | None:
        """Growth of a counter per second; None after a reset, a gap, or with one reading only."""
        reading = self._readings.get(metric)
        return reading.rate(device) if reading and metric in _COUNTERS else None

    @property
    def rates(self) -> dict[str, dict[str, float]]:
        """Counter -> device -> growth per second, by the node's clock."""
        each = {m: self.current(m) for m in self._readings if m in _COUNTERS}
        return {metric: dict(found) for metric, found in each.items() if found}

    def devices(self, metric: str) -> tuple[str, ...]:
        return tuple(self.values.get(metric, ()))

    def current(self, metric: str) -> Mapping[str, Number]:
        """Device -> value of a gauge, or growth per second of a counter."""
        if metric not in _COUNTERS:
            return self.values.get(metric, {})
        reading = self._readings.get(metric)
        return reading.rates() if reading else {}

    def series(self, metric: str, device: str = "") -> Sequence[tuple[float, float]]:
        """(time, number) of a charted metric, oldest first: readings of a
        gauge, or growth per second of a counter.
        """
        chart = self._charts.get(metric)
        points = chart.points(device) if chart else []
        if metric not in _COUNTERS:
            return points
        reading = self._readings.get(metric)
        return counter_growth(points, reading.patience if reading else GAP)

    # ---- to write (Fleet)

    def take_hello(self, raw: Hello) -> Event | None:
        """Take a hello; returns an event if the node was rebooted since the last hello."""
        fresh, before = sanitize.checked_hello(raw, self.name), self.hello
        if not fresh.up and self.hello:
            fresh = Hello(
                self.name,
                False,
                fresh.at,
                self.hello.boot,
                self.hello.agent,
                self.hello.period,
                self.hello.inventory,
                self.hello.simulated,
                fresh.installed,
                fresh.heartbeat,
            )
        self.hello, self.up = fresh, fresh.up
        self._await_next()
        # Two agents of one name may take turns: the hello of a temporary one
        # does not remove the installed one.
        self.installed = self.installed or fresh.installed
        if before and before.boot and fresh.boot and before.boot != fresh.boot:
            text = "the node was rebooted"
            return self.take_event(Event(fresh.at, "warn", REBOOT, text))
        return None

    def take_event(self, raw: Event) -> Event:
        """Take an event; returns the cleaned event that is kept."""
        event = sanitize.checked_event(raw)
        self.events = (*self.events[-EVENTS + 1 :], event)
        if event.check == REBOOT:
            # The agent's own health report includes what the agent saw.
            self._judgement.hear(event)
        return event

    def set_notes(
        self,
        *,
        acks: tuple[Ack, ...] | None = None,
        drift: tuple[Reason, ...] | None = None,
        busy: bool | None = None,
    ) -> bool:
        """Set what the fleet knows about this node (None: unchanged);
        returns whether anything changed.
        """
        if self._kept_judgement is None and not (acks or drift or busy):
            return False  # as it begins: the rules are not loaded for that
        known = self._judgement
        before = (known.acks, known.drift, known.busy)
        known.acks = known.acks if acks is None else acks
        known.drift = known.drift if drift is None else drift
        known.busy = known.busy if busy is None else busy
        return (known.acks, known.drift, known.busy) != before

    def take_as_lasting(self) -> None:
        """Judge a clock that was wrong in two samples as if it had been wrong for a minute."""
        self._judgement.take_as_lasting()

    def take_report(self, raw: HealthReport, *, retained: bool = False) -> bool:
        """Take a health report of the agent; a retained one only tells how
        the node was, and is no sign of life.

        Returns whether the node must be judged again.
        """
        report, news = sanitize.checked_report(raw), self._was_missed
        if not retained:
            news |= self._judgement.take_report(report, self._clock())
            self._note_heard(report.at)
        elif self._heard is None:
            news |= self._judgement.take_report(report, self._clock(), remembered=True)
        return news or self.skew_moved

    def take_heartbeat(self, stamp: float) -> bool:
        """Note that the node's health is unchanged; False if the message
        must be decoded and applied anyway.
        """
        newest = self._newest_report
        if newest is None or newest.remembered or newest.report.reasons or self._was_missed:
            return False
        self._note_heard(stamp)
        return True

    @property
    def skew_moved(self) -> bool:
        """Whether the node's clock has moved enough since the last judgement to matter."""
        judged, now = self._judged_skew, self.skew
        if judged is None or now is None:
            return judged is not now
        return abs(now - judged) > DRIFT and max(abs(now), abs(judged)) > RIGHT

    def take_sample(self, sample: Sample) -> bool:
        """Take a full sample with the agent's health report; returns
        whether the node must be judged again.

        A sample without a report is no judgement: an earlier report
        does not tell how the node is now.
        """
        at, news = sanitize.finite_number(sample.at), self._was_missed
        if sample.report is not None:
            news |= self._judgement.take_report(
                sanitize.checked_report(sample.report), self._clock()
            )
        elif self._newest_report is not None:
            self._judgement.newest, news = None, True
        self._sampled = self._clock()
        self._note_heard(at)
        self.samples += 1
        self._take_holes(sample)
        self._take_numbers(sample, at)
        return news or self.skew_moved

    def _take_numbers(self, sample: Sample, at: float) -> None:
        fresh: dict[str, Mapping[str, Number]] = {}
        for metric, raw in islice(sample.values.items(), sanitize.METRICS):
            reading = self._readings.get(metric)
            if reading is not None and raw == reading.numbers:
                # Most numbers of most nodes do not change.
                reading.take(reading.numbers, at)
            else:
                fresh[metric] = raw
        sane = sanitize.are_sane(fresh)
        for metric, raw in fresh.items():
            reading = self._readings.get(metric)
            if reading is None:
                self._take_first(metric, raw, at)
            elif sane and (*raw,) == reading.names:
                if metric in _LINKS:
                    self._note_links(metric, raw)
                reading.take(raw, at)
                self.values[metric] = reading.numbers
            else:
                self._take_others(reading, metric, raw, at)

    def _note_heard(self, stamp: float) -> None:
        """Note a sign of life with this time stamp of the node."""
        wall = self._wall()
        if self.first_heard is None:
            self.first_heard = wall
        self._heard, self.up, self.at = self._clock(), True, stamp
        self._await_next()
        self._skew.take(stamp - wall if stamp > EPOCH else None)

    def want(self, *, wanted: bool) -> None:
        """Note whether full samples of this node are requested from now on."""
        if wanted != (self._wanted_since is not None):
            self._wanted_since = self._clock() if wanted else None
            self._await_next()

    def drop_stale(self) -> bool:
        """Drop numbers that are no longer sent although the node is still
        heard; returns whether any was dropped.
        """
        if self._is_summarized():
            self._forget_all()
            return True
        if self._swept_at <= self.at <= self._stale_from:
            return False
        late = [m for m, r in self._readings.items() if self.at - r.at > r.patience]
        for metric in late:
            self._forget(metric)
            if metric not in self.absent:
                self._overdue[metric] = self.failed[metric] = "no new reading"
        ends = (reading.at + reading.patience for reading in self._readings.values())
        # A number that arrives later has a patience of at least GAP.
        self._swept_at, self._stale_from = self.at, min((*ends, self.at + GAP))
        return bool(late)

    def recall(self, reasons: Sequence[Reason]) -> None:
        """Take the problems that the node had when an earlier console saw it last."""
        self._judgement.recall(reasons)

    def judge(self) -> None:
        """Judge the node again by what is known now."""
        tried = self.was_heard or self.failed_to_attach
        if self.installed and self.was_heard:
            # An installed agent judges the node even when no console is open.
            self._judgement.recall(())
        self._judged_skew, self._judged_silent = self.skew, self.silent
        self._judgement.judge(self._facts(), self.in_scheduler, self._wall(), tried=tried)

    # ---- inside

    def _await_next(self) -> None:
        """Set the time after which the node counts as silent."""
        heard = self._heard if self.up else None
        if heard is not None and self._wanted_since is not None:
            # The first sample after a request takes a moment.
            heard = max(heard, self._wanted_since + ASKED)
        self.silent_from = -inf if heard is None else heard + self.patience

    def _is_summarized(self) -> bool:
        """Whether full samples have stopped and only health messages arrive."""
        if not self.values or self._sampled is None or self.silent:
            return False
        period = self.hello.period if self.hello else 1.0
        return self._clock() - self._sampled > max(GONE, 3.0 * period)

    def _take_holes(self, sample: Sample) -> None:
        holes = (sample.absent, sample.failed, sample.blind)
        if holes == self._holes:
            return
        self._holes = holes
        self.absent = sanitize.cleaned_names(sample.absent)
        self.failed = {**self._overdue, **sanitize.cleaned_texts(sample.failed)}
        self.blind = sanitize.cleaned_names(sample.blind)
        for metric in (*self.absent, *self.failed):
            if metric in self.values:
                self._forget(metric)

    def _forget(self, metric: str) -> None:
        self._numbers -= len(self.values.pop(metric, ()))
        self._readings.pop(metric, None)

    def _take_first(self, metric: str, raw: Mapping[str, Number], at: float) -> None:
        odd = len(metric) > sanitize.NAME or clean_line(metric, sanitize.NAME) != metric
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
        """Take numbers that must be checked, or that belong to different devices than before."""
        kept = self._bounded(metric, raw)
        if metric in _LINKS:
            self._note_links(metric, kept)
        reading.take_others(kept, at)
        self.values[metric] = reading.numbers

    def _bounded(self, metric: str, raw: Mapping[str, Number]) -> dict[str, Number]:
        """Cleaned numbers; fewer if the node already has very many."""
        before = len(self.values.get(metric, ()))
        room = max(0, sanitize.NUMBERS - self._numbers + before)
        kept = dict(islice(sanitize.device_numbers(raw).items(), room))
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

    def _facts(self) -> "Facts":
        from rankdeck_agent.rules.facts import Facts

        hello, heard, known = self.hello, self.heard_s(), self._judgement
        given = self.silent_from - (self._heard or 0.0)
        return Facts(
            now=self._clock(),
            at=self.at,
            up=self.up,
            heard_s=heard,
            # The same moment as `silent_from`, which is later just after a request.
            patience=self.patience if given == -inf else given,
            attach=self.attach if self.failed_to_attach or heard is None else "",
            values=self.values,
            absent=self.absent,
            failed=self.failed,
            blind=self.blind,
            inventory=self.inventory,
            boot=hello.boot if hello else "",
            uptime=self.uptime,
            events=known.events,
            seen_up=self.seen_up,
            skew=self.skew,
            expected=known.expected,
            busy=known.busy,
            drift=known.drift,
        )
