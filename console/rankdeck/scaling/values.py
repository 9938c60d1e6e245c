"""Scaling studies: the points of a study, and what each run of a point gave."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import field

from rankdeck.values import Value

WALL = "wall"
"""The number that all runs have: seconds from the start of its first rank to its last end."""


class TrialOutcome(StrEnum):
    """What became of one run of a point."""

    MEASURED = "measured"
    FAILED = "failed"
    """The job ended with an error."""
    HUNG = "hung"
    """It took longer than the limit and was cancelled."""
    NOT_STARTED = "not started"
    NO_NUMBER = "no number"
    """It ended well, and did not print the number that the study asks for."""


class ScalePoint(Value, kw_only=True):
    """One combination of ranks and values; the study runs it once in each block."""

    ranks: int
    nodes: int
    ranks_per_node: int
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key of the job file -> its value; points with equal values make one curve."""
    size: Mapping[str, str] = field(default_factory=dict[str, str])
    """The same for values that grow with the ranks (`--weak`)."""
    fixed: Mapping[str, str] = field(default_factory=dict[str, str])
    """The same for values that all points have."""

    @property
    def curve(self) -> str:
        """The values in one line; "" if the study changes none."""
        return ", ".join(f"{key}={value}" for key, value in self.values.items())

    @property
    def label(self) -> str:
        """`4 ranks on 2 nodes, env.SIZE=3`."""
        ranks, nodes = _many(self.ranks, "rank"), _many(self.nodes, "node")
        return ", ".join(filter(None, (f"{ranks} on {nodes}", self.curve)))


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


class StudyPlan(Value, kw_only=True):
    """What a study runs."""

    cluster: str
    job: str
    """Name of the job."""
    file: str
    points: tuple[ScalePoint, ...]
    repeats: int = 3
    """Number of blocks: each runs every point once."""
    weak: bool = False
    """The work grows with the ranks; if not, all points do the same work."""
    number: str = ""
    """What is compared: `wall`, a number that the job prints, or a recipe that reads its output;
    "": the first speed that all runs print, else `wall`."""
    reader: str = ""
    """The acceptance recipe that reads the output; "" for none."""
    lower_is_better: bool = False
    """Whether less of what the recipe reads is better."""
    limit: float = 1800.0
    """Seconds after which a run is cancelled."""
    nodes: tuple[str, ...] = ()
    """The nodes, in order; a point uses the first of them. Empty if a scheduler chooses."""
    spec: str = ""
    """A hash of the job: a study is continued only with the same job."""
    notes: tuple[str, ...] = ()
    """Sentences about the plan."""

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        """(block, place of the point) of each run, in order.

        Every second block goes backwards: a steady drift then changes all points alike.
        """
        places = range(len(self.points))
        return tuple(
            (block, place)
            for block in range(self.repeats)
            for place in (places if block % 2 == 0 else reversed(places))
        )


class Signs(Value, kw_only=True):
    """What was seen on nodes and ranks while a run was going; None: not seen."""

    looks: int = 0
    """How often a rank was looked at."""
    own: float | None = None
    """Mean cores that a rank used for its own code, not for the kernel's."""
    waits: float | None = None
    """Share of the looks in which a rank waited: it slept, or polled in system calls."""
    starved: float | None = None
    """Share of the looks in which a rank wanted a core and got less than half of one."""
    busy: float | None = None
    """Mean percentage of its cores that the busiest node used."""
    cores: int | None = None
    """Cores of that node."""
    traffic: float | None = None
    """Bytes per second in one direction, of the busiest interface of a node."""
    link: float | None = None
    """What the link of that interface carries, in bit/s."""
    clock: float | None = None
    """Mean clock of the cores in Hz, on the slowest node."""
    held: tuple[str, ...] = ()
    """Nodes that heat, power or a CPU quota held back."""
    slow: str = ""
    """What was judged about a slow rank, while it ran."""


class Trial(Value, kw_only=True):
    """One run of a point."""

    point: int
    """Place of the point in the plan."""
    block: int
    outcome: TrialOutcome
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    """Name -> the last number that the job printed under it, and `wall`."""
    unit: str = ""
    """Unit of the number that a recipe has read."""
    job: str = ""
    """Its id; "" if it was not started."""
    at: float = 0.0
    """When it was started, epoch seconds."""
    text: str = ""
    """Why there is no result; "" if there is one."""
    signs: Signs = Signs()
