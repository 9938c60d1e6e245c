"""Intermittent faults of paths with a full best run: sometimes slow,
sometimes failing, or losing packets. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from math import comb
from statistics import mean, median, median_low

from msgspec import field

from rankdeck.acceptance.population import DROPS, count_drops
from rankdeck.acceptance.suspects import (
    EndRole,
    Evidence,
    Side,
    SortedPairs,
    confirming_runs,
    far_slower,
    find_suspects,
    nodes_of,
    path_of,
    steady_runs,
)
from rankdeck.acceptance.values import (
    FAILS,
    Answer,
    Kind,
    Measurement,
    Outcome,
    Path,
    Stage,
    Verdict,
    failure_answer,
)
from rankdeck.values import Value

_TWICE = 2


class Broken(Value):
    """Paths on which some runs failed and others did not."""

    verdicts: tuple[Verdict, ...] = ()
    open: tuple[Path, ...] = ()
    """Paths that failed once and were not measured again yet."""
    notes: tuple[str, ...] = ()
    nodes: frozenset[str] = frozenset()
    """Nodes to blame for all of their failing paths, including paths that always fail."""


def _unsteady_paths(facts: SortedPairs) -> list[Path]:
    """Paths whose best run is full, but of whose runs at least half dropped when measured again."""
    fine = {
        path: confirming_runs(steady_runs(runs))
        for path, runs in facts.runs.items()
        if path not in facts.slow
    }
    return [
        path
        for path, runs in fine.items()
        if (count := count_drops(runs)) >= _TWICE and 2 * count >= len(runs)
    ]


_UNSTEADY = "errors on the cable, throttling, or other traffic"
_CHANCE = 0.01
"""A node is measured again if the probability that chance alone gave so many
partners with a drop is at most this.
"""
_FEWEST, _HALF = 3, 0.5
"""A node is suspected from this many partners with a drop on, and this share of its partners."""
_AGAIN = 0.15
"""Share of the node's runs with proven partners that must drop when it is measured again."""


class Erratic(Value):
    """Nodes that are sometimes slow, with more partners than chance explains."""

    verdicts: tuple[Verdict, ...] = ()
    open: Mapping[Side, Evidence] = field(default_factory=dict[Side, Evidence])
    """Nodes that were not measured again with proven partners yet."""
    notes: tuple[str, ...] = ()
    nodes: frozenset[str] = frozenset()
    """Nodes that are named or open; they explain slow and unsteady runs on their paths."""


def find_erratic(facts: SortedPairs, explained: Set[Path], blamed: Set[str]) -> Erratic:
    """Nodes of which some runs drop, with most of their partners; without those `blamed` already.

    `explained` are paths that something else explains.
    """
    dropped = {
        path: runs
        for path, runs in _dropped(facts).items()
        if path not in explained and blamed.isdisjoint(nodes_of(path))
    }
    verdicts: list[Verdict] = []
    notes: list[str] = []
    doubt: dict[Side, Evidence] = {}
    for node in () if facts.few else _stand_out(dropped):
        mine = {path: runs for path, runs in dropped.items() if node in nodes_of(path)}
        twice = _strikes_twice(node, mine, facts)
        if twice is None:
            doubt |= _sides(node, mine)
        elif twice:
            verdicts.append(_erratic_node(facts, node, mine))
        else:
            times = sum(len(runs) for runs in mine.values())
            notes.append(
                f"{node} was slow in {times} runs, with {_of_partners(node, mine)} partners, "
                "and not when measured again: a disturbance that has passed, or a fault that comes and goes"
            )
    nodes = {one.subject for one in verdicts} | {end.node for end, _ in doubt}
    return Erratic(tuple(verdicts), doubt, tuple(notes), frozenset(nodes))


Dropped = Mapping[Path, Sequence[Measurement]]


def _dropped(facts: SortedPairs) -> Dropped:
    """Each path with a value -> its runs that dropped, compared with its
    population; without paths that stayed slow.
    """
    return {
        path: [
            one
            for one in steady_runs(facts.runs[path])
            if one.value is not None and one.value < DROPS * facts.population_of(path).median
        ]
        for path, speed in facts.speeds.items()
        if speed and not (path in facts.slow and confirming_runs(facts.runs[path]))
    }


