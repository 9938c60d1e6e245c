"""Joins the readings of the collectors into samples, without those that hang,
and judges them; `sample` and `health`.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Callable, Optional

from rankdeck_agent.collectors import make_collectors
from rankdeck_agent.collectors.base import Collector, Reading
from rankdeck_agent.collectors.nvidia import DEADLINE
from rankdeck_agent.config import ExpectError, read_expectations
from rankdeck_agent.machine import describe_machine, read_host_name
from rankdeck_agent.rules.coverage import CheckResult, cover_checks, coverage_words, explain_checks
from rankdeck_agent.rules.derived import derive_numbers, weigh_link_event
from rankdeck_agent.rules.events import EPOCH
from rankdeck_agent.rules.facts import Facts, Memory, Table
from rankdeck_agent.rules.judge import LASTING, as_lasting, assess_node
from rankdeck_agent.rules.levels import (
    NAGIOS,
    Expected,
    Health,
    Level,
    growth_rates,
    summarize_numbers,
)
from rankdeck_agent.rules.report import JudgedSample, build_health_report, is_news, shorten_report
from rankdeck_agent.seen_devices import SeenDevices, memory_of_this_boot
from rankdeck_agent.system_files import Tree
from rankdeck_agent.text import clean_text, failure_reason, print_complaint
from rankdeck_agent.values import Record, Value, replace
from rankdeck_agent.wire import METRICS, Event, HealthReport, Number, Sample

PATIENCE = 10.0
"""Seconds after which a collector that does not answer is reported as hanging."""
LATE_SHARE = 0.5
"""Share of a period that a sample waits for collectors before it is taken without them."""
FAILURES = (
    OSError,
    ValueError,
    LookupError,
    ArithmeticError,
    TypeError,
    AttributeError,
    RuntimeError,
)
"""Exceptions of a collector that cost only its own numbers. Any other exception ends its thread,
which then counts as hanging; samples go on in both cases.
"""


class Batch:
    """The worker threads started for one sample; `wait` returns when the last has finished."""

    def __init__(self) -> None:
        self._left = 1
        self._lock = threading.Lock()
        self._gate = threading.Lock()
        self._gate.acquire()

    def add(self) -> None:
        """A thread was started."""
        with self._lock:
            self._left += 1

    def end(self) -> None:
        """A thread has finished."""
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._gate.release()

    def wait(self, limit: float) -> None:
        """Wait until all have ended, at most `limit` seconds."""
        self.end()
        self._gate.acquire(timeout=limit)


class Worker:
    """A thread that runs some collectors one after the other at each `kick`.

    `results` (collector name -> its newest reading) belongs to the thread while it is busy,
    otherwise to the sampler. A thread that hangs delays no later sample: a sample waits only for
    the threads that it has started.
    """

    def __init__(self, members: Sequence[Collector]) -> None:
        self.members = tuple(members)
        self.results: dict[str, Reading] = {}
        self.busy = False
        self.since = 0.0
        self.current: Optional[Collector] = None
        self._batch = Batch()
        # A plain lock: a threading.Event would cost more than the readings.
        self._go = threading.Lock()
        self._go.acquire()
        self._collected: dict[str, float] = {}
        name = f"collect-{members[0].lane}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def kick(self, now: float, batch: Batch) -> None:
        """Start the next reading; does nothing if the last one
        still runs or no collector is due.
        """
        if self.busy or not any(self._due(c, now) for c in self.members):
            return
        self.busy, self.since, self._batch = True, now, batch
        batch.add()
        if not self._thread.ident:
            self._thread.start()
        self._go.release()

    def _due(self, collector: Collector, now: float) -> bool:
        last = self._collected.get(collector.name, -1e9)
        return now - last >= collector.period - 0.05

    def _run(self) -> None:
        while True:
            self._go.acquire()
            results = dict(self.results)
            for collector in self.members:
                now = time.monotonic()
                if not self._due(collector, now):
                    continue
                self.current, self._collected[collector.name] = collector, now
                try:
                    reading = collector.collect(now)
                except FAILURES as error:
                    reading = _silent(collector, failure_reason(error))
                if collector.name in results:
                    _keep_unsampled(reading, results[collector.name])
                results[collector.name] = reading
            self.results, self.busy, self.current = results, False, None
            self._batch.end()


def _keep_unsampled(reading: Reading, before: Reading) -> None:
    """Add to `reading` what no sample has included of the reading before it: its
    events, and numbers that are missing now.
    """
    reading.events[:0] = before.events
    if before.sampled:
        return
    failed = {key.partition("/")[0] for key in reading.failed}
    for metric, by_device in before.values.items():
        if metric not in reading.values and metric not in failed:
            reading.values[metric] = by_device


class Collected(Record):
    """What all collectors returned for one sample."""

    sample: Sample
    events: list[Event]
    inventory: Mapping[str, str]
    pending: frozenset[str] = frozenset()
    """Metrics that need another reading before they have a value."""


class Sampler:
    """Takes samples, one at each call of `take`. Use it from one thread only."""

    def __init__(
        self,
        collectors: Sequence[Collector],
        *,
        clock: Callable[[], float] = time.monotonic,
        patience: float = PATIENCE,
    ) -> None:
        self._clock = clock
        self._patience = patience
        lanes: dict[str, list[Collector]] = {}
        for collector in collectors:
            lanes.setdefault(collector.lane, []).append(collector)
        self._workers = [Worker(members) for members in lanes.values()]
        self._troubled: dict[str, str] = {}
        self._inventories: dict[str, Mapping[str, str]] = {}
        self._seq = 0

    def take(self, *, limit: float, lag: float = 0.0) -> Collected:
        """Read everything that is due, wait at most `limit` seconds for it; `lag`:
        how late this sample is, in seconds.
        """
        now = self._clock()
        batch = Batch()
        for worker in self._workers:
            worker.kick(now, batch)
        batch.wait(limit)

        at = time.time()
        joined, absent = Reading(), set[str]()
        joined.put("agent.lag", round(max(0.0, lag), 4))
        for worker in self._workers:
            for collector, reading, trouble in self._of(worker):
                joined.events += self._changed(collector, trouble, at)
                if reading is not None:
                    absent |= reading.absent(collector.metrics)
                    self._join(joined, collector.name, reading)

        sample = joined.as_sample(self._seq, at, absent)
        self._seq += 1
        inventory: dict[str, str] = {}
        for one in self._inventories.values():
            inventory.update(one)
        pending = frozenset(joined.pending - {key.partition("/")[0] for key in joined.failed})
        events = [weigh_link_event(one, joined.values, inventory) for one in joined.events]
        return Collected(sample, events, inventory, pending)

    def _of(self, worker: Worker) -> list[tuple[Collector, Optional[Reading], str]]:
        """For each collector of a thread: its reading (or None) and what is wrong with
        it ("" if nothing). Empty if it is late.
        """
        if not worker.busy:
            results = worker.results
            return [(c, results.get(c.name), _trouble(results.get(c.name))) for c in worker.members]
        waited = self._clock() - worker.since
        if waited < self._patience:
            # Late, but not hanging: this sample goes without these metrics.
            return []
        current, why = worker.current, f"no answer for {waited:.0f} s"
        doing = current.doing if current else ""
        if doing:
            why += f", asking {clean_text(doing, 80)}"
        return [(c, _silent(c, why, waited), why) for c in worker.members]

    def _changed(self, collector: Collector, trouble: str, at: float) -> list[Event]:
        before = self._troubled.get(collector.name, "")
        if bool(trouble) == bool(before):
            return []
        self._troubled[collector.name] = trouble
        check = f"agent.{collector.name}"
        if trouble:
            return [Event(at, "warn", check, f"{collector.name}: {trouble}")]
        return [Event(at, "ok", check, f"{collector.name}: answers again")]

    def _join(self, joined: Reading, name: str, reading: Reading) -> None:
        for metric, by_device in reading.values.items():
            # No two collectors have the same metric, so the table need not be copied.
            joined.values[metric] = by_device
        joined.take_failures(reading)
        joined.pending |= reading.pending
        joined.events += reading.events
        reading.events, reading.sampled = [], True
        if reading.inventory:
            self._inventories[name] = reading.inventory


def _trouble(reading: Optional[Reading]) -> str:
    """Why a collector failed as a whole; "" if it did not, even if some of its values failed."""
    if reading is None or reading.trouble:
        return clean_text(reading.trouble, 200) if reading else ""
    if reading.blind or reading.values or reading.pending or not reading.failed:
        return ""
    return clean_text(next(iter(reading.failed.values())), 200)


_ANSWER = "gpu.answer"
"""How long the GPU driver has not answered: that is known even while its collector hangs."""


def _silent(collector: Collector, why: str, waited: float = 0.0) -> Reading:
    """A reading in which all has failed; `waited`: seconds without
    an answer, if the collector hangs.
    """
    reading = Reading()
    reading.failed = dict.fromkeys(collector.metrics, why)
    if waited and reading.failed.pop(_ANSWER, ""):
        reading.put(_ANSWER, round(waited, 1))
    return reading


_COUNTERS = frozenset(name for name, metric in METRICS.items() if metric.kind == "counter")
_NONE: Mapping[str, Number] = {}


class NodeJudge:
    """Judges each sample, with what it remembers of earlier ones. Use it from one thread only.

    `brief`: there are only two samples, so a condition that holds in both counts as lasting.
    """

    def __init__(
        self,
        expected: Expected,
        seen: SeenDevices,
        heartbeat: float,
        *,
        brief: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._expected, self._seen, self._heartbeat = expected, seen, heartbeat
        self._brief, self._clock = brief, clock
        self._memory = Memory()
        self._values: dict[str, Mapping[str, Number]] = {}
        self._before: tuple[float, Table] = (0.0, {})
        """Time and numbers of the sample before the newest."""
        self._at = 0.0

    def judge(
        self, sample: Sample, events: tuple[Event, ...], inventory: Mapping[str, str]
    ) -> HealthReport:
        """The whole judgement of this sample; `events` are those since the sample before."""
        self._take(sample)
        self._seen.take(self._values, inventory)
        facts = self._facts(sample, events, inventory)
        health, memory = assess_node(facts, self._memory)
        if self._brief:
            health, memory = assess_node(facts, as_lasting(memory))
        self._memory = memory

        judged = JudgedSample(
            facts,
            memory,
            health,
            cover_checks(facts, memory.settled),
            summarize_numbers(self._current),
        )
        return build_health_report(judged, self._heartbeat)

    def _take(self, sample: Sample) -> None:
        self._before = (self._at, dict(self._values))
        self._at = sample.at
        for metric in (*sample.absent, *sample.failed):
            self._values.pop(metric, None)
        for metric, numbers in sample.values.items():
            # An equal table is not replaced: the judge knows by its identity that nothing changed.
            if self._values.get(metric, _NONE) != numbers:
                self._values[metric] = numbers

    def _facts(
        self, sample: Sample, events: tuple[Event, ...], inventory: Mapping[str, str]
    ) -> Facts:
        return Facts(
            now=self._clock(),
            at=sample.at,
            values=self._values,
            absent=frozenset(sample.absent),
            failed=sample.failed,
            blind=frozenset(sample.blind),
            inventory=inventory,
            boot=self._seen.boot,
            uptime=_since_boot(inventory, sample.at),
            events=events,
            seen_up=self._seen.up,
            seen=self._seen.present,
            most=self._seen.most,
            expected=self._expected,
        )

    def _current(self, metric: str) -> Mapping[str, Number]:
        numbers = self._values.get(metric, {})
        if metric not in _COUNTERS:
            return numbers
        at, before = self._before
        return growth_rates(before.get(metric, {}), numbers, self._at - at)


def _since_boot(inventory: Mapping[str, str], at: float) -> Optional[float]:
    """Seconds from `boot.at` of the inventory to `at`, by the
    node's own clock; None if not known.
    """
    text = inventory.get("boot.at", "")
    booted = float(text) if text.replace(".", "", 1).isdecimal() else 0.0
    return at - booted if booted and at > EPOCH else None


SOONEST = 0.95
"""Least seconds between two messages: a little less than a second,
because a period may end a little early.
"""
HASTE = 0.5
"""Seconds by which a heartbeat may be early: otherwise it would
wait for the next period and be late.
"""


class Reporter:
    """Decides when health is sent: on changes, at most once a second, and as a
    heartbeat every `heartbeat` seconds.
    """

    def __init__(self, heartbeat: float) -> None:
        self._heartbeat = heartbeat
        self._sent: Optional[HealthReport] = None
        self._at = float("-inf")

    def due(self, whole: HealthReport, now: float) -> Optional[HealthReport]:
        """The report to send now, shortened, or None; `now` is in seconds of a monotonic clock.

        A heartbeat without reasons differs from the message before only in its
        time, so that consoles need not decode it.
        """
        passed = now - self._at
        if self._sent is not None and passed < SOONEST:
            return None
        cut = shorten_report(whole)
        if self._sent is None or is_news(self._sent, cut):
            return cut
        if passed < self._heartbeat - HASTE:
            return None
        return cut if cut.reasons else replace(self._sent, at=cut.at)

    def sent(self, one: HealthReport, now: float) -> None:
        """Note that this report was sent."""
        self._sent, self._at = one, now

    def forget(self) -> None:
        """Send the next report in any case, because the connection is new."""
        self._sent = None


_BETWEEN = 0.2
"""Seconds between two readings: enough to compute CPU usage."""
_LIMIT = 6.0
"""Seconds for collectors and network mounts to answer."""
_DRIVER_LIMIT = DEADLINE
"""Seconds without an answer after which `health` takes the GPU driver to hang:
cold drivers of many GPUs take up to ten.
"""
_HEALTH_LIMIT = _DRIVER_LIMIT + 10.0
"""Seconds that `health` waits at most: on a busy node it takes a
while until the driver is asked at all.
"""


class NodeReading(Value):
    """Everything read from a machine at one moment."""

    node: str
    first: Sample
    """The first of the readings; the same as `sample` for a recording."""
    sample: Sample
    pending: tuple[str, ...]
    """Metrics for which the readings taken were not enough."""
    inventory: Mapping[str, str]
    events: tuple[Event, ...]
    """Recent events from the kernel log, and those of GPUs since boot."""


def read_node(root: str, limit: float = _LIMIT) -> NodeReading:
    """Read the machine under `root`: until every metric has a value if it is this
    machine ("/"), once if it is a recording.

    At most `limit` seconds; what has not answered by then counts as hanging.
    """
    patience = min(limit, _DRIVER_LIMIT + _BETWEEN)
    sampler = Sampler(make_collectors(root), patience=patience - _BETWEEN)
    deadline = time.monotonic() + limit
    first = collected = sampler.take(limit=patience)
    events, values = collected.events, dict(collected.sample.values)
    # A recording does not change: a second reading would add nothing.
    while root == "/" and collected.pending - set(values) and time.monotonic() < deadline:
        time.sleep(_BETWEEN)
        collected = sampler.take(limit=max(_BETWEEN, deadline - time.monotonic()))
        events = events + collected.events
        values.update(collected.sample.values)

    tree = Tree(root)
    inventory = {**describe_machine(tree), **collected.inventory}
    pending = tuple(sorted(collected.pending - set(values)))
    taken = replace(collected.sample, values=values)
    return NodeReading(read_host_name(tree), first.sample, taken, pending, inventory, tuple(events))


def print_sample(root: str, *, as_json: bool) -> int:
    """Print one sample of the machine under `root`; 0, or 2 if there is no such folder."""
    if not Tree(root).exists(""):
        return print_complaint(f"rankdeck-agent: {clean_text(root, 200)}: no such folder", 2)
    reading = read_node(root)
    print(json.dumps(_object(reading)) if as_json else "\n".join(_table(reading)))
    return 0


def _object(reading: NodeReading) -> dict[str, object]:
    taken = reading.sample
    return {
        "node": reading.node,
        "at": taken.at,
        "values": taken.values,
        "absent": taken.absent,
        "failed": taken.failed,
        "pending": reading.pending,
        "inventory": reading.inventory,
        "events": [vars(event) for event in reading.events],
    }


def _table(reading: NodeReading) -> list[str]:
    taken = reading.sample
    lines = [f"{key:<40} {value}" for key, value in reading.inventory.items()]
    for metric in sorted(taken.values):
        for device, value in sorted(taken.values[metric].items()):
            lines.append(f"{metric:<40} {device:<16} {value}")
    failed = taken.failed.items()
    lines += [f"{key:<40} could not be read: {why}" for key, why in failed]
    lines += [f"{metric:<40} needs a second reading" for metric in reading.pending]
    lines += [f"{metric:<40} not here" for metric in taken.absent]
    lines += [f"{e.check:<40} {e.level:<4} {e.device} {e.text}" for e in reading.events]
    return lines


def print_health(root: str, *, as_json: bool, expect: str = "") -> int:
    """Print the judgement; returns 0 ok, 1 warn, 2 bad, 3 unknown (also: no
    such folder, or a wrong `expect` file).
    """
    if not Tree(root).exists(""):
        print(f"RANKDECK UNKNOWN: {clean_text(root, 200)}: no such folder")
        return NAGIOS[Level.UNKNOWN][0]
    try:
        expected = Expected(other=read_expectations(expect) if expect else {})
    except ExpectError as error:
        print(f"RANKDECK UNKNOWN: {clean_text(str(error), 300)}")
        return NAGIOS[Level.UNKNOWN][0]

    reading = read_node(root, _HEALTH_LIMIT)
    if root == "/":
        # What was not answered in time is not known to be well.
        failed = {**dict.fromkeys(reading.pending, "no answer in time"), **reading.sample.failed}
        reading = replace(reading, sample=replace(reading.sample, failed=failed))
    seen = SeenDevices("", memory_of_this_boot(root))
    seen.take(reading.sample.values, reading.inventory)
    judged, findings = judge_reading(reading, _proc_uptime(Tree(root)), expected, seen)

    node = reading.node or "this node"
    if as_json:
        print(json.dumps(_health_object(node, judged, findings)))
    else:
        print("\n".join(_lines(node, judged)))
    return NAGIOS[judged.level][0]


def judge_reading(
    reading: NodeReading, uptime: Optional[float], expected: Expected, seen: SeenDevices
) -> tuple[Health, tuple[CheckResult, ...]]:
    """Health, and the result of each check with its evidence; `uptime` in
    seconds, `seen`: what was there in this boot.
    """
    facts = _facts(reading, uptime, expected, seen)
    began = facts.now - LASTING
    values = _machine_values(reading.first)
    before = replace(
        facts,
        now=began,
        at=began,
        values=values,
        failed=reading.first.failed,
        absent=frozenset(reading.first.absent),
        blind=frozenset(reading.first.blind),
    )
    _, memory = assess_node(before)

    # A moment is too short to say that no counter grows: checks of growth do not count as judged.
    memory = replace(memory, settled=False)

    covered = cover_checks(facts, settled=False)
    judged, memory = assess_node(replace(facts, events=reading.events), memory)
    found = explain_checks(facts, derive_numbers(facts), memory, covered, judged.reasons)
    return judged, found


def _machine_values(sample: Sample) -> Table:
    # Samples are not periodic here: a lag of 0 must not make a
    # machine that cannot be read look fine.
    return {m: d for m, d in sample.values.items() if m != "agent.lag"}


def _facts(
    reading: NodeReading, uptime: Optional[float], expected: Expected, seen: SeenDevices
) -> Facts:
    sample = reading.sample
    return Facts(
        now=sample.at,
        at=sample.at,
        values=_machine_values(sample),
        absent=frozenset(sample.absent),
        failed=sample.failed,
        blind=frozenset(sample.blind),
        inventory=reading.inventory,
        uptime=uptime,
        seen_up=seen.up,
        seen=seen.present,
        most=seen.most,
        expected=expected,
        # Whether a job runs here is not known, so memory in use must not count as a leftover.
        busy=True,
        driver_limit=_DRIVER_LIMIT,
    )


def _proc_uptime(tree: Tree) -> Optional[float]:
    """Seconds since boot, from /proc/uptime; None if not known."""
    try:
        return float(tree.read("proc/uptime").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _lines(node: str, judged: Health) -> list[str]:
    """The first line in the format of Nagios plugins, then a line for each reason."""
    counted = Counter(reason.level for reason in judged.reasons)
    parts = [f"{counted[level]} {level.word}" for level in sorted(counted, reverse=True)]
    parts.append(coverage_words(judged))
    word = NAGIOS[judged.level][1]
    lines = [f"RANKDECK {word}: {node}: {', '.join(parts)}"]
    for reason in judged.reasons:
        device = f" {reason.device}" if reason.device else ""
        lines.append(f"  {reason.level.word:<7} {reason.check}{device}: {reason.text}")
    return lines


def _health_object(node: str, judged: Health, findings: Sequence[CheckResult]) -> dict[str, object]:
    return {
        "name": node,
        "level": judged.level.word,
        "code": NAGIOS[judged.level][0],
        "evaluated": judged.evaluated,
        "checks": judged.checks,
        "limits": judged.limits,
        "reasons": [
            {
                "check": reason.check,
                "level": reason.level.word,
                "device": reason.device,
                "text": reason.text,
            }
            for reason in judged.reasons
        ],
        "findings": [
            {
                "number": one.number,
                "name": one.name,
                "title": one.title,
                "state": one.state,
                "evidence": one.evidence,
            }
            for one in findings
        ],
    }
