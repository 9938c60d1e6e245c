"""What a healthy result would be, from link rate, MTU, NVLink and published limits, as sentences.

Efficiency of RoCE v2 over IPv4: MTU / (MTU + 82): preamble, FCS, gap and MAC 38, IP 20, UDP 8,
BTH 12, ICRC 4; and a RETH of 16 once a message. InfiniBand: MTU / (MTU + 26): LRH 8, BTH 12, ICRC 4, VCRC 2. Limits: Azure's `conf/*.conf` (azurehpc-health-checks),
OCI's `multi_node_active_healthcheck.py` (oci-hpc).
"""

import math
import re
from dataclasses import replace
from typing import NamedTuple

from rankdeck.acceptance.recipe import ExpectedResult, Known, OutputReading
from rankdeck.model.text import figures
from rankdeck.model.text import size as bytes_text

RATES = (1, 2.5, 5, 10, 25, 40, 50, 100, 200, 400, 800)
"""Rates of links, in Gb/s."""
_ROCE, _INFINIBAND, _RETH = 82, 26, 16
"""Bytes of a packet, and of a message, that are no payload."""
_JUMBO = 4096
"""RDMA MTU that Ethernet with MTU 9000 carries."""
_LEAST_MTU = 1024
"""RDMA MTU that Ethernet with its usual MTU of 1500 carries."""
_FITS = 0.9
"""A link rate is guessed only where the value reaches this share of it: a slow result names no link."""
RDMA_GOOD, NETWORK_GOOD, NVLINK_GOOD = 0.97, 0.90, 0.75


class GpuClass(NamedTuple):
    """A GPU whose limits are published, all in GB/s of all_reduce busbw; 0: not known."""

    word: str
    nvlink: float
    """Of one GPU in one direction, over all links to the others of its node."""
    inside: float
    """Least that Azure accepts inside a node of eight."""
    across: float
    """Least that OCI accepts over several nodes of eight."""
    link: str = "NVLink"
    """Between the GPUs of a node."""


GPUS = (
    GpuClass("A100", 300, 228, 185),
    GpuClass("H100", 450, 460, 440),
    GpuClass("H200", 450, 0, 440),
    GpuClass("B200", 900, 0, 440),
    GpuClass("B300", 900, 0, 700),
    GpuClass("MI300X", 448, 0, 350, "xGMI"),
)
_FAIR_ACROSS = 0.858
"""Of OCI's limit: 185 for A100 is 0.944 of what the links carry (196), and 0.9 × 0.9 of that is fair."""
_ABOUT = 0.9
"""Of a published limit: nodes whose ports carry less are not those that it was published for."""
_PORTS_GOOD = 0.75
"""Of what the ports of a node carry; through the host's memory, without GPU direct, it is half or less."""
_CARDS = frozenset({"PCIE", "NVL", "MIG"})
_FULL = 8
"""GPUs of a node that the published limits are of."""
_QPS = "look at the QPs per connection (NCCL_IB_QPS_PER_CONNECTION) and the HCA list (NCCL_IB_HCA)"


def efficiency(mtu: int, message: int = 65536, overhead: int = _ROCE) -> float:
    """Share of a link that is payload."""
    packets = max(1, math.ceil(message / mtu))
    return message / (message + packets * overhead + _RETH)


def link_ceiling(
    value: float, known: Known, mtu: int, message: int, overhead: int = _ROCE
) -> tuple[float, float] | None:
    """(rate of the link, most that it carries), Gb/s; a rate that is not known is the one that fits.

    None if none fits: then nobody can say what the link should carry.
    """
    share = efficiency(mtu, message, overhead)
    if known.link_gbps:
        return known.link_gbps, known.link_gbps * share
    rate = next((rate for rate in RATES if value <= rate * share * 1.005), None)
    if rate is None or value < _FITS * rate * share:
        return None
    return rate, rate * share


def _link(rate: float, known: Known, links: int = 1) -> str:
    """The links, or directions of one, whose ceiling is used, and whether the rate is only what fits the value."""
    guess = "" if known.link_gbps else " (a guess from the value)"
    return (
        f"{links} × {rate:g} Gb/s{guess} carry"
        if links > 1
        else f"a {rate:g} Gb/s link{guess} carries"
    )


def rdma_write(reading: OutputReading, known: Known) -> ExpectedResult | None:
    """Of one RDMA port: its rate and MTU; where only the rate is known, what it carries at the least MTU of RoCE."""
    told = known.mtu or int(reading.facts.get("mtu", "0"))
    if reading.value is None or not (told or known.link_gbps):
        return None
    mtu = told or _LEAST_MTU
    links = int(reading.facts.get("links", "1"))
    infiniband = reading.facts.get("link") == "InfiniBand"
    overhead = _INFINIBAND if infiniband else _ROCE
    found = link_ceiling(reading.value / links, known, mtu, reading.size or 65536, overhead)
    if found is None:
        return None
    rate, most = found
    more = ""
    if told and mtu < _JUMBO and not infiniband:
        more = f"; MTU 9000 would give {links * rate * efficiency(_JUMBO):.1f}"
    return ExpectedResult(
        ceiling=links * most,
        of=f"{_link(rate, known, links)} {'at' if told else 'even at'} MTU {mtu}",
        factor=RDMA_GOOD,
        good=f"at the limit of MTU {mtu}{more}",
        advice="look at the PCIe width, the NUMA node of the port and pause frames",
    )


