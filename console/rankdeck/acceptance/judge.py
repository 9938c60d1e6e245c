"""Judges a run: turns measurements into answers, each with a
sentence that counts the evidence. Pure.

The bandwidth of a path is the minimum of three: transmit of the sender, receive of the receiver,
and the path itself. So a node is good in one direction as soon as one partner got full speed from
it, and a path is to blame only if both of its ends are good with others. This tells node, direction
and path apart.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from statistics import median_low

from msgspec import field

from rankdeck.acceptance.intermittent import (
    find_broken_runs,
    find_erratic,
    find_flaws,
    judge_losing,
    judge_unsteady,
)
from rankdeck.acceptance.leaves import Leaves, crosses_leaves, find_leaves
from rankdeck.acceptance.population import Population, by_gap
from rankdeck.acceptance.suspects import (
    BLATANT,
    Context,
    EndRole,
    Evidence,
    Side,
    SortedPairs,
    Suspects,
    doubted_paths,
    dropping_paths,
    facts_of,
    far_slower,
    find_suspects,
    is_confirmed,
    judge_shared,
    leaf_verdicts,
    nodes_of,
    path_kind,
    path_of,
    rail_verdicts,
    scatters_on,
    sides_of,
    slower_nodes,
    usual_speed,
)
from rankdeck.acceptance.values import (
    FAILS,
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


class Judgement(Value, kw_only=True):
    """The outcome of a run, or of a part of it."""

    verdicts: tuple[Verdict, ...]
    """What is surely to blame, worst first."""
    open: Suspects
    """Suspects that must be measured again before they are named."""
    nodes: Mapping[str, Answer]
    populations: Mapping[str, Population]
    """Name of a population (`inside`, `crossing` or `all`, with hardware if
    there are several kinds) -> population.
    """
    leaves: Leaves = field(default_factory=dict[str, str])
    """The leaves as given, or as found from the slow pairs."""
    notes: tuple[str, ...] = ()
    flaws: Mapping[tuple[str, str], Answer] = field(default_factory=dict[tuple[str, str], Answer])
    """(sender, receiver) -> answer for a path whose best run is full
    but whose other runs show a fault.
    """
    hardware: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> its hardware, if there are several kinds."""
    narrow: bool = False
    """Whether uplinks are too narrow; then paths that cross leaves are
    compared with those that do not.
    """

    @property
    def accepted(self) -> bool:
        """Whether every node and every path is good or fair, and nothing is open."""
        settled = not self.open.sides and not self.open.paths
        parts = (*self.nodes.values(), *(verdict.answer for verdict in self.verdicts))
        return settled and bool(self.nodes) and all(answer.accepted for answer in parts)

    def population_of(self, sender: str, receiver: str) -> Population | None:
        """The population with which a path between these nodes is
        compared; None if there is none yet.
        """
        path = PathEnd(sender), PathEnd(receiver)
        if self.narrow and crosses_leaves(path, self.leaves):
            return self.populations.get("inside")
        none: Leaves = {}
        kinds = (path_kind(path, leaves, self.hardware) for leaves in (self.leaves, none))
        return next((found for kind in kinds if (found := self.populations.get(kind))), None)


def judge_measurements(done: Iterable[Measurement], context: Context) -> Judgement:
    """Find what is to blame: leaf, uplink, rail, node, direction or pair.
    Fewer than four nodes have no population.

    Between nodes of one machine only failures are reported: their speed
    depends on what else its cores do.
    """
    facts = facts_of(tuple(done), context)
    found = _judge(facts)
    return _without_speed(found, facts) if context.virtual else found


def _besides_speed(suspects: Suspects, facts: SortedPairs) -> Suspects:
    """The suspects without those that are slow only between nodes of one
    machine, which need no confirmation.
    """

    def idle(path: Path) -> bool:
        return facts.speeds[path] > 0 and facts.context.virtual >= {*nodes_of(path)}

    sides = {
        side: evidence
        for side, evidence in suspects.sides.items()
        if not all(idle(path_of(side, other)) for other in evidence.slow)
    }
    paths = tuple(path for path in suspects.paths if not idle(path))
    return replace(suspects, sides=sides, paths=paths)


