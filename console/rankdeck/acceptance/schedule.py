"""Decides from the results which pairs and groups to measure next: rounds of
disjoint pairs, then ever larger groups. Pure.

Rounds follow the circle method: one node stays, the others rotate, and place i meets place -i. The
order is shuffled once, with a seed that is kept with the run, so that neighbours (same chassis,
same leaf) do not always meet first.

A slow group is halved, and each half runs with half of a good group: the half that is slow again
has the bad node. If neither is slow, the nodes are good in smaller groups: then the scale is the
cause.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice, product
from statistics import median

from msgspec import field

from rankdeck.acceptance.judge import Judgement, judge_measurements
from rankdeck.acceptance.leaves import Leaves, crosses_leaves
from rankdeck.acceptance.recipe import ExpectedResult
from rankdeck.acceptance.suspects import Context, EndRole, nodes_of
from rankdeck.acceptance.values import (
    FAILS,
    Answer,
    Kind,
    Measurement,
    Outcome,
    PathEnd,
    Result,
    Stage,
    Verdict,
    failure_answer,
)
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.text import significant_figures
from rankdeck.values import Value, replace

Group = tuple[str, ...]
"""Nodes in rank order."""
_SMALLEST = 4
_MORE = 0.15
"""Added to the tolerance of the recipe for groups: collectives scatter more than pairs."""
_SCALE = 0.6
"""If all nodes together reach less than this share of what smaller
groups reach, the scale is the cause.
"""


def group_sizes(count: int) -> tuple[int, ...]:
    """The sizes of groups, in order: 4, 8, … and all."""
    steps = [_SMALLEST << step for step in range(count.bit_length()) if _SMALLEST << step < count]
    if count > 256:
        steps = [size for size in steps if size in (16, 64, 256)]
    return (*steps, count) if count >= _SMALLEST else ()


def groups_of(nodes: Sequence[str], size: int) -> tuple[Group, ...]:
    """All groups of one size, in the order of the nodes; a single
    node that is left over is dropped.
    """
    cut = (tuple(nodes[begin : begin + size]) for begin in range(0, len(nodes), size))
    return tuple(group for group in cut if len(group) > 1)


class GroupBlame(Value, kw_only=True):
    """Why a group is slow."""

    nodes: Group
    """The nodes that make the group slow; the whole group if the scale is the cause."""
    scale: bool
    runs: int
    """How many groups were run to find out."""
    sentence: str


def bisect_groups(
    slow: Group, good: Group, results: Mapping[Group, bool]
) -> tuple[Group, ...] | GroupBlame:
    """The groups to run next, or who is to blame.

    `good` is a group that is not slow and shares no node with `slow`; `results` says for
    each group that was run whether it was good.
    """
    left, asked = slow, 0
    while len(left) > 1:
        tries = _tries(left, good)
        missing = tuple(one for one in tries if one not in results)
        if missing:
            return missing
        asked += len(tries)
        bad = [half for half, one in zip(_halves(left), tries, strict=True) if not results[one]]
        if len(bad) != 1:
            return _together(left, len(bad), asked)
        left = bad[0]
    return GroupBlame(
        nodes=left,
        scale=False,
        runs=asked,
        sentence=(
            f"{fold_nodes(left)} makes every group slow that it is in, found in {asked} runs:"
            " measure its pairs and its GPUs alone"
        ),
    )


def _together(left: Group, bad: int, asked: int) -> GroupBlame:
    """The result if both halves are slow or neither is: halving further tells no more."""
    if bad:
        text = (
            f"both halves of {fold_nodes(left)} are slow with good nodes, found in {asked} runs:"
            " more than one node, or their leaf"
        )
        return GroupBlame(nodes=left, scale=False, runs=asked, sentence=text)
    text = (
        f"{fold_nodes(left)} are slow together and good in halves: it is the scale; look at routing, credits, "
        "adaptive routing and ports that many share"
    )
    return GroupBlame(nodes=left, scale=True, runs=asked, sentence=text)


def _halves(group: Group) -> tuple[Group, Group]:
    middle = (len(group) + 1) // 2
    return group[:middle], group[middle:]


def _tries(group: Group, good: Group) -> tuple[Group, Group]:
    """Each half with good nodes added, different ones for each
    half, so that both can run at once.
    """
    first, last = _halves(group)
    return (*first, *good[: max(len(first), 1)]), (*last, *good[-max(len(last), 1) :])


# ---- the stage


class NextGroups(Value):
    """Groups to run at once; (): the stage is over. `verdicts` are those known so far."""

    groups: tuple[Group, ...]
    verdicts: tuple[Verdict, ...]


def next_groups(nodes: Sequence[str], results: Iterable[Result], tolerance: float) -> NextGroups:
    """The next step of the stage.

    It depends only on the results, so that a killed run can be resumed.
    """
    done = {one.group: one for one in results if one.stage is Stage.GROUPS}
    left, verdicts = list(nodes), list[Verdict]()
    before: list[float] = []
    for size in group_sizes(len(nodes)):
        groups = groups_of(left, min(size, len(left)))
        if missing := tuple(one for one in groups if one not in done):
            return NextGroups(missing, tuple(verdicts))
        values = [speed for one in groups if (speed := _speed(done[one])) is not None]
        if not values:
            continue
        if not any(values):
            verdicts.append(_all_fail(groups, done[groups[0]]))
            continue
        limit = (
            max(values) * (1 - tolerance - _MORE)
            if len(values) < 3
            else median(values) * (1 - tolerance - _MORE)
        )
        asked, found = _blame(groups, done, limit)
        if asked:
            return NextGroups(asked, tuple(verdicts))
        probe = (
            _with_the_odd_one(left, groups, done, limit)
            if size == group_sizes(len(nodes))[0]
            else ()
        )
        if probe and probe not in done:
            return NextGroups((probe,), tuple(verdicts))
        verdicts += found
        verdicts += _odd_one(probe, done[probe], limit) if probe else []
        left = [node for node in left if not any(node in one.nodes for one in verdicts)]
        if len(groups) == 1 and before and values[0] < _SCALE * median(before):
            verdicts.append(_scale(groups[0], values[0], median(before), done[groups[0]].unit))
        before += values
    return NextGroups((), tuple(verdicts))


def _with_the_odd_one(
    left: Sequence[str], groups: Sequence[Group], done: Mapping[Group, Result], limit: float
) -> Group:
    """A good group whose last node is replaced by the node that is
    left over; () if no node is left over.

    Otherwise that node would be only in the group of all nodes, and its
    fault would look like one of the scale.
    """
    over = [node for node in left if not any(node in group for group in groups)]
    good = next((one for one in groups if (_speed(done[one]) or 0.0) >= limit), ())
    return (*good[:-1], *over) if over and good else ()


def _odd_one(probe: Group, one: Result, limit: float) -> list[Verdict]:
    """A verdict on the last node of `probe` if the group is slow with it:
    its partners were good without it.
    """
    speed = _speed(one)
    if speed is None or speed >= limit:
        return []
    text = f"{probe[-1]} makes a group slow that is good without it: measure its pairs and its GPUs alone"
    found = GroupBlame(nodes=probe[-1:], scale=False, runs=1, sentence=text)
    return [_verdict(found, speed, one.unit)]


def _speed(one: Result) -> float | None:
    return 0.0 if one.outcome is Outcome.FAILED else one.value


def _blame(
    groups: Sequence[Group], done: Mapping[Group, Result], limit: float
) -> tuple[tuple[Group, ...], list[Verdict]]:
    """(groups to run to find out, verdicts on the slow groups of one size)."""
    speeds = {group: _speed(done[group]) for group in groups}
    slow = [group for group, speed in speeds.items() if speed is not None and speed < limit]
    good = next(
        (group for group, speed in speeds.items() if speed is not None and speed >= limit), None
    )
    values = {
        group: (_speed(one) or 0.0) >= limit
        for group, one in done.items()
        if _speed(one) is not None
    }
    asked: list[Group] = []
    found: list[Verdict] = []
    for group in slow if good else ():
        answer = bisect_groups(group, good or (), values)
        if isinstance(answer, GroupBlame):
            found.append(_verdict(answer, speeds[group] or 0.0, done[group].unit))
        else:
            # Groups that could not be measured are not run again.
            for one in answer:
                asked += [one] if one not in done and _free(one, asked) else []
    return tuple(asked), found


def _free(group: Group, others: Iterable[Group]) -> bool:
    """Whether the group shares no node with the others."""
    return not any(set(group) & set(one) for one in others)


def _verdict(blamed: GroupBlame, speed: float, unit: str) -> Verdict:
    nodes = () if blamed.scale or len(blamed.nodes) > 1 else blamed.nodes
    return Verdict(
        kind=Kind.SCALE if blamed.scale else Kind.NODE,
        subject=fold_nodes(blamed.nodes),
        answer=Answer.SLOW,
        sentence=f"{blamed.sentence} (its group reached {significant_figures(speed, 3)} {unit})",
        nodes=nodes,
    )


def _all_fail(groups: Sequence[Group], first: Result) -> Verdict:
    """The verdict if all groups of one size fail: without a good
    group the bad node cannot be found.
    """
    who = (
        f"the group {fold_nodes(groups[0])}"
        if len(groups) == 1
        else f"all {len(groups)} groups of {len(groups[0])} nodes"
    )
    answer = failure_answer((first,))
    return Verdict(
        kind=Kind.SCALE,
        subject=fold_nodes(node for group in groups for node in group),
        answer=answer,
        sentence=f"{who} {FAILS[answer]}: {first.text}",
    )


def _scale(group: Group, speed: float, usual: float, unit: str) -> Verdict:
    return Verdict(
        kind=Kind.SCALE,
        subject=fold_nodes(group),
        answer=Answer.SLOW,
        sentence=(
            f"all {len(group)} nodes together reach {significant_figures(speed, 3)} {unit}, smaller"
            f" groups {significant_figures(usual, 3)}: it is the scale; look at routing, credits,"
            " adaptive routing and ports that many share"
        ),
    )


Pair = tuple[str, str]
ALL_PAIRS = 32
"""Up to this many nodes, every pair is measured."""
SAMPLED = 3
"""Rounds for more nodes: every node has three partners, at least
one in its leaf and one outside.
"""
PROVEN = 2
"""How many proven partners confirm a suspect; also the fewest repeats in the leaf stages."""
ALIKE = 3
"""With more suspects than this, all may be in one leaf, and none of them to blame."""
CAREFULLY = 3
"""Confirmations have this many times as many repeats."""
OTHER_PORT = 1
PASSES = 3
"""How often the confirm stage runs: cleared suspects leave pairs to measure again, and
pairs that stay slow are tried on another port.
"""


class Options(Value, kw_only=True):
    """What is planned; the same options and seed give the same rounds."""

    nodes: tuple[str, ...]
    leaves: Leaves = field(default_factory=dict[str, str])
    seed: int = 0
    exhaustive: bool = False
    """Measure all pairs even of more than 32 nodes, in n-1 rounds."""
    stages: tuple[Stage, ...] = (
        Stage.PAIRS,
        Stage.CONFIRM,
        Stage.INSIDE,
        Stage.CROSSING,
        Stage.ALONE,
    )
    repeats: int = 2
    """How often each direction is measured."""
    directed: bool = True
    """Whether the two directions of a pair are measured separately; if
    not, one measurement is of both.
    """
    rails: int = 1
    """Number of rails; each is measured separately, all rails of a pair at once."""
    max_crossing: float = 1.0
    """Share of the pairs of a round that may cross leaves at once, to
    spare other users of the fabric.
    """


Run = tuple[str, str, int, int]
"""Sender, receiver, repeat, rail."""


class Round(Value, kw_only=True):
    """Pairs that are measured at once; no node is in two pairs."""

    number: int
    stage: Stage
    pairs: tuple[Pair, ...]
    runs: tuple[Run, ...]
    """The runs still to be measured; runs of a pair alternate in direction."""
    port: int = 0


def circle_rounds(nodes: Sequence[str]) -> Iterator[tuple[Pair, ...]]:
    """Rounds in which each node meets every other exactly once; with an odd
    number, one node rests in each round.
    """
    ring: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        facing = zip(ring[:half], reversed(ring[half:]), strict=True)
        yield tuple((a, b) for a, b in facing if a is not None and b is not None)
        ring = [ring[0], ring[-1], *ring[1:-1]]


def pair_rounds(options: Options) -> tuple[tuple[Pair, ...], ...]:
    """The rounds of the pairs stage."""
    return tuple(part for one in _all_pairs(options) for part in thin_rounds(one, options))


def thin_rounds(pairs: Sequence[Pair], options: Options) -> tuple[tuple[Pair, ...], ...]:
    """The pairs split into rounds, so that no more pairs cross leaves at once than allowed."""
    most = max(1, int(options.max_crossing * (len(options.nodes) // 2)))
    crossing = [
        pair
        for pair in pairs
        if crosses_leaves((PathEnd(pair[0]), PathEnd(pair[1])), options.leaves)
    ]
    if options.max_crossing >= 1 or len(crossing) <= most:
        return (tuple(pairs),)
    inside = [pair for pair in pairs if pair not in crossing]
    parts = [crossing[begin : begin + most] for begin in range(0, len(crossing), most)]
    return ((*inside, *parts[0]), *map(tuple, parts[1:]))


def _all_pairs(options: Options) -> tuple[tuple[Pair, ...], ...]:
    order = list(options.nodes)
    random.Random(options.seed).shuffle(order)
    if len(order) <= ALL_PAIRS or options.exhaustive:
        return tuple(circle_rounds(order))
    if not options.leaves:
        return tuple(islice(circle_rounds(order), SAMPLED))
    return _sampled(order, options)


def _sampled(order: Sequence[str], options: Options) -> tuple[tuple[Pair, ...], ...]:
    """One round inside leaves and two across; nodes without a partner
    in their leaf cross in all rounds.
    """
    groups = group_by_leaf(order, options.leaves)
    inside = [pair for group in groups.values() for pair in next(circle_rounds(group), ())]
    paired = {node for pair in inside for node in pair}
    rest = [node for node in order if node not in paired]
    crossing = (crossing_round(groups, options.seed + place) for place in range(1, SAMPLED))
    return ((*inside, *next(circle_rounds(rest), ())), *crossing)


def group_by_leaf(order: Sequence[str], leaves: Leaves) -> Mapping[str, Sequence[str]]:
    """Leaf -> its nodes; a node whose leaf is not known counts as a leaf of its own."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for node in order:
        groups[leaves.get(node, node)].append(node)
    return groups


