"""Slow pairs, the ends that explain them, and verdicts about what many
nodes share: leaf, uplink, rail. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from enum import StrEnum
from statistics import median

from msgspec import field

from rankdeck.acceptance.leaves import (
    LeafFault,
    Leaves,
    RailFault,
    crosses_leaves,
    fastest_group,
    find_leaves,
    leaf_faults,
    rail_faults,
    speeds_together,
)
from rankdeck.acceptance.population import (
    FEWEST,
    Population,
    best_of,
    by_path,
    count_drops,
    measure_population,
)
from rankdeck.acceptance.recipe import ExpectedResult
from rankdeck.acceptance.values import (
    Answer,
    Kind,
    Measurement,
    Outcome,
    Path,
    PathEnd,
    Stage,
    Verdict,
    failure_answer,
)
from rankdeck.model.text import list_names, significant_figures
from rankdeck.values import Value, replace


class Context(Value, kw_only=True):
    """What the judge knows besides the measurements."""

    unit: str = ""
    tolerance: float = 0.10
    leaves: Leaves = field(default_factory=dict[str, str])
    """From the cluster file or the fabric; if empty, leaves are
    looked for in the speeds of the pairs.
    """
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> what else is odd about it: low clocks in the same
    seconds, another MTU than the others.
    """
    rails: tuple[str, ...] = ()
    """The device of each rail, "" if the nodes have different names
    for it; empty if there is one rail.
    """
    expected: ExpectedResult | None = None
    """What the medians should reach."""
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> why it took no part."""
    hardware: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> its hardware, if there are several kinds with enough nodes each:
    only pairs of the same kinds are compared.
    """
    virtual: Set[str] = frozenset()
    """Nodes that share one machine: there is no network between them."""


def path_kind(path: Path, leaves: Leaves, hardware: Mapping[str, str]) -> str:
    """The kind of a path, which is compared only with its like: `inside`, `crossing`
    or `all`, and the hardware of its ends.
    """
    kind = ("crossing" if crosses_leaves(path, leaves) else "inside") if leaves else "all"
    ends = sorted({hardware.get(end.node, "") for end in path} - {""})
    return f"{kind}, {' and '.join(ends)}" if ends else kind


def _within(kind: str) -> str:
    """The kind that a crossing path would have inside a leaf."""
    return kind.replace("crossing", "inside", 1)


class EndRole(StrEnum):
    """What an end of a path does."""

    SENDS = "sends"
    RECEIVES = "receives"


Side = tuple[PathEnd, EndRole]


