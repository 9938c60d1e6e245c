"""Which pairs and groups are measured when, driven by the results: rounds of disjoint pairs, then larger and larger groups. Pure.

Circle method: one stays, the others turn, pair i with -i. The order is shuffled once, by a seed that
is kept with the run, so that neighbours (same chassis, same leaf) are not always partners.

A slow group is halved, and each half runs with half of a good group: the half that is slow again has
the node. If neither is, its nodes are good in every smaller company: then it is the scale.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice, product
from statistics import median

from rankdeck.acceptance.judge import Judgement, judge
from rankdeck.acceptance.leaves import Leaves, crosses
from rankdeck.acceptance.recipe import ExpectedResult
from rankdeck.acceptance.suspects import Context, EndRole, nodes_of
from rankdeck.model.acceptance import (
    FAILS,
    Answer,
    Kind,
    Measurement,
    Outcome,
    PathEnd,
    Result,
    Stage,
    Verdict,
    failure,
)
from rankdeck.model.nodeset import fold
from rankdeck.model.text import figures

Group = tuple[str, ...]
"""Nodes in rank order."""
_SMALLEST = 4
_MORE = 0.15
"""Share by which a group may be slower than others beyond the tolerance of its recipe: collectives scatter more than pairs."""
_SCALE = 0.6
"""All nodes together below this share of what smaller groups reach: the scale."""


def sizes(count: int) -> tuple[int, ...]:
    """How large the groups are, one step after the other: 4, 8, … and all."""
    steps = [_SMALLEST << step for step in range(count.bit_length()) if _SMALLEST << step < count]
    if count > 256:
        steps = [size for size in steps if size in (16, 64, 256)]
    return (*steps, count) if count >= _SMALLEST else ()


def groups_of(nodes: Sequence[str], size: int) -> tuple[Group, ...]:
    """All groups of one size at once, in the order of the nodes; a rest of less than two is left out."""
    cut = (tuple(nodes[begin : begin + size]) for begin in range(0, len(nodes), size))
    return tuple(group for group in cut if len(group) > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blamed:
    """Why a group is slow."""

    nodes: Group
    """The nodes that make it slow; all of it where it is the scale."""
    scale: bool
    runs: int
    """Groups that were run to find out."""
    sentence: str


def bisect(slow: Group, good: Group, results: Mapping[Group, bool]) -> tuple[Group, ...] | Blamed:
    """The groups to run next, or who is to blame.

    `slow` is the group that is slow, `good` one of the same nodes' kind that is not and has no node in
    common with it; `results` says of each group that was run since whether it was good.
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
    return Blamed(
        nodes=left, scale=False, runs=asked,
        sentence=f"{fold(left)} makes every group slow that it is in, found in {asked} runs: measure its pairs and its GPUs alone",
    )  # fmt: skip


def _together(left: Group, bad: int, asked: int) -> Blamed:
    """Both halves are slow, or neither: no further halving tells more."""
    if bad:
        text = f"both halves of {fold(left)} are slow with good nodes, found in {asked} runs: more than one node, or their leaf"
        return Blamed(nodes=left, scale=False, runs=asked, sentence=text)
    text = (
        f"{fold(left)} are slow together and good in halves: it is the scale; look at routing, credits, "
        "adaptive routing and ports that many share"
    )
    return Blamed(nodes=left, scale=True, runs=asked, sentence=text)


def _halves(group: Group) -> tuple[Group, Group]:
    middle = (len(group) + 1) // 2
    return group[:middle], group[middle:]


def _tries(group: Group, good: Group) -> tuple[Group, Group]:
    """Each half with as many good nodes as make at least a pair: others for each, so that both run at once."""
    first, last = _halves(group)
    return (*first, *good[: max(len(first), 1)]), (*last, *good[-max(len(last), 1) :])


# ---- the stage


@dataclass(frozen=True, slots=True)
class Next:
    """Groups to run at once; none: the stage is over. `verdicts` are what is known by now."""

    groups: tuple[Group, ...]
    verdicts: tuple[Verdict, ...]


def next_groups(nodes: Sequence[str], results: Iterable[Result], tolerance: float) -> Next:
    """One step of the stage; the same results give the same step, so that a killed run goes on."""
    done = {one.group: one for one in results if one.stage is Stage.GROUPS}
    left, verdicts = list(nodes), list[Verdict]()
    before: list[float] = []
    for size in sizes(len(nodes)):
        groups = groups_of(left, min(size, len(left)))
        if missing := tuple(one for one in groups if one not in done):
            return Next(missing, tuple(verdicts))
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
            return Next(asked, tuple(verdicts))
        probe = _with_the_odd_one(left, groups, done, limit) if size == sizes(len(nodes))[0] else ()
        if probe and probe not in done:
            return Next((probe,), tuple(verdicts))
        verdicts += found
        verdicts += _odd_one(probe, done[probe], limit) if probe else []
        left = [node for node in left if not any(node in one.nodes for one in verdicts)]
        if len(groups) == 1 and before and values[0] < _SCALE * median(before):
            verdicts.append(_scale(groups[0], values[0], median(before), done[groups[0]].unit))
        before += values
    return Next((), tuple(verdicts))