def crossing_round(groups: Mapping[str, Sequence[str]], seed: int) -> tuple[Pair, ...]:
    """A round in which every pair crosses leaves, except that one large leaf may meet itself."""
    mixed = random.Random(seed)
    names = sorted(groups)
    mixed.shuffle(names)
    order = [node for name in names for node in groups[name]]
    if len(order) % 2:
        # One node rests: from the largest leaf, so that the others can cross.
        order.remove(groups[max(names, key=lambda name: len(groups[name]))][-1])
    half = len(order) // 2
    second = order[half : half * 2]
    mixed.shuffle(second)
    return tuple(zip(order[:half], second, strict=True))


class Schedule:
    """Gives one round after the other, depending on the results so
    far; has no clock and no connection.

    To resume a run, pass every earlier measurement to `take`: these are not planned again.
    """

    def __init__(self, options: Options, context: Context | None = None) -> None:
        self.options = options
        self.context = replace(context or Context(), leaves=options.leaves)
        self.done: list[Measurement] = []
        self._seen: set[tuple[Stage, int, int, Run]] = set()
        self._rounds: list[Round] = []
        # Confirm once more at the end: when the leaves are known, there may be other suspects.
        last = [stage for stage in options.stages if stage is Stage.CONFIRM]
        self._stages = (
            stage
            for stage in (*options.stages, *last)
            for _ in range(PASSES if stage is Stage.CONFIRM else 1)
        )
        self._next = 0

    def take(self, measurement: Measurement) -> None:
        """Add one result, even without a value."""
        self.done.append(measurement)
        one = measurement
        if not self.options.directed:
            self.done.append(replace(one, sender=one.receiver, receiver=one.sender))
        run = (one.sender, one.receiver, one.repeat, one.rail)
        self._seen.add((one.stage, one.round, one.port, run))

    def expect(self, expected: ExpectedResult | None) -> None:
        """Set what the medians should reach, as far as known by now."""
        self.context = replace(self.context, expected=expected)

    def judgement(self, before: int | None = None) -> Judgement:
        """The judgement of all measurements, or only of rounds before `before`, so that
        a resumed run is planned in the same way.
        """
        return judge_measurements(
            (one for one in self.done if before is None or one.round < before), self.context
        )

    def next_round(self) -> Round | None:
        """The next round, without runs that are done; None when all is measured.

        Later stages are planned from the results.
        """
        while True:
            while self._next < len(self._rounds):
                left = self._left(self._rounds[self._next])
                if left.runs:
                    return left
                self._next += 1
            stage = next(self._stages, None)
            if stage is None:
                return None
            self._rounds += self._planned(stage)

    def _left(self, one: Round) -> Round:
        """The round with only the runs that are not done."""
        runs = (run for run in one.runs if (one.stage, one.number, one.port, run) not in self._seen)
        return replace(one, runs=tuple(runs))

    def _planned(self, stage: Stage) -> list[Round]:
        first = len(self._rounds)
        if stage is Stage.PAIRS:
            plan = [(pairs, 0) for pairs in pair_rounds(self.options)]
        elif stage is Stage.CONFIRM:
            plan = self._confirmations(first)
        else:
            plan = self._leaf(stage, first)
        return [
            Round(number=number, stage=stage, pairs=pairs, runs=self._runs(stage, pairs), port=port)
            for number, (pairs, port) in enumerate(plan, first)
        ]

    def _runs(self, stage: Stage, pairs: Iterable[Pair]) -> tuple[Run, ...]:
        repeats = self.options.repeats
        if stage is Stage.CONFIRM:
            repeats *= CAREFULLY
        elif stage is not Stage.PAIRS:
            repeats = max(repeats, PROVEN)
        directed, rails = self.options.directed, self.options.rails
        return tuple(
            run for pair in pairs for run in runs_of_pair(pair, repeats, rails, directed=directed)
        )

    def _confirmations(self, first: int) -> list[tuple[tuple[Pair, ...], int]]:
        """Rounds that measure each suspect with two proven partners and, if there are many, with
        other suspects (full speed if their leaf is to blame); each suspect pair again; and a pair
        that stayed slow on another port.

        That pair is then measured once more on the first port, so that a passed
        disturbance is not blamed on that port.
        """
        judged = self.judgement(first)
        before = [one for one in self.done if one.round < first]
        met = {frozenset((one.sender, one.receiver)) for one in before if one.stage is Stage.PAIRS}
        tried = {frozenset((one.sender, one.receiver)) for one in before if one.port}
        suspects = dict.fromkeys(side[0].node for side in judged.open.sides)
        partners = _proven(judged, self.options.nodes, suspects)
        again = _pairs_of(map(nodes_of, judged.open.paths))
        among = [
            pair
            for pairs in islice(
                circle_rounds(list(suspects)), PROVEN if len(suspects) > ALIKE else 0
            )
            for pair in pairs
        ]
        once = _disjoint([*again, *among, *_with_partners(suspects, partners, met)])
        slow = (one.ends for one in judged.verdicts if one.kind is Kind.PAIR)
        twice = _disjoint(pair for pair in _pairs_of(slow) if frozenset(pair) not in tried)
        rounds = ((once, 0), (twice, OTHER_PORT), (twice, 0))
        return [
            (part, port)
            for some, port in rounds
            for pairs in some
            for part in thin_rounds(pairs, self.options)
        ]

    def _leaf(self, stage: Stage, first: int) -> list[tuple[tuple[Pair, ...], int]]:
        """Rounds that show whether an uplink or its nodes are slow; none
        if there are not two known leaves.
        """
        judged = self.judgement(first)
        leaves = self.options.leaves or judged.leaves
        bad = {node for verdict in judged.verdicts for node in verdict.nodes}
        groups = group_by_leaf(
            [node for node in self.options.nodes if node in leaves and node not in bad], leaves
        )
        if len(groups) < 2:
            return []
        if stage is Stage.INSIDE:
            return [
                (
                    tuple(
                        pair for group in groups.values() for pair in next(circle_rounds(group), ())
                    ),
                    0,
                )
            ]
        # `max_crossing` limits the load on the uplinks here too.
        crossing = thin_rounds(crossing_round(groups, self.options.seed), self.options)[0]
        if stage is Stage.CROSSING:
            return [(crossing, 0)]
        slow = {name for verdict in judged.verdicts for name in verdict.leaves}
        return [((pair,), 0) for pair in _one_each(crossing, leaves, slow)]