class SortedPairs(Value, kw_only=True):
    """The pairs of a run, sorted."""

    context: Context
    done: tuple[Measurement, ...]
    runs: Mapping[Path, Sequence[Measurement]]
    speeds: Mapping[Path, float]
    """The best repeat of each path."""
    populations: Mapping[str, Population]
    slow: frozenset[Path]
    few: bool
    """Fewer than four nodes."""
    confirmations: Mapping[Side, Sequence[Measurement]]
    """Side -> its measurements of the confirmation stage."""
    held: frozenset[Path] = frozenset()
    """Crossing paths that are as fast as other crossing paths, but slower than paths inside leaves.

    They prove nothing about their ends.
    """

    @property
    def full(self) -> frozenset[Path]:
        """Paths at full speed: they prove that both of their ends are good."""
        return frozenset(self.speeds) - self.slow - self.held

    def population_of(self, path: Path) -> Population:
        """The population that a path is compared with: its kind, or another one
        if no path of its kind has a value.
        """
        kind = path_kind(path, self.context.leaves, self.context.hardware)
        if path in self.held & self.slow:
            kind = _within(kind)
        return self.populations.get(kind) or next(iter(self.populations.values()))

    def shown(self, value: float) -> str:
        return f"{significant_figures(value, 3)} {self.context.unit}".rstrip()

    def rail(self, number: int) -> str:
        """`2 (mlx5_2)`."""
        name = self.context.rails[number] if number < len(self.context.rails) else ""
        return f"{number} ({name})" if name else str(number)

    def named(self, path: Path, sign: str = "→") -> str:
        """`n1→n2`, with the rail if there are several."""
        rail = path[0].rail
        several = any(end.rail != rail for end, _ in self.speeds)
        where = f" on rail {self.rail(rail)}" if several else ""
        return f"{path[0].node}{sign}{path[1].node}{where}"

    def without_direction(self, path: Path) -> bool:
        """Whether the way back has the same measurements: the test has no direction."""
        back = self.runs.get((path[1], path[0]), ())
        values = [(one.round, one.repeat, one.value) for one in self.runs[path]]
        return values == [(one.round, one.repeat, one.value) for one in back]

    def told_once(self, paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
        """Each path with its name; for a test without direction only one of both ways."""
        seen: set[Path] = set()
        for path in paths:
            alone = not self.without_direction(path)
            if alone or (path[1], path[0]) not in seen:
                seen.add(path)
                yield path, self.named(path, "→" if alone else "–")

    def note(self, node: str) -> str:
        text = self.context.notes.get(node, "")
        return f"; {text}" if text else ""

    def notes(self, path: Path) -> str:
        """The notes of both ends, each after `; `; "" if there are none."""
        return "".join(
            f"; {node}: {text}" for node in nodes_of(path) if (text := self.context.notes.get(node))
        )


def facts_of(done: tuple[Measurement, ...], context: Context) -> SortedPairs:
    """Sort the measurements: speeds, populations, slow and held paths."""
    runs = by_path(one for one in done if _counts(one))
    speeds = {path: best for path, some in runs.items() if (best := best_of(some)) is not None}
    kinds: defaultdict[str, dict[Path, float]] = defaultdict(dict)
    for path, speed in speeds.items():
        if speed:
            kinds[path_kind(path, context.leaves, context.hardware)][path] = speed
    populations = {
        kind: found for kind, of in kinds.items() if (found := _population(of, context.tolerance))
    }
    facts = SortedPairs(
        context=context,
        done=done,
        runs=runs,
        speeds=speeds,
        populations=populations,
        slow=frozenset(),
        confirmations=_confirmations(done),
        few=len({end.node for path in speeds for end in path}) < FEWEST,
    )
    slow = frozenset(
        path
        for path, speed in speeds.items()
        if not speed or speed < facts.population_of(path).limit
    )
    return replace(facts, slow=slow, held=frozenset(_held(facts)) - slow)


def _counts(one: Measurement) -> bool:
    """Whether a measurement says something about its path alone;
    wrong values count in every stage.
    """
    alone = one.stage in (Stage.PAIRS, Stage.CONFIRM) and not one.port
    return alone or (one.status is Outcome.FAILED and failure_answer((one,)) is Answer.WRONG_VALUES)


def _held(facts: SortedPairs) -> Iterator[Path]:
    """Crossing paths slower than paths inside leaves, if crossing paths as a whole are slower."""
    leaves, hardware = facts.context.leaves, facts.context.hardware
    for path, speed in facts.speeds.items():
        if not crosses_leaves(path, leaves):
            continue
        kind = path_kind(path, leaves, hardware)
        across = facts.populations.get(kind)
        inside = facts.populations.get(_within(kind))
        if inside and across and speed < inside.limit and across.median < inside.limit:
            yield path


def _population(speeds: Mapping[Path, float], tolerance: float) -> Population | None:
    fast = [speeds[path] for path in fastest_group(speeds, tolerance)]
    return measure_population(tuple(speeds.values()), tolerance, median(fast) if fast else 0.0)


# ---- suspects


_SHARE = 0.6
"""Share of its partners with whom an end must be slow to be named."""
_PARTNERS = 2
_STRIKES = 4
"""With this many slow partners that are proven good, an end needs no confirmation."""


class Evidence(Value):
    """How one end did in one direction."""

    slow: frozenset[PathEnd]
    """Partners with whom it was slow."""
    full: frozenset[PathEnd]

    @property
    def total(self) -> int:
        return len(self.slow) + len(self.full)


def path_of(side: Side, other: PathEnd) -> Path:
    """The path from this end to the other one, or back if the end receives."""
    return (side[0], other) if side[1] is EndRole.SENDS else (other, side[0])


def nodes_of(path: Path) -> tuple[str, str]:
    """Sender and receiver, whatever the rail."""
    return path[0].node, path[1].node


def sides_of(path: Path) -> tuple[Side, Side]:
    """The sending and the receiving side of a path."""
    return (path[0], EndRole.SENDS), (path[1], EndRole.RECEIVES)


class Suspects(Value):
    """What the pairs point to."""

    sides: Mapping[Side, Evidence] = field(default_factory=dict[Side, Evidence])
    """Ends that explain their slow pairs, worst first."""
    paths: tuple[Path, ...] = ()
    """Slow paths that no end explains."""
    proven: frozenset[Side] = frozenset()
    """Sides that reached full speed with at least one partner."""

    def pair_names(self) -> tuple[str, ...]:
        """`n5→n9`; a pair with both ways as `n1–n2`, once."""
        back = {(b, a) for a, b in self.paths}
        names = (
            "–".join(sorted((a.node, b.node))) if (a, b) in back else f"{a.node}→{b.node}"
            for a, b in self.paths
        )
        return tuple(dict.fromkeys(names))

    def names(self, most: int) -> str:
        """`n3 sends, n5→n9 and 4 more`; "" where nothing is suspected."""
        sides = (f"{end.node} {role.value}" for end, role in self.sides)
        return list_names(list(dict.fromkeys((*sides, *self.pair_names()))), most)


def find_suspects(slow: Iterable[Path], full: Iterable[Path]) -> Suspects:
    """Name the worst end, remove its pairs, and repeat until no end is
    bad enough; the rest are single paths.

    A bad end makes each of its partners look bad once; without its pairs they no longer do.
    """
    slow, fine = set(slow), set(full)
    left, partners = set(slow), _partners(fine)
    proven = frozenset(partners)
    # Sorted, so that the same values always give the same answer: of
    # equally bad ends the first by name.
    counts = _partners(sorted(left, key=_order))
    named: dict[Side, Evidence] = {}
    while (worst := _worst(counts, partners)) is not None:
        named[worst] = Evidence(frozenset(counts.pop(worst)), frozenset(partners.get(worst, ())))
        for other in named[worst].slow:
            _forget(counts, worst, other)
            left.discard(path_of(worst, other))
    # A side without any pair at full speed is not cleared because bad partners explain its pairs.
    for side, others in _partners(slow).items():
        if side not in proven and side not in named and len(others) >= _PARTNERS:
            named[side] = Evidence(frozenset(others), frozenset())
            left -= {path_of(side, other) for other in others}
    return Suspects(named, tuple(sorted(left, key=_order)), proven)


def _worst(
    counts: Mapping[Side, Set[PathEnd]], partners: Mapping[Side, Set[PathEnd]]
) -> Side | None:
    """The end with the largest share of slow partners, of equals that with
    the most; None if none is bad enough.
    """
    best: tuple[float, int] = (0.0, 0)
    found: Side | None = None
    for side, slow in counts.items():
        total = len(slow) + len(partners.get(side, ()))
        share = len(slow) / total
        if len(slow) >= _PARTNERS and share >= _SHARE and (share, len(slow)) > best:
            best, found = (share, len(slow)), side
    return found


def _partners(paths: Iterable[Path]) -> dict[Side, set[PathEnd]]:
    found: defaultdict[Side, set[PathEnd]] = defaultdict(set)
    for path in paths:
        sends, receives = sides_of(path)
        found[sends].add(path[1])
        found[receives].add(path[0])
    return dict(found)


def _forget(counts: dict[Side, set[PathEnd]], side: Side, other: PathEnd) -> None:
    """Take one slow pair away from the partner at its other end."""
    back = (other, EndRole.RECEIVES if side[1] is EndRole.SENDS else EndRole.SENDS)
    counts[back].discard(side[0])
    if not counts[back]:
        del counts[back]


def _order(path: Path) -> tuple[str, int, str]:
    return path[0].node, path[0].rail, path[1].node


def is_confirmed(
    side: Side, evidence: Evidence, proven: Set[Side], runs: Iterable[Measurement], limit: float
) -> bool | None:
    """Whether an end is to blame: True, False, or None if it must
    first be measured with proven partners.

    `runs` are its measurements of the confirmation stage; one that reaches `limit` clears it.
    """
    speeds = [speed for one in runs if (speed := one.speed) is not None]
    if speeds:
        return max(speeds) < limit
    back = EndRole.RECEIVES if side[1] is EndRole.SENDS else EndRole.SENDS
    good = sum(1 for partner in evidence.slow if (partner, back) in proven)
    return True if good >= _STRIKES else None


def _confirmations(measurements: Iterable[Measurement]) -> Mapping[Side, Sequence[Measurement]]:
    found: defaultdict[Side, list[Measurement]] = defaultdict(list)
    for one in measurements:
        if one.stage is Stage.CONFIRM:
            for side in sides_of(one.path):
                found[side].append(one)
    return found


# ---- paths that are slow only at times


_TWICE = 2


def confirming_runs(runs: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """The measurements of the confirmation stage."""
    return tuple(one for one in runs if one.stage is Stage.CONFIRM)


def steady_runs(runs: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """The measurements that did not fail: failures get verdicts of their own."""
    return tuple(one for one in runs if one.status is not Outcome.FAILED)


def dropping_paths(
    facts: SortedPairs, nodes: Set[str] = frozenset(), explained: Set[Path] = frozenset()
) -> tuple[Path, ...]:
    """Paths that dropped twice and were not measured again, without
    those of `nodes` and `explained`.

    One drop may come from other traffic.
    """
    return tuple(
        path
        for path, runs in facts.runs.items()
        if path not in facts.slow | explained
        and not confirming_runs(runs)
        and count_drops(steady_runs(runs)) >= _TWICE
        and nodes.isdisjoint(nodes_of(path))
    )


_FLAPS = 0.3
"""Share of a side's paths whose repeats must differ for it to count as slow now and then."""


def scatters_on(facts: SortedPairs, side: Side) -> bool:
    """Whether the repeats on enough paths of a side differ: it is slow now and then, not always."""
    place = list(EndRole).index(side[1])
    mine = [
        first
        for path, runs in facts.runs.items()
        if path[place] == side[0]
        if len(first := [one for one in steady_runs(runs) if one.stage is Stage.PAIRS]) >= _TWICE
    ]
    differ = sum(1 for runs in mine if count_drops(runs))
    return differ >= max(_TWICE, _FLAPS * len(mine))


# ---- two or three nodes

BLATANT = 1.5
"""How many times slower than the fastest a path is, if no disturbance explains
it; for too few nodes to know the scatter.
"""


def doubted_paths(facts: SortedPairs) -> tuple[Path, ...]:
    """With few nodes, the paths to measure again: slower than the way back, their
    other rails or the fastest path, or dropping.
    """
    far, least = far_slower(facts), 1 - facts.context.tolerance
    back = {path: facts.speeds.get((path[1], path[0]), 0.0) for path in facts.speeds}
    slow = [
        path
        for path, speed in facts.speeds.items()
        if path in far or 0 < speed < max(back[path], usual_speed(facts, path)) * least
    ]
    once = (
        path for path in (*slow, *dropping_paths(facts)) if not confirming_runs(facts.runs[path])
    )
    return tuple(dict.fromkeys(once))


def usual_speed(facts: SortedPairs, path: Path) -> float:
    """The median speed of all rails between the nodes of a path."""
    ends = (path[0].node, path[1].node)
    return median(value for (a, b), value in facts.speeds.items() if (a.node, b.node) == ends)


def far_slower(facts: SortedPairs) -> set[Path]:
    """With few nodes, the paths so much slower than the fastest that no disturbance explains it."""
    most = max(facts.speeds.values())
    return {path for path, speed in facts.speeds.items() if 0 < speed < most / BLATANT}


def leaf_verdicts(facts: SortedPairs) -> tuple[tuple[Verdict, ...], frozenset[Path]]:
    """Verdicts about leaves, and the paths that they explain, whatever is wrong with them."""
    leaves, speeds = facts.context.leaves, facts.speeds
    if not leaves:
        leaves = find_leaves(facts.slow, facts.full)
        # A node without a leaf is slow itself: no leaf explains that.
        speeds = {path: speeds[path] for path in speeds if all(end.node in leaves for end in path)}
    # If all uplinks are alike, crossing pairs are slower than pairs
    # inside, but not than each other.
    slow, judged = facts.slow | facts.held, tuple(speeds)
    found = leaf_faults(speeds, slow, leaves, facts.done) if leaves else ()
    if not found and leaves:
        # A narrow uplink gives full speed to one pair, or to few at once.
        speeds, slow = speeds_together(
            speeds, slow, leaves, facts.done, 1 - facts.context.tolerance
        )
        found = leaf_faults(speeds, slow, leaves, facts.done)
    faults = tuple(found)
    # If other pairs cross, the uplink is not why a path fails.
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
    who = "; ".join(f"{name} = {list_names(members[name])}" for name in fault.leaves)
    way = {"sends": " from it", "receives": " to it"}.get(fault.way, "")
    seen = (
        f"{subject}: pairs across{way} reach {facts.shown(fault.crossing)}, inside"
        f" {facts.shown(fault.inside) if fault.inside else 'nothing'} ({who})"
    )
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
        text = (
            f"one pair alone reaches {facts.shown(fault.alone)}, too: a fault of the uplink; look"
            " at its cable, optic and errors"
        )
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
"""More slow pairs than this, and than one per this many nodes, have one common cause."""
_FAR, _OFTEN = 0.8, 0.05
"""Below this share of the others' speed, on more than this share of
all paths, no disturbance explains it.
"""


def judge_shared(
    facts: SortedPairs, paths: Sequence[Path], proven: Set[Side]
) -> tuple[Verdict, ...]:
    """The verdict about many slow paths whose ends are fast with others: they
    share something unknown, such as an uplink.
    """
    known = [path for path in paths if facts.speeds[path] and proven >= {*sides_of(path)}]
    far = [path for path in known if _is_far(facts, path)]
    # Of many paths a few are disturbed twice by chance: unless they are
    # many, they are measured again first.
    sure = {path for path in known if confirming_runs(facts.runs[path])}
    sure |= {*far} if len(far) > _OFTEN * len(facts.speeds) else set()
    pairs = sorted({(min(ends), max(ends)) for ends in map(nodes_of, sure)})
    nodes = Counter(node for pair in pairs for node in pair)
    if len(pairs) <= max(_MANY, len({end.node for path in facts.speeds for end in path}) // _PART):
        return ()
    names = list_names([f"{first}–{last}" for first, last in pairs])
    most = max(nodes.values())
    often = list_names([node for node, count in nodes.most_common() if 2 * count >= most])
    to_do = (
        "compare their uplinks"
        if facts.context.leaves
        else "write `leaf:` into the cluster file and measure again"
    )
    return (
        Verdict(
            kind=Kind.UPLINK,
            subject=f"{len(pairs)} pairs",
            answer=Answer.SLOW,
            sentence=(
                f"{len(pairs)} pairs ({names}) reach"
                f" {facts.shown(median(facts.speeds[path] for path in sure))} (others"
                f" {facts.shown(facts.population_of(min(sure)).median)}), and their ends are full"
                " with others: something that many share, an uplink or a switch, most often of"
                f" {often}; {to_do}"
            ),
        ),
    )


def _is_far(facts: SortedPairs, path: Path) -> bool:
    far = facts.speeds[path] < _FAR * facts.population_of(path).median
    return far and len(facts.runs[path]) >= _TWICE


def slower_nodes(facts: SortedPairs, paths: Iterable[Path]) -> set[str]:
    """Nodes whose best path is slower than the median of `paths`: what
    those share does not explain it.
    """
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
    seen = (
        f"rail {facts.rail(fault.rail)} reaches {facts.shown(slow)} (others {facts.shown(normal)})"
        f" on {len(fault.nodes)} nodes{of} ({list_names(fault.nodes)}), their other rails are full"
    )
    return Verdict(
        kind=Kind.RAIL,
        subject=f"rail {fault.rail}{of}",
        answer=Answer.SLOW,
        sentence=f"{seen}: the switch of this rail, or its configuration",
    )
