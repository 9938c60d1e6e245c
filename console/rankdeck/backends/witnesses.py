"""Asks the ranks of silent torchrun jobs which collective operations they have entered."""

from dataclasses import dataclass

from rankdeck.model.job import Explained, Job, Stall, State
from rankdeck.model.json_tables import as_tables
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import on_each
from rankdeck.rules.arrivals import Absence, RankTestimony, find_absence, read_testimony

SILENT = 10.0
"""Seconds without any output of the job, after which its ranks are asked."""
OPEN = 8.0
"""An operation keeps ranks waiting if they entered it at least so many seconds ago."""
WORKS = 60.0
"""The same if the rank that they wait for computes: it may only be slow."""
FIRST, LONGEST = 5.0, 60.0
"""Seconds between two questions: the first time, and at most; each doubles the one before."""
LIMIT = 15.0
_TOGETHER = 32
_MOST_NODES = 256
_OF_DEADLOCK = Explained(
    "a deadlock: operations or messages that do not match",
    "compare what the named ranks call, and in which order",
)
_OF_ABSENCE = Explained(
    "the other ranks cannot go on before these enter the operation",
    "look at what these ranks do (`rankdeck inspect`, their last lines); `launch: torchrun` asks them itself",
)
_TOLD_BETTER = frozenset({"stopped", "device", "raised"})
"""Kinds of stalls that name the reason, where an absence only names the rank."""


@dataclass(slots=True)
class _Asked:
    """What is known of one silent job."""

    heard: float
    """Its newest output when the silence began; another one ends it."""
    due: float
    """Epoch seconds; endless while they are being asked."""
    pause: float = FIRST
    absence: Absence | None = None
    """By what the ranks said last."""


class WitnessWatch:
    """When to ask the ranks of which job, and what they said last."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._asked: dict[str, _Asked] = {}

    def due(self, job: Job, now: float) -> bool:
        """Whether to `ask` now (epoch seconds); also forgets what was said before newer output."""
        heard = max((rank.heard for rank in job.ranks if rank.heard is not None), default=0.0)
        known = self._asked.get(job.id)
        if job.state is not State.RUNNING or not heard or not _has_witnesses(job):
            self._asked.pop(job.id, None)
            return False
        if known is None or known.heard != heard:
            known = self._asked[job.id] = _Asked(heard, heard + SILENT)
        return now >= known.due

    async def ask(self, job: Job, now: float) -> None:
        """Ask all ranks of the job once; nodes that do not answer count as unknown."""
        known = self._asked.get(job.id)
        if known is None:
            return
        known.due = float("inf")
        said: dict[int, RankTestimony] = {}
        ranks = {plan.node: frozenset(plan.ranks) for plan in job.plan.nodes}

        async def ask_node(node: str) -> None:
            answer = await self._agents.call(node, ("job", "witness", job.id, node), limit=LIMIT)
            for row in as_tables(answer.row.get("ranks"), len(ranks[node])):
                one = read_testimony(row)
                # A node speaks for its own ranks only.
                if one is not None and one.rank in ranks[node]:
                    said[one.rank] = one

        try:
            await on_each(ranks, ask_node, _TOGETHER)
        finally:
            known.due, known.pause = now + known.pause, min(2 * known.pause, LONGEST)
        known.absence = find_absence(said, {rank.rank: rank.node for rank in job.ranks}, OPEN)

    def judge(self, job: Job, found: tuple[Stall, ...], now: float) -> tuple[Stall, ...]:
        """The stalls of a job, with the one that its ranks tell themselves in place of a guess."""
        known = self._asked.get(job.id)
        absence = known.absence if known else None
        if known is None or absence is None or any(one.kind in _TOLD_BETTER for one in found):
            return found
        if now - known.heard < WORKS and _computes(job, absence):
            return found
        nobody = absence.ranks == absence.waiting  # each waits for another one
        stall = Stall(
            kind="all" if nobody else "absent",
            ranks=absence.ranks,
            since=known.heard,
            text=absence.text,
            odd=() if absence.deadlock else absence.ranks,
            heard=known.heard,
            explained=(_OF_DEADLOCK if absence.deadlock else _OF_ABSENCE,),
        )
        return (stall, *(one for one in found if one.kind == "slow"))


def _has_witnesses(job: Job) -> bool:
    nodes = job.plan.nodes
    return len(nodes) <= _MOST_NODES and any(
        process.name == "torchrun" for plan in nodes for process in plan.processes
    )


def _computes(job: Job, absence: Absence) -> bool:
    looks = [rank.activity for rank in job.ranks if rank.rank in absence.ranks]
    return not absence.deadlock and any(look is not None and look.computes for look in looks)