def gpu_class(name: str) -> GpuClass | None:
    """By a whole word: a GH200 is no H200, and the PCIe cards of a generation have not its links."""
    words = re.split(r"[^A-Z0-9]+", name.upper())
    if not _CARDS.isdisjoint(words):
        return None
    return next((one for one in GPUS if one.word in words), None)


def gpu_network(reading: OutputReading, known: Known) -> ExpectedResult | None:
    """Of an all_reduce: NVLink inside a node, the published limit across nodes, or one link."""
    hosts, ranks = len(reading.hosts), reading.ranks or 0
    name = known.gpu or reading.facts.get("gpu", "")
    kind = gpu_class(name)
    if hosts > 1 and ranks == hosts:
        return _one_link(reading, known)
    if kind is None or not hosts or ranks != _FULL * hosts:
        return None
    if hosts == 1:
        return ExpectedResult(
            ceiling=kind.nvlink,
            of=f"one direction of {kind.link} carries",
            factor=(kind.inside / kind.nvlink if kind.inside else NVLINK_GOOD),
            good=f"normal for {kind.word}"
            + (f" (Azure asks {kind.inside:g})" if kind.inside else ""),
            advice=f"look at {kind.link}, clocks and power",
        )
    if 0 < known.node_gbps / 8 < _ABOUT * kind.across:
        return ExpectedResult(
            ceiling=known.node_gbps / 8,
            of=f"the ports of a node carry ({known.node_gbps:g} Gb/s together)",
            factor=_PORTS_GOOD,
            good="network-bound, healthy",
            advice=f"look at GPU direct and {_QPS.removeprefix('look at ')}",
        )
    return ExpectedResult(
        ceiling=kind.across,
        of=f"OCI asks of {kind.word} across nodes",
        factor=1.0,
        fair=_FAIR_ACROSS,
        good=f"at OCI's present limit of {kind.across:g}",
        advice=f"below OCI's present limit of {kind.across:g}: {_QPS}",
    )


def _one_link(reading: OutputReading, known: Known) -> ExpectedResult | None:
    """One GPU a node: the link between the nodes is the limit."""
    mtu = known.mtu or 1024
    found = link_ceiling((reading.value or 0.0) * 8, known, mtu, 1 << 20)
    if found is None:
        return None
    rate, most = found
    return ExpectedResult(
        ceiling=most / 8,
        of=f"{_link(rate, known)} at MTU {mtu}",
        factor=NETWORK_GOOD,
        good=f"{(reading.value or 0.0) * 8:.1f} Gb/s: network-bound, healthy",
        advice="measure the link alone (ib_write_bw): if that is full, look at GPU direct and NCCL_IB_HCA",
    )


def tcp_link(reading: OutputReading, known: Known) -> ExpectedResult | None:
    """Of TCP over Ethernet with MTU 1500: 94.9 % of the link (1448 of 1538 bytes)."""
    if not known.link_gbps:
        return None
    most = known.link_gbps * 1448 / 1538
    return ExpectedResult(
        ceiling=most,
        of=f"TCP over a {known.link_gbps:g} Gb/s link carries",
        factor=0.95,
        good="at the limit of the link",
        advice="look at duplex, cable, and whether one core is busy with interrupts",
    )


def all_of(reading: OutputReading, what: str, good: str) -> ExpectedResult:
    """Of a count: all of them, or it would have failed."""
    return ExpectedResult(ceiling=reading.value or 1.0, of=what, factor=1.0, good=good)


def explained(reading: OutputReading, expected: ExpectedResult | None) -> OutputReading:
    """The reading with its grade, and one sentence that says the value and what it means."""
    if reading.value is None:
        return reading
    at = f" at {bytes_text(reading.size)}" if reading.size else ""
    what = f"{figures(reading.value)} {reading.unit}{at}"
    if reading.text:
        what += f" ({reading.text})"
    grade = graded(reading.value, expected)
    return replace(reading, grade=grade, text=f"{what}: {_meaning(reading.value, expected, grade)}")


def graded(value: float, expected: ExpectedResult | None) -> str:
    """`good`, `fair` or `slow`; "" if nothing says what it should be."""
    if expected is None:
        return ""
    share = value / expected.ceiling / expected.factor
    return "good" if share >= 1 else "fair" if share >= expected.fair else "slow"


def _meaning(value: float, expected: ExpectedResult | None, grade: str) -> str:
    if expected is None:
        return "to be compared with other nodes and with its own history"
    share = f"{value / expected.ceiling:.1%}".replace("%", " %")
    of = f"{share} of the {figures(expected.ceiling)} that {expected.of}"
    if grade == "good":
        return f"{of}; {expected.good}"
    return f"{of}; {grade}" + (f"; {expected.advice}" if expected.advice else "")