def _stand_out(dropped: Dropped) -> Iterator[str]:
    """Nodes that stand out, the worst first.

    Its pairs are then removed, because they also count against its partners.
    """
    pairs: defaultdict[frozenset[str], bool] = defaultdict(bool)
    for path, runs in dropped.items():
        pairs[frozenset(nodes_of(path))] |= any(one.stage is Stage.PAIRS for one in runs)
    while True:
        met = Counter(node for pair in pairs for node in pair)
        bad = Counter(node for pair, drop in pairs.items() if drop for node in pair)
        total, drops_of_all = len(pairs), sum(pairs.values())
        chance = {
            node: _tail(count, met[node], (drops_of_all - count + 1) / (total - met[node] + 2))
            for node, count in bad.items()
            if count >= max(_FEWEST, _HALF * met[node])
        }
        worst = min(chance, key=lambda node: chance[node], default="")
        if not worst or chance[worst] > _CHANCE:
            return
        yield worst
        for pair in [pair for pair in pairs if worst in pair]:
            del pairs[pair]


def _tail(count: int, of: int, share: float) -> float:
    """Probability of at least `count` of `of` events, each with probability `share` (binomial)."""
    return sum(comb(of, n) * share**n * (1 - share) ** (of - n) for n in range(count, of + 1))


def _strikes_twice(node: str, mine: Dropped, facts: SortedPairs) -> bool | None:
    """Whether the node dropped with each partner when measured again;
    None if it was not measured again.
    """
    runs, drops_with = Counter[str](), Counter[str]()
    for path, dropped in mine.items():
        other = next(one for one in nodes_of(path) if one != node)
        runs[other] += len(confirming_runs(steady_runs(facts.runs[path])))
        drops_with[other] += len(confirming_runs(dropped))
    asked = [other for other, count in runs.items() if count]
    if not asked:
        return None
    least = max(_TWICE * len(asked), _AGAIN * runs.total())
    return all(drops_with[one] for one in asked) and drops_with.total() >= least


def _partners(node: str, paths: Iterable[Path]) -> set[str]:
    """The other nodes of these paths."""
    return {name for path in paths for name in nodes_of(path)} - {node}


def _of_partners(node: str, mine: Dropped) -> str:
    """`3 of 5`: with how many partners runs dropped."""
    bad = [path for path, runs in mine.items() if runs]
    return f"{len(_partners(node, bad))} of {len(_partners(node, mine))}"


def _sides(node: str, mine: Dropped) -> dict[Side, Evidence]:
    """Evidence for both directions of the node: the partners with
    whom it dropped, and the others.
    """
    found: dict[Side, Evidence] = {}
    for place, role in enumerate(EndRole):
        ends = {path[place]: None for path in mine if path[place].node == node}
        for end in ends:
            others = {
                path[1 - place]: bool(runs) for path, runs in mine.items() if path[place] == end
            }
            slow = frozenset(other for other, drop in others.items() if drop)
            found[end, role] = Evidence(slow, frozenset(others) - slow)
    return found


def _erratic_node(facts: SortedPairs, node: str, mine: Dropped) -> Verdict:
    """`n4 sends between 30 and 96, slow in 9 of 28 runs with 5 of 5 partners`."""
    out = {path: runs for path, runs in mine.items() if path[0].node == node}
    ways = {Kind.SENDS: out, Kind.RECEIVES: {path: mine[path] for path in mine if path not in out}}
    times = {kind: sum(len(runs) for runs in way.values()) for kind, way in ways.items()}
    kind = next(
        (kind for kind, count in times.items() if count >= _ONE_WAY * sum(times.values())),
        Kind.NODE,
    )
    way = ways.get(kind, mine)
    values = [one.value for path in way for one in facts.runs[path] if one.value is not None]
    text = (
        f"{node} {_DOES.get(kind, 'reaches')} between {facts.shown(min(values))} and"
        f" {facts.shown(max(values))}, now and then slow with {_of_partners(node, way)} partners,"
        f" in {times.get(kind, sum(times.values()))} of {len(values)} runs:"
        f" {_UNSTEADY}{facts.note(node)}"
    )
    return Verdict(kind=kind, subject=node, answer=Answer.UNSTEADY, sentence=text, nodes=(node,))


_DOES = {Kind.SENDS: "sends", Kind.RECEIVES: "receives"}
_ONE_WAY = 0.9
"""A direction is named if at least this share of the drops is in it."""


