"""How often Slurm may be asked: few calls a minute for all jobs of a user, fewer while it does not answer. No I/O."""

from collections import deque
from collections.abc import Mapping

WINDOW = 60.0
PERIOD, _SHORTEST, _LONGEST = 30.0, 1.0, 300.0
"""Seconds between two looks at the queue: while nothing happens, with a large budget, while Slurm does not answer."""
USUAL, _MOST = 6, 6000
"""Calls to the controller a minute, unless the cluster file says otherwise (`slurm: {rpcs_per_minute: …}`)."""
QUEUE_CALLS = 2
"""What `squeue` costs: the jobs, and the partitions. Seen in sdiag of 24.11."""
JOB_CALLS = 1
"""What `scontrol --local show job ID` costs."""


class Budget:
    """Counts the calls of the last minute; `now` is the caller's monotonic clock, in seconds."""

    def __init__(self, most: int = USUAL) -> None:
        self.most = most
        self._spent: deque[float] = deque()

    def allows(self, calls: int, now: float) -> bool:
        """Whether so many calls stay within the limit."""
        while self._spent and now - self._spent[0] >= WINDOW:
            self._spent.popleft()
        return len(self._spent) + calls <= max(self.most, calls)

    def spend(self, calls: int, now: float) -> None:
        self._spent.extend([now] * calls)


class Rhythm:
    """When to look at the queue next: soon after something happened, else every `PERIOD`, later after failures."""

    def __init__(self, pause: float = PERIOD) -> None:
        self.period = pause
        self._asked, self._wanted = float("-inf"), float("inf")
        self._failures = 0

    def want(self, at: float) -> None:
        """Look at the latest at this time, if Slurm answers and the budget allows it."""
        self._wanted = min(self._wanted, at)

    def due(self, now: float) -> bool:
        if self._failures:
            return now - self._asked >= min(self.period * 2 ** (self._failures - 1), _LONGEST)
        return now >= self._wanted or now - self._asked >= self.period

    def asked(self, now: float, *, well: bool) -> None:
        self._asked, self._wanted = now, float("inf")
        self._failures = 0 if well else self._failures + 1

    @property
    def last(self) -> float:
        """When it was asked last."""
        return self._asked

    @property
    def failures(self) -> int:
        """How often in a row Slurm did not answer."""
        return self._failures


def period(most: int) -> float:
    """Seconds between two looks where so many calls a minute are allowed: two thirds of them are used."""
    return max(_SHORTEST, min(PERIOD, WINDOW * QUEUE_CALLS * 1.5 / max(most, 1)))


_CLUSTER_SHORTEST = 2.0


def cluster_period(most: int) -> float:
    """Seconds between two looks at all nodes, and between two at everybody's jobs: both take two thirds of the calls."""
    return max(_CLUSTER_SHORTEST, WINDOW * 2 * QUEUE_CALLS * 1.5 / max(most, 1))


def calls_a_minute(settings: Mapping[str, object]) -> int:
    """What the cluster file allows, as the settings of a job carry it."""
    asked = settings.get("rpcs_per_minute")
    return asked if isinstance(asked, int) and 0 < asked <= _MOST else USUAL
