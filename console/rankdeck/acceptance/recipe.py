"""Recipe: one acceptance test. How to run it, how to read its output, and what result is
healthy, by link rate, MTU, NVLink and published limits.

Efficiency of RoCE v2 over IPv4: MTU / (MTU + 82): preamble, FCS, gap and MAC 38, IP 20, UDP 8, BTH
12, ICRC 4; and a RETH of 16 once per message. InfiniBand: MTU / (MTU + 26): LRH 8, BTH 12, ICRC 4,
VCRC 2. Limits: Azure's `conf/*.conf` (azurehpc-health-checks), OCI's
`multi_node_active_healthcheck.py` (oci-hpc).
"""

import math
import re
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Protocol

from msgspec import field

from rankdeck.acceptance.values import Outcome
from rankdeck.model.job_spec import Launch
from rankdeck.model.text import significant_figures
from rankdeck.values import Value, replace
from rankdeck_agent.rules.units import write_size as bytes_text


class OutputReading(Value, kw_only=True):
    """One result in an output."""

    status: Outcome
    """One of `values.READ`."""
    text: str
    """What was read, or why there is no value; `explain_reading` adds what the value means."""
    size: int | None = None
    """Size of the largest message in bytes, to which `value` belongs: an
    average over sizes hides bad results.
    """
    value: float | None = None
    """The result in `unit`: the slower of out-of-place and in-place."""
    out_of_place: float | None = None
    in_place: float | None = None
    unit: str = ""
    ranks: int | None = None
    hosts: tuple[str, ...] = ()
    """Names of the hosts as the program printed them, each once; empty if it prints none."""
    grade: str = ""
    """`good`, `fair` or `slow` if a ceiling or a published limit is known; else ""."""
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further facts from the output that a ceiling may need: `mtu`, `gpu`, `metric`."""


NEVER_BEGAN = "it never began"
"""The text of a reading begins with these words if no traffic flowed."""


def not_measured(text: str, **more: object) -> OutputReading:
    """A reading that says nothing about the nodes; `text` says why."""
    return OutputReading(status=Outcome.NOT_MEASURED, text=text, **more)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def failed_reading(text: str, **more: object) -> OutputReading:
    """A reading of a test that ran and failed."""
    return OutputReading(status=Outcome.FAILED, text=text, **more)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def refused_reading(text: str, **more: object) -> OutputReading:
    """A reading whose number is for other hosts or ranks than requested."""
    return OutputReading(status=Outcome.REFUSED, text=text, **more)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


class Traits(Value, kw_only=True):
    """What all results of a recipe have in common."""

    unit: str
    lower_is_better: bool = False
    directed: bool = False
    """Whether a measurement is from the first node to the second; if
    not, of both directions at once.
    """
    tolerance: float = 0.10
    """A value is slow if it is below the median by more than this share."""
    seconds: float = 10.0
    """How long one measurement takes on healthy nodes; only for the estimate before a run."""
    names_hosts: bool = False
    """Whether a complete output names the hosts that took part."""
    gpus: bool = False
    """Whether there is one process per GPU; if not, or without GPUs, there is one per node."""
    writes: bool = False
    """Whether the test writes to disks or heats the node; then it
    runs only if requested by name.
    """
    fabric: str = ""
    """What one rail is: `rdma` (an RDMA device) or `network` (an interface); ""
    if the program uses all rails itself.
    """
    mark: str = ""
    """Pattern for the start of a line that only this program prints; what stands before
    the match is the prefix of all its lines.
    """
    begins: str = ""
    """Pattern for the first line of a run, for outputs with several
    runs; "" if `read` separates the runs.
    """
    done: str = ""
    """Pattern for a line that every complete run has; "" if a run
    ends where the next one begins.
    """


class Endpoints(Value, kw_only=True):
    """Where a measurement runs: nodes, addresses, devices."""

    nodes: tuple[str, ...]
    """The nodes; the first is the sender."""
    addresses: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> its address on the network to measure; a node
    without one is addressed by its name.
    """
    ranks_per_node: int = 1
    port: int = 18515
    devices: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> its RDMA device: `mlx5_0`, or `mlx5_0:2` for port 2;
    without one the program chooses.
    """
    seconds: int = 0
    """How long to measure, in seconds; 0: the default of the recipe."""
    patience: float = 1.0
    """How many times longer than usual an answer may take (`patience:` of the cluster file)."""

    @property
    def ranks(self) -> int:
        return len(self.nodes) * self.ranks_per_node

    @property
    def receiver(self) -> str:
        """The address of the last node."""
        return self.addresses.get(self.nodes[-1], self.nodes[-1])


class Commands(Value, kw_only=True):
    """The commands that start one measurement."""

    launch: Launch
    argv: tuple[str, ...]
    """The command of each rank; with a `server`, the command of the sender only."""
    server: tuple[str, ...] = ()
    """The server's command, on the last node.

    It must listen before `argv` starts, and ends by itself.
    """
    waits: tuple[str, ...] = ()
    """Texts that the client prints if the server does not listen yet;
    the client is then started again.
    """
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name -> text of files to write into the run folder of each node."""


