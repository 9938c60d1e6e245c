"""Asks the ranks of silent jobs that wait for each other, also of jobs in a scheduler, which
collective operations they have entered, or where they stand.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankdeck.model.job import Job
from rankdeck.model.job_spec import Launch
from rankdeck.model.rank import State
from rankdeck.model.safe_text import clean_line
from rankdeck.model.stall import Stall
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import on_each
from rankdeck.rules.arrivals import Absence
from rankdeck.rules.mpi_waits import LOOKS
from rankdeck.rules.silent_job import NodeAnswers, StandingRanks, add_absence

log = logging.getLogger(__name__)

SILENT = 10.0
"""Seconds without any output of the job, after which it is told who keeps it waiting."""
EARLY, AGAIN = 5.0, 8.5
"""Seconds of silence after which ranks are asked first, and again: an answer takes seconds on a
busy node, and by two of them a deadlock can be told. Nothing is told by the first alone.
"""
WORKS = 60.0
"""Seconds of silence after which a rank that computes is told: it may only be slow."""
FIRST, LONGEST = 2.5, 60.0
"""Seconds between two later questions: the first time, and at most; each doubles the one before."""
QUICK = 1.0
"""The same for stacks of MPI ranks, until there are enough answers to tell a deadlock."""
PAUSES, LONGEST_PAUSE = 1.5, 120.0
"""Of a job that has been silent before, and went on, nothing is told before so many times its
longest silence, at most LONGEST_PAUSE; it is asked only then.
"""
SHARE = 0.1
"""Of the time that questions by way of a scheduler may take: they cost its servers something, and
those to many pods take long.
"""
LIMIT = 15.0
_LIMIT_BY_LOGIN_NODE = 40.0
_LAUNCHERS = frozenset(("torchrun", "mpirun"))
"""Names of processes in the plans of jobs whose ranks may be in operations of torch or MPI."""
_TOGETHER = 32
_MOST_NODES = 256


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
    standing: StandingRanks = field(default_factory=StandingRanks)
    words: Mapping[int, Sequence[str]] = field(default_factory=dict[int, Sequence[str]])
    """Rank -> its last lines, as its node told them last."""
    longest: float = 0.0
    """The longest silence after which the job went on."""
    told: bool = False
    """Whether it was said that stacks cannot be read."""

    def plan_next(self, now: float, took: float) -> None:
        """Say when to ask again, after an answer to a question of `now` to a scheduler that `took`
        so many seconds; 0 for a question to nodes.
        """
        if now < self.tells:
            self.due = self.tells
        elif self.standing.lacks_looks:
            self.due = now + QUICK
        else:
            self.due = now + max(self.pause, took / SHARE)
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
                if not known.standing.lacks_looks:
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
        heard, began = NodeAnswers(), time.monotonic()
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
            known.standing.keep(heard)
            known.words = heard.words
            known.plan_next(now, time.monotonic() - began if job.plan.elsewhere else 0.0)
        known.absence = known.standing.find_absence(job, heard) if now >= known.tells else None

    def words_of(self, job_id: str, rank: int) -> Sequence[str]:
        """The last lines of a silent rank, as its node told them; () if it was not asked."""
        known = self._asked.get(job_id)
        return known.words.get(rank, ()) if known else ()

    def judge(self, job: Job, found: tuple[Stall, ...], now: float) -> tuple[Stall, ...]:
        """The stalls of a job, with the one that its ranks tell themselves in place of a guess."""
        known = self._asked.get(job.id)
        absence = known.absence if known else None
        if known is None or absence is None:
            return found
        if now < known.heard + max(SILENT, absence.told_after):
            return found
        if not absence.still and now - known.heard < WORKS and _computes(job, absence):
            return found
        return add_absence(absence, known.heard, found)


def _began(job: Job) -> float:
    """When the last rank began, in epoch seconds; 0 if one has not."""
    times = [rank.started or 0.0 for rank in job.ranks]
    return max(times) if all(times) else 0.0


def _has_witnesses(job: Job) -> bool:
    names = {process.name for plan in job.plan.nodes for process in plan.processes}
    fits = job.unit != "task" and len(job.ranks) > 1 and len(job.plan.nodes) <= _MOST_NODES
    of_jax = job.plan.spec is not None and job.plan.spec.launch is Launch.JAX
    return fits and (job.plan.elsewhere or of_jax or not _LAUNCHERS.isdisjoint(names))


def _computes(job: Job, absence: Absence) -> bool:
    looks = [rank.activity for rank in job.ranks if rank.rank in absence.ranks]
    return not absence.deadlock and any(look is not None and look.computes for look in looks)