def _without_speed(found: Judgement, facts: SortedPairs) -> Judgement:
    found = replace(found, open=_besides_speed(found.open, facts))
    idle = [
        one
        for one in found.verdicts
        if one.answer in (Answer.SLOW, Answer.UNSTEADY)
        and (named := {*one.nodes, *one.ends})
        and named <= facts.context.virtual
    ]
    if not idle:
        return found
    named = {node for one in idle for node in one.nodes}
    what = ", ".join(f"{one.subject} {one.answer}" for one in idle)
    return replace(
        found,
        verdicts=tuple(one for one in found.verdicts if one not in idle),
        nodes={**found.nodes, **dict.fromkeys(named, Answer.FAIR)},
        notes=(
            *found.notes,
            f"{what}: that is what else ran on the machine that they share, no network",
        ),
    )


def _judge(facts: SortedPairs) -> Judgement:
    context = facts.context
    if not facts.speeds:
        return Judgement(verdicts=(), open=Suspects(), nodes=_answers(facts, ()), populations={})
    if facts.few:
        return _judge_few(facts)
    if not facts.populations:
        verdicts = (_all_fail(facts),)
        nodes = _answers(facts, verdicts)
        return Judgement(verdicts=verdicts, open=Suspects(), nodes=nodes, populations={})
    of_leaves, explained = leaf_verdicts(facts)
    facts = replace(facts, slow=facts.slow | (facts.held - explained))
    of_rails, left = rail_verdicts(facts, facts.slow - explained)
    suspects = find_suspects(left, facts.full)
    explained |= facts.slow - left
    shaky = find_erratic(facts, explained, _steadily_slow(facts, suspects))
    ends, open_sides, cleared = _ends(facts, suspects, shaky.nodes)
    single = [one for one in (*suspects.paths, *cleared) if shaky.nodes.isdisjoint(nodes_of(one))]
    together = judge_shared(facts, single, suspects.proven)
    if together:
        ends, open_sides, single = _besides(facts, ends, single)
    now_and_then = find_broken_runs(facts, ends)
    pairs, open_paths = _pairs(facts, single, suspects.proven, now_and_then.nodes)
    of_many = (*_configuration(facts), *_fast_pair(facts), *of_leaves, *of_rails, *together)
    slow = (
        *of_many,
        *ends,
        *pairs,
        *now_and_then.verdicts,
        *shaky.verdicts,
        *judge_unsteady(facts, shaky.nodes, explained),
    )
    lossy, some_lost = judge_losing(facts, {node for one in slow for node in one.nodes})
    verdicts = (*slow, *lossy)
    return Judgement(
        verdicts=verdicts,
        open=Suspects(
            {**open_sides, **shaky.open},
            (*open_paths, *now_and_then.open, *dropping_paths(facts, shaky.nodes, explained)),
            suspects.proven,
        ),
        nodes=_answers(facts, verdicts),
        populations=facts.populations,
        leaves=context.leaves or find_leaves(facts.slow, facts.full),
        notes=(*shaky.notes, *now_and_then.notes, *some_lost, *_notes(facts)),
        flaws=find_flaws(facts),
        hardware=context.hardware,
        narrow=bool(facts.held) and any(not one.answer.accepted for one in of_leaves),
    )


# ---- ends


Sides = Mapping[Side, Evidence]


def _steadily_slow(facts: SortedPairs, suspects: Suspects) -> set[str]:
    """Nodes with a direction that is slow in all runs, unlike a node that flaps."""
    explained = _confirmed(facts, suspects)
    return {
        side[0].node
        for side in suspects.sides
        if explained[side] is not False and not scatters_on(facts, side)
    }


def _confirmed(facts: SortedPairs, suspects: Suspects) -> Mapping[Side, bool | None]:
    """Suspect -> whether the confirmation found it slow again; None
    if it was not measured again yet.
    """
    return {
        side: is_confirmed(
            side,
            evidence,
            suspects.proven,
            facts.confirmations.get(side, ()),
            _limit(facts, side, evidence),
        )
        for side, evidence in suspects.sides.items()
    }


def _limit(facts: SortedPairs, side: Side, evidence: Evidence) -> float:
    paths = (path_of(side, other) for other in evidence.slow)
    return min((facts.population_of(path).limit for path in paths), default=0.0)