class HardwareFacts(Value, kw_only=True):
    """Facts about the hardware that the output does not say; 0 and "" mean "not known"."""

    link_gbps: float = 0.0
    """Rate of one link of a node, in Gb/s."""
    mtu: int = 0
    """MTU of the RDMA path (1024, 4096), not of the Ethernet below it."""
    gpu: str = ""
    node_gbps: float = 0.0
    """Rate of all ports of a node together, in Gb/s."""


class ExpectedResult(Value, kw_only=True):
    """The result to expect on healthy hardware."""

    ceiling: float
    """The highest possible result, in the unit of the reading."""
    of: str
    """What sets the ceiling, with a verb, such as "a 25 Gb/s link carries at MTU 1024"."""
    factor: float
    """A result is good from this share of the ceiling on."""
    fair: float = 0.9
    """A result is fair from this share of a good result on."""
    good: str = ""
    """A sentence that says what a good result means."""
    advice: str = ""
    """A sentence that says what to check if it is not good."""


class Recipe(Protocol):
    """One acceptance test. All methods are pure; a backend runs the commands."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    """What a node must have to run it: words of `Identity.has`, such as `rdma`, `gpu:nvidia`,
    `module:torch`, or the name of a program.
    """
    one_node: ClassVar[bool]
    """Whether it tests one node by itself; if not, it runs between nodes."""
    traits: ClassVar[Traits]

    def commands(self, where: Endpoints) -> Commands:
        """The commands of one measurement there."""
        ...

    def read(self, text: str) -> tuple[OutputReading, ...]:
        """Every result in the output of one run; at least one.

        `text` is decoded, without the prefixes that launchers add.
        """
        ...

    def expect(self, reading: OutputReading, known: HardwareFacts) -> ExpectedResult | None:
        """The result to expect on healthy hardware; None if only other
        nodes and earlier runs can tell.
        """
        ...


class WithoutCeiling:
    """Base of recipes without a known ceiling: results are compared
    with other nodes and earlier runs.
    """

    traits: ClassVar[Traits]
    one_node: ClassVar[bool] = False

    def expect(self, reading: OutputReading, known: HardwareFacts) -> ExpectedResult | None:
        """Always None."""
        del reading, known
        return None


RATES = (1, 2.5, 5, 10, 25, 40, 50, 100, 200, 400, 800)
"""Rates of links, in Gb/s."""
_ROCE, _INFINIBAND, _RETH = 82, 26, 16
"""Overhead in bytes: per packet (RoCE, InfiniBand), and per message (RETH)."""
_JUMBO = 4096
"""RDMA MTU that Ethernet with MTU 9000 carries."""
_LEAST_MTU = 1024
"""RDMA MTU that Ethernet with its usual MTU of 1500 carries."""
_FITS = 0.9
"""A link rate is guessed only if the value reaches this share of it: from
a slow result no link can be guessed.
"""
RDMA_GOOD, NETWORK_GOOD, NVLINK_GOOD = 0.97, 0.90, 0.75


class GpuClass(NamedTuple):
    """A GPU with published limits, all in GB/s of all_reduce busbw; 0: not known."""

    word: str
    nvlink: float
    """What one GPU sends in one direction, over all links to the other GPUs of its node."""
    inside: float
    """The least that Azure accepts inside a node with eight GPUs."""
    across: float
    """The least that OCI accepts across nodes with eight GPUs."""
    link: str = "NVLink"
    """The kind of link between the GPUs of a node."""


GPUS = (
    GpuClass("A100", 300, 228, 185),
    GpuClass("H100", 450, 460, 440),
    GpuClass("H200", 450, 0, 440),
    GpuClass("B200", 900, 0, 440),
    GpuClass("B300", 900, 0, 700),
    GpuClass("MI300X", 448, 0, 350, "xGMI"),
)
_FAIR_ACROSS = 0.858
"""Fair share of OCI's limit: its 185 for A100 is 0.944 of what the links
carry (196), of which 0.9 × 0.9 is fair.
"""
_ABOUT = 0.9
"""A published limit does not apply to nodes whose ports carry less than this share of it."""
_PORTS_GOOD = 0.75
"""Good share of what the ports of a node carry; without GPU direct, through
the host's memory, it is half or less.
"""
_CARDS = frozenset({"PCIE", "NVL", "MIG"})
_FULL = 8
"""GPUs per node for which the limits are published."""
_QPS = "the QPs per connection (NCCL_IB_QPS_PER_CONNECTION) and the HCA list (NCCL_IB_HCA)"


def _efficiency(mtu: int, message: int = 65536, overhead: int = _ROCE) -> float:
    """The share of a link's rate that is payload; `mtu`, `message` and `overhead` are in bytes."""
    packets = max(1, math.ceil(message / mtu))
    return message / (message + packets * overhead + _RETH)


