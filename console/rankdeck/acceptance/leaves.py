"""Leaves and rails: which nodes share a leaf switch, and whether an
uplink, a leaf or a rail is slow. Pure.

A slow uplink does not show pair by pair: its pairs reach full speed alone and are slow together.
Rounds in which all pairs cross leaves, none does, and one crosses alone tell a lack of capacity
from a fault.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from math import inf
from statistics import median

from rankdeck.acceptance.population import FEWEST, by_gap
from rankdeck.acceptance.values import Measurement, Path, PathEnd, Stage
from rankdeck.values import Value

Leaves = Mapping[str, str]
"""Node -> name of its leaf."""
_SHARE = 0.6
_MOST = 256
"""Leaves are searched only among at most this many nodes."""
_MEASURED = 0.8
"""Share of the pairs that must have been measured to find leaves."""
_NEARLY_ALL = 0.9
"""If a leaf switch is slow, at least this share of the leaf's paths is
slow: each full path speaks against that.
"""
_COMMON = 0.4
"""Two nodes are in one leaf if they share more than this part of their good partners."""
_CLOSED = 0.75
"""Share of the paths inside a group that must be fast: one of four nodes may have a bad cable."""
_ALIKE = 0.7
"""A leaf that reaches less than this share of the median leaf across its
uplink is not built like the others.
"""
_FEWEST = 2
"""A leaf is judged only with at least this many nodes, and slow pairs inside or across."""


def find_leaves(slow: Iterable[Path], full: Iterable[Path]) -> Leaves:
    """Find leaves from the slow pairs: nodes of one leaf have full speed with the same others.

    A node without any full speed is slow itself, and in no leaf. Empty if the pairs show no leaves:
    too few pairs measured, none slow, or a group of a single node.
    """
    fine = {(sender.node, receiver.node) for sender, receiver in full}
    bad = {(sender.node, receiver.node) for sender, receiver in slow}
    names = sorted({name for pair in fine | bad for name in pair})
    if not bad or len(names) > _MOST or len(fine | bad) < _MEASURED * len(names) * (len(names) - 1):
        return {}
    near = {name: {name} for name in names}
    for sender, receiver in fine - bad:
        if (receiver, sender) not in bad:
            near[sender].add(receiver)
            near[receiver].add(sender)
    groups: list[list[str]] = []
    for name in (name for name in names if len(near[name]) > 1):
        home = next((group for group in groups if _alike(near[group[0]], near[name])), None)
        if home is None:
            groups.append([name])
        else:
            home.append(name)
    if len(groups) < 2 or min(map(len, groups)) < _FEWEST:
        return {}
    return {node: _letter(place) for place, group in enumerate(groups) for node in group}


def _alike(first: set[str], second: set[str]) -> bool:
    """Whether two nodes share many good partners, so that a few
    lucky pairs do not join two leaves.
    """
    return len(first & second) > _COMMON * len(first | second)


def fastest_group(speeds: Mapping[Path, float], tolerance: float) -> frozenset[Path]:
    """The paths inside a minority of nodes that is fast with each other while
    all others are slower; empty if none.

    If half of the nodes are slow, only a quarter of the pairs is fast. The minority needs three
    nodes, because two that share a machine are faster too, or must show as leaves. A gap that is
    hardly larger than the tolerance counts only if the paths above it are exactly those between
    four nodes or more: a path is as fast as its slower end, and chance does not sort paths by
    nodes.
    """
    for fast in by_gap(speeds):
        nodes = {end.node for path in fast for end in path}
        within = [path for path in speeds if all(end.node in nodes for end in path)]
        closed = len(nodes) > _FEWEST and len(fast) >= _CLOSED * len(within)
        if closed or find_leaves(set(speeds) - fast, fast):
            return fast
    gaps = by_gap(speeds, 1 / (1 - tolerance))
    return next((fast for fast in gaps if _sorts_nodes(speeds, fast)), frozenset[Path]())


def _sorts_nodes(speeds: Mapping[Path, float], fast: frozenset[Path]) -> bool:
    nodes = {end.node for path in fast for end in path}
    within = frozenset(path for path in speeds if all(end.node in nodes for end in path))
    return len(nodes) >= FEWEST and within == fast


def _letter(place: int) -> str:
    """The name of leaf `place`: A, B, … Z, then 27, 28, …"""
    return chr(ord("A") + place) if place < 26 else str(place + 1)


def crosses_leaves(path: Path, leaves: Leaves) -> bool:
    """Whether the path connects two leaves; a node whose leaf is not
    known counts as a leaf of its own.
    """
    first, last = path[0].node, path[1].node
    return leaves.get(first, first) != leaves.get(last, last)


class LeafFault(Value, kw_only=True):
    """A leaf, or all leaves, whose pairs are slow together."""

    leaves: tuple[str, ...]
    inside_too: bool
    """Pairs inside the leaf are slow too: its switch is to blame, not its uplink."""
    crossing: float
    """Median of the crossing pairs."""
    inside: float
    carried: float
    """The most that all crossing pairs of the leaf carried at once
    in one direction; 0: not measured.
    """
    wanted: float
    alone: float | None
    """Speed of one pair that crossed alone; None: not measured."""
    share: float
    """Share of its crossing pairs that are slow."""
    everywhere: bool
    """Whether all leaves are alike."""
    paths: frozenset[Path]
    """The slow paths that it explains."""
    way: str = ""
    """`sends` or `receives` if only that direction is slow; else ""."""

    def explains(self, paths: Iterable[Path], leaves: Leaves) -> Iterator[Path]:
        """The paths among `paths` that this fault may slow down."""
        for path in paths:
            ends = [leaves.get(end.node, "") for end in path]
            mine = [name in self.leaves for name in ends]
            way = {"sends": mine[0], "receives": mine[1]}.get(self.way, any(mine))
            if (ends[0] != ends[1] and way) or (self.inside_too and all(mine)):
                yield path


def leaf_faults(
    speeds: Mapping[Path, float], slow: Iterable[Path], leaves: Leaves, done: Sequence[Measurement]
) -> tuple[LeafFault, ...]:
    """Leaves that explain slow paths, worst first; one fault if all leaves are alike.

    A slow leaf also slows pairs of other leaves: it is removed together
    with its pairs, then the rest is judged.
    """
    bad, left = set(slow), set(speeds)
    proven = {side for path in left - bad for side in enumerate(path)}
    judged = _Judged(speeds, leaves, done, proven)
    first = judged.faults(left, bad)
    if len(first) == len({*leaves.values()}) > 1 and not any(
        fault.inside_too or fault.way for fault in first
    ):
        least = _ALIKE * median(fault.crossing for fault in first)
        return (
            _joined([fault for fault in first if fault.crossing >= least]),
            *(fault for fault in first if fault.crossing < least),
        )
    found: list[LeafFault] = []
    while faults := judged.faults(left, bad):
        worst = max(faults, key=lambda fault: (fault.inside_too, not fault.way, fault.share))
        found.append(worst)
        bad -= worst.paths
        left -= worst.paths
    return tuple(found)


def speeds_together(
    speeds: Mapping[Path, float],
    slow: Iterable[Path],
    leaves: Leaves,
    done: Sequence[Measurement],
    share: float,
) -> tuple[dict[Path, float], set[Path]]:
    """Speeds and slow paths, with crossing paths taken only from
    the round in which all pairs cross.

    Such a path is slow below `share` of its own speed in the pairs stage and of the best speed of
    both ends, so that a slow node or path does not count as a slow uplink. Before those rounds, the
    arguments are returned unchanged.
    """
    crossing = _best_of_stage(done, Stage.CROSSING)
    inside = _best_of_stage(done, Stage.INSIDE)
    if not crossing or not inside:
        return dict(speeds), set(slow)
    best: defaultdict[tuple[int, PathEnd], float] = defaultdict(float)
    for path, speed in (*speeds.items(), *inside.items()):
        for side in enumerate(path):
            best[side] = max(best[side], speed)
    found = {path: speed for path, speed in speeds.items() if not crosses_leaves(path, leaves)}
    across = {path: speed for path, speed in crossing.items() if crosses_leaves(path, leaves)}
    return found | across, {
        *(path for path in slow if path in found),
        *(
            path
            for path, speed in across.items()
            if speed < share * min(speeds.get(path, inf), *(best[side] for side in enumerate(path)))
        ),
    }


def _best_of_stage(done: Iterable[Measurement], stage: Stage) -> dict[Path, float]:
    found: dict[Path, float] = {}
    for one in done:
        if one.stage is stage and one.speed is not None:
            found[one.path] = max(found.get(one.path, 0.0), one.speed)
    return found


class _Part(Value):
    """The paths of one leaf."""

    name: str
    inside: list[Path]
    sends: list[Path]
    """Paths out of the leaf; `receives`: into it."""
    receives: list[Path]


class _Judged(Value):
    """The data with which each leaf is judged."""

    speeds: Mapping[Path, float]
    leaves: Leaves
    done: Sequence[Measurement]
    proven: Set[tuple[int, PathEnd]]
    """Ends with full speed to or from some partner: (0, end) as sender, (1, end) as receiver."""

    def faults(self, left: Iterable[Path], bad: set[Path]) -> list[LeafFault]:
        """The faults of leaves that explain slow paths among `left`."""
        found = (_fault(part, self, bad) for part in _parts(left, self.leaves))
        return [fault for fault in found if fault]


def _parts(paths: Iterable[Path], leaves: Leaves) -> list[_Part]:
    parts = {name: _Part(name, [], [], []) for name in sorted({*leaves.values()})}
    for path in paths:
        first, last = (leaves.get(end.node, "") for end in path)
        if first == last:
            if first in parts:
                parts[first].inside.append(path)
            continue
        if first in parts:
            parts[first].sends.append(path)
        if last in parts:
            parts[last].receives.append(path)
    return list(parts.values())


def _fault(part: _Part, judged: _Judged, bad: set[Path]) -> LeafFault | None:
    across, speeds = [*part.sends, *part.receives], judged.speeds
    inside_too = _most(across, bad, _NEARLY_ALL) and _most(part.inside, bad, _NEARLY_ALL)
    way, judging = ("", across) if inside_too else _slow_way(part, judged, bad)
    mine = {
        end.node for path in judging for end in path if judged.leaves.get(end.node) == part.name
    }
    if len(mine) < _FEWEST:
        return None
    alone = [
        one.value
        for one in judged.done
        if one.stage is Stage.ALONE
        and one.value is not None
        and part.name in _ends(one, way, judged.leaves)
    ]
    carried, wanted = _carried(part.name, way, judged)
    within = [speeds[path] for path in part.inside if path not in bad or inside_too]
    within = within or [speed for path, speed in speeds.items() if path not in bad]
    return LeafFault(
        leaves=(part.name,),
        inside_too=inside_too,
        crossing=median(speeds[path] for path in judging),
        inside=median(within) if within else 0.0,
        carried=carried,
        wanted=wanted,
        alone=max(alone) if alone else None,
        everywhere=False,
        share=len(bad.intersection(judging)) / len(judging),
        paths=frozenset(
            bad.intersection((*across, *part.inside) if inside_too else _of_way(part, way))
        ),
        way=way,
    )


def _slow_way(part: _Part, judged: _Judged, bad: set[Path]) -> tuple[str, list[Path]]:
    """(direction, crossing paths of the leaf that are slow in it): "" for both
    directions; no paths if neither is slow.

    Only paths whose both ends have full speed with others count: otherwise a node is to blame.
    """
    fair = {
        way: [path for path in _of_way(part, way) if judged.proven >= {*enumerate(path)}]
        for way in ("", "sends", "receives")
    }
    slow = [way for way, paths in fair.items() if _most(paths, bad, _SHARE)]
    if not slow or slow == ["sends", "receives"]:
        return "", []
    return slow[0], fair[slow[0]]


def _of_way(part: _Part, way: str) -> list[Path]:
    """The leaf's crossing paths in one direction; "": in both."""
    return {"sends": part.sends, "receives": part.receives}.get(way, [*part.sends, *part.receives])


