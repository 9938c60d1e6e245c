"""Verdicts about what many nodes share: a leaf, its uplink, a rail, or what nobody told us of. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from statistics import median

from rankdeck.acceptance.leaves import (
    LeafFault,
    RailFault,
    find_leaves,
    leaf_faults,
    rail_faults,
    together,
)
from rankdeck.acceptance.measurement import Answer, Kind, Path, Verdict
from rankdeck.acceptance.suspects import Side, SortedPairs, again, nodes_of, sides_of, some

_TWICE = 2


def leaf_verdicts(facts: SortedPairs) -> tuple[tuple[Verdict, ...], frozenset[Path]]:
    """Verdicts about leaves, and the paths that they explain, whatever is wrong with them."""
    leaves, speeds = facts.context.leaves, facts.speeds
    if not leaves:
        leaves = find_leaves(facts.slow, facts.full)
        # Who is of no leaf is slow itself: no leaf explains that.
        speeds = {path: speeds[path] for path in speeds if all(end.node in leaves for end in path)}
    # All uplinks alike: the crossing pairs are slow against those inside, not against each other.
    slow, judged = facts.slow | facts.held, tuple(speeds)
    found = leaf_faults(speeds, slow, leaves, facts.done) if leaves else ()
    if not found and leaves:
        # Pair by pair, or with few at once, a narrow uplink is full.
        speeds, slow = together(speeds, slow, leaves, facts.done, 1 - facts.context.tolerance)
        found = leaf_faults(speeds, slow, leaves, facts.done)
    faults = tuple(found)
    # Where others cross, what fails is no uplink.
    explained = frozenset(
        path
        for fault in faults
        for path in fault.explains(judged, leaves)
        if facts.speeds.get(path) != 0.0 or not fault.crossing
    )
    members: defaultdict[str, list[str]] = defaultdict(list)
    for node, name in leaves.items():
        members[name].append(node)
    return tuple(_leaf_verdict(facts, fault, members) for fault in faults), explained


def _leaf_verdict(
    facts: SortedPairs, fault: LeafFault, members: Mapping[str, Sequence[str]]
) -> Verdict:
    names = ", ".join(fault.leaves)
    subject = f"leaf {names}" if len(fault.leaves) == 1 else f"leaves {names}"
    who = "; ".join(f"{name} = {some(members[name])}" for name in fault.leaves)
    way = {"sends": " from it", "receives": " to it"}.get(fault.way, "")
    seen = f"{subject}: pairs across{way} reach {facts.shown(fault.crossing)}, inside {facts.shown(fault.inside) if fault.inside else 'nothing'} ({who})"
    if fault.carried and fault.wanted:
        seen += (
            f", {facts.shown(fault.carried)} of {facts.shown(fault.wanted)} wanted when all cross"
        )
    means, kind, answer = _uplink_means(facts, fault)
    odd = "".join(
        f"; {node}{facts.note(node)}"
        for name in fault.leaves
        for node in members[name]
        if facts.note(node)
    )
    return Verdict(
        kind=kind,
        subject=subject,
        answer=answer,
        sentence=f"{seen}: {means}{odd}",
        leaves=fault.leaves,
    )


def _uplink_means(facts: SortedPairs, fault: LeafFault) -> tuple[str, Kind, Answer]:
    if fault.inside_too:
        return "inside too: the leaf switch or its configuration", Kind.LEAF, Answer.SLOW
    if not fault.crossing:
        return (
            "nothing crosses: uplink, routing, or a firewall between them",
            Kind.UPLINK,
            Answer.FAILED,
        )
    if fault.way:
        text = "the other direction is full: one direction of its uplink; look at its cable, optic and errors"
        return text, Kind.UPLINK, Answer.SLOW
    if fault.alone is not None and fault.alone < fault.inside * (1 - facts.context.tolerance):
        text = f"one pair alone reaches {facts.shown(fault.alone)}, too: a fault of the uplink; look at its cable, optic and errors"
        return text, Kind.UPLINK, Answer.SLOW
    ratio = fault.inside / fault.crossing
    if fault.everywhere and len(fault.leaves) > 2:
        return f"the same on all leaves: built so ({ratio:.1f} : 1)", Kind.UPLINK, Answer.FAIR
    alone = (
        f"one pair alone is full ({facts.shown(fault.alone)}): " if fault.alone is not None else ""
    )
    built = ", or built so" if fault.everywhere else "; other leaves are faster"
    return (
        f"{alone}the uplink is too narrow ({ratio:.1f} : 1): a lost uplink{built}",
        Kind.UPLINK,
        Answer.SLOW,
    )


_MANY, _PART = 8, 4
"""Pairs, and the nodes for each, above which their slowness is of one cause."""
_FAR, _OFTEN = 0.8, 0.05
"""Share of the others' speed, and share of the paths that are slower, at which no disturbance explains them."""


