"""Judges which nodes have an agent that stands still: it looks at no rank of its own any more, nor
reads what they write, so their silence means nothing. No I/O.
"""

from collections.abc import Iterable, Sequence

from rankdeck.model.job import Job, RankState
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.rank import State
from rankdeck.model.stall import Explained, Stall
from rankdeck.rules.rank_signs import FRESH, KnownOfJob, lasting_words

LATE = 20.0
"""Seconds without a look at any rank of a node, of which there is one every 5 s."""
_STANDS_STILL = Explained(
    "its process is stopped (SIGSTOP, a debugger) or gets no CPU; the ranks may be well",
    "`ps` there shows `agent job run`: `kill -CONT` lets it go on; what the ranks wrote is then read",
)


def mute_agents(job: Job, now: float, known: KnownOfJob) -> tuple[Stall, ...]:
    """One stall for each node whose connection is well and whose agent has looked at no rank for
    LATE seconds (more on slow nodes), though agents look at the ranks of this job; its `ranks` are
    those that are not looked at.
    """
    if not any(known.looks.get(rank.rank) for rank in job.ranks):
        return ()
    by_node: dict[str, list[RankState]] = {}
    for rank in job.ranks:
        if rank.state is State.RUNNING:
            by_node.setdefault(rank.node, []).append(rank)
    found = (_judged(job, node, ranks, now, known) for node, ranks in by_node.items())
    return tuple(one for one in found if one is not None)


def _judged(
    job: Job, node: str, ranks: Sequence[RankState], now: float, known: KnownOfJob
) -> Stall | None:
    reported = (known.reported or {}).get(job.plan.supervising_node(node))
    if reported is None or now - reported > FRESH:
        return None
    signs = (rank.heard or rank.started or now for rank in ranks)
    alive = max((*signs, *_looks(ranks, known)))
    if now - alive < LATE * known.patience:
        return None
    numbers = tuple(rank.rank for rank in ranks)
    who = f"rank{'s' if len(ranks) > 1 else ''} {fold_ranks(numbers)}"
    return Stall(
        kind="agent",
        ranks=numbers,
        node=node,
        since=alive,
        heard=alive,
        text=f"the agent on {node} stands still for {lasting_words(now - alive)}: what {who} do and write is not seen",
        explained=(_STANDS_STILL,),
    )


def _looks(ranks: Sequence[RankState], known: KnownOfJob) -> Iterable[float]:
    return (looks[-1].at for rank in ranks if (looks := known.looks.get(rank.rank)))
