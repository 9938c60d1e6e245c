"""The ranks that a person names: `0-7,96`, `node=n[01-04]`, `state=failed`."""

import re
from collections.abc import Callable, Iterable, Sequence

from rankdeck.model.job import RankState
from rankdeck.model.nodeset import expand_nodes, expand_ranks, fold_ranks
from rankdeck.model.rank import State

_COMMA = re.compile(r",(?![^\[]*\])")
"""Commas, except within the brackets of a node set."""
HINT = "write 0-7,96 or node=NODES or state=failed; ! leaves out"


def choose_ranks(text: str, ranks: Sequence[RankState]) -> tuple[int, ...]:
    """The ranks that any part of `text` names (`!` excludes), in the
    order of `ranks`; all if `text` is empty.

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
            raise ValueError(f"there is no rank {rank}; there are {fold_ranks(sorted(known))}")
    return list(found)


def _on_nodes(text: str) -> Callable[[RankState], bool]:
    names = frozenset(expand_nodes(text))
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
