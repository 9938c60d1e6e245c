"""Asks the ranks of silent torchrun and MPI jobs, also of those in a scheduler, which collective
operations they have entered, or where they stand.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from rankdeck.model.job import Job
from rankdeck.model.json_tables import as_list, as_tables
from rankdeck.model.rank import State
from rankdeck.model.safe_text import clean_line
from rankdeck.model.stall import Explained, Stall
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import on_each
from rankdeck.rules.arrivals import Absence, RankTestimony, find_absence, read_testimony
from rankdeck.rules.deadlock import OF_A_GUESS, OF_DEADLOCK
from rankdeck.rules.mpi_waits import LOOKS, StandingRank, find_mpi_absence, read_standing_rank
from rankdeck.rules.nccl_ras import RasCommunicator, find_ras_absence, read_ras
from rankdeck.values import replace

log = logging.getLogger(__name__)

SILENT = 10.0
"""Seconds without any output of the job, after which it is told who keeps it waiting."""
EARLY, AGAIN = 5.0, 8.5
"""Seconds of silence after which ranks are asked first, and again: an answer takes seconds on a
busy node, and by two of them a deadlock can be told. Nothing is told by the first alone.
"""
OPEN = 8.0
"""An operation keeps ranks waiting if they entered it at least so many seconds ago."""
WORKS = 60.0
"""The same if the rank that they wait for computes: it may only be slow."""
FIRST, LONGEST = 2.5, 60.0
"""Seconds between two later questions: the first time, and at most; each doubles the one before."""
QUICK = 1.0
"""The same for stacks of MPI ranks, until there are enough answers to tell a deadlock."""
PAUSES, LONGEST_PAUSE = 1.5, 120.0
"""Of a job that has been silent before, and went on, nothing is told before so many times its
longest silence, at most LONGEST_PAUSE; it is asked only then.
"""
LIMIT = 15.0
_LIMIT_BY_LOGIN_NODE = 40.0
_LAUNCHERS = frozenset(("torchrun", "mpirun", "sbatch"))
"""Names of processes in the plans of jobs whose ranks may be in operations of torch or MPI."""
_TOGETHER = 32
_MOST_NODES, _MOST_HOSTS, _MOST_PIDS = 256, 4096, 1 << 16
_OF_ABSENCE = Explained(
    "the other ranks cannot go on before these enter the operation",
    "look at what these ranks do (`rankdeck inspect`, their last lines)",
)
_TOLD_BETTER = frozenset({"stopped", "device", "raised"})
"""Kinds of stalls that name the reason, where an absence only names the rank."""


@dataclass(slots=True)
class _Asked:
    """What is known of one silent job."""

    heard: float
    """Its newest output when the silence began; another one ends it."""
    due: float
    """Epoch seconds of the next question."""
    tells: float
    """Epoch seconds of the earliest question by which something is told."""
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while they are being asked."""
    pause: float = FIRST
    absence: Absence | None = None
    """By what the ranks said last, if they were asked late enough."""
    looks: dict[int, deque[StandingRank]] = field(default_factory=dict[int, deque[StandingRank]])
    """Rank -> where it stood in the last answers."""
    unread: frozenset[int] = frozenset()
    """Ranks whose stacks could not be read at the last question."""
    ras: tuple[RasCommunicator, ...] = ()
    """What NCCL said at the last question."""
    longest: float = 0.0
    """The longest silence after which the job went on."""
    told: bool = False
    """Whether it was said that stacks cannot be read."""

    def keep(self, seen: Mapping[int, StandingRank]) -> None:
        """Add the newest answers; a rank that was not seen begins anew. One whose stack could not
        be read this time stands where it stood: its node was busy, or another one read it.
        """
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

    @property
    def lacks_looks(self) -> bool:
        """Whether stacks were read, but not yet often enough to tell a deadlock."""
        return any(0 < len(some) < LOOKS and some[-1].frames for some in self.looks.values())

    def plan_next(self, now: float) -> None:
        """Say when to ask again, after an answer to a question of `now`."""
        if now < self.tells:
            self.due = self.tells
        elif self.lacks_looks:
            self.due = now + QUICK
        else:
            self.due = now + self.pause
            self.pause = min(2 * self.pause, LONGEST)


def _begin_silence(before: _Asked | None, heard: float) -> _Asked:
    """What is known when the newest output of a job was at `heard`."""
    if before is None:
        return _Asked(heard, heard + EARLY, heard + AGAIN)
    pause = heard - before.heard
    longest = max(before.longest, pause if pause > EARLY else 0.0)
    wait = AGAIN if longest <= SILENT else max(SILENT, min(PAUSES * longest, LONGEST_PAUSE))
    first = wait if longest else EARLY
    return _Asked(heard, heard + first, heard + wait, longest=longest, told=before.told)