def shared(facts: SortedPairs, paths: Sequence[Path], proven: Set[Side]) -> tuple[Verdict, ...]:
    """Many slow paths whose ends are full with others: one thing that they share, which nobody told us of."""
    known = [path for path in paths if facts.speeds[path] and proven >= {*sides_of(path)}]
    far = [path for path in known if _is_far(facts, path)]
    # Of many paths a few are disturbed twice: these are measured again first.
    sure = {path for path in known if again(facts.runs[path])}
    sure |= {*far} if len(far) > _OFTEN * len(facts.speeds) else set()
    pairs = sorted({(min(ends), max(ends)) for ends in map(nodes_of, sure)})
    nodes = Counter(node for pair in pairs for node in pair)
    if len(pairs) <= max(_MANY, len({end.node for path in facts.speeds for end in path}) // _PART):
        return ()
    names = some([f"{first}–{last}" for first, last in pairs])
    most = max(nodes.values())
    often = some([node for node, count in nodes.most_common() if 2 * count >= most])
    to_do = "compare their uplinks" if facts.context.leaves else "write `leaf:` into the cluster file and measure again"  # fmt: skip
    return (
        Verdict(
            kind=Kind.UPLINK, subject=f"{len(pairs)} pairs", answer=Answer.SLOW,
            sentence=f"{len(pairs)} pairs ({names}) reach {facts.shown(median(facts.speeds[path] for path in sure))} (others "
            f"{facts.shown(facts.population_of(min(sure)).median)}), and their ends are full with others: something that many share, "
            f"an uplink or a switch, most often of {often}; {to_do}",
        ),
    )  # fmt: skip


def _is_far(facts: SortedPairs, path: Path) -> bool:
    far = facts.speeds[path] < _FAR * facts.population_of(path).median
    return far and len(facts.runs[path]) >= _TWICE


def slower(facts: SortedPairs, paths: Iterable[Path]) -> set[str]:
    """Nodes that are slower than most of these paths: what these share does not explain them."""
    usual = median(speed for path in paths if (speed := facts.speeds[path]))
    best: defaultdict[str, float] = defaultdict(float)
    for path, speed in facts.speeds.items():
        for node in nodes_of(path):
            best[node] = max(best[node], speed)
    return {node for node, speed in best.items() if speed < usual * (1 - facts.context.tolerance)}


def rail_verdicts(
    facts: SortedPairs, left: frozenset[Path]
) -> tuple[tuple[Verdict, ...], frozenset[Path]]:
    """Verdicts about rails, and the slow paths that they do not explain."""
    faults = rail_faults(facts.speeds, left, facts.context.leaves)
    explained = frozenset(path for fault in faults for path in fault.paths)
    return tuple(_rail_verdict(facts, one) for one in faults), left - explained


def _rail_verdict(facts: SortedPairs, fault: RailFault) -> Verdict:
    of = f" of leaf {fault.leaf}" if fault.leaf else ""
    slow = max(facts.speeds[path] for path in fault.paths)
    normal = facts.population_of(next(iter(fault.paths))).median
    seen = f"rail {facts.rail(fault.rail)} reaches {facts.shown(slow)} (others {facts.shown(normal)}) on {len(fault.nodes)} nodes{of} ({some(fault.nodes)}), their other rails are full"
    return Verdict(
        kind=Kind.RAIL, subject=f"rail {fault.rail}{of}", answer=Answer.SLOW,
        sentence=f"{seen}: the switch of this rail, or its configuration",
    )  # fmt: skip
