"""How often Slurm's controller may be asked, and when it is asked next."""

from collections import deque
from collections.abc import Mapping

WINDOW = 60.0
PERIOD, _SHORTEST, _LONGEST_BREAK = 30.0, 1.0, 300.0
"""Seconds between two looks at the queue: while nothing happens; at least;
at most, while Slurm does not answer.
"""
USUAL, _MOST_CALLS = 6, 6000
"""Calls (RPCs) to the controller per minute: usual, and the most that
`slurm: {rpcs_per_minute: …}` can allow.
"""
QUEUE_CALLS = 2
"""Calls that one `squeue` makes: for jobs and for partitions. Seen in sdiag of 24.11."""
JOB_CALLS = 1
"""Calls that one `scontrol --local show job ID` makes."""
_CLUSTER_SHORTEST = 2.0


class Budget:
    """Limits the calls to the controller to `most` in any minute; `now` is in
    seconds of the caller's monotonic clock.
    """

    def __init__(self, most: int = USUAL) -> None:
        self.most = most
        self._spent: deque[float] = deque()

    def allows(self, calls: int, now: float) -> bool:
        """Whether `calls` more calls stay within the limit."""
        while self._spent and now - self._spent[0] >= WINDOW:
            self._spent.popleft()
        return len(self._spent) + calls <= max(self.most, calls)

    def spend(self, calls: int, now: float) -> None:
        """Note that `calls` calls are made now."""
        self._spent.extend([now] * calls)


class QueueTimer:
    """When to ask for the queue next: soon after something happened, else every
    `period` seconds, less often after failures.
    """

    def __init__(self) -> None:
        self.period = PERIOD
        self.last = float("-inf")
        """When Slurm was asked last."""
        self.failures = 0
        """How many times in a row Slurm did not answer."""
        self._wanted = float("inf")

    def want(self, at: float) -> None:
        """Ask no later than at this time, if Slurm answers and the budget allows it."""
        self._wanted = min(self._wanted, at)

    def due(self, now: float) -> bool:
        """Whether to ask now (monotonic seconds)."""
        if self.failures:
            return now - self.last >= min(self.period * 2 ** (self.failures - 1), _LONGEST_BREAK)
        return now >= self._wanted or now - self.last >= self.period

    def asked(self, now: float, *, well: bool) -> None:
        """Note that Slurm was asked, and whether it answered."""
        self.last, self._wanted = now, float("inf")
        self.failures = 0 if well else self.failures + 1


def look_period(most: int) -> float:
    """Seconds between two looks at the queue if `most` calls per minute
    are allowed; uses two thirds of them.
    """
    return max(_SHORTEST, min(PERIOD, WINDOW * QUEUE_CALLS * 1.5 / max(most, 1)))


def cluster_period(most: int) -> float:
    """Seconds between two looks at all nodes, and between two at everybody's jobs;
    together they use two thirds of the calls.
    """
    return max(_CLUSTER_SHORTEST, WINDOW * 2 * QUEUE_CALLS * 1.5 / max(most, 1))


def calls_a_minute(settings: Mapping[str, object]) -> int:
    """Calls per minute that the cluster file allows, from the
    settings of a job (`rpcs_per_minute`).
    """
    asked = settings.get("rpcs_per_minute")
    return asked if isinstance(asked, int) and 0 < asked <= _MOST_CALLS else USUAL
