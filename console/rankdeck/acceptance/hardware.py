"""What hardware showed during measurements: low clocks, busy cores, errors of links, reboots."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median, median_low
from typing import TypeVar

from rankdeck.acceptance.population import FEWEST
from rankdeck.model.text import list_names
from rankdeck.values import Value

LOW_CLOCK = 0.9
"""A clock below this share of the usual clock of the same hardware under load is low."""


class Clock(Value):
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


class Counter(Value):
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