def runs_of_pair(pair: Pair, repeats: int, rails: int, *, directed: bool) -> Iterator[Run]:
    """Runs of a pair one after the other, in alternating directions; in
    one, if the test has no direction.
    """
    ways = (pair, pair[::-1]) if directed else (pair,)
    for number, rail, (sender, receiver) in product(range(repeats), range(rails), ways):
        yield sender, receiver, number, rail


def _pairs_of(paths: Iterable[tuple[str, ...]]) -> Iterable[Pair]:
    """Each pair of nodes once, in either direction."""
    return dict.fromkeys((min(ends), max(ends)) for ends in paths)


def _proven(judged: Judgement, nodes: Sequence[str], suspects: Iterable[str]) -> list[str]:
    """Nodes that are not suspected and reached full speed in both directions with some partner."""
    proven = {end.node for end, role in judged.open.proven if role is EndRole.SENDS}
    proven &= {end.node for end, role in judged.open.proven if role is EndRole.RECEIVES}
    bad = {node for verdict in judged.verdicts for node in verdict.nodes} | set(suspects)
    return [node for node in nodes if node in proven and node not in bad]


def _with_partners(
    suspects: Iterable[str], partners: Sequence[str], met: set[frozenset[str]]
) -> Iterator[Pair]:
    """Pairs of each suspect with two proven partners, if possible partners that it has not met."""
    for place, node in enumerate(suspects):
        turned = [*partners[place:], *partners[:place]] if place < len(partners) else list(partners)
        fresh = [other for other in turned if frozenset((node, other)) not in met]
        yield from ((node, other) for other in (*fresh, *turned)[:PROVEN] if other != node)


def _disjoint(wanted: Iterable[Pair]) -> list[tuple[Pair, ...]]:
    """The pairs in rounds, greedily: each pair is in the first
    round in which both nodes are free.
    """
    rounds: list[list[Pair]] = []
    busy: list[set[str]] = []
    for pair in wanted:
        place = next((n for n, nodes in enumerate(busy) if not nodes & set(pair)), len(rounds))
        if place == len(rounds):
            rounds.append([])
            busy.append(set())
        rounds[place].append(pair)
        busy[place] |= set(pair)
    return [tuple(pairs) for pairs in rounds]


def _one_each(crossing: Sequence[Pair], leaves: Leaves, wanted: Set[str]) -> list[Pair]:
    """One crossing pair for each of these leaves."""
    found: dict[str, Pair] = {}
    for pair in crossing:
        for name in {leaves[node] for node in pair} & wanted:
            found.setdefault(name, pair)
    return list(dict.fromkeys(found.values()))