def _with_the_odd_one(
    left: Sequence[str], groups: Sequence[Group], done: Mapping[Group, Result], limit: float
) -> Group:
    """A good group, in which the node that is over takes the place of the last one; empty where none is over.

    Else it is only in the group of all, and what it spoils looks like the scale.
    """
    over = [node for node in left if not any(node in group for group in groups)]
    good = next((one for one in groups if (_speed(done[one]) or 0.0) >= limit), ())
    return (*good[:-1], *over) if over and good else ()


def _odd_one(probe: Group, one: Result, limit: float) -> list[Verdict]:
    """Its partners were good without it."""
    speed = _speed(one)
    if speed is None or speed >= limit:
        return []
    text = f"{probe[-1]} makes a group slow that is good without it: measure its pairs and its GPUs alone"
    found = Blamed(nodes=probe[-1:], scale=False, runs=1, sentence=text)
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
    told = {
        group: (_speed(one) or 0.0) >= limit
        for group, one in done.items()
        if _speed(one) is not None
    }
    asked: list[Group] = []
    found: list[Verdict] = []
    for group in slow if good else ():
        answer = bisect(group, good or (), told)
        if isinstance(answer, Blamed):
            found.append(_verdict(answer, speeds[group] or 0.0, done[group].unit))
        else:
            # What cannot be measured is not asked for again: then nothing more is known.
            for one in answer:
                asked += [one] if one not in done and _free(one, asked) else []
    return tuple(asked), found


def _free(group: Group, others: Iterable[Group]) -> bool:
    """Whether no node of it is in another one."""
    return not any(set(group) & set(one) for one in others)


def _verdict(blamed: Blamed, speed: float, unit: str) -> Verdict:
    nodes = () if blamed.scale or len(blamed.nodes) > 1 else blamed.nodes
    return Verdict(
        kind=Kind.SCALE if blamed.scale else Kind.NODE, subject=fold(blamed.nodes), answer=Answer.SLOW,
        sentence=f"{blamed.sentence} (its group reached {figures(speed, 3)} {unit})", nodes=nodes,
    )  # fmt: skip


def _all_fail(groups: Sequence[Group], first: Result) -> Verdict:
    """All groups of one size: there is no good one that would say which node it is."""
    who = f"the group {fold(groups[0])}" if len(groups) == 1 else f"all {len(groups)} groups of {len(groups[0])} nodes"  # fmt: skip
    answer = failure((first,))
    return Verdict(
        kind=Kind.SCALE, subject=fold(node for group in groups for node in group),
        answer=answer, sentence=f"{who} {FAILS[answer]}: {first.text}",
    )  # fmt: skip


def _scale(group: Group, speed: float, usual: float, unit: str) -> Verdict:
    return Verdict(
        kind=Kind.SCALE, subject=fold(group), answer=Answer.SLOW,
        sentence=f"all {len(group)} nodes together reach {figures(speed, 3)} {unit}, smaller groups {figures(usual, 3)}: it is the scale; "
        "look at routing, credits, adaptive routing and ports that many share",
    )  # fmt: skip


Pair = tuple[str, str]
ALL_PAIRS = 32
"""Up to so many nodes every pair is measured."""
SAMPLED = 3
"""Rounds for more nodes: every node has three partners, at least one in its leaf and one outside."""
PROVEN = 2
"""Proven partners that confirm a suspect, and the fewest repeats in which a leaf is slow."""
ALIKE = 3
"""Suspects above which they may be of one leaf, and none of them to blame."""
CAREFULLY = 3
"""Times as many repeats as usual where something is confirmed."""
OTHER_PORT = 1
PASSES = 3
"""Times that suspects are looked for: who is cleared leaves pairs to be measured again, and those that are slow again another port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is planned; the same options and seed give the same rounds."""

    nodes: tuple[str, ...]
    leaves: Leaves = field(default_factory=dict[str, str])
    seed: int = 0
    exhaustive: bool = False
    """All pairs also of more than 32 nodes: n-1 rounds."""
    stages: tuple[Stage, ...] = (
        Stage.PAIRS,
        Stage.CONFIRM,
        Stage.INSIDE,
        Stage.CROSSING,
        Stage.ALONE,
    )
    repeats: int = 2
    """Measurements of each direction."""
    directed: bool = True
    """Whether the two directions of a pair are measured apart; else one measurement is of both."""
    rails: int = 1
    """Each is measured for itself, all of a pair at once."""
    max_crossing: float = 1.0
    """Share of all pairs of a round that may cross leaves at once: others use the fabric, too."""


