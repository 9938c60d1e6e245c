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
    """In `unit`; of out-of-place and in-place the slower."""
    out_of_place: float | None = None
    in_place: float | None = None
    unit: str = ""
    ranks: int | None = None
    hosts: tuple[str, ...] = ()
    """Names as the program printed them, each once; empty where it prints none."""
    grade: str = ""
    """`good`, `fair` or `slow`, where a ceiling or a published limit says so; else ""."""
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    """What else the output says and a ceiling may need: `mtu`, `gpu`, `metric`."""


def not_measured(text: str, **more: object) -> OutputReading:
    """Nothing was learned."""
    return OutputReading(status=Outcome.NOT_MEASURED, text=text, **more)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def failed(text: str, **more: object) -> OutputReading:
    """It ran and broke."""
    return OutputReading(status=Outcome.FAILED, text=text, **more)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def refused(text: str, **more: object) -> OutputReading:
    """A number that answers another question."""
    return OutputReading(status=Outcome.REFUSED, text=text, **more)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What all results of a recipe have in common."""

    unit: str
    lower_is_better: bool = False
    directed: bool = False
    """From the first node to the second; else both directions at once."""
    tolerance: float = 0.10
    """Share of the median by which a value may be lower before it is slow."""
    seconds: float = 10.0
    """Of one measurement on healthy nodes; only for what is said before the run."""
    names_hosts: bool = False
    """A whole output says which hosts took part."""
    gpus: bool = False
    """One process a GPU, where a node has any; else one a node."""
    writes: bool = False
    """It writes to disks or heats the node: never run unless asked for by name."""
    fabric: str = ""
    """What its rails are: `rdma` for RDMA devices, `network` for interfaces; "" where it takes all of them by itself."""
    mark: str = ""
    """Pattern of words that begin a line only this program prints: what stands before them stands before all its lines."""
    begins: str = ""
    """Pattern of the line that begins a run, for outputs with several; "" where the recipe tells them apart."""
    done: str = ""
    """Pattern of a line without which a run is not over yet; "" where another beginning says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Which nodes a measurement is made on."""

    nodes: tuple[str, ...]
    """The sender first."""
    addresses: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> address on the network to be measured; the name where there is none."""
    ranks_per_node: int = 1
    port: int = 18515
    devices: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> its RDMA device, `mlx5_0` or `mlx5_0:2` with another port than 1; none leaves the choice to the program."""
    seconds: int = 0
    """Of a measurement that runs for a time; 0: the recipe's own."""

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
    """Of each rank; where there is a server, of the sender."""
    server: tuple[str, ...] = ()
    """Runs on the last node and must listen before `argv` starts; it ends by itself."""
    waits: tuple[str, ...] = ()
    """Words of a client that found nobody listening yet: it is started again."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name -> text, laid into the run folder of each node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of the hardware besides the output; 0 and "" are "not known"."""

    link_gbps: float = 0.0
    """Rate of one link of a node."""
    mtu: int = 0
    """Of the RDMA path (1024, 4096), not of the Ethernet below it."""
    gpu: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedResult:
    """What a healthy result would be."""

    ceiling: float
    """No result is higher; in the unit of the reading."""
    of: str
    """What sets the ceiling, e.g. "a 25 Gb/s link at MTU 1024"."""
    factor: float
    """Share of the ceiling that is good."""
    fair: float = 0.9
    """Share of what is good that is still fair."""
    good: str = ""
    """What a good result means."""
    advice: str = ""
    """What to look at where it is not good."""


class Recipe(Protocol):
    """One acceptance test. Everything is pure: who runs it is a backend."""

    name: ClassVar[str]
    traits: ClassVar[Traits]

    def commands(self, where: Where) -> Commands:
        """How to run it there."""
        ...

    def read(self, text: str) -> tuple[OutputReading, ...]:
        """Each result in what it wrote, at least one; text is decoded, without launcher tags."""
        ...

    def expect(self, reading: OutputReading, known: Known) -> ExpectedResult | None:
        """What a healthy result would be; None where nothing but its own history can say."""
        ...