class WitnessWatch:
    """When to ask the ranks of which job, and what they said last."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._asked: dict[str, _Asked] = {}

    @property
    def patience(self) -> float:
        """By how much longer than usual agents may take (see `Access.patience`)."""
        return self._agents.patience

    def due(self, job: Job, now: float) -> bool:
        """Whether to `ask` now (epoch seconds); also forgets what was said before newer output."""
        known = self._asked.get(job.id)
        heard = max((rank.heard for rank in job.ranks if rank.heard is not None), default=0.0)
        if not heard:  # its ranks may wait for one that did not come
            heard = known.heard if known else _began(job)
        if job.state is not State.RUNNING or not heard or not _has_witnesses(job):
            self._asked.pop(job.id, None)
            return False
        if known is None or known.heard != heard:
            known = self._asked[job.id] = _begin_silence(known, heard)
        return now >= known.due and not known.asking.locked()

    async def ask_enough(self, job: Job) -> None:
        """Have the ranks asked, unless it is too early, until there are enough answers to tell a
        deadlock; a question that is under way counts, too. For a command that looks once.
        """
        for _ in range(LOOKS):
            now = time.time()
            due, known = self.due(job, now), self._asked.get(job.id)
            if known is None or now < known.tells:
                return
            if due:
                await self.ask(job, now)
            async with known.asking:  # wait for the question of somebody else
                if not known.lacks_looks:
                    return
            await asyncio.sleep(QUICK)

    async def ask(self, job: Job, now: float) -> None:
        """Ask all ranks of the job once, unless they are being asked; nodes that do not answer
        count as unknown.
        """
        known = self._asked.get(job.id)
        if known is None or known.asking.locked():
            return
        async with known.asking:
            await self._ask_now(job, known, now)

    async def _ask_now(self, job: Job, known: _Asked, now: float) -> None:
        heard = _Answers()
        plans = {plan.node: plan for plan in job.plan.nodes}

        async def ask_node(node: str) -> None:
            limit = _LIMIT_BY_LOGIN_NODE if plans[node].elsewhere else LIMIT
            answer = await self._agents.call(node, ("job", "witness", job.id, node), limit=limit)
            heard.take(answer.row, frozenset(plans[node].ranks))
            if not known.told and (why := clean_line(answer.row.get("blind"), 200)):
                known.told = True
                told = "where ranks wait is not known on %s: %s"
                log.warning(told, node, why, extra={"source": job.id})

        try:
            await on_each(plans, ask_node, _TOGETHER)
        finally:
            known.keep(heard.seen)
            known.plan_next(now)
        known.absence = _judge(job, heard, known) if now >= known.tells else None
        known.ras = heard.ras

    def judge(self, job: Job, found: tuple[Stall, ...], now: float) -> tuple[Stall, ...]:
        """The stalls of a job, with the one that its ranks tell themselves in place of a guess."""
        known = self._asked.get(job.id)
        absence = known.absence if known else None
        if known is None or absence is None:
            return found
        if now < known.heard + max(SILENT, absence.told_after):
            return found
        if any(one.kind in _TOLD_BETTER for one in found):
            return found
        if not absence.still and now - known.heard < WORKS and _computes(job, absence):
            return found
        nobody = absence.ranks == absence.waiting  # each waits for another one
        stall = Stall(
            kind="all" if nobody else "absent",
            ranks=absence.ranks,
            since=known.heard,
            text=absence.text,
            odd=() if absence.deadlock else absence.ranks,
            heard=known.heard,
            explained=_explained(absence),
        )
        return (stall, *(one for one in found if one.kind == "slow"))


@dataclass(slots=True)
class _Answers:
    """What the nodes of a job answered to one question."""

    said: dict[int, RankTestimony] = field(default_factory=dict[int, RankTestimony])
    seen: dict[int, StandingRank] = field(default_factory=dict[int, StandingRank])
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

    def _take_pids(self, answer: Mapping[str, object], ranks: frozenset[int]) -> None:
        for pair in as_list(answer.get("pids"), _MOST_PIDS):
            pid, rank = (*as_list(pair), "", "")[:2]
            if type(pid) is int and type(rank) is int and rank in ranks:
                self.twice |= {pid} & self.pids.keys()
                self.pids[pid] = rank


def _judge(job: Job, heard: _Answers, known: _Asked) -> Absence | None:
    running = {rank.rank: rank for rank in job.ranks if rank.state is State.RUNNING}
    nodes = {rank: one.node for rank, one in running.items()}
    held = {rank: one.activity.throttled for rank, one in running.items() if one.activity}
    told = {
        rank: replace(one, doing=replace(one.doing, throttled=held.get(rank)))
        for rank, one in heard.said.items()
    }
    seen = {
        rank: [replace(one, doing=replace(one.doing, throttled=held.get(rank))) for one in some]
        for rank, some in known.looks.items()
    }
    every = {rank.rank: rank.node for rank in job.ranks}
    pids = {pid: rank for pid, rank in heard.pids.items() if pid not in heard.twice}
    return (
        find_absence(told, every, OPEN)
        or find_ras_absence(known.ras, heard.ras, pids, every)
        or find_mpi_absence(seen, nodes)
    )


def _explained(absence: Absence) -> tuple[Explained, ...]:
    if not absence.deadlock:
        return (_OF_ABSENCE,)
    return (OF_DEADLOCK, OF_A_GUESS) if absence.guess else (OF_DEADLOCK,)


def _began(job: Job) -> float:
    """When the last rank began, in epoch seconds; 0 if one has not."""
    times = [rank.started or 0.0 for rank in job.ranks]
    return max(times) if all(times) else 0.0


def _has_witnesses(job: Job) -> bool:
    names = {process.name for plan in job.plan.nodes for process in plan.processes}
    fits = job.unit != "task" and len(job.ranks) > 1 and len(job.plan.nodes) <= _MOST_NODES
    return fits and not _LAUNCHERS.isdisjoint(names)


def _computes(job: Job, absence: Absence) -> bool:
    looks = [rank.activity for rank in job.ranks if rank.rank in absence.ranks]
    return not absence.deadlock and any(look is not None and look.computes for look in looks)
