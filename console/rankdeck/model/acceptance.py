"""Measurements of acceptance: for which stage, between which nodes, what came of it, and how healthy values scatter."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist, median, median_low
from typing import NamedTuple, TypeVar


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
    """Every pair within its leaf: nothing crosses."""
    CROSSING = "crossing"
    """Every pair crosses leaves at once."""
    ALONE = "alone"
    """One pair crosses, everything else is idle."""
    GROUPS = "groups"
    """Collectives over more and more nodes."""
    SOAK = "soak"
    """The groups, repeated for a given time."""


GROUPED = (Stage.GROUPS, Stage.SOAK)
"""Stages that measure a group of nodes as one."""


class Outcome(StrEnum):
    """What became of one measurement, or of all between two nodes, before it is judged; only `measured` has a value."""

    PENDING = "pending"
    RUNNING = "running"
    MEASURED = "measured"
    FAILED = "failed"
    """It failed, or computed wrong values: this counts against its nodes."""
    NOT_MEASURED = "not measured"
    """Nothing was learned of the nodes: it never began, was cut off, or could not tell."""
    REFUSED = "refused"
    """There is a number, but not for the hosts and ranks that were asked for."""
    EXCLUDED = "excluded"
    """The operator took one of its nodes out; this does not count against it."""


READ = (Outcome.MEASURED, Outcome.FAILED, Outcome.NOT_MEASURED, Outcome.REFUSED)
"""What an output can say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One measurement that was planned, runs, or is done."""

    stage: Stage
    recipe: str
    sender: str
    """The node of a test of one; the first of a group."""
    receiver: str = ""
    """"" for a test of one node, and for a group."""
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
    """The sentence: what was read and what it means, or why there is no value."""
    raw: str = ""
    """File on this machine with the whole output; "" before."""
    job: str = ""
    """The job that measured it; its logs are those of any job."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes that took part."""
        return self.group or tuple(filter(None, (self.sender, self.receiver)))

    @property
    def key(self) -> "Key":
        """Its key among all measurements of the run."""
        path = (self.stage, self.recipe, self.sender, self.receiver, self.group)
        return (*path, self.rail, self.port, self.round, self.repeat)


Key = tuple[Stage, str, str, str, tuple[str, ...], int, int, int, int]


class Answer(StrEnum):
    """The judgement of a node or a path, made from the `Outcome` of each measurement; only the first two are accepted."""

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
        """Whether it ran and is not good; neither that nor accepted: nothing was learned."""
        return self in (Answer.SLOW, Answer.UNSTEADY, *FAILS)


FAILS = {Answer.FAILED: "fails", Answer.WRONG_VALUES: "gives wrong values"}
"""Answer of what failed -> what it does, for a sentence."""


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
    """One thing that is not good."""

    kind: Kind
    subject: str
    """`n3`, `n2–n6`, `leaf A`, `rail 2 of leaf A`."""
    answer: Answer
    sentence: str
    """Seen, with the evidence counted; what it means; what to try."""
    nodes: tuple[str, ...] = ()
    """Nodes that are not good because of it; none for a path or a switch."""
    leaves: tuple[str, ...] = ()
    """Leaves, if it is about leaves."""
    ends: tuple[str, ...] = ()
    """The two nodes of a path, if it is about a path."""
    stage: Stage = Stage.PAIRS
    """Where it was seen."""
    recipe: str = ""


class PathEnd(NamedTuple):
    """One end of a path: a node, and which of its ports."""

    node: str
    rail: int = 0


Path = tuple[PathEnd, PathEnd]
"""Sender, receiver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One value, or why there is none."""

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
    """Counts ports (or queue pairs) that were tried: another number, another ECMP path."""
    group: tuple[str, ...] = ()
    """All nodes, where it is a collective over more than two."""
    text: str = ""
    """The sentence of its output."""
    resent: float = 0.0
    """Share of the packets that were sent again."""

    @property
    def path(self) -> Path:
        return PathEnd(self.sender, self.rail), PathEnd(self.receiver, self.rail)

    @property
    def speed(self) -> float | None:
        """The value; 0 if it ran and broke; None if nothing was learned."""
        return 0.0 if self.status is Outcome.FAILED else self.value


