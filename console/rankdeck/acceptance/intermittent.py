"""Paths that are full and not good: slow now and then, failing now and then, or losing packets. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import mean, median, median_low

from rankdeck.acceptance.measurement import (
    FAILS,
    Answer,
    Kind,
    Measurement,
    Path,
    Verdict,
    drops,
    failure,
)
from rankdeck.acceptance.recipe import Status
from rankdeck.acceptance.suspects import (
    Evidence,
    Facts,
    Side,
    again,
    far_slower,
    find_suspects,
    nodes_of,
    path_of,
    steady,
)

_TWICE = 2


@dataclass(frozen=True, slots=True)
class Broken:
    """Paths on which some runs failed and others did not."""

    verdicts: tuple[Verdict, ...] = ()
    open: tuple[Path, ...] = ()
    """Failed once, and were not measured again."""
    notes: tuple[str, ...] = ()


def _unsteady_paths(facts: Facts) -> list[Path]:
    """Those whose best is full, and of whose repeats half or more dropped when they were measured again."""
    fine = {
        path: again(steady(runs)) for path, runs in facts.runs.items() if path not in facts.slow
    }
    return [
        path
        for path, runs in fine.items()
        if (count := drops(runs)) >= _TWICE and 2 * count >= len(runs)
    ]


def _unsteady_sides(facts: Facts, paths: Iterable[Path]) -> Mapping[Side, Evidence]:
    """Ends to which two or more of these paths lead, and which dropped at least once with most of their partners."""
    ways, full = set(paths), {path for path in facts.speeds if path not in facts.slow}
    shaky = {path for path in full if drops(steady(facts.runs[path]))}
    return find_suspects(ways, full - shaky).sides


def unsteady(facts: Facts) -> tuple[Verdict, ...]:
    """Nodes whose paths are unsteady, and each other such path for itself."""
    paths = _unsteady_paths(facts)
    nodes: defaultdict[str, set[Path]] = defaultdict(set)
    for side, evidence in _unsteady_sides(facts, paths).items():
        nodes[side[0].node] |= {path_of(side, other) for other in evidence.slow}
    whole = set[Path]().union(*nodes.values())
    return (
        *(_shaky_node(facts, node, sorted(some)) for node, some in nodes.items()),
        *(
            _shaky(facts, path, name)
            for path, name in facts.told_once(one for one in paths if one not in whole)
        ),
    )


_UNSTEADY = "errors on the cable, throttling, or other traffic"


def _shaky_node(facts: Facts, node: str, paths: Sequence[Path]) -> Verdict:
    """`n4 sends between 30 and 96, dropped with 5 of 5 partners`."""
    sends = {path[0].node == node for path in paths}
    does, kind = ("sends", Kind.SENDS) if sends == {True} else ("receives", Kind.RECEIVES)
    if len(sends) > 1:
        does, kind = "reaches", Kind.NODE
    mine = [path for path in facts.runs if any(path[int(not way)].node == node for way in sends)]
    met = {end.node for path in mine for end in path} - {node}
    dropped = {end.node for path in mine if drops(steady(facts.runs[path])) for end in path} - {
        node
    }
    speeds = [
        speed
        for path in paths
        for one in steady(facts.runs[path])
        if (speed := one.speed) is not None
    ]
    text = (
        f"{node} {does} between {facts.shown(min(speeds))} and {facts.shown(max(speeds))}, "
        f"now and then with {len(dropped)} of {len(met)} partners: {_UNSTEADY}{facts.note(node)}"
    )
    return Verdict(kind=kind, subject=node, answer=Answer.UNSTEADY, sentence=text, nodes=(node,))


def _shaky(facts: Facts, path: Path, subject: str) -> Verdict:
    runs = steady(facts.runs[path])
    worst = min(speed for one in runs if (speed := one.speed) is not None)
    text = (
        f"{subject} between {facts.shown(worst)} and {facts.shown(facts.speeds[path])} in {len(runs)} runs: "
        f"{_UNSTEADY}{facts.notes(path)}"
    )
    return Verdict(
        kind=Kind.PAIR, subject=subject, answer=Answer.UNSTEADY, sentence=text, ends=nodes_of(path)
    )


def broken(facts: Facts, ends: Iterable[Verdict]) -> Broken:
    """Runs that failed where others of the same path did not: once is measured again, twice is named."""
    blamed = {node for verdict in ends for node in verdict.nodes}
    failures = {
        path: failed
        for path, runs in facts.runs.items()
        if facts.speeds.get(path) and not blamed.intersection(end.node for end in path)
        if (failed := [one for one in runs if one.status is Status.FAILED])
    }
    # A node that fails now and then does so in either direction.
    ways = {way for a, b in failures for way in ((a, b), (b, a))}
    suspects = find_suspects(ways, set(facts.speeds) - ways)
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for path in failures:
        node = next((end.node for end, _ in suspects.sides if end in path), "")
        found[node].append(path)
    loose = found.pop("", [])
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
        tuple(path for path in rest if not again(facts.runs[path])),
        tuple(
            _once(facts, path, name, failures[path])
            for path, name in facts.told_once(one for one in rest if again(facts.runs[one]))
        ),
    )


def _is_sure(facts: Facts, failed: Sequence[Measurement]) -> bool:
    """Two strikes, one wrong value, or nobody to confirm it."""
    return facts.few or len(failed) >= _TWICE or failure(failed) is Answer.WRONG_VALUES


def _broken_node(
    facts: Facts, node: str, paths: Sequence[Path], failures: Mapping[Path, Sequence[Measurement]]
) -> Verdict:
    failed = [one for path in paths for one in failures[path]]
    others = {end.node for path in paths for end in path} - {node}
    met = {
        end.node for path in facts.speeds for end in path if node in (path[0].node, path[1].node)
    }
    return Verdict(
        kind=Kind.NODE, subject=node, answer=failure(failed), nodes=(node,),
        sentence=f"{node} {FAILS[failure(failed)]} now and then with {len(others)} of {len(met - {node})} partners "
        f"({failed[0].text}): its NIC, cable, memory or power{facts.note(node)}",
    )  # fmt: skip


def _broken_path(facts: Facts, path: Path, name: str, failed: Sequence[Measurement]) -> Verdict:
    return Verdict(
        kind=Kind.PAIR, subject=name, answer=failure(failed), ends=nodes_of(path),
        sentence=f"{name} {FAILS[failure(failed)]} in {len(failed)} of {len(facts.runs[path])} runs ({failed[0].text}), "
        f"{facts.shown(facts.speeds[path])} in the best one: errors on the path, or one of the two; their raw outputs say more{facts.notes(path)}",
    )  # fmt: skip


def _once(facts: Facts, path: Path, name: str, failed: Sequence[Measurement]) -> str:
    runs = len(facts.runs[path])
    return f"{name} failed once ({failed[0].text}) and did not in {runs - 1} other runs"


# ---- lost packets

_LOSES, _FAR = 0.002, 10
"""Share of packets sent again from which on it is said, and times that of the others."""


def _lossy(facts: Facts) -> dict[Path, float]:
    """Paths that are not slow and lost packets in each of two runs or more -> the share sent again in all of them."""
    shares = {
        path: mean(one.resent for one in some) if all(one.resent for one in some) else 0.0
        for path, runs in facts.runs.items()
        if len(some := [one for one in runs if one.value is not None]) >= _TWICE
    }
    limit = max(_LOSES, _FAR * median_low(shares.values())) if shares else 0.0
    return {
        path: share for path, share in shares.items() if share > limit and path not in facts.slow
    }


def _lossy_sides(facts: Facts, paths: Iterable[Path]) -> Mapping[Side, Evidence]:
    """Ends that lose packets with most of their partners."""
    lossy = set(paths)
    return find_suspects(lossy, set(facts.speeds) - lossy).sides


def losing(facts: Facts, blamed: Set[str]) -> tuple[tuple[Verdict, ...], tuple[str, ...]]:
    """Nodes at whose port packets are lost though the speed is full, but those `blamed` already; of single paths a note."""
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


def _losing_node(facts: Facts, node: str, shares: Mapping[Path, float]) -> Verdict:
    sends = {path[0].node == node for path in shares}
    does, kind = ("sends", Kind.SENDS) if sends == {True} else ("receives", Kind.RECEIVES)
    if len(sends) > 1:
        does, kind = "sends and receives", Kind.NODE
    with_ = {end.node for path in shares for end in path} - {node}
    mine = [path for path in facts.speeds if any(path[int(not way)].node == node for way in sends)]
    met = {end.node for path in mine for end in path} - {node}
    usual = median(one.resent for runs in facts.runs.values() for one in runs)
    text = (
        f"{node} {does} at full speed, but {_percent(median(shares.values()))} of the packets are lost and sent again "
        f"(others {_percent(usual)}) with {len(with_)} of {len(met)} partners: its cable, optic or switch port; "
        f"compare their error counters{facts.note(node)}"
    )
    return Verdict(kind=kind, subject=node, answer=Answer.UNSTEADY, sentence=text, nodes=(node,))


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def flaws(facts: Facts) -> dict[tuple[str, str], Answer]:
    """What the cell of a path says besides its best run."""
    lossy = set(_lossy(facts))
    found = {(a.node, b.node): Answer.UNSTEADY for a, b in (*_unsteady_paths(facts), *lossy)}
    found |= {(a.node, b.node): Answer.SLOW for a, b in (far_slower(facts) if facts.few else ())}
    for (a, b), runs in facts.runs.items():
        failed = [one for one in runs if one.status is Status.FAILED]
        if failed and _is_sure(facts, failed):
            found[a.node, b.node] = failure(failed)
    return found
