"""How sure it is who is to blame for a stall, by all stalls of a job together. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rankdeck.model.stall import Stall
from rankdeck.rules.certainty import (
    BAR,
    Candidate,
    Part,
    Sign,
    Weights,
    rivals_of,
    share_blame,
    tell_share,
)
from rankdeck.rules.deadlock import OF_A_GUESS, OF_DEADLOCK
from rankdeck.values import replace

Group = frozenset[Part]
"""Ranks, or a node; empty: nobody is to blame."""
_BY_KIND: Mapping[str, Sign] = {
    "stopped": Sign.STOPPED, "device": Sign.DEVICE, "raised": Sign.RAISED,
    "absent": Sign.NEVER_ENTERED, "rank": Sign.SILENT, "slow": Sign.SLOW, "agent": Sign.AGENT,
    "start": Sign.NOT_BEGUN,
}  # fmt: skip
_SEVERAL = {"slow": Sign.SEVERAL_SLOW, "raised": Sign.SEVERAL_RAISED}
NOBODY = (Sign.NOBODY_STALLED,)


@dataclass(slots=True)
class _Suspects:
    """Those that one or more stalls accuse; stalls that share a rank accuse the same."""

    who: Group
    signs: set[Sign]
    stalls: list[int] = field(default_factory=list[int])


def gather_suspects(stalls: Sequence[Stall]) -> list[tuple[Candidate, tuple[int, ...]]]:
    """Each group of ranks, or node, that is accused, and the places of the stalls that do."""
    found: list[_Suspects] = []
    for place, stall in enumerate(stalls):
        for who, signs in _accusations(stall):
            same = next((one for one in found if one.who & who or one.who == who), None)
            if same is None:
                found.append(_Suspects(who, signs, [place]))
            else:
                same.who, same.signs = same.who & who, same.signs | signs
                same.stalls.append(place)
    disputed = {Sign.DISPUTED} if len(found) > 1 else set[Sign]()
    return [
        (Candidate(one.who, frozenset(one.signs | disputed)), tuple(one.stalls)) for one in found
    ]


def _accusations(stall: Stall) -> list[tuple[Group, set[Sign]]]:
    """Whom a stall accuses and why; two if what they do and who fell silent first disagree."""
    if stall.node:
        return [(Group({("node", stall.node)}), {Sign.AGENT})]
    if stall.kind != "all":
        ranks = _group(stall.odd or stall.first or stall.ranks)
        several = _SEVERAL.get(stall.kind, Sign.SEVERAL_ALIKE)
        more = ([several] if len(stall.ranks) > 1 else []) + (
            [Sign.LEFT_BEHIND] if OF_A_GUESS in stall.explained else []
        )
        return [(ranks, {_BY_KIND[stall.kind], *more})]
    odd, first = _group(stall.odd), _group(stall.first)
    if not odd and not first:
        return [(Group(), {Sign.DEADLOCK})] if OF_DEADLOCK in stall.explained else []
    if odd and not odd & _group(stall.ranks):
        return [(odd, {Sign.GONE_BEFORE, *_several(odd)})]
    if odd & first:
        return [(odd & first, {Sign.ODD, Sign.BOTH, *_several(odd & first)})]
    both = ((odd, Sign.ODD), (first, Sign.EARLY))
    return [(who, {sign, *_several(who)}) for who, sign in both if who]


def _group(ranks: Iterable[int]) -> Group:
    return frozenset(("rank", rank) for rank in ranks)


def _several(ranks: Group) -> set[Sign]:
    return {Sign.SEVERAL} if len(ranks) > 1 else set()


def weigh_stalls(stalls: tuple[Stall, ...], weights: Weights) -> tuple[Stall, ...]:
    """The stalls with how sure each is; below the bar nobody is accused."""
    suspects = gather_suspects(stalls)
    if not suspects:
        return stalls
    shares = share_blame([*(one.signs for one, _ in suspects), NOBODY], weights)[:-1]
    found = list(stalls)
    for place, stall in enumerate(stalls):
        mine = [at for at, (_, places) in enumerate(suspects) if place in places]
        if not mine:
            continue
        best = max(shares[at] for at in mine)
        if best >= BAR:
            found[place] = _accusing(stall, suspects[_best(mine, shares)][0].who, best)
        else:
            found[place] = _undecided(stall, [suspects[at][0] for at in rivals_of(shares, mine)])
    return tuple(found)


def _best(places: Sequence[int], shares: Sequence[float]) -> int:
    return max(places, key=lambda at: shares[at])


def _accusing(stall: Stall, who: Group, share: float) -> Stall:
    """The stall with the likelier of its two accusations, and how sure that is."""
    sure = tell_share(share)
    if stall.kind != "all" or {*stall.odd} & {*stall.first}:
        return replace(stall, sure=sure)
    odd = stall.odd if _group(stall.odd) & who else ()
    return replace(stall, sure=sure, odd=odd, first=stall.first if not odd else ())


def _undecided(stall: Stall, rivals: Sequence[Candidate]) -> Stall:
    ranks = {who for one in rivals for what, who in one.who if what == "rank"}
    between = sorted(rank for rank in ranks if isinstance(rank, int))
    return replace(stall, odd=(), first=(), between=tuple(between) or stall.ranks)
