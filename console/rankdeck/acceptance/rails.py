"""Rails: the ports of equal index, each with a switch of its own; which rail is slow on many nodes. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rankdeck.acceptance.leaves import Leaves
from rankdeck.acceptance.measurement import Path

_SHARE = 0.6
_FEWEST = 3
"""Slow nodes that make it a rail: one is its HCA, two may be chance."""


@dataclass(frozen=True, slots=True)
class RailFault:
    """One rail of a leaf, or of all nodes where leaves are not known."""

    leaf: str
    rail: int
    nodes: tuple[str, ...]
    paths: frozenset[Path]
    """The slow paths that it explains."""


def rail_faults(
    speeds: Mapping[Path, float], slow: Iterable[Path], leaves: Leaves
) -> tuple[RailFault, ...]:
    """Rails that are slow on most paths of a leaf, worst first; none where only one rail was measured.

    A slow rail makes that of other leaves slow across; it is taken away with its paths, then the rest is judged.
    """
    parts = _parts(speeds, leaves)
    if len({rail for _, rail in parts}) < 2:
        return ()
    left, bad = {key: set(paths) for key, paths in parts.items()}, set(slow)
    found: list[RailFault] = []
    while left:
        shares = {key: len(paths & bad) / len(paths) for key, paths in left.items() if paths}
        worst = max(shares, key=lambda key: shares[key], default=None)
        if worst is None or shares[worst] < _SHARE:
            break
        paths = left.pop(worst) & bad
        nodes = _nodes(paths, worst[0], leaves)
        if len(nodes) >= _FEWEST:
            found.append(RailFault(*worst, nodes, frozenset(paths)))
            left = {key: rest - paths for key, rest in left.items()}
    # All rails alike are no fault of a rail.
    return (
        ()
        if len({fault.rail for fault in found}) == len({rail for _, rail in parts})
        else tuple(found)
    )


def _parts(paths: Iterable[Path], leaves: Leaves) -> Mapping[tuple[str, int], set[Path]]:
    found: defaultdict[tuple[str, int], set[Path]] = defaultdict(set)
    for path in paths:
        for end in path:
            found[leaves.get(end.node, ""), end.rail].add(path)
    return found


def _nodes(paths: Iterable[Path], leaf: str, leaves: Leaves) -> tuple[str, ...]:
    return tuple(
        sorted({end.node for path in paths for end in path if leaves.get(end.node, "") == leaf})
    )
