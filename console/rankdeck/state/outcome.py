"""What a job's records add up to: its state, its exit code, its first failure. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rankdeck.model.job import State

VICTIM_CODES = (143, 137, 134)
"""How ranks end that others pulled down: TERM, KILL, ABRT."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failing end, as a node recorded it. `rank` None: a launcher."""

    at: float
    node: str
    rank: int | None
    code: int | None
    signal: int | None

    @property
    def status(self) -> int:
        """As a shell gives it; 1 where the node could not tell."""
        return exit_status(self.code, self.signal)


def exit_status(code: int | None, signal: int | None) -> int:
    """128 + signal, else the code, else 1 for an end nobody saw."""
    if signal is not None:
        return 128 + signal
    return 1 if code is None else code


def first_of(
    failures: Iterable[Failure], uncertainty: Mapping[str, float]
) -> tuple[Failure, tuple[int, ...]] | None:
    """The failure that came first and the ranks that may as well have, by the clocks.

    Records of one node are in its own order; between nodes the clocks' uncertainty counts,
    and within it an end of one's own beats an end by somebody's signal.
    """
    ordered = sorted(failures, key=lambda failure: failure.at)
    if not ordered:
        return None
    earliest = ordered[0]
    close = [f for f in ordered[1:] if _tied(earliest, f, uncertainty)]
    culprits = [f for f in (earliest, *close) if f.status not in VICTIM_CODES]
    chosen = culprits[0] if culprits else earliest
    rivals = culprits or [earliest, *close]
    tied = tuple(f.rank for f in rivals if f is not chosen and f.rank is not None)
    return chosen, tied


def _tied(one: Failure, other: Failure, uncertainty: Mapping[str, float]) -> bool:
    if one.node == other.node:
        return False
    slack = uncertainty.get(one.node, 0.0) + uncertainty.get(other.node, 0.0)
    return other.at - one.at <= slack


def job_state(
    ranks: Sequence[State], *, ended: bool, failed: bool, cancelled: bool
) -> State:
    """The state of a job whose nodes have all closed (`ended`) or not."""
    if ended:
        if failed:
            return State.FAILED
        return State.CANCELLED if cancelled else State.DONE
    if State.RUNNING in ranks:
        return State.RUNNING
    if State.LOST in ranks:
        return State.LOST
    begun = any(state is not State.PENDING for state in ranks)
    return State.RUNNING if begun else State.PENDING