@dataclass(frozen=True, slots=True)
class Population:
    """How values of the same kind scatter in the same run, and from where on one is slow."""

    count: int
    median: float
    spread: float
    """Standard deviation, as the median deviation says it; at least 1 % of the median."""
    good: float
    """From here on a value is good; between `limit` and this it is fair."""
    limit: float
    mixed: bool
    """Not one population, or a disturbed one: the limit was not lowered for it."""

    def answer(self, value: float) -> Answer:
        if value < self.limit:
            return Answer.SLOW
        return Answer.GOOD if value >= self.good else Answer.FAIR


FEWEST = 4
"""So many nodes are needed for a population."""
_MIXED = 0.05
_STANDS_OUT = 1.2
_CHANCE = 0.01
"""Expected number of healthy values below the limit."""


def population(values: Sequence[float], tolerance: float, fast: float = 0.0) -> Population | None:
    """Median and limit; None for none. A mixed population is judged by its upper quartile: its limit never sinks.

    `fast` is what a minority of nodes reach with each other, where the others are slower: then that counts.
    """
    if not values:
        return None
    ordered = sorted(values)
    middle = median(ordered)
    spread = max(1.4826 * median(abs(one - middle) for one in ordered), 0.01 * middle)
    # Many equally slow ones are the median: then the fast ones stand out.
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
    """The paths above each gap between the values, the fastest alone first."""
    ordered = sorted(speeds, key=lambda path: speeds[path], reverse=True)
    for place in range(1, len(ordered)):
        if speeds[ordered[place - 1]] > ratio * speeds[ordered[place]]:
            yield frozenset(ordered[:place])


DROPS = 0.7
"""A repeat below this share of the best one is a drop."""


def drops(runs: Sequence[Measurement]) -> int:
    """Repeats of one path that dropped."""
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
    """The highest speed, because interference only lowers; None if nothing was learned."""
    return max((speed for one in runs if (speed := one.speed) is not None), default=None)


LOW_CLOCK = 0.9
"""Share of what others of the same hardware run at under load, below which a clock is low."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock that is watched while something computes."""

    fact: str
    used: str
    """Metric: percent of the time at work."""
    clock: str
    mhz: float
    """Of one unit of that metric."""
    word: str
    """Before the number of a low one; `{}` is its device."""


CLOCKS = (
    Clock("gpu clocks under load", "gpu.used", "gpu.clock", 1.0, "GPU {} at "),
    Clock("cpu clock under load", "cpu.used", "cpu.freq", 1e-6, ""),
)
_NAMED = 4
_T = TypeVar("_T")
Highest = Mapping[str, Mapping[str, float]]
"""Node -> device -> the highest clock that it was seen at while it computed, in MHz."""


def clocks_under_load(highest: Highest, alike: Mapping[str, str], word: str) -> dict[str, str]:
    """Node -> `full`, or which of its devices ran slower than those of nodes alike; fewer than four say nothing.

    `alike` is node -> its hardware: other processors have other clocks.
    """
    found: dict[str, str] = {}
    for group in _by_hardware(highest, alike):
        clocks = [clock for devices in group.values() for clock in devices.values()]
        if len(clocks) >= FEWEST:
            usual = median(clocks)
            found |= {node: _low(devices, usual, word) for node, devices in group.items()}
    return found


def _by_hardware(told: Mapping[str, _T], alike: Mapping[str, str]) -> Iterable[Mapping[str, _T]]:
    groups: defaultdict[str, dict[str, _T]] = defaultdict(dict)
    for node, one in told.items():
        groups[alike.get(node, "")][node] = one
    return groups.values()


def _low(devices: Mapping[str, float], usual: float, word: str) -> str:
    low = {device: clock for device, clock in devices.items() if clock < LOW_CLOCK * usual}
    words = [f"{word.format(name)}{clock:.0f}" for name, clock in sorted(low.items())[:_NAMED]]
    more = f" and {len(low) - _NAMED} more" if len(low) > _NAMED else ""
    return f"{', '.join(words)}{more} of {usual:.0f} MHz" if low else "full"