Run = tuple[str, str, int, int]
"""Sender, receiver, repeat, rail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What runs at once; no node is in two pairs."""

    number: int
    stage: Stage
    pairs: tuple[Pair, ...]
    runs: tuple[Run, ...]
    """What of these pairs is still to be measured; the direction changes with every run of a pair."""
    port: int = 0


def circle(nodes: Sequence[str]) -> Iterator[tuple[Pair, ...]]:
    """Rounds in which each node meets each other exactly once; of an odd number one rests per round."""
    ring: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        facing = zip(ring[:half], reversed(ring[half:]), strict=True)
        yield tuple((a, b) for a, b in facing if a is not None and b is not None)
        ring = [ring[0], ring[-1], *ring[1:-1]]


def pair_rounds(options: Options) -> tuple[tuple[Pair, ...], ...]:
    """The rounds of the pairs stage."""
    return tuple(part for one in _all_pairs(options) for part in thinned(one, options))


def thinned(pairs: Sequence[Pair], options: Options) -> tuple[tuple[Pair, ...], ...]:
    """The pairs in as many rounds as it takes for no more to cross leaves at once than is agreed to."""
    most = max(1, int(options.max_crossing * (len(options.nodes) // 2)))
    crossing = [
        pair for pair in pairs if crosses((PathEnd(pair[0]), PathEnd(pair[1])), options.leaves)
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
        return tuple(circle(order))
    if not options.leaves:
        return tuple(islice(circle(order), SAMPLED))
    return _sampled(order, options)


def _sampled(order: Sequence[str], options: Options) -> tuple[tuple[Pair, ...], ...]:
    """One round within leaves, two across; those without a partner within cross, too."""
    groups = grouped(order, options.leaves)
    inside = [pair for group in groups.values() for pair in next(circle(group), ())]
    paired = {node for pair in inside for node in pair}
    rest = [node for node in order if node not in paired]
    crossing = (across(groups, options.seed + place) for place in range(1, SAMPLED))
    return ((*inside, *next(circle(rest), ())), *crossing)


def grouped(order: Sequence[str], leaves: Leaves) -> Mapping[str, Sequence[str]]:
    """Leaf -> its nodes; a node of unknown leaf is one of its own."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for node in order:
        groups[leaves.get(node, node)].append(node)
    return groups


def across(groups: Mapping[str, Sequence[str]], seed: int) -> tuple[Pair, ...]:
    """A round in which every pair crosses; one leaf may lie on the border of the halves and meet itself."""
    mixed = random.Random(seed)
    names = sorted(groups)
    mixed.shuffle(names)
    order = [node for name in names for node in groups[name]]
    if len(order) % 2:
        # One rests: of the largest leaf, so that the others can cross.
        order.remove(groups[max(names, key=lambda name: len(groups[name]))][-1])
    half = len(order) // 2
    second = order[half : half * 2]
    mixed.shuffle(second)
    return tuple(zip(order[:half], second, strict=True))


class Schedule:
    """Gives one round after the other, from what is measured so far; has no clock and no connection.

    Give it every measurement of an earlier run with `take`: what was measured is not planned again.
    """

    def __init__(self, options: Options, context: Context | None = None) -> None:
        self.options = options
        self.context = replace(context or Context(), leaves=options.leaves)
        self.done: list[Measurement] = []
        self._seen: set[tuple[Stage, int, int, Run]] = set()
        self._rounds: list[Round] = []
        # Last what the leaves leave open: with them known a suspect may be another.
        last = [stage for stage in options.stages if stage is Stage.CONFIRM]
        self._stages = (
            stage
            for stage in (*options.stages, *last)
            for _ in range(PASSES if stage is Stage.CONFIRM else 1)
        )
        self._next = 0

    def take(self, measurement: Measurement) -> None:
        """Add one result, also one without a value."""
        self.done.append(measurement)
        one = measurement
        if not self.options.directed:
            self.done.append(replace(one, sender=one.receiver, receiver=one.sender))
        run = (one.sender, one.receiver, one.repeat, one.rail)
        self._seen.add((one.stage, one.round, one.port, run))

    def expect(self, expected: ExpectedResult | None) -> None:
        """What the medians should reach, as far as it is known by now."""
        self.context = replace(self.context, expected=expected)

    def judgement(self, before: int | None = None) -> Judgement:
        """What the measurements say; of the rounds before one of them alone, so that a resumed run plans as the first did."""
        return judge(
            (one for one in self.done if before is None or one.round < before), self.context
        )

    def next_round(self) -> Round | None:
        """What of the next round is missing; None once all is measured. Later stages are planned from the results."""
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
        """The round with the runs that were not taken."""
        runs = (run for run in one.runs if (one.stage, one.number, one.port, run) not in self._seen)
        return replace(one, runs=tuple(runs))

    def _planned(self, stage: Stage) -> list[Round]:
        first = len(self._rounds)
        plan = {
            Stage.PAIRS: lambda: [(pairs, 0) for pairs in pair_rounds(self.options)],
            Stage.CONFIRM: lambda: self._confirmations(first),
            Stage.INSIDE: lambda: self._leaf(stage, first),
            Stage.CROSSING: lambda: self._leaf(stage, first),
            Stage.ALONE: lambda: self._leaf(stage, first),
        }[stage]
        return [
            Round(
                number=first + place,
                stage=stage,
                pairs=pairs,
                runs=self._runs(stage, pairs),
                port=port,
            )
            for place, (pairs, port) in enumerate(plan())
        ]

    def _runs(self, stage: Stage, pairs: Iterable[Pair]) -> tuple[Run, ...]:
        repeats = self.options.repeats
        if stage is Stage.CONFIRM:
            repeats *= CAREFULLY
        elif stage is not Stage.PAIRS:
            repeats = max(repeats, PROVEN)
        ways = both_ways if self.options.directed else one_way
        rails = self.options.rails
        return tuple(run for pair in pairs for run in ways(pair, repeats, rails))

    def _confirmations(self, first: int) -> list[tuple[tuple[Pair, ...], int]]:
        """Each suspect with two proven partners, and with another suspect: that is full where their leaf is to blame. Each suspect pair again; a pair that was no better then on another port.

        Then on the first port once more: a disturbance that has passed is not blamed on that port's path.
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
            for pairs in islice(circle(list(suspects)), PROVEN if len(suspects) > ALIKE else 0)
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
            for part in thinned(pairs, self.options)
        ]

    def _leaf(self, stage: Stage, first: int) -> list[tuple[tuple[Pair, ...], int]]:
        """Rounds that tell an uplink from its nodes; none where leaves are not known, or nothing is slow."""
        judged = self.judgement(first)
        leaves = self.options.leaves or judged.leaves
        bad = {node for verdict in judged.verdicts for node in verdict.nodes}
        groups = grouped(
            [node for node in self.options.nodes if node in leaves and node not in bad], leaves
        )
        if len(groups) < 2:
            return []
        if stage is Stage.INSIDE:
            return [
                (tuple(pair for group in groups.values() for pair in next(circle(group), ())), 0)
            ]
        # With a limit the uplinks are loaded no further than that.
        crossing = thinned(across(groups, self.options.seed), self.options)[0]
        if stage is Stage.CROSSING:
            return [(crossing, 0)]
        slow = {name for verdict in judged.verdicts for name in verdict.leaves}
        return [((pair,), 0) for pair in _one_each(crossing, leaves, slow)]


def both_ways(pair: Pair, repeats: int, rails: int) -> Iterator[Run]:
    """One after the other, the direction changing each time."""
    first, last = pair
    for number, rail in product(range(repeats), range(rails)):
        yield first, last, number, rail
        yield last, first, number, rail


def one_way(pair: Pair, repeats: int, rails: int) -> Iterator[Run]:
    """Of a test without direction."""
    first, last = pair
    for number, rail in product(range(repeats), range(rails)):
        yield first, last, number, rail


def _pairs_of(paths: Iterable[tuple[str, ...]]) -> Iterable[Pair]:
    """Each pair of nodes once, whatever the direction."""
    return dict.fromkeys((min(ends), max(ends)) for ends in paths)


def _proven(judged: Judgement, nodes: Sequence[str], suspects: Iterable[str]) -> list[str]:
    """Nodes that somebody got full speed from and to."""
    proven = {end.node for end, role in judged.open.proven if role is EndRole.SENDS}
    proven &= {end.node for end, role in judged.open.proven if role is EndRole.RECEIVES}
    bad = {node for verdict in judged.verdicts for node in verdict.nodes} | set(suspects)
    return [node for node in nodes if node in proven and node not in bad]


def _with_partners(
    suspects: Iterable[str], partners: Sequence[str], met: set[frozenset[str]]
) -> Iterator[Pair]:
    """Two proven partners for each suspect, if possible such as it has not met."""
    for place, node in enumerate(suspects):
        turned = [*partners[place:], *partners[:place]] if place < len(partners) else list(partners)
        fresh = [other for other in turned if frozenset((node, other)) not in met]
        yield from ((node, other) for other in (*fresh, *turned)[:PROVEN] if other != node)


def _disjoint(wanted: Iterable[Pair]) -> list[tuple[Pair, ...]]:
    """As few rounds as come without a search: each pair in the first round where both nodes are free."""
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
