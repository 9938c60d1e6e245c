"""Measurements of an acceptance run: stage, nodes, outcome; normal
values; how nodes differ from the majority.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist, median, median_low
from typing import NamedTuple, TypeVar

from rankdeck.model.text import list_names


class Stage(StrEnum):
    """What a measurement was made for, in the order of a run."""

    GATE = "gate"
    """Which nodes may be measured."""
    IDENTITY = "identity"
    """How the nodes differ from the majority."""
    SINGLE = "single"
    PAIRS = "pairs"
    CONFIRM = "confirm"
    INSIDE = "inside"
    """All pairs are within a leaf: no traffic crosses leaves."""
    CROSSING = "crossing"
    """All pairs cross leaves at the same time."""
    ALONE = "alone"
    """One pair crosses leaves, everything else is idle."""
    GROUPS = "groups"
    """Collectives over more and more nodes."""
    SOAK = "soak"
    """The groups, repeated for a given time."""


GROUPED = (Stage.GROUPS, Stage.SOAK)
"""Stages that measure a group of nodes as one."""


class Outcome(StrEnum):
    """State or result of a measurement, or of all between two nodes, before
    judging; only `measured` has a value.
    """

    PENDING = "pending"
    RUNNING = "running"
    MEASURED = "measured"
    FAILED = "failed"
    """It failed, or computed wrong values: this counts against its nodes."""
    NOT_MEASURED = "not measured"
    """Nothing was learned about the nodes: it never began, was cut off, or gave no clear result."""
    REFUSED = "refused"
    """There is a number, but not for the hosts and ranks that were asked for."""
    EXCLUDED = "excluded"
    """The operator took one of its nodes out; this does not count against it."""

    @property
    def final(self) -> bool:
        return self not in (Outcome.PENDING, Outcome.RUNNING)


READ = (Outcome.MEASURED, Outcome.FAILED, Outcome.NOT_MEASURED, Outcome.REFUSED)
"""The outcomes that can be read from an output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One measurement that was planned, runs, or is done."""

    stage: Stage
    recipe: str
    sender: str
    """The sending node; for a test of one node that node, for a group its first node."""
    receiver: str = ""
    """"" for a test of one node or of a group."""
    group: tuple[str, ...] = ()
    rail: int = 0
    port: int = 0
    round: int = 0
    repeat: int = 0
    outcome: Outcome = Outcome.PENDING
    value: float | None = None
    unit: str = ""
    seconds: float = 0.0
    text: str = ""
    """One sentence: what was read and what it means, or why there is no value."""
    raw: str = ""
    """File on this machine with the whole output; "" until there is output."""
    job: str = ""
    """Id of the job that measured it."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes that took part."""
        return self.group or tuple(filter(None, (self.sender, self.receiver)))

    @property
    def key(self) -> "Key":
        """What identifies it among the measurements of the run."""
        path = (self.stage, self.recipe, self.sender, self.receiver, self.group)
        return (*path, self.rail, self.port, self.round, self.repeat)


Key = tuple[Stage, str, str, str, tuple[str, ...], int, int, int, int]


class Answer(StrEnum):
    """The judgement of a node or a path, made from its measurements;
    only the first two are accepted.
    """

    GOOD = "good"
    FAIR = "fair"
    SLOW = "slow"
    UNSTEADY = "unsteady"
    WRONG_VALUES = "wrong values"
    FAILED = "failed"
    NOT_MEASURED = "not measured"
    REFUSED = "refused"
    LEFT_OUT = "left out"

    @property
    def accepted(self) -> bool:
        return self in (Answer.GOOD, Answer.FAIR)

    @property
    def bad(self) -> bool:
        """Whether it ran and is not good. If neither `bad` nor `accepted`, nothing was learned."""
        return self in (Answer.SLOW, Answer.UNSTEADY, *FAILS)


FAILS = {Answer.FAILED: "fails", Answer.WRONG_VALUES: "gives wrong values"}
"""Answer -> verb for a sentence about what failed."""


