"""The stage of groups: which groups to run next from what was measured, and who spoils them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rankdeck.acceptance.groups import Blamed, Group, bisect, groups_of, sizes
from rankdeck.acceptance.measurement import FAILS, Answer, Kind, Verdict, failure
from rankdeck.model.acceptance import Outcome, Result, Stage
from rankdeck.model.nodeset import fold
from rankdeck.model.text import figures

_MORE = 0.15
"""Share by which a group may be slower than others beyond the tolerance of its recipe: collectives scatter more than pairs."""
_SCALE = 0.6
"""All nodes together below this share of what smaller groups reach: the scale."""


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
