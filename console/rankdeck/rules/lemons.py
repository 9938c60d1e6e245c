"""Judges which nodes fail jobs more often than others do, by the history of jobs. No I/O.

A node's record is k of n: in how many of the n jobs that it took part in the fault was its own.
p is the share of the other nodes, with one fault and one use added (Laplace's rule of succession).
The chance of k or more by luck is the upper tail of the binomial distribution B(n, p). Of many
nodes some have bad luck: those count as lemons that the procedure of Benjamini and Hochberg selects
(Journal of the Royal Statistical Society B 57, 1995, 289), so that of those that it selects no more
than RISK are selected by luck. The interval of a share is Wilson's (JASA 22, 1927, 209), for 95 %.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rankdeck.model.first_failure import EMPTIED
from rankdeck.model.job import Job
from rankdeck.model.rank import State
from rankdeck.model.text import significant_figures
from rankdeck.values import Value
from rankdeck_agent.rules.levels import Level

RISK = 0.03
"""Expected share of nodes that are no lemons among those that are called so."""
FEWEST = 2
"""A node with fewer faults is never a lemon."""
_Z = 1.959964
"""Standard deviations that contain 95 % of a normal distribution."""
_BEFORE, _AFTER = 600.0, 10.0
"""A bad finding on a node from so long before a failure, to so long after it, explains it."""


class NodeRecord(Value, kw_only=True):
    """How often jobs failed on a node by its own fault."""

    node: str
    faults: int
    uses: int
    """Jobs that it took part in."""
    others: float
    """The same share of all other nodes together."""
    chance: float
    """Chance of as many faults by luck."""
    jobs: tuple[str, ...] = ()
    """The jobs with these faults, newest first."""

    @property
    def share(self) -> float:
        return self.faults / self.uses if self.uses else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Between which shares the true one lies, with 95 %."""
        return wilson_interval(self.faults, self.uses)

    @property
    def sentence(self) -> str:
        """`4 of 31 jobs failed there by its own fault (5 to 29 %), on others 0.4 %`."""
        low, high = (f"{100 * one:.0f}" for one in self.interval)
        jobs = "job" if self.uses == 1 else "jobs"
        others = f"{significant_figures(100 * self.others, 2)} %" if self.others else "none"
        return (
            f"{self.faults} of {self.uses} {jobs} failed there by its own fault"
            f" ({low} to {high} %), on others {others}"
        )


def wilson_interval(count: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share by Wilson's formula; (0, 1) if nothing was counted."""
    if total <= 0:
        return 0.0, 1.0
    share, square = count / total, _Z * _Z / total
    middle = (share + square / 2) / (1 + square)
    half = _Z * math.sqrt(share * (1 - share) / total + square / (4 * total)) / (1 + square)
    low = 0.0 if count == 0 else middle - half
    high = 1.0 if count == total else middle + half
    return max(low, 0.0), min(high, 1.0)


def chance_of(count: int, total: int, share: float) -> float:
    """Chance that of `total` tries at least `count` hit, if each does with chance `share`."""
    if count <= 0:
        return 1.0
    logs = math.lgamma(total + 1), math.log(share), math.log1p(-share)
    terms = (
        math.exp(
            logs[0] - math.lgamma(hits + 1) - math.lgamma(total - hits + 1)
            + hits * logs[1] + (total - hits) * logs[2]
        )
        for hits in range(count, total + 1)
    )  # fmt: skip
    return min(math.fsum(terms), 1.0)


@dataclass(slots=True)
class _Counted:
    uses: int = 0
    jobs: list[str] = field(default_factory=list[str])
    programs: set[str] = field(default_factory=set[str])
    """Names of jobs whose ranks failed here only; each counts once."""


def node_records(jobs: Iterable[Job]) -> dict[str, NodeRecord]:
    """Node -> its record, of all nodes that ended jobs have used.

    Left out are cancelled jobs, replays, and jobs with `part_of`: a drill fails on purpose.
    """
    ended = sorted(filter(_counts, jobs), key=lambda job: -job.created)
    well = _nodes_done_well(ended)
    counted: dict[str, _Counted] = {}
    for job in ended:
        for node in dict.fromkeys(job.nodes):
            counted.setdefault(node, _Counted()).uses += 1
        if (node := own_fault(job, well)) and node in counted:
            _blame(counted[node], job)
    faults = sum(len(one.jobs) for one in counted.values())
    uses = sum(one.uses for one in counted.values())
    return {
        node: _record(node, one, faults - len(one.jobs), uses - one.uses)
        for node, one in counted.items()
    }


def _counts(job: Job) -> bool:
    own = not job.plan.part_of and not job.plan.replay_of
    return own and job.state in (State.DONE, State.FAILED)


def _nodes_done_well(jobs: Iterable[Job]) -> Mapping[str, list[frozenset[str]]]:
    """Name of a job -> the nodes of each of its runs that ended well."""
    found: dict[str, list[frozenset[str]]] = {}
    for job in jobs:
        if job.state is State.DONE:
            found.setdefault(job.name, []).append(frozenset(job.nodes))
    return found


def _blame(one: _Counted, job: Job) -> None:
    failure = job.first_failure
    if failure is not None and failure.what == "rank" and not _was_ill(job, failure.node):
        if job.name in one.programs:
            return
        one.programs.add(job.name)
    one.jobs.append(job.id)


def own_fault(job: Job, well: Mapping[str, list[frozenset[str]]]) -> str:
    """The node whose own fault it was that the job failed; "" if it was none's, or is not known.

    It is if the node was lost or a signal ended a launcher or daemon there first; if a rank there
    failed first, or all of them were killed, and the node had a bad finding shortly before; or if a
    signal ended a rank there first, and jobs of the same name ended well at least twice without
    this node, never with it.
    """
    failure = job.first_failure
    if job.state is not State.FAILED or failure is None or failure.tied:
        return ""
    emptied = failure.what == "node" and failure.name == EMPTIED
    if failure.what in ("node", "launcher") and not emptied:
        return failure.node if failure.what == "node" or failure.signal is not None else ""
    if failure.what != "rank" and not emptied:
        return ""
    if _was_ill(job, failure.node):
        return failure.node
    runs = well.get(job.name, [])
    without = sum(failure.node not in nodes for nodes in runs)
    alone = without >= FEWEST and without == len(runs)
    return failure.node if failure.signal is not None and alone else ""


def _was_ill(job: Job, node: str) -> bool:
    failure = job.first_failure
    if failure is None:
        return False
    begin, end = failure.at - _BEFORE, failure.at + _AFTER
    return any(
        note.node == node and note.level is Level.BAD and not note.simulated
        and (note.before or begin <= note.at <= end)
        for note in job.node_notes
    )  # fmt: skip


def _record(node: str, one: _Counted, faults: int, uses: int) -> NodeRecord:
    """`faults` and `uses` are those of all other nodes."""
    usual = (faults + 1) / (uses + 2)
    return NodeRecord(
        node=node,
        faults=len(one.jobs),
        uses=one.uses,
        others=faults / uses if uses else 0.0,
        chance=chance_of(len(one.jobs), one.uses, usual) if uses else 1.0,
        jobs=tuple(one.jobs),
    )


def find_lemons(records: Mapping[str, NodeRecord]) -> dict[str, NodeRecord]:
    """The records of the lemons, the worst first."""
    ordered = sorted(records.values(), key=lambda one: (one.chance, one.node))
    chosen = 0
    for place, one in enumerate(ordered, 1):
        if one.chance <= RISK * place / len(ordered):
            chosen = place
    return {one.node: one for one in ordered[:chosen] if one.faults >= FEWEST}
