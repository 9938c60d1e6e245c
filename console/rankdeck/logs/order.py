"""Which ranks are shown (`0-7,96,node=gpu[01-04],state=failed,!3`), and in which order."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from rankdeck.logs.search import TROUBLE
from rankdeck.model.job import Job, RankState, State
from rankdeck.model.nodeset import expand, expand_ranks
from rankdeck.model.rank import WORST, RankStatus

_COMMA = re.compile(r",(?![^\[]*\])")
"""Not those within the brackets of a node set."""
HINT = "write 0-7,96 or node=NODES or state=failed; ! leaves out"


def choose(text: str, ranks: Sequence[RankState]) -> tuple[int, ...]:
    """The ranks that any part of `text` names, in the order of `ranks`; all where it is empty.

    Raises ValueError with a sentence if a part cannot be read or names no rank.
    """
    parts = [part.strip() for part in _COMMA.split(text) if part.strip()]
    wanted: set[int] = set()
    unwanted: set[int] = set()
    for part in parts:
        found = _part(part.removeprefix("!").strip(), ranks)
        (unwanted if part.startswith("!") else wanted).update(found)
    everything = all(part.startswith("!") for part in parts)
    return tuple(
        one.rank for one in ranks if (everything or one.rank in wanted) and one.rank not in unwanted
    )


def _part(part: str, ranks: Iterable[RankState]) -> list[int]:
    name, equals, value = part.partition("=")
    if equals:
        kind = _KINDS.get(name.strip())
        if kind is None:
            raise ValueError(f"not a set of ranks: `{part}`; {HINT}")
        fits = kind(value.strip())
        on = [one.rank for one in ranks if fits(one)]
        if not on and kind is _on_nodes:
            raise ValueError(f"no rank is on {value.strip()}")
        return on
    known = {one.rank for one in ranks}
    try:
        found = expand_ranks(part)
    except ValueError as error:
        raise ValueError(f"{error}; {HINT}") from error
    for rank in found:
        if rank not in known:
            raise ValueError(f"there is no rank {rank}: there are {len(known)}")
    return list(found)


def _on_nodes(text: str) -> Callable[[RankState], bool]:
    names = frozenset(expand(text))
    return lambda one: one.node in names


def _in_state(text: str) -> Callable[[RankState], bool]:
    states = [state for state in State if text and state.value.startswith(text)]
    if len(states) != 1:
        raise ValueError(f"no state `{text}`; there are {', '.join(State)}")
    return lambda one: one.state is states[0]


_KINDS: dict[str, Callable[[str], Callable[[RankState], bool]]] = {
    "node": _on_nodes,
    "nodes": _on_nodes,
    "state": _in_state,
}


def rank_statuses(job: Job) -> Mapping[int, RankStatus]:
    """Rank -> status, for ranks that have one."""
    found = {one.rank: RankStatus.FAILED for one in job.ranks if one.state is State.FAILED}
    for stall in job.stalled:
        if stall.kind == "slow":
            continue  # it does not stand still
        stuck = (stall.odd or stall.first) if stall.kind == "all" else stall.ranks
        found |= dict.fromkeys(stuck, RankStatus.STALLED)
    if failure := job.first_failure:
        first = () if failure.rank is None else (failure.rank,)
        found |= dict.fromkeys(failure.victims, RankStatus.VICTIM)
        found |= dict.fromkeys((*first, *failure.tied), RankStatus.FIRST)
    return found


ORDERS = ("unusual", "rank", "node", "slowest")
QUIET = 30.0
"""Seconds behind the newest word of all ranks after which a running rank is unusual."""
_STEP = re.compile(r"\b(?:step|iter(?:ation)?|batch)\b\D{0,3}(\d+)", re.IGNORECASE)
NO_STATUS: Mapping[int, RankStatus] = {}
_USUAL = len(WORST) + 2
_LOST, _ODD = _USUAL - 2, _USUAL - 1


def ordered(
    ranks: Sequence[RankState],
    order: str,
    lines: Callable[[int], int],
    known: Mapping[int, RankStatus] = NO_STATUS,
) -> tuple[RankState, ...]:
    """The ranks in this order; `lines` gives how many lines a rank has written."""
    if order == "node":
        return tuple(sorted(ranks, key=lambda one: (one.node, one.rank)))
    if order == "unusual":
        latest = max((one.heard or 0.0 for one in ranks), default=0.0)
        return tuple(
            sorted(ranks, key=lambda o: (attention_order(o, latest, known.get(o.rank)), o.rank))
        )
    if order == "slowest":
        return tuple(sorted(ranks, key=lambda o: (_step(o), lines(o.rank), o.rank)))
    return tuple(sorted(ranks, key=lambda one: one.rank))


def attention_order(one: RankState, latest: float, status: RankStatus | None = None) -> int:
    """The smaller, the more a rank wants to be looked at; all that are well are alike."""
    if status is RankStatus.VICTIM:
        return _USUAL
    if status is not None:
        return WORST.index(status)
    if one.state is State.LOST:
        return _LOST
    running = one.state is State.RUNNING
    odd = running and (silence(one, latest) > QUIET or TROUBLE.search(one.last_line) is not None)
    return _ODD if odd else _USUAL


def silence(one: RankState, latest: float) -> float:
    """Seconds that this rank has been quiet while another was not."""
    begun = one.heard if one.heard is not None else one.started
    return 0.0 if begun is None else max(latest - begun, 0.0)


def _step(one: RankState) -> int:
    found = _STEP.search(one.last_line)
    return int(found[1][:15]) if found else 1 << 60