def _ends(
    facts: SortedPairs, suspects: Suspects, erratic: Set[str]
) -> tuple[tuple[Verdict, ...], Sides, list[Path]]:
    """Verdicts about nodes except `erratic` ones; sides that must be confirmed first; slow
    paths of sides that were full when measured again.
    """
    sure: dict[Side, Evidence] = {}
    doubt: dict[Side, Evidence] = {}
    cleared: list[Path] = []
    for side, answer in _confirmed(facts, suspects).items():
        evidence = suspects.sides[side]
        if side[0].node in erratic:
            continue
        if answer is False:
            cleared += [path_of(side, other) for other in evidence.slow]
        else:
            (sure if answer or not suspects.proven else doubt)[side] = evidence
    return _named(facts, sure), doubt, cleared


def _besides(
    facts: SortedPairs, ends: Sequence[Verdict], single: Sequence[Path]
) -> tuple[tuple[Verdict, ...], Sides, list[Path]]:
    """The same if many slow paths have one common cause: only nodes that
    are slower still, and paths that fail.
    """
    worse = slower_nodes(facts, single)
    left = tuple(one for one in ends if worse.issuperset(one.nodes))
    return left, {}, [path for path in single if not facts.speeds[path]]


def _named(facts: SortedPairs, sure: Sides) -> tuple[Verdict, ...]:
    """One verdict for each node."""
    nodes: defaultdict[str, dict[Side, Evidence]] = defaultdict(dict)
    for side, evidence in sure.items():
        nodes[side[0].node][side] = evidence
    return tuple(_end_verdict(facts, node, sides) for node, sides in nodes.items())


def _end_verdict(facts: SortedPairs, node: str, sides: Mapping[Side, Evidence]) -> Verdict:
    """The verdict on one node; which directions and ports are slow decides its kind."""
    rails = {end.rail for path in facts.speeds for end in path if end.node == node}
    slow_rails = sorted({side[0].rail for side in sides})
    paths = [path_of(side, other) for side, evidence in sides.items() for other in evidence.slow]
    answer = _answer_of(facts, node, [facts.speeds[path] for path in paths])
    way = _way(sides)
    kind = Kind.HCA if 0 < len(slow_rails) < len(rails) else way
    most = max(facts.speeds[path] for path in paths)
    loses = 0 < most < _TRICKLE * facts.population_of(paths[0]).median
    alone = f"on port {', '.join(map(facts.rail, slow_rails))} alone" if kind is Kind.HCA else ""
    what = ": ".join(filter(None, (alone, _BACK[way], _LOSSES if loses else _WHY[kind])))
    return Verdict(
        kind=kind,
        subject=node,
        answer=answer,
        nodes=(node,),
        sentence=f"{node} {_does(facts, way, answer, paths)} {_counted(facts, sides)}: {what}{facts.note(node)}",
    )


def _way(sides: Iterable[Side]) -> Kind:
    """The kind of verdict, by the directions that are slow."""
    roles = {role for _, role in sides}
    one_way = {EndRole.SENDS: Kind.SENDS, EndRole.RECEIVES: Kind.RECEIVES}
    return Kind.NODE if len(roles) == 2 else one_way[roles.pop()]


_BACK = {Kind.NODE: "", Kind.SENDS: "it receives at full speed", Kind.RECEIVES: "it sends at full speed"}  # fmt: skip
_ONE_WAY = "cable or optic of one direction, pause frames, duplex"
_WHY = {
    Kind.NODE: "its NIC, slot, CPU or clocks; single-node results say which",
    Kind.SENDS: _ONE_WAY,
    Kind.RECEIVES: _ONE_WAY,
    Kind.HCA: "that HCA, its slot or its cable",
}
_TRICKLE = 0.05
"""Below this share of the others' speed, packets must be lost: the path is not just slow."""
_LOSSES = "so little that packets are lost; compare the MTU of its port, of its switch port and of the others, and look for errors of the cable"


def _does(facts: SortedPairs, kind: Kind, answer: Answer, paths: Sequence[Path]) -> str:
    """`sends at 62 (others 96)`, or that it fails."""
    if answer in FAILS:
        return FAILS[answer]
    verb = {Kind.SENDS: "sends at", Kind.RECEIVES: "receives at"}.get(kind, "reaches")
    # With few nodes, a leaf may have one node: then only the other leaf has normal speeds.
    normal = facts.populations.values() if facts.few else map(facts.population_of, paths)
    others = max(one.median for one in normal)
    return f"{verb} {facts.shown(max(facts.speeds[path] for path in paths))} (others {facts.shown(others)})"