def judge_unsteady(
    facts: SortedPairs, nodes: Set[str] = frozenset(), explained: Set[Path] = frozenset()
) -> Iterator[Verdict]:
    """Verdicts on unsteady paths, except those `explained`, and those of
    `nodes`, which are to blame themselves.
    """
    paths = (
        path
        for path in _unsteady_paths(facts)
        if path not in explained and nodes.isdisjoint(nodes_of(path))
    )
    return (_shaky(facts, path, name) for path, name in facts.told_once(paths))


def _shaky(facts: SortedPairs, path: Path, subject: str) -> Verdict:
    runs = steady_runs(facts.runs[path])
    worst = min(speed for one in runs if (speed := one.speed) is not None)
    text = (
        f"{subject} between {facts.shown(worst)} and {facts.shown(facts.speeds[path])} in {len(runs)} runs: "
        f"{_UNSTEADY}{facts.notes(path)}"
    )
    return Verdict(
        kind=Kind.PAIR, subject=subject, answer=Answer.UNSTEADY, sentence=text, ends=nodes_of(path)
    )


def find_broken_runs(facts: SortedPairs, ends: Iterable[Verdict]) -> Broken:
    """Failed runs on paths where other runs succeeded: after one failure the
    path is measured again, two are a verdict.
    """
    blamed = {node for verdict in ends for node in verdict.nodes}
    failures = {
        path: failed
        for path, runs in facts.runs.items()
        if facts.speeds.get(path) or (path in facts.speeds and not facts.few)
        if not blamed.intersection(nodes_of(path))
        if (failed := [one for one in runs if one.status is Outcome.FAILED])
    }
    found = _blamed(facts, failures)
    loose = [path for path in found.pop("", []) if facts.speeds[path]]
    nodes = (_broken_node(facts, node, paths, failures) for node, paths in found.items())
    sure = [path for path in loose if _is_sure(facts, failures[path])]
    rest = [path for path in loose if path not in sure]
    return Broken(
        (
            *nodes,
            *(
                _broken_path(facts, path, name, failures[path])
                for path, name in facts.told_once(sure)
            ),
        ),
        tuple(path for path in rest if not confirming_runs(facts.runs[path])),
        tuple(
            _once(facts, path, name, failures[path])
            for path, name in facts.told_once(
                one for one in rest if confirming_runs(facts.runs[one])
            )
        ),
        frozenset(found),
    )


def _blamed(
    facts: SortedPairs, failures: Mapping[Path, Sequence[Measurement]]
) -> dict[str, list[Path]]:
    """Node that sometimes fails -> its paths that fail; "" -> paths that no node explains."""
    # A node that sometimes fails does so in both directions.
    ways = {way for a, b in failures for way in ((a, b), (b, a))}
    suspects = find_suspects(ways, set(facts.speeds) - ways)
    often = _stand_out({path: failures.get(path, ()) for path in facts.speeds})
    names = dict.fromkeys([*(end.node for end, _ in suspects.sides), *often])
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for path in failures:
        found[next((name for name in names if name in nodes_of(path)), "")].append(path)
    for node, paths in list(found.items()):
        if node and (
            len(_partners(node, paths)) < _TWICE or not any(facts.speeds[path] for path in paths)
        ):
            found[""] += found.pop(node)
    return found


def _is_sure(facts: SortedPairs, failed: Sequence[Measurement]) -> bool:
    """Whether a failure needs no confirmation: two failures, wrong
    values, or too few nodes to confirm it.
    """
    return facts.few or len(failed) >= _TWICE or failure_answer(failed) is Answer.WRONG_VALUES


def _broken_node(
    facts: SortedPairs,
    node: str,
    paths: Sequence[Path],
    failures: Mapping[Path, Sequence[Measurement]],
) -> Verdict:
    failed = [one for path in paths for one in failures[path]]
    met = _partners(node, (path for path in facts.speeds if node in nodes_of(path)))
    return Verdict(
        kind=Kind.NODE,
        subject=node,
        answer=failure_answer(failed),
        nodes=(node,),
        sentence=(
            f"{node} {FAILS[failure_answer(failed)]} now and then with"
            f" {len(_partners(node, paths))} of {len(met)} partners ({failed[0].text}): its NIC,"
            f" cable, memory or power{facts.note(node)}"
        ),
    )