def _most(paths: Sequence[Path], bad: set[Path], share: float) -> bool:
    count = sum(1 for path in paths if path in bad)
    return count >= _FEWEST and count >= share * len(paths)


def _ends(one: Measurement, way: str, leaves: Leaves) -> tuple[str | None, ...]:
    """The leaves of a measurement that crosses, only of its end in that
    direction; () if it does not cross.
    """
    first, last = leaves.get(one.sender), leaves.get(one.receiver)
    if first == last:
        return ()
    return {"sends": (first,), "receives": (last,)}.get(way, (first, last))


def _carried(name: str, way: str, judged: _Judged) -> tuple[float, float]:
    """(the most that the leaf carried in one round, outwards unless `way` is
    `receives`; what as many inside pairs carried).
    """
    rounds: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for one in judged.done:
        crossed = _ends(one, way or "sends", judged.leaves) if one.stage is Stage.CROSSING else ()
        if one.value is not None and name in crossed:
            rounds[one.round, one.repeat].append(one.value)
    if not rounds:
        return 0.0, 0.0
    busiest = max(rounds.values(), key=sum)
    within = [
        one.value for one in judged.done if one.stage is Stage.INSIDE and one.value is not None
    ]
    return sum(busiest), len(busiest) * median(within) if within else 0.0