def _counted(facts: SortedPairs, sides: Mapping[Side, Evidence]) -> str:
    """`with 7 of 7 partners`, and how many of them were measured again."""
    slow = frozenset(other.node for evidence in sides.values() for other in evidence.slow)
    total = slow | {other.node for evidence in sides.values() for other in evidence.full}
    again = {
        one.sender if one.sender != side[0].node else one.receiver
        for side in sides
        for one in facts.confirmations.get(side, ())
    }
    more = f", {len(again & slow)} of them again to confirm" if again & slow else ""
    return f"with {len(slow)} of {len(total)} partners{more}"


def _answer_of(facts: SortedPairs, node: str, speeds: Sequence[float]) -> Answer:
    broken = [
        one
        for one in facts.done
        if one.status is Outcome.FAILED and node in (one.sender, one.receiver)
    ]
    return Answer.SLOW if not broken or max(speeds, default=0.0) else failure_answer(broken)


# ---- pairs


def _pairs(
    facts: SortedPairs, paths: Iterable[Path], proven: Set[Side], failing: Set[str]
) -> tuple[tuple[Verdict, ...], tuple[Path, ...]]:
    """Verdicts about paths measured twice, and paths to measure again;
    without those that fail at `failing` nodes.
    """
    paths = [path for path in paths if facts.speeds[path] or failing.isdisjoint(nodes_of(path))]
    again = {
        one.path
        for one in facts.done
        if one.stage is Stage.CONFIRM and not one.port and one.speed is not None
    }
    sure = [path for path in paths if path in again]
    done: set[Path] = set()
    verdicts: list[Verdict] = []
    for path in sure:
        if path not in done:
            both = (path[1], path[0]) in sure
            done |= {path, (path[1], path[0])}
            verdicts.append(_pair_verdict(facts, path, proven, both=both))
    return tuple(verdicts), tuple(path for path in paths if path not in again)


def _pair_verdict(facts: SortedPairs, path: Path, proven: Set[Side], *, both: bool) -> Verdict:
    subject = facts.named(path, "–" if both else "→")
    speed, normal = facts.speeds[path], facts.population_of(path)
    other = [
        one.value for one in facts.done if one.port and one.value is not None and one.path == path
    ]
    broken = next(
        (
            f" ({one.text})"
            for one in facts.done
            if one.path == path and one.status is Outcome.FAILED and one.text
        ),
        "",
    )
    does = f"at {facts.shown(speed)}" if speed else f"fails{broken}"
    usual, unknown = facts.shown(normal.median), _unproven(path, proven, both=both)
    others = f"others {usual}" if unknown else f"both {usual} with others"
    if other and max(other) >= normal.limit:
        kind = Kind.EQUAL_PATH
        what = f"{facts.shown(max(other))} on another port: one of the equal paths is bad; compare the switch counters"
    else:
        kind = Kind.PAIR
        what = f"{unknown}, or the path" if unknown else "one path between them"
        what += "; another port did not help" if other else ""
    answer = Answer.SLOW if speed else Answer.FAILED
    return Verdict(
        kind=kind,
        subject=subject,
        answer=answer,
        ends=nodes_of(path),
        sentence=f"{subject} {does} twice, {others}: {what}{facts.notes(path)}",
    )


def _unproven(path: Path, proven: Set[Side], *, both: bool) -> str:
    """The nodes of a path that reached full speed with no partner, in its
    direction or in both; "" if there are none.
    """
    ways = (path, (path[1], path[0])) if both else (path,)
    sides = {side for way in ways for side in sides_of(way)} - proven
    return " or ".join(sorted({end.node for end, _ in sides}))


# ---- the whole cluster


def _configuration(facts: SortedPairs) -> tuple[Verdict, ...]:
    """Verdict that all paths are equally slow: the configuration is to blame."""
    expected = facts.context.expected
    if not facts.populations:
        return ()
    best = max(facts.populations.values(), key=lambda one: one.median)
    if expected is None or best.median >= expected.fair * expected.factor * expected.ceiling:
        return ()
    share = f"{best.median / expected.ceiling:.0%}".replace("%", " %")
    speeds = [speed for speed in facts.speeds.values() if speed]
    alike = "alike and slow" if min(speeds) > max(speeds) / 2 else "slow, though not alike"
    return (
        Verdict(
            kind=Kind.CONFIGURATION,
            subject="all",
            answer=Answer.SLOW,
            sentence=(
                f"all {best.count} paths are {alike}, {facts.shown(best.median)}, {share} of"
                f" the {significant_figures(expected.ceiling)} that {expected.of}: configuration,"
                " not a node; look at MTU, interface, GPU direct, and whether RDMA is used"
            ),
        ),
    )


