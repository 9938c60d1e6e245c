"""Values of the fault benchmark: a fault, its right answer, and the outcome of one run."""

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
    """The right answer: one of `ranks`, or if there are none, what runs on `node`."""

    ranks: frozenset[int] = frozenset()
    node: str = ""
    what: str = "rank"
    """rank, launcher or node; several are separated by |.

    `nobody`: that all wait, or that it is undecided, must be said, and nobody named; `note`: a note
    beside a job that is done must say it.
    """
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

    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes."""
        ...

    def first_process(self, node: str) -> int:
        """Process 1 of the node, as this machine numbers it."""
        ...

    def cut(self, node: str) -> None:
        """Take the link of a node down."""
        ...

    def crash(self, node: str) -> None:
        """End every process of a node at once."""
        ...

    def mend(self) -> None:
        """Undo what was cut or crashed."""
        ...


Plant = Callable[[Site, str], float | None]
"""(site, job id): plants the fault in a running job; returns its time (epoch
seconds), None if the program reports it.
"""
Prepare = Callable[[Site], Callable[[], None]]
"""Called before the launch; returns a function that undoes the preparation."""


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
    """The fault happens before the ranks report that they are at work,
    so the bench does not wait for that.
    """
    lab: bool = False
    """Needs nodes that can be cut and crashed: the namespace lab."""
    lacking: Callable[[], str] = always
    """Why it cannot be planted on this machine, or ""."""


@dataclass(frozen=True, slots=True)
class Blame:
    """The console's answer: who failed first."""

    ranks: tuple[int, ...]
    node: str
    what: str
    text: str
    """Everything that the console says about it."""
    settled: bool = True


@dataclass(frozen=True, slots=True)
class Seen:
    """What a console showed from the time `at` (epoch seconds) on."""

    at: float
    job: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one run of a fault."""

    fault: str
    verdict: str
    """right, wrong, silent, or unplanted if the fault never happened."""
    named: str
    """Whom the console named."""
    explained: bool
    seconds: float | None
    """Seconds from the fault to the final answer."""
    changed: bool
    """Another answer was shown before as settled."""
    same: bool
    """`run`, its exit code and `jobs` gave the same answer."""
    launcher_said: str
    said: str = ""
    """Everything that the console said about it."""
    note: str = ""