class Kind(StrEnum):
    """What is at fault."""

    NODE = "node"
    SENDS = "node, sending"
    RECEIVES = "node, receiving"
    HCA = "one port of a node"
    RAIL = "rail"
    PAIR = "pair"
    EQUAL_PATH = "one of equal paths"
    UPLINK = "uplink"
    LEAF = "leaf"
    SCALE = "scale"
    CONFIGURATION = "configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One fault that was found."""

    kind: Kind
    subject: str
    """`n3`, `n2–n6`, `leaf A`, `rail 2 of leaf A`."""
    answer: Answer
    sentence: str
    """What was seen and how often; what it means; what to try."""
    nodes: tuple[str, ...] = ()
    """Nodes that are not good because of it; () for a path or a switch."""
    leaves: tuple[str, ...] = ()
    """The leaves, if the fault is in leaves."""
    ends: tuple[str, ...] = ()
    """The two nodes of the path, if the fault is in a path."""
    stage: Stage = Stage.PAIRS
    """Where it was seen."""
    recipe: str = ""


class PathEnd(NamedTuple):
    """One end of a path: a node and the number of its rail (port)."""

    node: str
    rail: int = 0


Path = tuple[PathEnd, PathEnd]
"""Sender, receiver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measurement as the judge takes it: a value, or why there is none."""

    stage: Stage
    sender: str
    receiver: str = ""
    """"" for a test of one node."""
    value: float | None
    """Higher is better; None unless `status` is measured."""
    status: Outcome = Outcome.MEASURED
    round: int = 0
    repeat: int = 0
    rail: int = 0
    port: int = 0
    """Number of the TCP port (or queue pair) tried: each may take another ECMP path."""
    group: tuple[str, ...] = ()
    """All nodes of a collective over more than two."""
    text: str = ""
    """One sentence about its output; see `Result.text`."""
    resent: float = 0.0
    """Share of packets that were retransmitted, from 0 to 1."""

    @property
    def path(self) -> Path:
        return PathEnd(self.sender, self.rail), PathEnd(self.receiver, self.rail)

    @property
    def speed(self) -> float | None:
        """The value; 0 if it failed; None if nothing was learned."""
        return 0.0 if self.status is Outcome.FAILED else self.value


@dataclass(frozen=True, slots=True)
class Population:
    """Distribution of values of the same kind in the same run, and the
    limits for a good and a slow one.
    """

    count: int
    median: float
    spread: float
    """Standard deviation, estimated from the median absolute
    deviation; at least 1 % of the median.
    """
    good: float
    """A value is good from here on, and fair between `limit` and `good`."""
    limit: float
    """A value below this is slow."""
    mixed: bool
    """The values are not one population, or were disturbed: the limit comes
    from the upper quartile, not the median.
    """

    def answer(self, value: float) -> Answer:
        """GOOD, FAIR or SLOW, by the limits."""
        if value < self.limit:
            return Answer.SLOW
        return Answer.GOOD if value >= self.good else Answer.FAIR


FEWEST = 4
"""Fewest values (or nodes) for a population."""
_MIXED = 0.05
_STANDS_OUT = 1.2
_CHANCE = 0.01
"""Expected number of healthy values below the limit."""


