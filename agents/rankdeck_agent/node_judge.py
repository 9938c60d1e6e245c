"""Judges the health of this node after each sample, and decides what is worth a message."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Callable, Optional

from rankdeck_agent.rules.explain import cover
from rankdeck_agent.rules.facts import Expected, Facts, Memory
from rankdeck_agent.rules.judge import as_lasting, assess
from rankdeck_agent.rules.report import Judged, is_news, report, short
from rankdeck_agent.rules.summary import rates, summarize
from rankdeck_agent.wire import METRICS, Event, HealthReport, Number, Sample

EPOCH = 1e9
"""Epoch seconds below which a stamp is no wall time."""
_LINKS = ("rdma.up", "net.up")
_COUNTERS = frozenset(name for name, metric in METRICS.items() if metric.kind == "counter")
Table = dict[str, Mapping[str, Number]]
_NONE: Mapping[str, Number] = {}


class NodeJudge:
    """What the next judgement needs of the samples before. Used from one thread.

    `brief`: whoever asks looks only twice, so what was wrong both times counts as lasting.
    """

    def __init__(
        self,
        expected: Expected,
        boot: str,
        heartbeat: float,
        *,
        brief: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._expected, self._boot, self._heartbeat = expected, boot, heartbeat
        self._brief, self._clock = brief, clock
        self._memory = Memory()
        self._values: Table = {}
        self._before: tuple[float, Table] = (0.0, {})
        """Stamp and numbers of the sample before the newest."""
        self._at = 0.0
        self._seen_up: frozenset[tuple[str, str]] = frozenset()

    def judge(
        self, sample: Sample, events: tuple[Event, ...], inventory: Mapping[str, str]
    ) -> HealthReport:
        """The whole judgement of this sample, and of what happened since the one before."""
        self._take(sample)
        facts = self._facts(sample, events, inventory)
        health, memory = assess(facts, self._memory)
        if self._brief:
            health, memory = assess(facts, as_lasting(memory))
        self._memory = memory
        judged = Judged(
            facts, memory, health, cover(facts, memory.settled), summarize(self._current)
        )
        return report(judged, self._heartbeat)

    def _take(self, sample: Sample) -> None:
        self._before = (self._at, dict(self._values))
        self._at = sample.at
        for metric in (*sample.absent, *sample.failed):
            self._values.pop(metric, None)
        for metric, numbers in sample.values.items():
            # The same table says to the judge that nothing changed.
            if self._values.get(metric, _NONE) != numbers:
                self._values[metric] = numbers
        up = {(m, d) for m in _LINKS for d, up in self._values.get(m, {}).items() if up}
        if not up <= self._seen_up:
            self._seen_up |= up

    def _facts(
        self, sample: Sample, events: tuple[Event, ...], inventory: Mapping[str, str]
    ) -> Facts:
        return Facts(
            now=self._clock(),
            at=sample.at,
            values=self._values,
            absent=frozenset(sample.absent),
            failed=sample.failed,
            inventory=inventory,
            boot=self._boot,
            uptime=uptime(inventory, sample.at),
            events=events,
            seen_up=self._seen_up,
            expected=self._expected,
        )

    def _current(self, metric: str) -> Mapping[str, Number]:
        numbers = self._values.get(metric, {})
        if metric not in _COUNTERS:
            return numbers
        at, before = self._before
        return rates(before.get(metric, {}), numbers, self._at - at)


def uptime(inventory: Mapping[str, str], at: float) -> Optional[float]:
    """Seconds since boot by the node's own clock; None where nobody knows."""
    told = inventory.get("boot.at", "")
    booted = float(told) if told.replace(".", "", 1).isdecimal() else 0.0
    return at - booted if booted and at > EPOCH else None


class Reporter:
    """Decides when the health is said again: on news, at most once a second, and as a heartbeat."""

    def __init__(self, heartbeat: float) -> None:
        self._heartbeat = heartbeat
        self._said: Optional[HealthReport] = None
        self._at = float("-inf")

    def due(self, whole: HealthReport, now: float) -> Optional[HealthReport]:
        """What is to be said now, if anything; `now` is seconds of any steady clock.

        A heartbeat of a node that is well says the same as the message before, but for its time: whoever
        hears thousands of them need not read them.
        """
        passed = now - self._at
        if self._said is not None and passed < SOONEST:
            return None
        cut = short(whole)
        if self._said is None or is_news(self._said, cut):
            return cut
        if passed < self._heartbeat - HASTE:
            return None
        return cut if cut.reasons else replace(self._said, at=cut.at)

    def said(self, one: HealthReport, now: float) -> None:
        """Note that this went out."""
        self._said, self._at = one, now

    def forget(self) -> None:
        """Say it again at once: a connection was made anew."""
        self._said = None


SOONEST = 0.95
"""Seconds between two messages; less than a second by what a beat may come early."""
HASTE = 0.5
"""Seconds by which a heartbeat comes early, so that the beat after it would not be too late."""
