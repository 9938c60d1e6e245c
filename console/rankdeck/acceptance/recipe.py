"""Recipe: one acceptance test, how to run it, how to read what it wrote, what to expect of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from rankdeck.model.acceptance import Outcome
from rankdeck.model.job import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputReading:
    """One result in an output."""

    status: Outcome
    """One of `READ`."""
    text: str
    """What was read, or why there is no value; `expectations` adds what it means."""
    size: int | None = None
    """Bytes of the largest message: the average over sizes hides the bad ones."""
    value: float | None = None
    """In `unit`; the slower one of out-of-place and in-place."""
    out_of_place: float | None = None
    in_place: float | None = None
    unit: str = ""
    ranks: int | None = None
    hosts: tuple[str, ...] = ()
    """Names as the program printed them, each once; empty if it prints none."""
    grade: str = ""
    """`good`, `fair` or `slow` if a ceiling or a published limit is known; else ""."""
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further facts from the output that a ceiling may need: `mtu`, `gpu`, `metric`."""


def not_measured(text: str, **more: object) -> OutputReading:
    """A reading that says nothing about the nodes; `text` says why."""
    return OutputReading(status=Outcome.NOT_MEASURED, text=text, **more)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def failed(text: str, **more: object) -> OutputReading:
    """A reading of a test that ran and failed."""
    return OutputReading(status=Outcome.FAILED, text=text, **more)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def refused(text: str, **more: object) -> OutputReading:
    """A reading whose number is for other hosts or ranks than were asked for."""
    return OutputReading(status=Outcome.REFUSED, text=text, **more)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What all results of a recipe have in common."""

    unit: str
    lower_is_better: bool = False
    directed: bool = False
    """Whether it measures from the first node to the second; if not, both directions at once."""
    tolerance: float = 0.10
    """A value is slow if it is below the median by more than this share."""
    seconds: float = 10.0
    """How long one measurement takes on healthy nodes; only for the estimate before a run."""
    names_hosts: bool = False
    """Whether a complete output names the hosts that took part."""
    gpus: bool = False
    """Whether it runs one process per GPU; if not, or without GPUs, one per node."""
    writes: bool = False
    """Whether it writes to disks or heats the node; then it runs only if asked for by name."""
    fabric: str = ""
    """What one rail is: `rdma` (an RDMA device) or `network` (an interface); "" if it uses all of them itself."""
    mark: str = ""
    """Pattern of words that begin a line only this program prints; a prefix before them is on all its lines."""
    begins: str = ""
    """Pattern of the first line of a run, for outputs with several runs; "" if `read` separates them."""
    done: str = ""
    """Pattern of a line that every complete run has; "" if a run ends where the next one begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Which nodes a measurement is made on."""

    nodes: tuple[str, ...]
    """The sender first."""
    addresses: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> its address on the network to measure; for a node without one its name is used."""
    ranks_per_node: int = 1
    port: int = 18515
    devices: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> its RDMA device, `mlx5_0`, or `mlx5_0:2` for port 2; without one the program chooses."""
    seconds: int = 0
    """How long to measure; 0: the default of the recipe."""

    @property
    def ranks(self) -> int:
        return len(self.nodes) * self.ranks_per_node

    @property
    def receiver(self) -> str:
        """The address of the last node."""
        return self.addresses.get(self.nodes[-1], self.nodes[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """How one measurement is started."""

    launch: Launch
    argv: tuple[str, ...]
    """The command of each rank; with a `server`, the command of the sender only."""
    server: tuple[str, ...] = ()
    """The command on the last node. It must listen before `argv` starts, and it ends by itself."""
    waits: tuple[str, ...] = ()
    """What the client prints if the server does not listen yet; the client is then started again."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name -> text of files to write into the run folder of each node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Facts about the hardware that the output does not say; 0 and "" mean "not known"."""

    link_gbps: float = 0.0
    """Rate of one link of a node."""
    mtu: int = 0
    """MTU of the RDMA path (1024, 4096), not of the Ethernet below it."""
    gpu: str = ""
    node_gbps: float = 0.0
    """Of all ports of a node together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedResult:
    """What a healthy result would be."""

    ceiling: float
    """The highest possible result, in the unit of the reading."""
    of: str
    """What sets the ceiling, e.g. "a 25 Gb/s link at MTU 1024"."""
    factor: float
    """A result is good from this share of the ceiling on."""
    fair: float = 0.9
    """A result is fair from this share of a good one on."""
    good: str = ""
    """A sentence that says what a good result means."""
    advice: str = ""
    """A sentence that says what to check if it is not good."""


class Recipe(Protocol):
    """One acceptance test. All methods are pure; a backend runs the commands."""

    name: ClassVar[str]
    traits: ClassVar[Traits]

    def commands(self, where: Where) -> Commands:
        """The commands of one measurement on these nodes."""
        ...

    def read(self, text: str) -> tuple[OutputReading, ...]:
        """Every result in the output of one run, at least one.

        `text` is decoded and without the prefixes of launchers.
        """
        ...

    def expect(self, reading: OutputReading, known: Known) -> ExpectedResult | None:
        """What a healthy result would be; None if only earlier runs can tell."""
        ...


class WithoutCeiling:
    """The part of a recipe whose results only other nodes and their own history can judge."""

    traits: ClassVar[Traits]

    def expect(self, reading: OutputReading, known: Known) -> ExpectedResult | None:
        """None, always."""
        del reading, known
        return None
