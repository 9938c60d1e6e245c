"""One measurement of acceptance: for which stage, between which nodes, and what came of it."""

from dataclasses import dataclass
from enum import StrEnum


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
