"""A scaling study as front ends get it: plan, runs so far, curves with their laws, verdicts."""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from rankdeck.scaling.laws import Fit
from rankdeck.scaling.planning import ScaleRequest
from rankdeck.scaling.values import ScalePoint, StudyPlan, Trial
from rankdeck.values import Value

PAYS = 0.7
"""More ranks pay as long as the efficiency is at least this."""


class StudyState(StrEnum):
    """How far a study is."""

    PENDING = "planned"
    RUNNING = "running"
    STOPPED = "stopped"
    DONE = "done"


class VerdictKind(StrEnum):
    """What a sentence about a study says."""

    PAYS = "pays"
    STOPS = "stops to pay"
    SLOWER = "slower"
    WHY = "why"
    LAW = "law"
    GROWS = "overhead grows"
    BEYOND = "more than ideal"
    UNSTEADY = "unsteady"
    DRIFT = "drift"
    FAILED = "failed"
    MISSING = "missing"
    BEST = "best"

    @property
    def doubtful(self) -> bool:
        """Whether it says that the results are not to be relied on."""
        return self in (self.UNSTEADY, self.DRIFT, self.FAILED, self.MISSING)


class ScaleVerdict(Value):
    """One sentence about a study."""

    kind: VerdictKind
    text: str
    curve: str = ""
    """The curve that it is about; "" for all."""


class CurvePoint(Value, kw_only=True):
    """One point of a curve, with all its runs."""

    point: ScalePoint
    trials: tuple[Trial, ...]
    values: tuple[float, ...] = ()
    """The number of each run that has it, in the order of the blocks."""
    median: float | None = None
    spread: float | None = None
    """Half the distance from the lowest to the highest value, as a share of the median; None with
    one value."""
    speedup: float | None = None
    """Over the point with the fewest ranks; ideal is `times`."""
    low: float | None = None
    high: float | None = None
    """Speed-up by the slowest and by the fastest run."""
    times: float = 1.0
    """How many times the fewest ranks of the curve."""
    efficiency: float | None = None
    serial: float | None = None
    """Serial share by this point alone."""

    @property
    def failed(self) -> int:
        """Runs without a result."""
        return len(self.trials) - len(self.values)


class Curve(Value, kw_only=True):
    """The points with the same values, by ranks."""

    name: str
    points: tuple[CurvePoint, ...]
    fit: Fit | None = None
    """Amdahl's law, or Gustafson's in a weak study."""

    @property
    def measured(self) -> tuple[CurvePoint, ...]:
        """The points that have a result."""
        return tuple(one for one in self.points if one.median is not None)

    @property
    def scales(self) -> bool:
        """Whether there are results at two numbers of ranks."""
        return len({one.point.ranks for one in self.measured}) > 1


class Study(Value, kw_only=True):
    """A study as it is now."""

    id: str
    plan: StudyPlan
    operator: str = ""
    started: float = 0.0
    """Epoch seconds; 0: not started."""
    ended: float = 0.0
    progress: StudyState = StudyState.PENDING
    trials: tuple[Trial, ...] = ()
    running: str = ""
    """The point that runs now; "" for none."""
    number: str = ""
    """The number that is compared."""
    unit: str = ""
    lower_is_better: bool = False
    offered: tuple[str, ...] = ()
    """All numbers that can be compared."""
    curves: tuple[Curve, ...] = ()
    verdicts: tuple[ScaleVerdict, ...] = ()
    verb: str = "rankdeck scale"
    """The command that goes on with it."""

    @property
    def runs(self) -> int:
        """Number of all runs of the plan."""
        return len(self.plan.order)


class ScalingProtocol(Protocol):
    """What front ends ask of the scaling studies of a session."""

    changed: Callable[[], None]

    @property
    def current(self) -> Study | None:
        """The study that was planned, started or opened to go on; None if there is none."""
        ...

    async def plan(self, request: ScaleRequest) -> Study:
        """Plan a study; no job is started. Raises RankdeckError."""
        ...

    async def start(self) -> Study:
        """Run `current`, or continue it; returns it when it has ended."""
        ...

    async def stop(self) -> tuple[str, ...]:
        """Cancel the run and verify it; returns a sentence for each process left."""
        ...

    def studies(self) -> tuple[Study, ...]:
        """The kept studies of the cluster, newest first, with their results."""
        ...

    def open(self, study: str, number: str = "") -> Study:
        """A kept study, judged by this number; raises UnknownRunError."""
        ...

    def resume(self, study: str) -> Study:
        """Make a stopped study `current`, so that `start` continues it."""
        ...


class Judged(Value):
    """What the runs of a study say."""

    number: str = ""
    unit: str = ""
    lower_is_better: bool = False
    offered: tuple[str, ...] = ()
    curves: tuple[Curve, ...] = ()
    verdicts: tuple[ScaleVerdict, ...] = ()
