"""Two faults at once, and nodes that are slow now and then: each is named by its kind, and nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from rankdeck.acceptance.judge import Judgement
from rankdeck.acceptance.measurement import Answer, Kind
from rankdeck.acceptance.schedule import Options
from rankdeck.acceptance.suspects import Context
from tests.support.acceptance_lab import LINK, Lab

MEGABITS = Context(unit="Mb/s")
EIGHT = tuple(f"n{number}" for number in range(1, 9))
THIRTEEN = tuple(f"n{number}" for number in range(1, 14))
TWO_LEAVES = {node: "A" if node < "n5" else "B" for node in EIGHT}
THREE_LEAVES = {node: "ABC"[place * 3 // 13] for place, node in enumerate(THIRTEEN)}


def slowed(most: float, *nodes: str, **more: Any) -> Lab:
    """These nodes in both directions, and what else is planted."""
    return Lab(sends=dict.fromkeys(nodes, most), receives=dict.fromkeys(nodes, most), **more)


def pair(first: str, last: str) -> frozenset[str]:
    return frozenset((first, last))


def judged(lab: Lab, seed: int, *, known: bool = True) -> Judgement:
    leaves = lab.leaves if known else {}
    nodes = tuple(lab.leaves) or EIGHT
    context = replace(MEGABITS, leaves=leaves)
    return lab.run(Options(nodes=nodes, leaves=leaves, seed=seed), context, seed)[0]


def named(found: Judgement) -> list[tuple[Kind, str]]:
    return sorted((one.kind, one.subject) for one in found.verdicts)


NODE = (Kind.NODE, "n2")
UPLINK = (Kind.UPLINK, "leaves A, B")
narrow: dict[str, Any] = {"leaves": TWO_LEAVES, "uplinks": {"A": 1.6 * LINK}}
one_of_three: dict[str, Any] = {"leaves": THREE_LEAVES, "uplinks": {"B": 1.6 * LINK}}
CASES = {
    "two nodes": (slowed(48, "n2", "n4"), [NODE, (Kind.NODE, "n4")]),
    "two nodes, one by 15 %": (
        Lab(sends={"n2": 48, "n4": 81}, receives={"n2": 48, "n4": 81}),
        [NODE, (Kind.NODE, "n4")],
    ),
    "node and pair": (
        slowed(48, "n2", paths={pair("n1", "n3"): 40}),
        [NODE, (Kind.PAIR, "n1–n3")],
    ),
    "two pairs of one node": (
        Lab(paths={pair("n1", "n3"): 40, pair("n1", "n6"): 40}),
        [(Kind.PAIR, "n1–n3"), (Kind.PAIR, "n1–n6")],
    ),
    "one sends, one receives": (
        Lab(sends={"n2": 48}, receives={"n4": 80}),
        [(Kind.RECEIVES, "n4"), (Kind.SENDS, "n2")],
    ),
    "uplink and node": (slowed(20, "n2", **narrow), [NODE, UPLINK]),
    "uplink and node that is faster than it": (slowed(70, "n2", **narrow), [NODE, UPLINK]),
    "one of three uplinks and node": (
        slowed(48, "n2", **one_of_three),
        [NODE, (Kind.UPLINK, "leaf B")],
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_both_of_two_faults_are_named_and_nothing_else_in_20_runs(case: str) -> None:
    lab, wanted = CASES[case]

    for seed in range(20):
        assert named(judged(lab, seed)) == sorted(wanted), seed


@pytest.mark.long
@pytest.mark.parametrize("most", [20, 70])
def test_a_slow_node_hides_no_leaf_that_the_pairs_show(most: float) -> None:
    for seed in range(20):
        found = judged(slowed(most, "n2", **narrow), seed, known=False)

        assert named(found) == [NODE, UPLINK], seed
        assert "n2" not in found.leaves


# ---- now and then


@pytest.mark.long
@pytest.mark.parametrize("share", [0.4, 0.6, 0.8])
def test_a_node_that_is_slow_now_and_then_is_the_node_and_not_its_pairs(share: float) -> None:
    told = others = 0
    for seed in range(20):
        found = judged(Lab(erratic={"n2": (share, 40.0)}), seed)
        told += [one.nodes for one in found.verdicts] == [("n2",)]
        others += any("n2" not in one.subject for one in found.verdicts)
        assert not found.accepted, seed

    # By chance three of seven partners, or fewer, see it.
    assert told >= 18
    assert others == 0


def test_what_is_said_of_a_node_that_is_slow_now_and_then_is_counted() -> None:
    found = judged(Lab(erratic={"n2": (0.5, 40.0)}, disturbed=0.0), 1)

    (verdict,) = found.verdicts
    assert (verdict.answer, verdict.nodes) == (Answer.UNSTEADY, ("n2",))
    assert verdict.sentence.startswith("n2 reaches between 3")
    assert "now and then slow with 7 of 7 partners, in " in verdict.sentence
    assert found.nodes["n2"] is Answer.UNSTEADY


@pytest.mark.long
def test_a_disturbance_of_many_pairs_of_a_node_that_passes_hides_no_bad_pair() -> None:
    lab = Lab(disturbed=0.15, paths={pair("n1", "n3"): 40.0})
    for seed in range(20):
        found = judged(lab, seed)
        assert "n1–n3" in [one.subject for one in found.verdicts], seed
        assert not found.accepted, seed


@pytest.mark.long
def test_a_healthy_cluster_that_is_disturbed_in_a_tenth_of_its_runs_blames_no_node() -> None:
    for seed in range(40):
        found = judged(Lab(disturbed=0.1), seed)
        assert [one.nodes for one in found.verdicts if one.nodes] == [], seed
