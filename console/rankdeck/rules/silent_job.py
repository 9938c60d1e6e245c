"""What the nodes of a silent job answer, asked where its ranks stand, and who keeps the others
waiting by that. No I/O.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from rankdeck.model.job import Job
from rankdeck.model.json_tables import as_list, as_tables
from rankdeck.model.rank import State
from rankdeck.model.safe_text import strip_controls
from rankdeck.model.stall import Explained, Stall
from rankdeck.rules.arrivals import Absence, RankTestimony, find_absence, read_testimony
from rankdeck.rules.deadlock import OF_A_GUESS, OF_DEADLOCK
from rankdeck.rules.mpi_waits import LOOKS, StandingRank, find_mpi_absence, read_standing_rank
from rankdeck.rules.nccl_ras import RasCommunicator, find_ras_absence, read_ras
from rankdeck.values import replace

OPEN = 8.0
"""An operation keeps ranks waiting if they entered it at least so many seconds ago."""
_MOST_HOSTS, _MOST_PIDS = 4096, 1 << 16
_MOST_SAID, _LONGEST_SAID = 40, 1000
_TOLD_BETTER = frozenset({"stopped", "device", "raised"})
"""Kinds of stalls that name the reason, where an absence only names the rank."""
_OF_ABSENCE = Explained(
    "the other ranks cannot go on before these enter the operation",
    "look at what these ranks do (`rankdeck inspect`, their last lines)",
)


@dataclass(slots=True)
class NodeAnswers:
    """What the nodes of a job answered to one question."""

    said: dict[int, RankTestimony] = field(default_factory=dict[int, RankTestimony])
    seen: dict[int, StandingRank] = field(default_factory=dict[int, StandingRank])
    words: dict[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])
    """Rank -> its last lines."""
    reports: list[tuple[RasCommunicator, ...]] = field(
        default_factory=list[tuple[RasCommunicator, ...]]
    )
    """What the RAS of each node said, of those that have one."""
    pids: dict[int, int] = field(default_factory=dict[int, int])
    """Process -> its rank; pids that two nodes have are left out."""
    twice: set[int] = field(default_factory=set[int])

    def take(self, answer: Mapping[str, object], ranks: frozenset[int]) -> None:
        """Add the answer of a node, or those that a login node collected."""
        for one in as_tables(answer.get("inside"), _MOST_HOSTS) or [answer]:
            self._take_ranks(one, ranks)
            self._take_pids(one, ranks)
            if report := read_ras(one.get("ras")):
                self.reports.append(report)

    @property
    def ras(self) -> tuple[RasCommunicator, ...]:
        """What all nodes say alike; () if they differ: a network is cut in two, or a node lies."""
        first, *others = self.reports or [()]
        return () if any(one != first for one in others) else first

    def _take_ranks(self, answer: Mapping[str, object], ranks: frozenset[int]) -> None:
        for row in as_tables(answer.get("ranks"), len(ranks)):
            # A node speaks for its own ranks only.
            if (one := read_testimony(row)) is not None and one.rank in ranks:
                self.said[one.rank] = one
            place = one.place if one else ""
            if (look := read_standing_rank(row, place)) is not None and look.rank in ranks:
                self.seen[look.rank] = look
                said = (one for one in as_list(row.get("said"), _MOST_SAID) if isinstance(one, str))
                self.words[look.rank] = tuple(strip_controls(one[:_LONGEST_SAID]) for one in said)

    def _take_pids(self, answer: Mapping[str, object], ranks: frozenset[int]) -> None:
        for pair in as_list(answer.get("pids"), _MOST_PIDS):
            pid, rank = (*as_list(pair), "", "")[:2]
            if type(pid) is int and type(rank) is int and rank in ranks:
                self.twice |= {pid} & self.pids.keys()
                self.pids[pid] = rank


@dataclass(slots=True)
class StandingRanks:
    """Where the ranks of a silent job stood, by all questions so far."""

    looks: dict[int, deque[StandingRank]] = field(default_factory=dict[int, deque[StandingRank]])
    """Rank -> where it stood in the last answers."""
    unread: frozenset[int] = frozenset()
    """Ranks whose stacks could not be read at the last question."""
    ras: tuple[RasCommunicator, ...] = ()
    """What NCCL said at the last question."""
    ras_before: tuple[RasCommunicator, ...] = ()
    """The same at the question before."""

    @property
    def lacks_looks(self) -> bool:
        """Whether stacks were read, but not yet often enough to tell a deadlock."""
        return any(0 < len(some) < LOOKS and some[-1].frames for some in self.looks.values())

    def keep(self, heard: NodeAnswers) -> None:
        """Add the newest answers; a rank that was not seen begins anew. One whose stack could not
        be read this time stands where it stood: its node was busy, or another one read it.
        """
        seen = heard.seen
        unread = frozenset(rank for rank, one in seen.items() if not one.known)
        stays = (unread - self.unread) & self.looks.keys()
        self.unread = unread
        empty: deque[StandingRank] = deque(maxlen=LOOKS)
        self.looks = {
            rank: self.looks[rank]
            if rank in stays
            else deque([*self.looks.get(rank, empty), one], maxlen=LOOKS)
            for rank, one in seen.items()
        }
        self.ras_before, self.ras = self.ras, heard.ras

    def find_absence(self, job: Job, heard: NodeAnswers) -> Absence | None:
        """Who keeps the others waiting by the newest answers, which were kept; None if nobody, or
        if that cannot be told.
        """
        running = {rank.rank: rank for rank in job.ranks if rank.state is State.RUNNING}
        nodes = {rank: one.node for rank, one in running.items()}
        held = {rank: one.activity.throttled for rank, one in running.items() if one.activity}
        told = {
            rank: replace(one, doing=replace(one.doing, throttled=held.get(rank)))
            for rank, one in heard.said.items()
        }
        seen = {
            rank: [replace(one, doing=replace(one.doing, throttled=held.get(rank))) for one in some]
            for rank, some in self.looks.items()
        }
        every = {rank.rank: rank.node for rank in job.ranks}
        pids = {pid: rank for pid, rank in heard.pids.items() if pid not in heard.twice}
        return (
            find_absence(told, every, OPEN)
            or find_ras_absence(self.ras_before, heard.ras, pids, every)
            or find_mpi_absence(seen, nodes)
        )


def add_absence(absence: Absence, heard: float, found: tuple[Stall, ...]) -> tuple[Stall, ...]:
    """The stalls of a job with the one that its ranks tell themselves, in place of a guess.

    `heard`: epoch seconds of the job's last output.
    """
    if any(one.kind in _TOLD_BETTER for one in found):
        return found
    nobody = absence.ranks == absence.waiting  # each waits for another one
    stall = Stall(
        kind="all" if nobody else "absent",
        ranks=absence.ranks,
        since=heard,
        text=absence.text,
        odd=() if absence.deadlock else absence.ranks,
        heard=heard,
        explained=_explained(absence),
    )
    return (stall, *(one for one in found if one.kind == "slow"))


_OF_APART = Explained(
    "it was given another address or port than the others, or the way there is closed",
    "compare the address and port of rank 0 that each rank is given (MASTER_ADDR, MASTER_PORT,"
    " coordinator_address), and firewalls between their nodes",
)


def _explained(absence: Absence) -> tuple[Explained, ...]:
    if absence.apart:
        return (_OF_APART,)
    if not absence.deadlock:
        return (_OF_ABSENCE,)
    return (OF_DEADLOCK, OF_A_GUESS) if absence.guess else (OF_DEADLOCK,)