def measure_population(
    values: Sequence[float], tolerance: float, fast: float = 0.0
) -> Population | None:
    """Median and limits of these values; None without values. A mixed
    population is judged by its upper quartile.

    `tolerance` is the share below the median that is still good. `fast`, if above 0, is what a
    minority of nodes reach with each other: where the others are slower, the limits come from it.
    """
    if not values:
        return None
    ordered = sorted(values)
    middle = median(ordered)
    spread = max(1.4826 * median(abs(one - middle) for one in ordered), 0.01 * middle)
    # If most values are equally slow, the median is slow too, and the fast values stand out.
    most = ordered[len(ordered) * 19 // 20]
    mixed = (
        spread > _MIXED * middle or most > _STANDS_OUT * middle or fast * (1 - tolerance) > middle
    )
    if mixed:
        middle = max(fast, ordered[len(ordered) * 3 // 4])
        spread = 0.01 * middle
    sigmas = NormalDist().inv_cdf(1 - _CHANCE / max(len(ordered), 2))
    good = middle * (1 - tolerance)
    return Population(
        len(ordered), middle, spread, good, min(good, middle - sigmas * spread), mixed
    )


def by_gap(speeds: Mapping[Path, float], ratio: float = _STANDS_OUT) -> Iterator[frozenset[Path]]:
    """For each gap in the sorted speeds (a factor of `ratio`), the paths
    above it; the smallest set first.
    """
    ordered = sorted(speeds, key=lambda path: speeds[path], reverse=True)
    for place in range(1, len(ordered)):
        if speeds[ordered[place - 1]] > ratio * speeds[ordered[place]]:
            yield frozenset(ordered[:place])


DROPS = 0.7
"""A repeat below this share of the best one is a drop."""


def count_drops(runs: Sequence[Measurement]) -> int:
    """Number of repeats of one path that dropped."""
    best = best_of(runs) or 0.0
    return sum(1 for one in runs if (speed := one.speed) is not None and speed < DROPS * best)


def by_path(measurements: Iterable[Measurement]) -> Mapping[Path, Sequence[Measurement]]:
    """Path -> its measurements; those of single nodes and groups are left out."""
    found: defaultdict[Path, list[Measurement]] = defaultdict(list)
    for one in measurements:
        if one.receiver:
            found[one.path].append(one)
    return found


def best_of(runs: Iterable[Measurement]) -> float | None:
    """The highest speed, because interference only lowers speeds; None if nothing was learned."""
    return max((speed for one in runs if (speed := one.speed) is not None), default=None)


LOW_CLOCK = 0.9
"""A clock below this share of the usual clock of the same hardware under load is low."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A kind of clock that is watched under load."""

    fact: str
    used: str
    """Metric of the utilisation in percent."""
    clock: str
    """Metric of the clock, in Hz."""
    word: str
    """Text before the number of a low clock; `{}` is the device."""


CLOCKS = (
    Clock("gpu clocks under load", "gpu.used", "gpu.clock", "GPU {} at "),
    Clock("cpu clock under load", "cpu.used", "cpu.freq", ""),
)
_NAMED = 4
_T = TypeVar("_T")
Highest = Mapping[str, Mapping[str, float]]
"""Node -> device -> its highest clock under load, in MHz."""


def clocks_under_load(highest: Highest, alike: Mapping[str, str], word: str) -> dict[str, str]:
    """Node -> `full`, or which of its devices ran slower than on nodes with the same hardware.

    `alike` is node -> its hardware, because other processors have other clocks. Hardware with fewer
    than four devices is left out. `word` is `Clock.word`.
    """
    found: dict[str, str] = {}
    for group in _by_hardware(highest, alike):
        clocks = [clock for devices in group.values() for clock in devices.values()]
        if len(clocks) >= FEWEST:
            usual = median(clocks)
            found |= {node: _low(devices, usual, word) for node, devices in group.items()}
    return found


def _by_hardware(values: Mapping[str, _T], alike: Mapping[str, str]) -> Iterable[Mapping[str, _T]]:
    groups: defaultdict[str, dict[str, _T]] = defaultdict(dict)
    for node, one in values.items():
        groups[alike.get(node, "")][node] = one
    return groups.values()


def _low(devices: Mapping[str, float], usual: float, word: str) -> str:
    low = {device: clock for device, clock in devices.items() if clock < LOW_CLOCK * usual}
    words = [f"{word.format(name)}{clock:.0f}" for name, clock in sorted(low.items())]
    return f"{list_names(words, _NAMED)} of {usual:.0f} MHz" if low else "full"


BUSY_CORES = "busy cores"
_MORE = 30.0


def busy_cores(used: Mapping[str, float], alike: Mapping[str, str]) -> dict[str, str]:
    """Node -> `no more` cores busy than on nodes with the same hardware, or
    how many (another program runs there).

    `used` is node -> mean percent of its cores in use while it was measured; `alike` is node -> its
    hardware. Hardware with fewer than four nodes is left out.
    """
    found: dict[str, str] = {}
    for group in _by_hardware(used, alike):
        if len(group) >= FEWEST:
            usual = median(group.values())
            found |= {
                node: f"{mean:.0f} % ({usual:.0f} % on most)"
                if mean >= usual + _MORE
                else "no more"
                for node, mean in group.items()
            }
    return found


@dataclass(frozen=True, slots=True)
class Counter:
    """An error counter of network links."""

    metric: str
    word: str
    least: float = 1
    """Least growth that is reported."""
    usual: bool = False
    """It also grows on healthy links: reported only from ten times the median of the nodes."""


COUNTERS = (
    Counter("rdma.phys_errors", "symbol or CRC errors"),
    Counter("rdma.link_recoveries", "recoveries of the link"),
    Counter("rdma.link_downs", "failures of the link"),
    Counter("rdma.retries_exhausted", "messages given up"),
    Counter("rdma.retx", "packets sent again or out of sequence", 100, usual=True),
    Counter("rdma.congestion", "ECN marks and congestion notices", 1000, usual=True),
    Counter("rdma.discards", "packets dropped", 100, usual=True),
    Counter("rdma.not_ready", "messages without a buffer", 100, usual=True),
    Counter("net.errors", "errors of the interface"),
)
LINK_ERRORS = "link errors under load"
REBOOTS = "reboots"
_FAR_MORE = 10
Grown = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Metric -> node -> device -> growth of the counter while the nodes were measured."""


def link_errors(grown: Grown) -> dict[str, str]:
    """Node -> `none`, or the errors of its links; nodes without such counters are left out."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for one in COUNTERS:
        nodes = grown.get(one.metric, {})
        sums = [sum(devices.values()) for devices in nodes.values()]
        usual = _FAR_MORE * median_low(sums) if one.usual and sums else 0.0
        for node, devices in nodes.items():
            words = found[node]
            most = max(devices, key=lambda device: devices[device], default="")
            if devices and devices[most] >= max(one.least, usual):
                words.append(f"{most}: {devices[most]:,.0f} {one.word}")
    return {node: ", ".join(words) or "none" for node, words in found.items()}


HEARD = (LINK_ERRORS, REBOOTS, BUSY_CORES, *(one.fact for one in CLOCKS))
"""Facts that come from telemetry while nodes are measured."""
WELL = {
    "gpu clocks under load": "full",
    "cpu clock under load": "full",
    "gpu limits": "none",
    BUSY_CORES: "no more",
    LINK_ERRORS: "none",
    REBOOTS: "none",
}
"""Fact -> its value on a healthy node, whatever most nodes have."""


def describe_differing(identity: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Node -> how it differs from the majority, one sentence; nodes like the majority are left out.

    `identity` is node -> fact (kernel, driver, mtu, …) -> value. Facts in
    WELL are compared with that value instead.
    """
    sentences: defaultdict[str, list[str]] = defaultdict(list)
    for fact in sorted({fact for facts in identity.values() for fact in facts}):
        values = {node: facts[fact] for node, facts in identity.items() if fact in facts}
        common, count = _majority(values.values())
        if fact in WELL:
            common = WELL[fact]
            count = list(values.values()).count(common)
        elif 2 * count <= len(values):
            continue
        have = "did not" if fact == REBOOTS else f"have {common}"
        most = f", {count} of {len(values)} {have}" if count else ""
        for node, value in values.items():
            if value != common:
                sentences[node].append(f"{_has(fact, value)}{most}")
    return {node: "; ".join(words) for node, words in sentences.items()}


def _has(fact: str, value: str) -> str:
    """`its link errors are …`, `its mtu is …`, `it rebooted during this run`."""
    if fact == REBOOTS:
        return "it rebooted during this run"
    many = fact.partition(" under ")[0].endswith(("clocks", "errors", "limits", "cores"))
    return f"its {fact} {'are' if many else 'is'} {value}"


def _majority(values: Iterable[str]) -> tuple[str, int]:
    counts: defaultdict[str, int] = defaultdict(int)
    for value in values:
        counts[value] += 1
    return max(counts.items(), key=lambda item: (item[1], item[0]))


def failure_answer(failed: Iterable[Measurement | Result]) -> Answer:
    """The answer for failed runs: WRONG_VALUES if the text of any run says so, else FAILED."""
    wrong = any(Answer.WRONG_VALUES in one.text for one in failed)
    return Answer.WRONG_VALUES if wrong else Answer.FAILED


def measurement_of(one: Result, *, lower_is_better: bool = False) -> Measurement:
    """The measurement of a result.

    Higher is better, so a latency in µs becomes round trips a second.
    """
    value = one.value
    if value and lower_is_better:
        value = 1e6 / value
    status = one.outcome if one.outcome in READ else Outcome.NOT_MEASURED
    return Measurement(
        stage=one.stage, sender=one.sender, receiver=one.receiver, value=value if status is Outcome.MEASURED else None,
        status=status, round=one.round, repeat=one.repeat, rail=one.rail, port=one.port, group=one.group, text=one.text,
        resent=_resent(one),
    )  # fmt: skip


_RESENT = re.compile(r"\b(\d{1,12}) retransmits\b")
_SEGMENT = 1448
"""Payload bytes of a TCP packet with an MTU of 1,500; with a
larger MTU the true share is larger.
"""


def _resent(one: Result) -> float:
    """The share of packets that TCP retransmitted, from 0 to 1."""
    found = _RESENT.search(one.text) if one.unit == "Gb/s" else None
    packets = (one.value or 0.0) * 1e9 / 8 * one.seconds / _SEGMENT
    return min(int(found[1]) / packets, 1.0) if found and packets else 0.0
