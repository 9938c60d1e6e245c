"""Judges a swap proof: of all that may be to blame, how probable is each? Pure.

What may be to blame is one rank wherever it runs, one node whoever runs there, any rank (the
program, or what all nodes share), one rank on one node only, or chance. Each run, and the job
itself, makes each of them more or less probable by the numbers of the tables below (Bayes).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import prod

from rankdeck.model.nodeset import fold_nodes, fold_ranks
from rankdeck.swap.values import (
    Blame,
    FaultKind,
    JobFault,
    RunOutcome,
    RunWay,
    SwapPlan,
    SwapResult,
    SwapVerdict,
)
from rankdeck.values import Value

BAR = 0.95
"""Below this probability nothing is accused."""
ENOUGH = 0.98
"""From this probability on no further run is made."""


class _Kind(StrEnum):
    RANK = "rank"
    NODE = "node"
    ANY = "any rank"
    BOTH = "rank on node"
    CHANCE = "chance"


_BEFORE = {_Kind.RANK: 0.45, _Kind.NODE: 0.40, _Kind.ANY: 0.08, _Kind.BOTH: 0.02, _Kind.CHANCE: 0.05}  # fmt: skip
"""Probability before anything is seen; that of ranks and of nodes is shared out among them."""
_COMES, _COMES_ALONE, _CHANCE_COMES = 0.92, 0.03, 0.30
"""Probability that the fault comes in a run that has its cause, one that has not, and if it came
by chance.
"""
_NAMED, _NODE_OF_RANK = 0.95, 0.5
"""Probability that the cause is named if the fault comes; that only the node of the rank is named,
where no rank is.
"""


class _Cause(Value):
    """What may be to blame."""

    kind: _Kind
    rank: int = -1
    node: str = ""

    @property
    def name(self) -> str:
        return {
            _Kind.RANK: f"rank {self.rank}",
            _Kind.NODE: f"node {self.node}",
            _Kind.BOTH: f"rank {self.rank} on {self.node}",
        }.get(self.kind, self.kind.value)

    def blame(self) -> Blame | None:
        """None: nothing and nobody."""
        return {
            _Kind.RANK: Blame.PROGRAM, _Kind.ANY: Blame.PROGRAM, _Kind.NODE: Blame.NODE,
            _Kind.BOTH: Blame.BOTH,
        }.get(self.kind)  # fmt: skip


@dataclass(frozen=True)
class _Seen:
    """One run: its fault, and where its ranks were."""

    fault: JobFault | None
    places: Mapping[str, tuple[int, ...]]
    given: bool = False
    """It is the job itself: that the fault came is why we ask."""

    def node_of(self, rank: int) -> str:
        return next((node for node, ranks in self.places.items() if rank in ranks), "")

    @cached_property
    def count(self) -> int:
        return max(sum(map(len, self.places.values())), 1)


def judge_swap(plan: SwapPlan, results: Sequence[SwapResult]) -> SwapVerdict:
    """What the runs say so far."""
    told = [one for one in results if one.outcome.tells]
    seen = [_Seen(plan.fault, plan.places, given=True)]
    seen += [
        _Seen(one.fault if one.outcome is RunOutcome.AGAIN else None, one.places or one.run.places)
        for one in told
    ]
    shares = _shares(_causes(plan), seen)
    likely = max(shares, key=lambda cause: shares[cause])
    sums = {blame: _sum(shares, blame) for blame in Blame}
    blame = max(sums, key=lambda one: sums[one])
    sure = sums[blame]
    named = _likeliest(shares, blame, likely)
    decided = bool(told) and sure >= BAR and _is_single(named, shares, blame)
    final = blame if decided else Blame.UNDECIDED
    by_name = sorted(((c.name, p) for c, p in shares.items()), key=lambda item: -item[1])
    return SwapVerdict(
        blame=final,
        rank=named.rank if decided and named.kind in (_Kind.RANK, _Kind.BOTH) else None,
        node=named.node if decided else "",
        sure=round(min(sure, 0.999), 3),
        sentence=_sentence(plan, results, named if decided else None, by_name),
        advice=_advice(plan, results, named if decided else None),
        shares={name: round(share, 3) for name, share in by_name[:5]},
    )


def _sum(shares: Mapping[_Cause, float], blame: Blame) -> float:
    return sum(share for cause, share in shares.items() if cause.blame() is blame)


def _likeliest(shares: Mapping[_Cause, float], blame: Blame, other: _Cause) -> _Cause:
    """The likeliest cause of this blame. Ranks that are all alike are no answer: any rank is."""
    mine = {cause: share for cause, share in shares.items() if cause.blame() is blame}
    if not mine:
        return other
    best = max(mine, key=lambda cause: mine[cause])
    alone = mine[best] >= 0.5 * sum(mine.values())
    return best if alone or best.kind is not _Kind.RANK else _Cause(_Kind.ANY)


def _is_single(named: _Cause, shares: Mapping[_Cause, float], blame: Blame) -> bool:
    """Whether a blamed node is one node, and not one of several that are as likely."""
    return named.kind is not _Kind.NODE or shares[named] >= BAR * _sum(shares, blame)


def _causes(plan: SwapPlan) -> dict[_Cause, float]:
    """All that may be to blame -> its probability before anything is seen."""
    ranks = sorted(rank for some in plan.places.values() for rank in some)
    causes = {_Cause(_Kind.RANK, rank): _BEFORE[_Kind.RANK] / len(ranks) for rank in ranks}
    nodes = {
        _Cause(_Kind.NODE, node=node): _BEFORE[_Kind.NODE] / len(plan.places)
        for node in plan.places
    }
    both = {
        _Cause(_Kind.BOTH, rank, node): _BEFORE[_Kind.BOTH] / len(ranks)
        for node, some in plan.places.items()
        for rank in some
    }
    if all(run.way is not RunWay.MOVED for run in plan.runs):
        both = {}  # who moves no rank cannot tell a node from one rank on it
    rest = {_Cause(kind): _BEFORE[kind] for kind in (_Kind.ANY, _Kind.CHANCE)}
    return {**causes, **nodes, **both, **rest}


def _shares(before: Mapping[_Cause, float], seen: Sequence[_Seen]) -> dict[_Cause, float]:
    weights = {
        cause: share * prod(_likelihood(cause, one) for one in seen)
        for cause, share in before.items()
    }
    total = sum(weights.values())
    return {cause: weight / total for cause, weight in weights.items()}


def _likelihood(cause: _Cause, seen: _Seen) -> float:
    """How probable what was seen is if this is the cause."""
    comes = _probability_of_fault(cause, seen)
    if seen.fault is None:
        return 1 - comes
    return (1 if seen.given else comes) * _probability_of_name(cause, seen, seen.fault)


def _is_there(cause: _Cause, seen: _Seen) -> bool:
    if cause.kind is _Kind.BOTH:
        return cause.rank in seen.places.get(cause.node, ())
    return cause.kind is not _Kind.NODE or cause.node in seen.places


def _probability_of_fault(cause: _Cause, seen: _Seen) -> float:
    if cause.kind is _Kind.CHANCE:
        return _CHANCE_COMES
    return _COMES if _is_there(cause, seen) else _COMES_ALONE


def _probability_of_name(cause: _Cause, seen: _Seen, fault: JobFault) -> float:
    """How probable it is that these are named, if this is the cause and the fault comes."""
    if fault.ranks:
        ranks = fault.ranks
        return sum(_of_named_rank(cause, seen, rank) for rank in ranks) / len(ranks)
    if fault.nodes:
        return _of_named_node(cause, seen, fault.nodes)
    return 1.0


def _of_named_rank(cause: _Cause, seen: _Seen, rank: int) -> float:
    mine: Iterable[int] = ()
    if cause.kind is _Kind.NODE:
        mine = seen.places.get(cause.node, ())
    elif cause.rank >= 0 and _is_there(cause, seen):
        mine = (cause.rank,)
    inside = tuple(mine)
    if not inside or len(inside) == seen.count:
        return 1 / seen.count
    if rank in inside:
        return _NAMED / len(inside)
    return (1 - _NAMED) / (seen.count - len(inside))


def _of_named_node(cause: _Cause, seen: _Seen, named: Sequence[str]) -> float:
    count = max(len(seen.places), 1)
    node = cause.node or (seen.node_of(cause.rank) if cause.rank >= 0 else "")
    if node not in seen.places or count == 1:
        return 1 / count
    right = _NAMED if cause.kind is _Kind.NODE else _NODE_OF_RANK
    return right if node in named else (1 - right) / (count - 1)


# ---- sentences

_DID = {FaultKind.FAILED: "failed", FaultKind.HANG: "hung", FaultKind.SLOW: "was slow"}


def who_and_where(fault: JobFault, places: Mapping[str, Sequence[int]]) -> str:
    """`rank 1 failed on n5`, `node n5 failed`, `it hung, nobody was named`."""
    did = _DID[fault.kind]
    if fault.ranks:
        nodes = [node for node, ranks in places.items() if set(ranks) & set(fault.ranks)]
        where = f" on {fold_nodes(nodes)}" if nodes else ""
        noun = "rank" if len(fault.ranks) == 1 else "one of ranks"
        return f"{noun} {fold_ranks(fault.ranks)} {did}{where}"
    if fault.nodes:
        return f"{fold_nodes(fault.nodes)} {did}"
    return f"it {did} and no rank was named"


def run_label(run_way: RunWay, without: Sequence[str] = ()) -> str:
    """`ranks moved`, `without n5`, `unchanged`."""
    if run_way is RunWay.WITHOUT:
        return f"without {fold_nodes(without)}"
    return "ranks moved" if run_way is RunWay.MOVED else "unchanged"


def result_words(result: SwapResult) -> str:
    """What one run showed: `rank 4 failed on n5`, `it went well`, `too short`."""
    if result.outcome is RunOutcome.NONE:
        return "it went well"
    if result.outcome in (RunOutcome.AGAIN, RunOutcome.OTHER) and result.fault is not None:
        other = "another fault: " if result.outcome is RunOutcome.OTHER else ""
        return other + who_and_where(result.fault, result.places or result.run.places)
    why = f": {result.sentence}" if result.sentence else ""
    return f"{result.outcome.value}{why}"


def _story(plan: SwapPlan, results: Sequence[SwapResult]) -> str:
    first = f"{who_and_where(plan.fault, plan.places)} at first"
    runs = [
        f"{result_words(one)} in run {number} ({run_label(one.run.way, one.run.without)})"
        for number, one in enumerate(results, 1)
    ]
    return ", ".join([first, *runs])


def _sentence(
    plan: SwapPlan, results: Sequence[SwapResult], named: _Cause | None, shares: Sequence[tuple[str, float]]
) -> str:  # fmt: skip
    story = _story(plan, results)
    if named is not None:
        head = {
            _Kind.RANK: f"the fault stayed with rank {named.rank}",
            _Kind.NODE: f"the fault went with node {named.node}",
            _Kind.ANY: "the fault came on whichever nodes the job ran",
            _Kind.BOTH: f"the fault comes only with rank {named.rank} on {named.node}",
        }[named.kind]
        return f"{head}: {story}"
    return f"{_why_undecided(results, shares)}: {story}"


def _why_undecided(results: Sequence[SwapResult], shares: Sequence[tuple[str, float]]) -> str:
    told = [one for one in results if one.outcome.tells]
    if not told:
        return "undecided, for no run tells anything"
    if all(one.outcome is RunOutcome.NONE for one in told):
        return "undecided, for the fault did not come again"
    (one, first), (two, second) = shares[:2]
    return f"undecided between {one} ({first:.0%}) and {two} ({second:.0%})"


def _advice(plan: SwapPlan, results: Sequence[SwapResult], named: _Cause | None) -> str:
    if named is not None:
        return {
            _Kind.RANK: f"look at what rank {named.rank} does: its last lines, its input; the nodes are not to blame",
            _Kind.NODE: f"start the job without {named.node}, and test that node: `rankdeck accept {named.node}`",
            _Kind.ANY: "look at the program, its input, and what all nodes share (file server, network); no single node is to blame",
            _Kind.BOTH: f"look at what differs on {named.node} for rank {named.rank}: its GPU, its files, its port",
        }[named.kind]
    if any(one.outcome is RunOutcome.SHORT for one in results):
        after = plan.fault.seconds or 0.0
        return (
            f"the fault came after {after:.0f} s: start from a checkpoint shortly before it,"
            f" or give each run more time with --limit"
        )
    if any(one.outcome is RunOutcome.OTHER for one in results):
        return "mend the other fault first: it hides the one that is looked for"
    if results and all(one.outcome is RunOutcome.NOT_RUN for one in results):
        return "mend why no run could start, then try again"
    if any(one.outcome is RunOutcome.NONE for one in results):
        return "try again when it comes more often, or with more time: --limit; `rankdeck accept` tests the nodes by themselves"
    return "try again with more nodes, so that more ranks can be moved"