def _broken_path(
    facts: SortedPairs, path: Path, name: str, failed: Sequence[Measurement]
) -> Verdict:
    return Verdict(
        kind=Kind.PAIR,
        subject=name,
        answer=failure_answer(failed),
        ends=nodes_of(path),
        sentence=(
            f"{name} {FAILS[failure_answer(failed)]} in {len(failed)} of {len(facts.runs[path])}"
            f" runs ({failed[0].text}), {facts.shown(facts.speeds[path])} in the best one: errors"
            f" on the path, or one of the two; their raw outputs say more{facts.notes(path)}"
        ),
    )


def _once(facts: SortedPairs, path: Path, name: str, failed: Sequence[Measurement]) -> str:
    runs = len(facts.runs[path])
    return f"{name} failed once ({failed[0].text}) and did not in {runs - 1} other runs"


# ---- lost packets

_LOSES, _FAR = 0.002, 10
"""Lost packets are reported from this share of resent packets on, if it
is so many times that of the others.
"""


def _lossy(facts: SortedPairs) -> dict[Path, float]:
    """Path that is not slow but lost packets in each of at least two runs
    -> mean share of packets sent again.
    """
    shares = {
        path: mean(one.resent for one in some) if all(one.resent for one in some) else 0.0
        for path, runs in facts.runs.items()
        if len(some := [one for one in runs if one.value is not None]) >= _TWICE
    }
    limit = max(_LOSES, _FAR * median_low(shares.values())) if shares else 0.0
    return {
        path: share for path, share in shares.items() if share > limit and path not in facts.slow
    }


def _lossy_sides(facts: SortedPairs, paths: Iterable[Path]) -> Mapping[Side, Evidence]:
    """Sides (ends in one direction) that lose packets with most of their partners."""
    lossy = set(paths)
    return find_suspects(lossy, set(facts.speeds) - lossy).sides


def judge_losing(
    facts: SortedPairs, blamed: Set[str]
) -> tuple[tuple[Verdict, ...], tuple[str, ...]]:
    """Verdicts on nodes that lose packets at full speed, except those
    `blamed` already; and notes on single paths.
    """
    shares = _lossy(facts)
    nodes: defaultdict[str, set[Path]] = defaultdict(set)
    for side, evidence in () if facts.few else _lossy_sides(facts, shares).items():
        nodes[side[0].node] |= {path_of(side, other) for other in evidence.slow}
    explained = {path for paths in nodes.values() for path in paths}
    notes = [
        f"{facts.named(path)}: {_percent(share)} of the packets are sent again, in each run: errors on the path"
        for path, share in sorted(shares.items())
        if path not in explained and blamed.isdisjoint(end.node for end in path)
    ]
    verdicts = [
        _losing_node(facts, node, {path: shares[path] for path in paths})
        for node, paths in nodes.items()
        if node not in blamed
    ]
    return tuple(verdicts), tuple(notes)


def _losing_node(facts: SortedPairs, node: str, shares: Mapping[Path, float]) -> Verdict:
    sends = {path[0].node == node for path in shares}
    does, kind = ("sends", Kind.SENDS) if sends == {True} else ("receives", Kind.RECEIVES)
    if len(sends) > 1:
        does, kind = "sends and receives", Kind.NODE
    mine = [path for path in facts.speeds if any(path[int(not way)].node == node for way in sends)]
    usual = median(one.resent for runs in facts.runs.values() for one in runs)
    text = (
        f"{node} {does} at full speed, but {_percent(median(shares.values()))} of the packets are"
        f" lost and sent again (others {_percent(usual)}) with {len(_partners(node, shares))} of"
        f" {len(_partners(node, mine))} partners: its cable, optic or switch port; compare their"
        f" error counters{facts.note(node)}"
    )
    return Verdict(kind=kind, subject=node, answer=Answer.UNSTEADY, sentence=text, nodes=(node,))


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def find_flaws(facts: SortedPairs) -> dict[tuple[str, str], Answer]:
    """(sender, receiver) -> answer for a path whose best run is full
    but whose other runs show a fault.
    """
    lossy = set(_lossy(facts))
    found = {(a.node, b.node): Answer.UNSTEADY for a, b in (*_unsteady_paths(facts), *lossy)}
    found |= {(a.node, b.node): Answer.SLOW for a, b in (far_slower(facts) if facts.few else ())}
    for (a, b), runs in facts.runs.items():
        failed = [one for one in runs if one.status is Outcome.FAILED]
        if failed and _is_sure(facts, failed):
            found[a.node, b.node] = failure_answer(failed)
    return found
