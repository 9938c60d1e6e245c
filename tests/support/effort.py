"""What a piece of code costs, in a unit that is the same on a slow, a fast and a busy machine."""

import time
from collections.abc import Callable

LOOP = 200_000


def _count() -> None:
    for _ in map(str, range(LOOP)):
        pass


def cpu_seconds(run: Callable[[], object]) -> float:
    """The seconds of CPU of this process that a call of `run` takes."""
    began = time.process_time()
    run()
    return time.process_time() - began


def effort(run: Callable[[], object]) -> float:
    """How often this process could have written 200,000 numbers as
    text (some 25 ms) while `run` ran.

    Measured before and after, so that what slows the machine meanwhile slows the measure as well.
    """
    before = cpu_seconds(_count)
    ran = cpu_seconds(run)
    return 2 * ran / (before + cpu_seconds(_count))
