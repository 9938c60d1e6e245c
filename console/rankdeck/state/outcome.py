"""What a job's records add up to: its state and its exit code. No I/O."""

from collections.abc import Sequence

from rankdeck.model.ending import exit_status
from rankdeck.model.job import FirstFailure, State


def job_state(ranks: Sequence[State], *, ended: bool, failed: bool, cancelled: bool) -> State:
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


def exit_code(state: State, first: FirstFailure | None) -> int | None:
    """What `run` exits with: the status of what failed first, 1 where it has none; None while it runs."""
    if state is State.DONE:
        return 0
    if state is not State.FAILED:
        return None
    if first is None or first.what not in ("rank", "launcher"):
        return 1
    return exit_status(first.exit_code, first.signal) or 1
