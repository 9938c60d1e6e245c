"""What the fault bench is made of: a fault, its right answer, and what became of one run of it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

Shape = Mapping[str, Any]
"""A job as `rankdeck jobs --json` prints it."""


class Kind(StrEnum):
    """How a fault shows."""

    FAILURE = "failure"
    HANG = "hang"
    HEALTHY = "healthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Who is to blame: one of `ranks`, or what runs on `node` where there are none."""

    ranks: frozenset[int] = frozenset()
    node: str = ""
    what: str = "rank"
    """rank, launcher or node: several with | between them."""
    word: str = ""
    """A pattern that the explanation must match."""

    def explained_by(self, text: str) -> bool:
        return re.search(self.word, text, re.IGNORECASE) is not None


class Site(Protocol):
    """The cluster on which a fault is planted."""

    @property
    def cluster(self) -> str:
        """Its cluster file."""
        ...

    def folder(self, job: str, node: str) -> Path:
        """The run folder of a job on a node, as this machine sees it."""
        ...

    def nodes(self) -> tuple[str, ...]: ...

    def first_process(self, node: str) -> int:
        """Process 1 of the node, as this machine numbers it."""
        ...

    def cut(self, node: str) -> None: ...

    def crash(self, node: str) -> None: ...

    def mend(self) -> None:
        """Undo what was cut or crashed."""
        ...


Plant = Callable[[Site, str], float | None]
"""Does harm to a job that is at work; gives the epoch of the fault, None: the program tells it."""
Prepare = Callable[[Site], Callable[[], None]]
"""Sets the scene before the launch; gives what undoes it."""


def itself(site: Site, job: str) -> None:
    """Plant nothing: the program goes wrong by itself."""
    del site, job


def nothing(site: Site) -> Callable[[], None]:
    """Prepare nothing."""
    del site
    return lambda: None


def always() -> str:
    """The fault can be planted everywhere."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row of the table."""

    name: str
    launcher: str
    job: str
    """The text of the job file."""
    right: Answer
    kind: Kind = Kind.FAILURE
    plant: Plant = itself
    prepare: Prepare = nothing
    at_start: bool = False
    """Goes wrong before the ranks are at work: nobody waits for them."""
    lab: bool = False
    """Needs nodes that can be cut and crashed: the namespace lab."""
    lacking: Callable[[], str] = always
    """Why it cannot be planted on this machine, or ""."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Whom the console names."""

    ranks: tuple[int, ...]
    node: str
    what: str
    text: str
    """All it says about it."""
    settled: bool = True


@dataclass(frozen=True, slots=True)
class Seen:
    """What a console showed from `at` (epoch) on."""

    at: float
    job: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one run of a fault."""

    fault: str
    verdict: str
    """right, wrong, silent, or unplanted where the fault never happened."""
    named: str
    """Whom the console named."""
    explained: bool
    seconds: float | None
    """From the fault to the answer that stood at the end."""
    changed: bool
    """Somebody else was named before, and as if that was settled."""
    same: bool
    """`run`, its exit code and `jobs` named the same."""
    launcher_said: str
    said: str = ""
    """All that the console said about it."""
    note: str = ""