_MOSTLY_SLOW = 3
"""With at most this many other nodes, a fast pair may be the only one that is well."""


def _fast_pair(facts: SortedPairs) -> tuple[Verdict, ...]:
    """Two nodes that are faster with each other than all others: they alone are
    well, or share a machine or a switch.
    """
    everybody = {end.node for path in facts.speeds for end in path}
    fast = next(by_gap(facts.speeds, BLATANT), frozenset[Path]())
    two = sorted({end.node for path in fast for end in path})
    rest = sorted(everybody.difference(two))
    if len(two) != 2 or len(rest) > _MOSTLY_SLOW or fast & facts.slow:
        return ()
    others = max(speed for path, speed in facts.speeds.items() if path not in fast)
    return (
        Verdict(
            kind=Kind.CONFIGURATION,
            subject="all",
            answer=Answer.SLOW,
            sentence=(
                f"{two[0]} and {two[1]} reach {facts.shown(facts.speeds[min(fast)])} with each"
                f" other, all others at most {facts.shown(others)}: either {list_names(rest)} are"
                " slow, or these two share a machine or a switch; compare with the rate of the"
                " links"
            ),
        ),
    )


def _all_fail(facts: SortedPairs) -> Verdict:
    text = next((one.text for one in facts.done if one.status is Outcome.FAILED), "")
    nodes = tuple(sorted({end.node for path in facts.speeds for end in path}))
    return Verdict(
        kind=Kind.CONFIGURATION,
        subject="all",
        answer=failure_answer(facts.done),
        nodes=nodes,
        sentence=(
            f"all {len(facts.speeds)} paths fail ({text}): configuration, not a node; look at"
            " addresses, firewall, and whether the program runs there"
        ),
    )


def _judge_few(facts: SortedPairs) -> Judgement:
    """Judge fewer than four nodes, which are no population."""
    once = doubted_paths(facts)
    slow = () if once else _few(facts)
    verdicts = (
        *_configuration(facts),
        *_failing(facts),
        *slow,
        *find_broken_runs(facts, ()).verdicts,
        *judge_unsteady(facts),
    )
    return Judgement(
        verdicts=verdicts,
        open=Suspects(paths=once),
        nodes=_answers(facts, verdicts),
        populations=facts.populations,
        notes=(
            *judge_losing(facts, set())[1],
            (
                "fewer than four nodes: judged by the highest speed the link can have, by its two"
                " directions, and by whether a third node is half as fast again"
            ),
        ),
        flaws=find_flaws(facts),
    )


def _few(facts: SortedPairs) -> tuple[Verdict, ...]:
    """Verdicts on two or three nodes, compared with the ceiling, other rails,
    the other direction, and the third node.
    """
    slow = far_slower(facts)
    suspects = find_suspects(slow, {path for path, speed in facts.speeds.items() if speed} - slow)
    if not suspects.sides:
        return tuple(_one_way(facts, slow))
    pairs = [_pair_verdict(facts, path, suspects.proven, both=False) for path in suspects.paths]
    return (*_named(facts, suspects.sides), *pairs)


def _failing(facts: SortedPairs) -> list[Verdict]:
    dead = [path for path, speed in facts.speeds.items() if not speed]
    back = {path: facts.speeds.get((path[1], path[0])) for path in dead}
    return [
        _fails(facts, path, back[path], both=back[path] == 0.0)
        for path in dead
        if back[path] != 0.0 or path[0] < path[1]
    ]


def _one_way(facts: SortedPairs, slow: Collection[Path]) -> list[Verdict]:
    """Paths that are slower than on their other rails, than in the other
    direction, or than those of the other nodes.
    """
    found: list[Verdict] = []
    least = 1 - facts.context.tolerance
    for path, speed in facts.speeds.items():
        (sender, receiver), back = path, facts.speeds.get((path[1], path[0]))
        normal, sign = usual_speed(facts, path), "→"
        if speed and speed < normal * least:
            text = (
                f"its other rails {facts.shown(normal)}: that HCA of one of the two, its slot or"
                " its cable, or the switch of the rail"
            )
        elif speed and back is not None and speed < back * least and _is_apart(facts, path):
            third = _third(facts, path, back * least)
            what = (
                f"both are full with {third}: one path between them"
                if third
                else "one direction of one of the two"
            )
            text = f"back {facts.shown(back)}{', ' if third else ': '}{what}; swap cable or port and measure again"
        elif path in slow and sender < receiver:
            text = (
                f"both {facts.shown(facts.population_of(path).median)} with the third node: one"
                " path between them; swap cable or port and measure again"
            )
            sign = "–" if back is not None else sign
        else:
            continue
        found.append(
            Verdict(
                kind=Kind.PAIR,
                subject=facts.named(path, sign),
                answer=Answer.SLOW,
                sentence=f"{facts.named(path, sign)} at {facts.shown(speed)}, {text}{facts.notes(path)}",
                ends=nodes_of(path),
            )
        )
    return found