def _joined(faults: Sequence[LeafFault]) -> LeafFault:
    """One fault for all leaves, because their uplinks cannot be told apart."""
    alone = [fault.alone for fault in faults if fault.alone is not None]
    most = max(faults, key=lambda fault: fault.wanted)
    return LeafFault(
        leaves=tuple(name for fault in faults for name in fault.leaves),
        inside_too=False,
        crossing=median(fault.crossing for fault in faults),
        inside=median(fault.inside for fault in faults),
        carried=most.carried,
        wanted=most.wanted,
        alone=max(alone) if alone else None,
        everywhere=True,
        share=1.0,
        paths=frozenset(path for fault in faults for path in fault.paths),
    )


# ---- rails: ports with equal index, each rail with its own switch

_FEWEST_OF_RAIL = 3
"""A rail is to blame if at least this many nodes are slow on it:
one is an HCA, two may be chance.
"""


class RailFault(Value):
    """A slow rail of a leaf, or of all nodes if leaves are not known."""

    leaf: str
    rail: int
    nodes: tuple[str, ...]
    paths: frozenset[Path]
    """The slow paths that it explains."""


def rail_faults(
    speeds: Mapping[Path, float], slow: Iterable[Path], leaves: Leaves
) -> tuple[RailFault, ...]:
    """Rails that are slow on most paths of a leaf, worst first; none if only one rail was measured.

    A slow rail also slows the same rail of other leaves: it is removed together
    with its paths, then the rest is judged.
    """
    bad = set(slow)
    fine = {(a.node, b.node) for a, b in speeds if (a, b) not in bad}
    # Pairs that are slow on all rails tell nothing about one rail.
    parts = _rail_parts([(a, b) for a, b in speeds if (a.node, b.node) in fine], leaves)
    if len({rail for _, rail in parts}) < 2:
        return ()
    left = {key: set(paths) for key, paths in parts.items()}
    found: list[RailFault] = []
    while left:
        shares = {key: len(paths & bad) / len(paths) for key, paths in left.items() if paths}
        worst = max(shares, key=lambda key: shares[key], default=None)
        if worst is None or shares[worst] < _SHARE:
            break
        paths = left.pop(worst) & bad
        nodes = _rail_nodes(paths, worst[0], leaves)
        if len(nodes) >= _FEWEST_OF_RAIL:
            found.append(RailFault(*worst, nodes, frozenset(paths)))
            left = {key: rest - paths for key, rest in left.items()}
    # If all rails are slow, no rail is to blame.
    return (
        ()
        if len({fault.rail for fault in found}) == len({rail for _, rail in parts})
        else tuple(found)
    )


def _rail_parts(paths: Iterable[Path], leaves: Leaves) -> Mapping[tuple[str, int], set[Path]]:
    found: defaultdict[tuple[str, int], set[Path]] = defaultdict(set)
    for path in paths:
        for end in path:
            found[leaves.get(end.node, ""), end.rail].add(path)
    return found


def _rail_nodes(paths: Iterable[Path], leaf: str, leaves: Leaves) -> tuple[str, ...]:
    return tuple(
        sorted({end.node for path in paths for end in path if leaves.get(end.node, "") == leaf})
    )