def _link_ceiling(
    value: float, known: HardwareFacts, mtu: int, message: int, overhead: int = _ROCE
) -> tuple[float, float] | None:
    """(rate of the link, the most payload that it carries), in Gb/s; if the rate
    is not known, it is guessed from `value`.

    None if no rate fits.
    """
    share = _efficiency(mtu, message, overhead)
    if known.link_gbps:
        return known.link_gbps, known.link_gbps * share
    rate = next((rate for rate in RATES if value <= rate * share * 1.005), None)
    if rate is None or value < _FITS * rate * share:
        return None
    return rate, rate * share


def _link(rate: float, known: HardwareFacts, links: int = 1) -> str:
    """Words for the links (or directions of one link) that set the
    ceiling, and whether their rate is a guess.
    """
    guess = "" if known.link_gbps else " (a guess from the value)"
    return (
        f"{links} × {rate:g} Gb/s{guess} carry"
        if links > 1
        else f"a {rate:g} Gb/s link{guess} carries"
    )


def rdma_write(reading: OutputReading, known: HardwareFacts) -> ExpectedResult | None:
    """Expected from RDMA ports, by rate and MTU.

    If only the rate is known, the least MTU of RoCE is assumed.
    """
    reported = known.mtu or int(reading.facts.get("mtu", "0"))
    if reading.value is None or not (reported or known.link_gbps):
        return None
    mtu = reported or _LEAST_MTU
    links = int(reading.facts.get("links", "1"))
    infiniband = reading.facts.get("link") == "InfiniBand"
    overhead = _INFINIBAND if infiniband else _ROCE
    found = _link_ceiling(reading.value / links, known, mtu, reading.size or 65536, overhead)
    if found is None:
        return None
    rate, most = found
    more = ""
    if reported and mtu < _JUMBO and not infiniband:
        more = f"; MTU 9000 would give {links * rate * _efficiency(_JUMBO):.1f}"
    return ExpectedResult(
        ceiling=links * most,
        of=f"{_link(rate, known, links)} {'at' if reported else 'even at'} MTU {mtu}",
        factor=RDMA_GOOD,
        good=f"at the limit of MTU {mtu}{more}",
        advice="look at the PCIe width, the NUMA node of the port and pause frames",
    )


def _gpu_class(name: str) -> GpuClass | None:
    """The GPU whose name contains the class as a whole word: a GH200 is not an H200.

    PCIe cards lack the links: None.
    """
    words = re.split(r"[^A-Z0-9]+", name.upper())
    if not _CARDS.isdisjoint(words):
        return None
    return next((one for one in GPUS if one.word in words), None)


def gpu_network(reading: OutputReading, known: HardwareFacts) -> ExpectedResult | None:
    """Expected from all_reduce: NVLink inside a node, the published limit
    across nodes, or one network link.
    """
    hosts, ranks = len(reading.hosts), reading.ranks or 0
    name = known.gpu or reading.facts.get("gpu", "")
    kind = _gpu_class(name)
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
            advice=f"look at GPU direct and {_QPS}",
        )
    return ExpectedResult(
        ceiling=kind.across,
        of=f"OCI asks of {kind.word} across nodes",
        factor=1.0,
        fair=_FAIR_ACROSS,
        good=f"at OCI's present limit of {kind.across:g}",
        advice=f"below OCI's present limit of {kind.across:g}: look at {_QPS}",
    )


def _one_link(reading: OutputReading, known: HardwareFacts) -> ExpectedResult | None:
    """Expected with one GPU per node: the link between the nodes is the limit."""
    mtu = known.mtu or 1024
    found = _link_ceiling((reading.value or 0.0) * 8, known, mtu, 1 << 20)
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


def tcp_link(reading: OutputReading, known: HardwareFacts) -> ExpectedResult | None:
    """Expected from TCP over Ethernet with MTU 1500: 94.9 % of the link's
    rate is payload (1448 of 1538 bytes).
    """
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
    """Expected from a test that counts: it would have failed if the count were not complete."""
    return ExpectedResult(ceiling=reading.value or 1.0, of=what, factor=1.0, good=good)


def explain_reading(reading: OutputReading, expected: ExpectedResult | None) -> OutputReading:
    """The reading with its grade, and with a text that says the value and what it means."""
    if reading.value is None:
        return reading
    at = f" at {bytes_text(reading.size)}" if reading.size else ""
    what = f"{significant_figures(reading.value)} {reading.unit}{at}"
    if reading.text:
        what += f" ({reading.text})"
    grade = grade_value(reading.value, expected)
    return replace(reading, grade=grade, text=f"{what}: {_meaning(reading.value, expected, grade)}")


def grade_value(value: float, expected: ExpectedResult | None) -> str:
    """`good`, `fair` or `slow`; "" if no expected result is known."""
    if expected is None:
        return ""
    share = value / expected.ceiling / expected.factor
    return "good" if share >= 1 else "fair" if share >= expected.fair else "slow"


def _meaning(value: float, expected: ExpectedResult | None, grade: str) -> str:
    if expected is None:
        return "to be compared with other nodes and with its own history"
    share = f"{value / expected.ceiling:.1%}".replace("%", " %")
    of = f"{share} of the {significant_figures(expected.ceiling)} that {expected.of}"
    if grade == "good":
        return f"{of}; {expected.good}"
    return f"{of}; {grade}" + (f"; {expected.advice}" if expected.advice else "")
