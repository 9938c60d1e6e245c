"""The states of ranks and jobs; apart from `model.job`, because the first picture needs only these."""

from enum import StrEnum


class State(StrEnum):
    """State of a rank or job."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """The node stopped answering; what became of it is not known."""

    @property
    def final(self) -> bool:
        return self not in (State.PENDING, State.RUNNING, State.LOST)


class RankStatus(StrEnum):
    """What a rank that needs attention is in addition to its state; the worst first."""

    FIRST = "failed first"
    FAILED = "failed"
    STALLED = "stalled"
    VICTIM = "pulled down"


WORST = tuple(RankStatus)
