"""What a front end may ask of acceptance: plan, start, stop, look, resume. `Session.acceptance` is one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rankdeck.acceptance.run import AcceptanceRun
from rankdeck.model.acceptance import Result, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the operator asks for."""

    nodes: tuple[str, ...] = ()
    """Empty: all of the cluster."""
    begin: Stage | None = None
    """First stage after gate and identity; earlier ones are left out."""
    only: tuple[Stage, ...] = ()
    """Just these; empty: all."""
    recipes: tuple[str, ...] = ()
    """Just these; empty: by what the nodes have."""
    include_busy: tuple[str, ...] = ()
    """Nodes that take part although they are busy."""
    exhaustive: bool = False
    """All pairs of any number of nodes."""
    repeats: int = 2
    """Measurements of each direction of each pair."""
    seconds: float = 0.0
    """Of one measurement of bandwidth; 0: the recipe's own."""
    like: str = ""
    """A job file: container, environment, MPI and options of the measurements are those of this job."""
    max_crossing: float = 1.0
    """Share of the pairs that may cross leaves at once."""
    rails: tuple[str, ...] = ()
    """RDMA devices or interfaces of equal index, each measured for itself; empty: the RDMA devices, where there are several."""
    soak: float = 0.0
    """Seconds that the largest group is measured again and again; 0: not at all."""


class AcceptancePort(Protocol):
    """Acceptance of one open cluster. All methods are called on the event loop."""

    @property
    def current(self) -> AcceptanceRun | None:
        """The run that was planned or started here, as it is now: another object whenever it changed."""
        ...

    async def plan(self, request: Request) -> AcceptanceRun:
        """Ask the nodes what they are and have, and say what would be done; nothing is measured.

        It becomes `current`, `pending`. Raises RankdeckError where nothing can be planned.
        """
        ...

    async def start(self) -> AcceptanceRun:
        """Do what `current` plans, or go on with it where it was stopped; returns it once it has ended.

        Cancelling this does what `stop` does. Raises RankdeckError.
        """
        ...

    async def stop(self) -> tuple[str, ...]:
        """Cancel everything that runs, with proof; what is left, a sentence each. The run can be resumed."""
        ...

    def exclude(self, node: str, why: str, until: float, run: str) -> None:
        """Keep jobs away from a node until then, epoch seconds, because of this run; one that goes on goes on without it.

        Raises HistoryError where that cannot be kept.
        """
        ...

    def readmit(self, node: str) -> None:
        """Take `exclude` back. Raises HistoryError."""
        ...

    def excluded(self) -> Mapping[str, str]:
        """Node -> why jobs are kept away from it, and how long."""
        ...

    async def again(self, nodes: Sequence[str], recipe: str) -> None:
        """Measure a pair, or one node, once more, as `once_more` says; where a run goes on, after its round.

        Raises RankdeckError, before anything is measured, where one of the nodes is busy or does not answer.
        """
        ...

    def runs(self) -> tuple[AcceptanceRun, ...]:
        """The kept runs of the cluster, newest first, without their results."""
        ...

    def open(self, run: str) -> AcceptanceRun:
        """A kept run with everything; nothing is measured again. Raises RankdeckError for an unknown id."""
        ...

    def resume(self, run: str) -> AcceptanceRun:
        """Make a stopped run `current`, so that `start` goes on with it. Raises RankdeckError."""
        ...

    def commands(self, run: AcceptanceRun, result: Result) -> tuple[str, ...]:
        """The commands of one measurement, as a shell would take them."""
        ...

    def raw(self, result: Result, most: int = 1 << 20) -> str:
        """The whole output of a measurement, safe to show, at most so many characters; "" if it is gone."""
        ...
