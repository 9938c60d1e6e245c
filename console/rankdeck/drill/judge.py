"""Judges a drill: who was named, and whether that was right. Pure."""

import re
from collections.abc import Iterable, Sequence

from rankdeck.drill.values import DrillVerdict, Way
from rankdeck.model.job import Job
from rankdeck.model.nodeset import fold_nodes, fold_ranks
from rankdeck.model.stall import Stall
from rankdeck.values import Value

NOBODY = "nobody"
_LAUNCHER_WORDS = (
    r"Process name: \[prterun-\S+,(\d+)\]",
    r"process rank (\d+) with PID",
    r"MPI_ABORT was invoked on rank (\d+)",
    r"\[prterun-[^\]]+,(\d+)\].{0,80}MPI_Abort",
    r"Abort\(-?\d+\) on node (\d+)",
    r"Root Cause[\s\S]{0,200}?rank\s*: (\d+)",
    r"RANK (\d+) PID",
    r"srun: error: \S+ task (\d+):",
)
"""Patterns of launcher messages that name the rank that failed first."""
_LAUNCHER_NODES = (r"PID \d+ RUNNING AT (\S+)", r"remote host\s*:?\s*(\S+)$")
"""The same for a node."""


class Named(Value):
    """Who is to blame, according to what is shown of a job."""

    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    """Where no rank is to blame."""
    sentence: str = ""
    settled: bool = True
    """Whether it is not said as a guess."""
    deadlock: bool = False
    """Nobody is named, and it is told as a deadlock: all wait for each other."""
    sure: float | None = None
    """How sure that is, from 0 to 1; None if it is not said."""

    @property
    def who(self) -> str:
        """`rank 3`, `node n2`, `nobody`."""
        if self.ranks:
            return f"rank {fold_ranks(self.ranks)}"
        return f"node {fold_nodes(self.nodes)}" if self.nodes else NOBODY


def named_in(job: Job) -> Named | None:
    """Who is named in a job now; None: nothing is said."""
    failure = job.first_failure
    if failure is not None:
        ranks = () if failure.rank is None else (failure.rank,)
        nodes = () if ranks or failure.between else (failure.node,)
        return Named(ranks, nodes, failure.sentence, failure.settled, sure=failure.sure)
    found = [blamed_by_stall(stall) for stall in job.stalled]
    found += [
        Named((), (node,), f"{node} does not answer: {why}") for node, why in job.mute.items()
    ]
    return next((one for one in found if one.ranks or one.nodes), found[0] if found else None)


def blamed_by_stall(stall: Stall) -> Named:
    """Who is to blame for a stall; one of all ranks that names none of them blames nobody."""
    if stall.node:
        return Named((), (stall.node,), stall.sentence, sure=stall.sure)
    ranks = stall.accused
    deadlock = stall.kind == "all" and not ranks and bool(stall.explained)
    return Named(ranks, (), stall.sentence, deadlock=deadlock, sure=stall.sure)


def is_rightly_named(named: Named, way: Way, victim: int, node: str) -> bool:
    """Whether the victim is named, or for a fault of a node that node, and nobody else.

    A collective that does not match is also told rightly if it is said that all wait for each
    other, and nobody is named: which of them is wrong the program alone knows.
    """
    if way.of_node:
        return not named.ranks and named.nodes == (node,)
    if way is Way.COLLECTIVE and named.deadlock:
        return True
    return named.ranks == (victim,)


Shown = tuple[float, Named | None]
"""(epoch seconds from which it was shown, who was named)."""


class Judgement(Value):
    """What a whole run of a fault says."""

    verdict: DrillVerdict
    named: Named
    seconds: float | None = None
    before: tuple[str, ...] = ()


def judge_fault(shown: Sequence[Shown], at: float, right: tuple[Way, int, str]) -> Judgement:
    """Judge what was shown of a job whose fault happened at `at`.

    `right` is (way, victim, node).
    """
    last = shown[-1][1] if shown else None
    if last is None:
        return Judgement(DrillVerdict.SILENT, Named())
    since = next(
        start for start, named in _runs(shown) if named is not None and named.who == last.who
    )
    good = is_rightly_named(last, *right)
    nobody = last.who == NOBODY and not good
    verdict = DrillVerdict.RIGHT if good else DrillVerdict.SILENT if nobody else DrillVerdict.WRONG
    others = (
        one.who
        for _, one in shown
        if one is not None and one.settled and one.who not in (NOBODY, last.who)
    )
    seconds = None if nobody else round(max(since - at, 0.0), 1)
    return Judgement(verdict, last, seconds, tuple(dict.fromkeys(others)))


def _runs(shown: Sequence[Shown]) -> Iterable[Shown]:
    """The last answer, then what came before it as long as it named the same."""
    final = shown[-1][1]
    kept: list[Shown] = []
    for one in reversed(shown):
        if one[1] is None or final is None or one[1].who != final.who:
            break
        kept.append(one)
    return reversed(kept)


def launcher_named(text: str) -> str:
    """Whom a launcher's own output names first: `rank 3`, `n2`; "" for nobody."""
    found = [
        (hit.start(), f"rank {hit[1]}")
        for pattern in _LAUNCHER_WORDS
        if (hit := re.search(pattern, text))
    ]
    found += [
        (hit.start(), hit[1])
        for pattern in _LAUNCHER_NODES
        if not found and (hit := re.search(pattern, text, re.MULTILINE))
    ]
    return min(found)[1] if found else ""