def _is_apart(facts: SortedPairs, path: Path) -> bool:
    """Whether the fastest run of this direction is below what is usual back: where runs of one
    direction differ more than the two directions do, neither is to blame.
    """
    back = [one.speed for one in facts.runs[path[1], path[0]] if one.speed]
    return bool(back) and (facts.speeds[path] or 0.0) < median_low(back)


def _third(facts: SortedPairs, path: Path, least: float) -> str:
    """A third node to which the sender sends, and from which the receiver
    receives, at that speed or more; "" if none.
    """
    (sender, receiver), speeds = path, facts.speeds
    full = {
        end
        for one in speeds
        for end in one
        if speeds.get((sender, end), 0) >= least <= speeds.get((end, receiver), 0)
    }
    return next((end.node for end in sorted(full)), "")


def _fails(facts: SortedPairs, path: Path, back: float | None, *, both: bool) -> Verdict:
    """The verdict on a path, among few nodes, that never gave a value."""
    subject = facts.named(path, "–" if both else "→")
    failed = [one for one in facts.runs[path] if one.status is Outcome.FAILED]
    other = f", back {facts.shown(back)}" if back else ""
    return Verdict(
        kind=Kind.PAIR,
        subject=subject,
        answer=failure_answer(failed),
        ends=nodes_of(path),
        sentence=(
            f"{subject} {FAILS[failure_answer(failed)]} ({failed[0].text}){other}: look at its raw"
            f" output, then swap cable or port and measure again{facts.notes(path)}"
        ),
    )


def _notes(facts: SortedPairs) -> tuple[str, ...]:
    """Notes on what the numbers cannot tell, such as differences between kinds of hardware."""
    found = facts.populations
    most = max(one.median for one in found.values())
    lower = [
        kind
        for kind, one in found.items()
        if facts.context.hardware and one.median < most * (1 - facts.context.tolerance)
    ]
    return (
        *(
            f"{kind}: {facts.shown(found[kind].median)}, at best {facts.shown(most)}; compared with"
            " equal hardware alone"
            for kind in sorted(lower)
        ),
        *_scatter(facts),
    )


def _scatter(facts: SortedPairs) -> tuple[str, ...]:
    return tuple(
        (
            f"the values ({kind}) scatter by {one.spread / one.median:.0%}".replace("%", " %")
            if not one.mixed
            else (
                f"the values ({kind}) are not of one kind, or were disturbed: judged against the"
                f" faster ones, {facts.shown(one.median)}"
            )
        )
        for kind, one in facts.populations.items()
        if one.mixed
    )


def _answers(facts: SortedPairs, verdicts: Iterable[Verdict]) -> dict[str, Answer]:
    """Node -> its answer: that of the worst verdict that names it, or else by its best paths."""
    found = dict.fromkeys(facts.context.left_out, Answer.LEFT_OUT)
    attempted = {
        node for one in facts.done for node in (one.sender, one.receiver, *one.group) if node
    }
    best: dict[str, Answer] = {}
    for path, speed in facts.speeds.items():
        if not speed:
            continue
        # Two or three values are no population; verdicts say how they compare with each other.
        answer = Answer.GOOD if facts.few else facts.population_of(path).answer(speed)
        for end in path:
            if best.get(end.node) is not Answer.GOOD and answer.accepted:
                best[end.node] = answer
    for node in sorted(attempted):
        found[node] = best.get(node) or _not_good(facts, node)
    for verdict in verdicts:
        for node in verdict.nodes:
            found[node] = verdict.answer
    return found


def _not_good(facts: SortedPairs, node: str) -> Answer:
    """The answer for a node without a good path."""
    speeds = [speed for path, speed in facts.speeds.items() if node in (path[0].node, path[1].node)]
    return _answer_of(facts, node, speeds) if speeds else Answer.NOT_MEASURED
