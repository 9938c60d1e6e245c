"""The stage of groups: collectives over more and more nodes, and who spoils a group that is slow. Pure, driven by results.

A slow group is halved, and each half runs with half of a good group: the half that is slow again has
the node. If neither is, its nodes are good in every smaller company: then it is the scale.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rankdeck.acceptance.measurement import FAILS, Answer, Kind, Verdict, failure
from rankdeck.model.acceptance import Outcome, Result, Stage
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
        tries = [_joined(half, good) for half in _halves(left)]
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


def _joined(half: Group, good: Group) -> Group:
    """The half with as many good nodes as make at least a pair."""
    return (*half, *good[: max(len(half), 1)])


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
        verdicts += found
        left = [node for node in left if not any(node in one.nodes for one in found)]
        if len(groups) == 1 and before and values[0] < _SCALE * median(before):
            verdicts.append(_scale(groups[0], values[0], median(before), done[groups[0]].unit))
        before += values
    return Next((), tuple(verdicts))


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
            asked += [one for one in answer if one not in done and _free(one, asked)]
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
