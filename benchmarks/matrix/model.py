"""What the matrix is made of: a row, and what one run of it counted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from benchmarks.matrix.sites import Sites
from benchmarks.measure import slower
from rankdeck.values import replace

STATE_LIMIT = 20.0
"""Seconds in which the right state must be named."""
MEMORY_LIMIT = 250.0
"""MiB that a console may hold."""
KEY_LIMIT = 100.0
"""Milliseconds from a key to its picture, with one whole core for the
console; times the machine factor.
"""


@cache
def key_limit() -> float:
    """The same on this machine; never less than on the reference machine."""
    return KEY_LIMIT * slower()


class Group(StrEnum):
    """What is done to Rankdeck; the eight parts of the table."""

    PROCESSES = "processes"
    WIRES = "wires"
    SPACE = "space"
    NODES = "nodes"
    USERS = "users"
    FILES = "files"
    RECORDS = "records"
    FUZZING = "fuzzing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What one run of a row counted; None where the row has nothing of the kind."""

    lost: int | None = None
    """Bytes of output that the ranks wrote and the console did not show."""
    doubled: int | None = None
    """Bytes that it showed twice."""
    left: int | None = None
    """Processes of the job that still ran after its end."""
    state: str = ""
    """The last state that the console named."""
    right: bool | None = None
    """Whether that was the right one."""
    seconds: float | None = None
    """From the harm to the right state."""
    wrong: Sequence[str] = ()
    """Statements that were not true, as they were printed or shown."""
    memory: float | None = None
    """MiB that the console held at its worst."""
    cpu: float | None = None
    """Share of a core that the console used, over the run."""
    key: float | None = None
    """Milliseconds from a key to its picture, at the worst."""
    inputs: int | None = None
    """Inputs tried."""
    note: str = ""

    @property
    def untimed(self) -> "Tally":
        """The same without times: on a busy machine they prove nothing."""
        return replace(self, seconds=None, key=None)

    @property
    def faults(self) -> tuple[str, ...]:
        """What is not as it must be, in words; none: the row held."""
        said = [
            f"{n} bytes {word}" for n, word in ((self.lost, "lost"), (self.doubled, "doubled")) if n
        ]
        said += [f"{self.left} processes left"] if self.left else []
        said += [f"state {self.state or 'not named'}"] if self.right is False else []
        said += (
            [f"named after {self.seconds:.0f} s"]
            if self.seconds and self.seconds > STATE_LIMIT
            else []
        )
        said += (
            [f"console held {self.memory:.0f} MiB"]
            if self.memory and self.memory > MEMORY_LIMIT
            else []
        )
        if self.key and self.key > key_limit():
            said.append(f"a key took {self.key:.0f} ms, {key_limit():.0f} at most")
        return (*said, *self.wrong)


def always() -> str:
    """The row can be run everywhere."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table."""

    name: str
    group: Group
    does: str
    """What is done, in a few words."""
    run: Callable[[Sites], Tally]
    """Does it once, for real, and counts; everything it started is gone afterwards. Raises
    MissingError where this machine lacks what it needs."""
    short: bool = False
    """Takes a few seconds: part of `--short` and of the tests."""
    lacking: Callable[[], str] = always
    """Why it cannot be run on this machine, or ""."""
