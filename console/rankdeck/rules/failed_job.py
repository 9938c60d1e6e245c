"""A job that may have failed, as the judge sees it: every end with its meaning. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankdeck.rules.ends import (
    MANNERS,
    End,
    Manners,
    Meaning,
    Role,
    aborted_ranks,
    last_words,
    meaning_of,
)
from rankdeck.rules.named import named_peers, named_ranks

WINDOW = 1.0
"""Seconds between two ends in which the order of their records says little: a shim writes
the end of a rank when it gets the processor, and its peers may be faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    """All that is known of a job that may have failed."""

    ends: tuple[End, ...]
    """Every rank, also those that go on."""
    launchers: tuple[End, ...] = ()
    """mpirun, torchrun and MPI daemons of all nodes, those that have ended."""
    lost: tuple[End, ...] = ()
    """Nodes that stopped answering; `at` is when they were last heard."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Address or host name -> node."""
    manners: Manners = MANNERS[""]


@dataclass(frozen=True, slots=True)
class View:
    """The job with the meaning of every end in it."""

    job: FailedJob
    ranks: tuple[Meaning, ...]
    launchers: tuple[Meaning, ...]
    lost: tuple[Meaning, ...]

    def of(self, *roles: Role) -> list[Meaning]:
        """Ranks in these roles, first ends first."""
        return sorted((m for m in self.ranks if m.role in roles), key=end_time)

    def ranks_of(self, meaning: Meaning) -> frozenset[int]:
        """The ranks that its last words name."""
        words = last_words(meaning.end.lines)
        return frozenset(rank for line in words for rank in named_ranks(line))

    def peers_of(self, meaning: Meaning) -> frozenset[str]:
        """The nodes that its last words name as the peer."""
        words = last_words(meaning.end.lines)
        found = (name for line in words for name in named_peers(line))
        return frozenset(self.job.names[n] for n in found if n in self.job.names)


@dataclass(frozen=True, slots=True)
class Choice:
    """Who it is, with the sentences that say why; `tied` cannot be told from it."""

    chosen: Meaning
    evidence: tuple[str, ...] = ()
    tied: tuple[Meaning, ...] = ()


def view_of(job: FailedJob) -> View:
    """The job with the meaning of every end in it."""
    failed = [e.at for e in (*job.ends, *job.launchers) if e.at and e.failed]
    first = min(failed, default=0.0)

    def read(ends: Sequence[End]) -> tuple[Meaning, ...]:
        return tuple(meaning_of(end, job.manners, first) for end in ends)

    named = aborted_ranks([line for e in (*job.launchers, *job.ends) for line in e.lines])
    ranks = tuple(
        Meaning(m.end, Role.CAUSE, "it called MPI_Abort")
        if m.end.rank in named and m.end.failed and not m.end.told
        else m
        for m in read(job.ends)
    )
    return View(job, ranks, read(job.launchers), read(job.lost))


def end_time(meaning: Meaning) -> float:
    """Epoch seconds of its end; infinite where it goes on."""
    return meaning.end.at if meaning.end.at is not None else float("inf")


def name_of(end: End) -> str:
    """`rank 3`, `mpirun`, `n2`."""
    return f"rank {end.rank}" if end.what == "rank" else end.name or end.node


def ranks_in_words(count: int) -> str:
    """`1 rank`, `2 ranks`."""
    return "1 rank" if count == 1 else f"{count} ranks"


def ranks_name(count: int, where: str = "") -> str:
    """`1 rank on other nodes names`, `2 ranks name`."""
    return f"{ranks_in_words(count)}{where} {'names' if count == 1 else 'name'}"