BUSY_CORES = "busy cores"
_MORE = 30.0


def busy_cores(used: Mapping[str, float], alike: Mapping[str, str]) -> dict[str, str]:
    """Node -> `no more` than those of nodes alike, or how many: another program runs there.

    `used` is the mean percent of its cores in use while the node was measured; fewer than four say nothing.
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
    """A counter of links that grows where something is wrong with one."""

    metric: str
    word: str
    least: float = 1
    """Growth from which on it is said."""
    usual: bool = False
    """Healthy links count it, too: only ten times as much as most nodes have is said."""


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
"""Metric -> node -> device -> growth while the nodes were measured."""


def link_errors(grown: Grown) -> dict[str, str]:
    """Node -> `none`, or what its links counted; nodes that count nothing are left out."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for one in COUNTERS:
        nodes = grown.get(one.metric, {})
        sums = [sum(devices.values()) for devices in nodes.values()]
        usual = _FAR_MORE * median_low(sums) if one.usual and sums else 0.0
        for node, devices in nodes.items():
            said = found[node]
            most = max(devices, key=lambda device: devices[device], default="")
            if devices and devices[most] >= max(one.least, usual):
                said.append(f"{most}: {devices[most]:,.0f} {one.word}")
    return {node: ", ".join(said) or "none" for node, said in found.items()}


HEARD = (LINK_ERRORS, REBOOTS, BUSY_CORES, *(one.fact for one in CLOCKS))
"""Facts that telemetry tells while nodes are measured."""
WELL = {
    "gpu clocks under load": "full",
    "cpu clock under load": "full",
    "gpu limits": "none",
    BUSY_CORES: "no more",
    LINK_ERRORS: "none",
    REBOOTS: "none",
}
"""Fact -> what it is on a healthy node, whatever most nodes have."""


def differing(identity: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Node -> what it has and most others have not, one sentence; nodes like the majority are left out.

    `identity` is node -> fact (kernel, driver, mtu, …) -> value. What is known to be well needs no majority.
    """
    said: defaultdict[str, list[str]] = defaultdict(list)
    for fact in sorted({fact for facts in identity.values() for fact in facts}):
        values = {node: facts[fact] for node, facts in identity.items() if fact in facts}
        common, count = _majority(values.values())
        if fact in WELL:
            common = WELL[fact]
            count = list(values.values()).count(common)
        elif 2 * count <= len(values):
            continue
        have = f", {count} of {len(values)} have {common}" if count else ""
        for node, value in values.items():
            if value != common:
                said[node].append(f"its {fact} {_are(fact)} {value}{have}")
    return {node: "; ".join(words) for node, words in said.items()}


def _are(fact: str) -> str:
    """Of `link errors under load`, and of `mtu`."""
    return "are" if fact.partition(" under ")[0].endswith(("clocks", "errors", "limits", "cores", "reboots")) else "is"  # fmt: skip


def _majority(values: Iterable[str]) -> tuple[str, int]:
    counts: defaultdict[str, int] = defaultdict(int)
    for value in values:
        counts[value] += 1
    return max(counts.items(), key=lambda item: (item[1], item[0]))


def failure(failed: Iterable[Measurement | Result]) -> Answer:
    """The answer of failed runs, by what was said of each: one with wrong values is enough."""
    wrong = any(Answer.WRONG_VALUES in one.text for one in failed)
    return Answer.WRONG_VALUES if wrong else Answer.FAILED


def measurement_of(one: Result, *, lower_is_better: bool = False) -> Measurement:
    """What the judge takes: higher is better, so a latency in µs becomes round trips a second."""
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
"""Bytes of a TCP packet of 1,500; with larger ones the share is larger than what this says."""


def _resent(one: Result) -> float:
    """The share of packets that TCP sent again."""
    found = _RESENT.search(one.text) if one.unit == "Gb/s" else None
    packets = (one.value or 0.0) * 1e9 / 8 * one.seconds / _SEGMENT
    return min(int(found[1]) / packets, 1.0) if found and packets else 0.0
