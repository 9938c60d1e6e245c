"""Groups: collectives over more and more nodes, and who spoils a group that is slow. Pure, driven by results.

A slow group is halved, and each half runs with half of a good group: the half that is slow again has
the node. If neither is, its nodes are good in every smaller company: then it is the scale.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankdeck.model.nodeset import fold

Group = tuple[str, ...]
"""Nodes in rank order."""
_SMALLEST = 4


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
