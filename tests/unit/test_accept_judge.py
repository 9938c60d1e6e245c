"""Node, direction, pair, leaf, uplink, rail or configuration: each
planted fault is named, and nothing else.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from rankdeck.acceptance.baseline import kinds_of_hardware
from rankdeck.acceptance.hardware import describe_differing
from rankdeck.acceptance.judge import Judgement, judge_measurements
from rankdeck.acceptance.population import measure_population
from rankdeck.acceptance.recipe import ExpectedResult
from rankdeck.acceptance.schedule import Options, Round, Schedule, circle_rounds, pair_rounds
from rankdeck.acceptance.suspects import Context
from rankdeck.acceptance.values import Answer, Kind, Measurement, Outcome, Stage
from rankdeck.values import replace
from tests.support.acceptance_lab import LINK, Lab
from tests.support.targets import CORPUS

PAIRS = CORPUS.parent / "recorded" / "pairs"
"""iperf3 between eight namespaces on two bridges, 100 Mbit/s each,
on a machine with load 10 to 20.
"""
EIGHT = tuple(f"n{number}" for number in range(1, 9))
TWO_LEAVES = {node: "A" if node < "n5" else "B" for node in EIGHT}
MEGABITS = Context(unit="Mb/s")


def recorded(name: str) -> list[Measurement]:
    rows = map(json.loads, (PAIRS / f"{name}.jsonl").read_text().splitlines())
    return [
        Measurement(
            stage=Stage.PAIRS, sender=row["client"], receiver=row["server"], value=row["mbit_received"],
            round=row["round"], repeat=row["repeat"],
        )
        for row in rows
    ]  # fmt: skip


def named(judged: Judgement) -> list[tuple[Kind, str]]:
    return [(verdict.kind, verdict.subject) for verdict in judged.verdicts]


# ---- real pairs


def test_a_healthy_cluster_on_a_busy_machine_is_accepted() -> None:
    judged = judge_measurements(recorded("healthy"), MEGABITS)

    assert judged.accepted
    assert judged.nodes == dict.fromkeys(EIGHT, Answer.GOOD)


@pytest.mark.parametrize("fault", ["slow-node-n3", "slow-transmit-n5"])
def test_how_fast_virtual_nodes_of_one_machine_are_with_each_other_is_a_note(fault: str) -> None:
    judged = judge_measurements(recorded(fault), replace(MEGABITS, virtual=frozenset(EIGHT)))
    partly = judge_measurements(recorded(fault), replace(MEGABITS, virtual=frozenset(EIGHT[:2])))

    assert judged.accepted
    assert judged.notes[-1].endswith("what else ran on the machine that they share, no network")
    assert named(partly) == named(judge_measurements(recorded(fault), MEGABITS))


@pytest.mark.parametrize("count", [3, 8])
def test_between_virtual_nodes_of_one_machine_only_failures_are_suspected(count: int) -> None:
    nodes = EIGHT[:count]
    shared = replace(MEGABITS, virtual=frozenset(nodes))
    once = [
        Measurement(stage=Stage.PAIRS, sender=a, receiver=b, value=20.0 if (a, b) == ("n1", "n2") else 90.0)
        for a in nodes for b in nodes if a != b
    ]  # fmt: skip
    broken = [replace(one, value=None, status=Outcome.FAILED) if one.value == 20.0 else one for one in once]  # fmt: skip

    assert judge_measurements(once, MEGABITS).open.paths
    assert judge_measurements(once, shared).accepted
    assert not judge_measurements(broken, shared).accepted


def test_three_virtual_nodes_are_not_called_unsteady_and_what_fails_between_them_is_told() -> None:
    three, shared = ("n1", "n2", "n3"), replace(MEGABITS, virtual=frozenset({"n1", "n2", "n3"}))
    fine = [
        Measurement(stage=Stage.CONFIRM, sender=a, receiver=b, value=90.0, round=1, repeat=repeat)
        for a in three for b in three if a != b for repeat in range(4)
    ]  # fmt: skip
    path = ("n1", "n2")
    shaky = [replace(one, value=20.0) if (one.sender, one.receiver) == path and one.repeat else one for one in fine]  # fmt: skip
    broken = [
        replace(one, value=None, status=Outcome.FAILED) if (one.sender, one.receiver) == path else one
        for one in fine
    ]  # fmt: skip

    assert named(judge_measurements(shaky, MEGABITS)) == [(Kind.PAIR, "n1→n2")]
    assert judge_measurements(shaky, shared).accepted
    assert [one.answer for one in judge_measurements(broken, shared).verdicts] == [Answer.FAILED]


RECORDED = (
    ("slow-node-n3", Kind.NODE, "n3", "n3 reaches 48.3 Mb/s (others 95.5 Mb/s) with 7 of 7 partners: its NIC, slot"),
    ("node-n3-15-percent-slow", Kind.NODE, "n3", "n3 reaches 81.4 Mb/s (others 94.2 Mb/s) with 7 of 7 partners"),
    ("slow-transmit-n5", Kind.SENDS, "n5", "n5 sends at 62.4 Mb/s (others 95.7 Mb/s) with 7 of 7 partners: it receives at full speed: cable"),
    ("slow-uplink-leafA-leafB", Kind.UPLINK, "leaves A, B", "(A = n1, n2, n3, n4; B = n5, n6, n7, n8)"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "subject", "words"), RECORDED)
def test_a_fault_among_real_pairs_is_named_and_nothing_else(
    name: str, kind: Kind, subject: str, words: str
) -> None:
    judged = judge_measurements(recorded(name), MEGABITS)

    assert named(judged) == [(kind, subject)]
    assert words in judged.verdicts[0].sentence
    assert (judged.open.paths, judged.open.sides) == ((), {})
    assert not judged.accepted


def test_a_slow_pair_is_named_once_it_was_slow_twice() -> None:
    once = recorded("slow-pair-n2-n6")
    again = [
        replace(one, stage=Stage.CONFIRM, round=9)
        for one in once
        if {one.sender, one.receiver} == {"n2", "n6"}
    ]
    other = [replace(one, port=1, value=LINK) for one in again]

    first, second, third = (
        judge_measurements(runs, MEGABITS)
        for runs in (once, [*once, *again], [*once, *again, *other])
    )

    assert first.verdicts == ()
    assert [(a.node, b.node) for a, b in first.open.paths] == [("n2", "n6"), ("n6", "n2")]
    assert not first.accepted
    assert [one.sentence for one in second.verdicts] == [
        "n2–n6 at 38.3 Mb/s twice, both 95.7 Mb/s with others: one path between them"
    ]
    assert third.verdicts[0].kind is Kind.EQUAL_PATH
    assert "96 Mb/s on another port: one of the equal paths is bad" in third.verdicts[0].sentence


# ---- simulated clusters, through the schedule

EIGHT_FAULTS = {
    "none": (Lab(), []),
    "half speed": (Lab(sends={"n3": 48}, receives={"n3": 48}), [(Kind.NODE, "n3")]),
    "15 % slow": (Lab(sends={"n3": 81}, receives={"n3": 81}), [(Kind.NODE, "n3")]),
    "transmit only": (Lab(sends={"n5": 62}), [(Kind.SENDS, "n5")]),
    "receive only": (Lab(receives={"n5": 62}), [(Kind.RECEIVES, "n5")]),
    "one pair": (Lab(paths={frozenset(("n2", "n6")): 38}), [(Kind.PAIR, "n2–n6")]),
    "equal path": (
        Lab(paths={frozenset(("n2", "n6")): 38}, other_port={frozenset(("n2", "n6")): LINK}),
        [(Kind.EQUAL_PATH, "n2–n6")],
    ),
    "uplink": (Lab(leaves=TWO_LEAVES, uplinks={"A": 80}), [(Kind.UPLINK, "leaves A, B")]),
    "wrong MTU": (Lab(broken=frozenset({"n7"})), [(Kind.NODE, "n7")]),
    "node and pair": (
        Lab(sends={"n3": 48}, receives={"n3": 48}, paths={frozenset(("n1", "n8")): 40}),
        [(Kind.NODE, "n3"), (Kind.PAIR, "n1–n8")],
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", EIGHT_FAULTS)
def test_eight_nodes_have_each_fault_named_and_nothing_else_in_20_runs(fault: str) -> None:
    lab, wanted = EIGHT_FAULTS[fault]
    leaves = lab.leaves

    for seed in range(20):
        options = Options(nodes=EIGHT, leaves=leaves, seed=seed, repeats=3)
        judged, _, _ = lab.run(options, MEGABITS, seed)
        assert named(judged) == wanted, seed
        assert judged.accepted == (not wanted), seed


class Disturbed(Lab):
    """Something slows one pair until it was measured on another port:
    n-1 rounds, one to confirm, that one.
    """

    def speed(self, sender: str, receiver: str, one: Round, chance: random.Random) -> float:
        meant = {sender, receiver} == {"n2", "n6"} and one.number < len(EIGHT)
        return 38.0 if meant else super().speed(sender, receiver, one, chance)


def test_what_passed_before_the_last_look_is_not_blamed_on_a_path_of_one_port() -> None:
    judged, _, _ = Disturbed(disturbed=0.0).run(Options(nodes=EIGHT, repeats=3), MEGABITS)

    assert {(one.kind, one.answer) for one in judged.verdicts} == {(Kind.PAIR, Answer.UNSTEADY)}
    assert "between 38 Mb/s and" in judged.verdicts[0].sentence


def test_the_slow_end_is_known_after_all_pairs_and_before_any_confirmation() -> None:
    lab = Lab(sends={"n3": 48}, receives={"n3": 48}, disturbed=0.0)
    options = Options(nodes=EIGHT, stages=(Stage.PAIRS,))

    judged, _, rounds = lab.run(options, MEGABITS)

    assert (named(judged), rounds) == ([(Kind.NODE, "n3")], 7)


def test_what_else_is_odd_about_a_node_stands_in_its_sentence() -> None:
    identity = {
        node: {"mtu": "1500" if node == "n7" else "9000", "kernel": "6.1"} for node in EIGHT
    }
    context = replace(MEGABITS, notes=describe_differing(identity))

    judged, _, _ = Lab(broken=frozenset({"n7"})).run(Options(nodes=EIGHT), context)

    assert judged.nodes["n7"] is Answer.FAILED
    assert judged.verdicts[0].sentence.startswith("n7 fails with 7 of 7 partners")
    assert judged.verdicts[0].sentence.endswith("; its mtu is 1500, 7 of 8 have 9000")


@pytest.mark.long
def test_one_pair_alone_tells_a_narrow_uplink_from_a_broken_one() -> None:
    leaves = {f"n{number}": "ABC"[number // 8] for number in range(24)}
    options = Options(nodes=tuple(leaves), leaves=leaves)
    for capacity, words in ((300.0, "one pair alone is full"), (40.0, "one pair alone reaches")):
        judged, _, _ = Lab(leaves=leaves, uplinks={"B": capacity}).run(options, MEGABITS)

        assert named(judged) == [(Kind.UPLINK, "leaf B")]
        assert words in judged.verdicts[0].sentence
        assert "wanted when all cross" in judged.verdicts[0].sentence


@pytest.mark.long
def test_uplinks_that_are_all_alike_are_built_so() -> None:
    leaves = {f"n{number}": "ABC"[number // 8] for number in range(24)}
    lab = Lab(leaves=leaves, uplinks=dict.fromkeys("ABC", 200.0), disturbed=0.0)

    judged, _, _ = lab.run(Options(nodes=tuple(leaves), leaves=leaves), MEGABITS)

    assert [(one.kind, one.answer) for one in judged.verdicts] == [(Kind.UPLINK, Answer.FAIR)]
    assert "the same on all leaves: built so" in judged.verdicts[0].sentence
    assert judged.accepted


def test_a_leaf_that_is_slow_inside_too_is_its_switch() -> None:
    leaves = {f"n{number}": "ABCD"[number // 4] for number in range(16)}
    slow = {
        frozenset((a, b)): 40.0
        for a in leaves
        for b in leaves
        if "C" in (leaves[a], leaves[b]) and a != b
    }

    judged, _, _ = Lab(leaves=leaves, paths=slow).run(
        Options(nodes=tuple(leaves), leaves=leaves), MEGABITS
    )

    assert named(judged) == [(Kind.LEAF, "leaf C")]


def railed(
    slow_ends: set[tuple[str, int]], value: float = 40.0, rails: int = 4
) -> list[Measurement]:
    return [
        Measurement(stage=Stage.PAIRS, sender=a, receiver=b, round=number, repeat=repeat, rail=rail,
                    value=value if slow_ends & {(a, rail), (b, rail)} else 97.0)
        for number, pairs in enumerate(circle_rounds(EIGHT)) for pair in pairs for a, b in (pair, pair[::-1])
        for rail in range(rails) for repeat in (0, 1)
    ]  # fmt: skip


def test_one_port_of_a_node_is_told_from_the_rail_of_all() -> None:
    port = judge_measurements(railed({("n3", 2)}), MEGABITS)
    trickle = judge_measurements(railed({("n3", 2)}, 2.0), MEGABITS)
    rail = judge_measurements(
        railed({(node, 2) for node in EIGHT}), replace(MEGABITS, leaves=TWO_LEAVES)
    )
    whole = judge_measurements(railed({("n3", rail) for rail in range(4)}), MEGABITS)

    assert named(port) == named(trickle) == [(Kind.HCA, "n3")]
    assert "on port 2 alone: that HCA" in port.verdicts[0].sentence
    assert sorted(named(rail)) == [(Kind.RAIL, "rail 2 of leaf A"), (Kind.RAIL, "rail 2 of leaf B")]
    assert named(whole) == [(Kind.NODE, "n3")]
    assert "packets are lost" in trickle.verdicts[0].sentence
    assert "packets are lost" not in port.verdicts[0].sentence


def test_of_one_port_each_direction_is_told_apart() -> None:
    done = railed({("n3", 2)})
    sends = [one if one.sender == "n3" else replace(one, value=97.0) for one in done]

    (verdict,) = judge_measurements(sends, MEGABITS).verdicts
    assert verdict.kind is Kind.HCA
    assert verdict.sentence.startswith("n3 sends at 40 Mb/s (others 97 Mb/s) with 7 of 7 partners")
    assert "on port 2 alone: it receives at full speed: that HCA" in verdict.sentence


@pytest.mark.parametrize("rails", [1, 8])
def test_one_node_with_another_network_card_says_so_on_any_number_of_rails(rails: int) -> None:
    slower = {("n8", rail) for rail in range(rails)}
    notes = {"n8": "its link rate is 100 Gb/s, 7 of 8 have 200 Gb/s"}

    (verdict,) = judge_measurements(
        railed(slower, rails=rails), replace(MEGABITS, notes=notes)
    ).verdicts
    assert (verdict.kind, verdict.subject) == (Kind.NODE, "n8")
    assert verdict.sentence.endswith(notes["n8"])


def test_all_alike_and_all_slow_is_configuration_and_no_node() -> None:
    expected = ExpectedResult(ceiling=940.0, of="TCP over a 1 Gb/s link carries", factor=0.95)

    judged, _, _ = Lab().run(Options(nodes=EIGHT), replace(MEGABITS, expected=expected))

    assert named(judged) == [(Kind.CONFIGURATION, "all")]
    assert (
        "10 % of the 940 that TCP over a 1 Gb/s link carries: configuration, not a node"
        in judged.verdicts[0].sentence
    )


def test_two_nodes_are_judged_by_their_two_directions() -> None:
    good, _, _ = Lab(disturbed=0.0).run(Options(nodes=("pi4", "pi3")), MEGABITS)
    bad, _, _ = Lab(sends={"pi3": 60}, disturbed=0.0).run(Options(nodes=("pi4", "pi3")), MEGABITS)

    assert good.accepted
    assert named(bad) == [(Kind.PAIR, "pi3→pi4")]
    assert "swap cable or port" in bad.verdicts[0].sentence


@pytest.mark.parametrize(("back", "said"), [(9.0, "alike and slow"), (1.0, "not alike")])
def test_slow_paths_are_called_alike_only_if_they_are(back: float, said: str) -> None:
    expected = ExpectedResult(ceiling=940.0, of="TCP over a 1 Gb/s link carries", factor=0.95)
    runs = directed({("n1", "n2"): 10.0, ("n2", "n1"): back})

    judged = judge_measurements(runs, replace(MEGABITS, expected=expected))

    (told,) = [one for one in judged.verdicts if one.kind is Kind.CONFIGURATION]
    assert said in told.sentence


NOISY, CLEAR = (2.0, 8.0, 19.0, 31.0), (30.0, 31.0, 30.0, 31.0)


@pytest.mark.parametrize(("back", "blamed"), [(NOISY, []), (CLEAR, ["n1→n2"])])
def test_a_direction_is_blamed_only_if_its_runs_differ_less_than_the_two_directions(
    back: tuple[float, ...], blamed: list[str]
) -> None:
    # Runs of perftest between two emulated machines that had little of the processor.
    values = {("n1", "n2"): (5.0, 10.0, 20.0, 24.0), ("n2", "n1"): back}
    runs = [
        Measurement(stage=Stage.CONFIRM, sender=a, receiver=b, value=value, repeat=repeat)
        for (a, b), some in values.items()
        for repeat, value in enumerate(some)
    ]

    told = judge_measurements(runs, MEGABITS).verdicts

    assert [one.subject for one in told if "one direction" in one.sentence] == blamed


def directed(speeds: Mapping[tuple[str, str], float]) -> list[Measurement]:
    """Each path measured once."""
    return [
        Measurement(stage=Stage.PAIRS, sender=a, receiver=b, value=value)
        for (a, b), value in speeds.items()
    ]


def test_of_three_nodes_one_direction_is_the_path_where_both_ends_are_full_with_the_third() -> None:
    full = {(a, b): 95.0 for a in ("n1", "n2", "n3") for b in ("n1", "n2", "n3") if a != b}
    (pair,) = judge_measurements(
        confirmed(directed(full | {("n1", "n2"): 80.0})), MEGABITS
    ).verdicts
    sender = full | {("n1", "n2"): 80.0, ("n1", "n3"): 80.0}

    assert pair.subject == "n1→n2"
    assert "back 95 Mb/s, both are full with n3: one path between them" in pair.sentence
    assert all(
        "one direction of one of the two" in one.sentence
        for one in judge_measurements(confirmed(directed(sender)), MEGABITS).verdicts
    )


def test_of_three_nodes_behind_two_leaves_the_others_are_those_that_are_not_slow() -> None:
    speeds = {("n1", "n2"): 57.0, ("n2", "n1"): 57.0, ("n1", "n3"): 57.0, ("n3", "n1"): 57.0}
    leaves = replace(MEGABITS, leaves={"n1": "A", "n2": "B", "n3": "B"})
    runs = directed(speeds | {("n2", "n3"): 95.0, ("n3", "n2"): 95.0})

    (verdict,) = judge_measurements([*runs, *confirmed(runs)], leaves).verdicts

    assert verdict.sentence.startswith("n1 reaches 57 Mb/s (others 95 Mb/s) with 2 of 2 partners")


def confirmed(runs: Iterable[Measurement], value: float = 0.0) -> list[Measurement]:
    """The same measured again, with another value where one is given."""
    return [replace(one, stage=Stage.CONFIRM, round=9, value=value or one.value) for one in runs]


def test_of_three_nodes_a_path_that_was_slow_once_is_measured_again_before_it_is_named() -> None:
    three = [one for one in recorded("healthy") if {one.sender, one.receiver} <= {"n1", "n2", "n3"}]
    pair = {"n1", "n2"}
    once = [
        replace(one, value=30.0) if {one.sender, one.receiver} == pair else one for one in three
    ]
    slow = [one for one in once if {one.sender, one.receiver} == pair]

    doubt = judge_measurements(once, MEGABITS)
    calm = judge_measurements([*once, *confirmed(slow, value=95.0)], MEGABITS)
    sure = judge_measurements([*once, *confirmed(slow)], MEGABITS)

    assert (doubt.verdicts, doubt.accepted) == ((), False)
    assert {frozenset((a.node, b.node)) for a, b in doubt.open.paths} == {frozenset(pair)}
    assert calm.accepted
    assert named(sure) == [(Kind.PAIR, "n1–n2")]


def test_two_nodes_are_judged_rail_by_rail() -> None:
    pair = [one for one in railed({("n1", 2)}) if {one.sender, one.receiver} == {"n1", "n2"}]
    named_rails = replace(MEGABITS, rails=("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"))

    once = judge_measurements(pair, named_rails)
    judged = judge_measurements([*pair, *confirmed(pair)], named_rails)

    assert (once.verdicts, once.accepted) == ((), False)
    assert [one.subject for one in judged.verdicts] == [
        "n1→n2 on rail 2 (mlx5_2)",
        "n2→n1 on rail 2 (mlx5_2)",
    ]
    assert "at 40 Mb/s, its other rails 97 Mb/s" in judged.verdicts[0].sentence


def test_a_wrong_value_fails_whatever_the_speed() -> None:
    def spoilt(one: Measurement) -> Measurement:
        if "n4" not in (one.sender, one.receiver):
            return one
        return replace(one, value=None, status=Outcome.FAILED, text="wrong values: 3")

    judged = judge_measurements(map(spoilt, recorded("healthy")), MEGABITS)

    assert judged.nodes["n4"] is Answer.WRONG_VALUES
    assert "n4 gives wrong values with 7 of 7 partners" in judged.verdicts[0].sentence


def test_a_node_that_nobody_measured_is_never_accepted() -> None:
    def lost(one: Measurement) -> Measurement:
        gone = "n4" in (one.sender, one.receiver)
        return replace(one, value=None, status=Outcome.NOT_MEASURED) if gone else one

    judged = judge_measurements(
        map(lost, recorded("healthy")), replace(MEGABITS, left_out={"n9": "busy"})
    )

    assert judged.nodes["n4"] is Answer.NOT_MEASURED
    assert judged.nodes["n9"] is Answer.LEFT_OUT
    assert judged.verdicts == ()
    assert not judged.accepted


def test_a_path_that_drops_twice_is_measured_again_and_unsteady_if_it_drops_again() -> None:
    healthy = recorded("healthy")
    of_path = next(one for one in healthy if (one.sender, one.receiver) == ("n2", "n6"))
    drop = replace(of_path, value=30.0)
    again = replace(drop, stage=Stage.CONFIRM, round=9)

    twice = [*healthy, drop, drop]
    calm = [*twice, again, *[replace(again, value=95.0)] * 3]
    shaky = [*twice, again, again, *[replace(again, value=95.0)] * 2]

    assert judge_measurements([*healthy, drop], MEGABITS).accepted
    assert [(a.node, b.node) for a, b in judge_measurements(twice, MEGABITS).open.paths] == [
        ("n2", "n6")
    ]
    assert judge_measurements(calm, MEGABITS).accepted
    assert [one.answer for one in judge_measurements(shaky, MEGABITS).verdicts] == [Answer.UNSTEADY]


def test_a_node_that_drops_with_most_partners_is_unsteady_and_not_its_paths() -> None:
    runs = [
        replace(one, value=30.0) if one.sender == "n4" and one.repeat >= 2 else one
        for one in recorded("healthy")
    ]
    two = [one for one in runs if one.sender == "n4" and one.receiver in ("n1", "n2")]
    again = confirmed([*two, *(replace(one, value=30.0) for one in two)])

    (verdict,) = judge_measurements([*runs, *again], MEGABITS).verdicts

    assert (verdict.kind, verdict.answer, verdict.nodes) == (Kind.SENDS, Answer.UNSTEADY, ("n4",))
    assert "n4 sends between 30 Mb/s and" in verdict.sentence
    assert "now and then slow with 7 of 7 partners, in 13 of 22 runs" in verdict.sentence


def test_a_node_to_which_next_to_nothing_gets_through_is_told_to_look_at_its_mtu() -> None:
    runs = [
        replace(one, value=0.12) if "n3" in (one.sender, one.receiver) else one
        for one in recorded("healthy")
    ]

    (verdict,) = judge_measurements(runs, MEGABITS).verdicts

    assert (verdict.subject, verdict.nodes) == ("n3", ("n3",))
    assert "packets are lost; compare the MTU" in verdict.sentence


# ---- runs that fail


def fails(one: Measurement, text: str = "it hung") -> Measurement:
    return replace(one, value=None, status=Outcome.FAILED, text=text)


@pytest.mark.parametrize("nodes", [EIGHT[:2], EIGHT[:3], EIGHT[:4], EIGHT])
def test_where_everything_fails_nobody_is_good(nodes: tuple[str, ...]) -> None:
    runs = [fails(one) for one in recorded("healthy") if {one.sender, one.receiver} <= {*nodes}]

    judged = judge_measurements(runs, MEGABITS)

    assert judged.nodes == dict.fromkeys(nodes, Answer.FAILED)
    assert judged.verdicts
    assert all("(it hung)" in one.sentence for one in judged.verdicts)
    assert not judged.accepted


def test_a_pair_of_three_nodes_that_fails_is_named_and_its_nodes_are_not() -> None:
    runs = [
        fails(one) if {one.sender, one.receiver} == {"n1", "n2"} else one
        for one in recorded("healthy")
        if {one.sender, one.receiver} <= {"n1", "n2", "n3"}
    ]

    judged = judge_measurements(runs, MEGABITS)

    assert named(judged) == [(Kind.PAIR, "n1–n2")]
    assert judged.verdicts[0].answer is Answer.FAILED
    assert not judged.accepted


def test_nodes_that_fail_are_no_population_for_those_that_work() -> None:
    runs = [
        one if {one.sender, one.receiver} == {"n3", "n4"} else fails(one)
        for one in recorded("healthy")
    ]

    judged = judge_measurements(runs, MEGABITS)

    assert [node for node, answer in judged.nodes.items() if answer.accepted] == ["n3", "n4"]
    assert not judged.accepted


def test_one_run_of_a_path_that_fails_is_measured_again_and_named_if_it_fails_again() -> None:
    healthy = recorded("healthy")
    place = next(n for n, one in enumerate(healthy) if (one.sender, one.receiver) == ("n2", "n6"))
    once = [*healthy[:place], fails(healthy[place]), *healthy[place + 1 :]]
    again = replace(healthy[place], stage=Stage.CONFIRM, round=9)

    first = judge_measurements(once, MEGABITS)
    calm = judge_measurements([*once, again, again], MEGABITS)
    bad = judge_measurements([*once, again, fails(again)], MEGABITS)

    assert [(a.node, b.node) for a, b in first.open.paths] == [("n2", "n6")]
    assert not first.accepted
    assert calm.accepted
    assert calm.notes == ("n2→n6 failed once (it hung) and did not in 3 other runs",)
    assert [one.answer for one in bad.verdicts] == [Answer.FAILED]
    assert bad.verdicts[0].sentence.startswith("n2→n6 fails in 2 of 4 runs (it hung), 95.")
    assert bad.flaws == {("n2", "n6"): Answer.FAILED}


def test_one_wrong_value_among_full_runs_is_enough() -> None:
    healthy = recorded("healthy")
    place = next(n for n, one in enumerate(healthy) if (one.sender, one.receiver) == ("n2", "n6"))
    healthy[place] = fails(healthy[place], "wrong values: 3")

    judged = judge_measurements(healthy, MEGABITS)

    assert [one.answer for one in judged.verdicts] == [Answer.WRONG_VALUES]
    assert judged.open.paths == ()


@pytest.mark.parametrize("more", [{"stage": Stage.CROSSING}, {"stage": Stage.CONFIRM, "port": 1}])
def test_a_wrong_value_counts_wherever_it_comes_from(more: dict[str, Any]) -> None:
    healthy = recorded("healthy")

    judged = judge_measurements(
        [*healthy, replace(fails(healthy[0], "wrong values: 3"), **more)], MEGABITS
    )

    assert [one.answer for one in judged.verdicts] == [Answer.WRONG_VALUES]
    assert not judged.accepted


def test_a_node_that_fails_now_and_then_with_most_partners_is_the_node() -> None:
    runs = [
        fails(one) if "n4" in (one.sender, one.receiver) and one.repeat == 0 else one
        for one in recorded("healthy")
    ]

    judged = judge_measurements(runs, MEGABITS)

    assert named(judged) == [(Kind.NODE, "n4")]
    assert judged.nodes["n4"] is Answer.FAILED
    assert "n4 fails now and then with 7 of 7 partners (it hung)" in judged.verdicts[0].sentence


def test_leaves_between_which_nothing_passes_are_named() -> None:
    runs = [
        fails(one) if (one.sender < "n5") != (one.receiver < "n5") else one
        for one in recorded("healthy")
    ]

    judged = judge_measurements(runs, replace(MEGABITS, leaves=TWO_LEAVES))

    assert named(judged) == [(Kind.UPLINK, "leaves A, B")]
    assert judged.verdicts[0].answer is Answer.FAILED
    assert "nothing crosses" in judged.verdicts[0].sentence


# ---- a thousand nodes

THOUSAND = tuple(f"n{number:03d}" for number in range(1000))
LEAVES = {node: f"L{int(node[1:]) // 32:02d}" for node in THOUSAND}
BAD = "n077"
FAULTS = {
    "none": (Lab(leaves=LEAVES), []),
    "half speed": (Lab(leaves=LEAVES, sends={BAD: 48}, receives={BAD: 48}), [(Kind.NODE, BAD)]),
    "transmit only": (Lab(leaves=LEAVES, sends={BAD: 62}), [(Kind.SENDS, BAD)]),
    "wrong MTU": (Lab(leaves=LEAVES, broken=frozenset({BAD})), [(Kind.NODE, BAD)]),
    "uplink": (Lab(leaves=LEAVES, uplinks={"L02": 32 * 48}), [(Kind.UPLINK, "leaf L02")]),
}


@pytest.mark.left_out("none", "wrong MTU", "half speed", "uplink")
@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_thousand_nodes_have_each_fault_named_within_a_dozen_rounds(fault: str) -> None:
    lab, wanted = FAULTS[fault]

    judged, _, rounds = lab.run(Options(nodes=THOUSAND, leaves=LEAVES, seed=7), MEGABITS, seed=11)

    assert named(judged) == wanted
    assert rounds <= 12


@pytest.mark.long
def test_a_slow_pair_of_a_thousand_nodes_is_named_if_its_round_was_planned() -> None:
    options = Options(nodes=THOUSAND, leaves=LEAVES, seed=5)
    pair = pair_rounds(options)[1][123]

    judged, _, _ = Lab(leaves=LEAVES, paths={frozenset(pair): 38}).run(options, MEGABITS)

    assert named(judged) == [(Kind.PAIR, f"{min(pair)}–{max(pair)}")]


@pytest.mark.left_out("range(1, 11)", "range(11, 21)", "range(21, 31)")
@pytest.mark.long
@pytest.mark.parametrize(
    "seeds",
    [range(1), *(pytest.param(range(n, n + 10), marks=pytest.mark.slow) for n in (1, 11, 21))],
    ids=str,
)
def test_two_percent_bad_nodes_of_a_thousand_are_all_named_and_no_innocent_in_30_runs(
    seeds: range,
) -> None:
    for seed in seeds:
        bad = {f"n{(seed * 37 + place * 49) % 1000:03d}" for place in range(20)}
        lab = Lab(leaves=LEAVES, sends=dict.fromkeys(bad, 86.0), receives=dict.fromkeys(bad, 86.0))
        options = Options(
            nodes=THOUSAND, leaves=LEAVES, seed=seed, stages=(Stage.PAIRS, Stage.CONFIRM)
        )

        judged, _, _ = lab.run(options, replace(MEGABITS, tolerance=0.05), seed)

        assert {node for verdict in judged.verdicts for node in verdict.nodes} == bad
        assert len(judged.verdicts) == len(bad)


# ---- odd populations


def slowed(nodes: Iterable[str], most: float = 47.0) -> Lab:
    names = tuple(nodes)
    return Lab(sends=dict.fromkeys(names, most), receives=dict.fromkeys(names, most))


HALF = tuple(f"n{number:03d}" for number in range(0, 200, 2))
ODD = {
    "2 of 3": (slowed(["n2"]), EIGHT[:3], [(Kind.NODE, "n2")]),
    "transmit of 3": (Lab(sends={"n2": 47}), EIGHT[:3], [(Kind.SENDS, "n2")]),
    "pair of 3": (Lab(paths={frozenset(("n1", "n3")): 47}), EIGHT[:3], [(Kind.PAIR, "n1–n3")]),
    "none of 3": (Lab(), EIGHT[:3], []),
    "none of 4": (Lab(), EIGHT[:4], []),
    "half of 4": (slowed(["n1", "n2"]), EIGHT[:4], [(Kind.CONFIGURATION, "all")]),
    "half of 8": (slowed(EIGHT[:4]), EIGHT, [(Kind.NODE, node) for node in EIGHT[:4]]),
    "5 of 8": (slowed(EIGHT[:5]), EIGHT, [(Kind.NODE, node) for node in EIGHT[:5]]),
    "half of 8, by 15 %": (slowed(EIGHT[:4], 81), EIGHT, [(Kind.NODE, node) for node in EIGHT[:4]]),
    "3 of 6, by 30 %": (slowed(EIGHT[:3], 66), EIGHT[:6], [(Kind.NODE, node) for node in EIGHT[:3]]),
    "two on one machine": (
        Lab(paths={frozenset((a, b)): 47 for a in EIGHT for b in EIGHT if a < b and (a, b) != ("n1", "n2")}),
        EIGHT, [],
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("case", ODD)
def test_odd_populations_have_their_slow_part_named_in_20_runs(case: str) -> None:
    lab, nodes, wanted = ODD[case]

    for seed in range(20):
        options = Options(nodes=nodes, seed=seed, repeats=4)
        judged, _, _ = lab.run(options, MEGABITS, seed)
        assert sorted(named(judged)) == wanted, seed
        assert judged.accepted == (not wanted), seed


@pytest.mark.long
def test_two_kinds_of_hardware_are_compared_each_with_its_own() -> None:
    identity = {
        node: {"cpu": "Cortex-A53" if node > "n4" else "Cortex-A72", "link rate": "1000"}
        for node in EIGHT
    }
    kinds = kinds_of_hardware(identity)
    context, old = replace(MEGABITS, hardware=kinds), dict.fromkeys(EIGHT[4:], 30.0)
    worse = old | {"n7": 20.0}

    for seed in range(20):
        options = Options(nodes=EIGHT, seed=seed, repeats=4)
        good, _, _ = Lab(sends=old, receives=old).run(options, context, seed)
        bad, _, _ = Lab(sends=worse, receives=worse).run(options, context, seed)
        assert good.accepted, seed
        assert named(bad) == [(Kind.NODE, "n7")], seed
        assert re.search(
            r"reaches (?:19\.\d|20) Mb/s \(others (?:29\.\d|30) Mb/s\)", bad.verdicts[0].sentence
        )
    assert "all, Cortex-A53: " in good.notes[0]
    assert "compared with equal hardware alone" in good.notes[0]


def test_a_rare_kind_of_hardware_is_compared_with_the_common_one() -> None:
    rare = {node: {"cpu": "Cortex-A53" if node == "n8" else "Cortex-A72"} for node in EIGHT}

    assert kinds_of_hardware(rare) == {}
    assert kinds_of_hardware({node: {} for node in EIGHT}) == {}


@pytest.mark.long
def test_half_of_two_hundred_nodes_slow_are_all_named_and_no_other() -> None:
    nodes = tuple(f"n{number:03d}" for number in range(200))

    judged, _, _ = slowed(HALF).run(Options(nodes=nodes, seed=3), MEGABITS, 3)

    assert {node for verdict in judged.verdicts for node in verdict.nodes} == {*HALF}


@pytest.mark.long
def test_narrow_uplinks_of_many_unknown_leaves_blame_no_node() -> None:
    leaves = {f"n{number:03d}": str(number // 25) for number in range(200)}
    lab = Lab(leaves=leaves, uplinks=dict.fromkeys(set(leaves.values()), 25 * 48.0), disturbed=0.0)

    judged, _, _ = lab.run(Options(nodes=tuple(leaves), seed=3), MEGABITS, 3)

    assert [node for verdict in judged.verdicts for node in verdict.nodes] == []


@pytest.mark.parametrize("known", [True, False])
def test_one_direction_of_an_uplink_is_one_verdict(known: bool) -> None:
    def one_way(one: Measurement) -> Measurement:
        slow = TWO_LEAVES[one.sender] == "A" and TWO_LEAVES[one.receiver] == "B"
        return replace(one, value=47.0) if slow else one

    context = replace(MEGABITS, leaves=TWO_LEAVES) if known else MEGABITS

    judged = judge_measurements(map(one_way, recorded("healthy")), context)

    assert named(judged) == [(Kind.UPLINK, "leaf A")]
    assert "pairs across from it reach 47 Mb/s" in judged.verdicts[0].sentence
    assert "the other direction is full" in judged.verdicts[0].sentence


# ---- numbers and rounds


def test_the_limit_of_a_mixed_population_does_not_sink() -> None:
    found = measure_population([95.0] * 24 + [46.0, 60.0, 78.0, 80.0] * 8, 0.10)

    assert found is not None
    assert found.mixed
    assert found.limit == pytest.approx(85.5)


def test_the_limit_follows_the_noise_of_a_healthy_population() -> None:
    steady, noisy = (
        measure_population([100.0 + width * (n % 5 - 2) for n in range(56)], 0.05)
        for width in (0.1, 2.0)
    )

    assert steady is not None
    assert noisy is not None
    assert steady.limit == steady.good == pytest.approx(95.0)
    assert noisy.limit < noisy.good
    assert noisy.answer(noisy.limit) is Answer.FAIR


@pytest.mark.parametrize("count", [2, 3, 8, 15, 32])
def test_the_circle_pairs_each_with_each_other_once(count: int) -> None:
    nodes = [f"n{number}" for number in range(count)]

    rounds = list(circle_rounds(nodes))

    assert len(rounds) == count - 1 + count % 2
    assert Counter(frozenset(pair) for pairs in rounds for pair in pairs) == {
        frozenset((a, b)): 1 for a in nodes for b in nodes if a < b
    }
    assert all(len({node for pair in pairs for node in pair}) == 2 * len(pairs) for pairs in rounds)


@pytest.mark.long
def test_a_resumed_run_measures_nothing_twice_and_loses_nothing() -> None:
    lab = Lab(sends={"n3": 48}, receives={"n3": 48}, paths={frozenset(("n1", "n8")): 40})
    options = Options(nodes=EIGHT)
    whole, first, _ = lab.run(options, MEGABITS, seed=3)
    table = {key(one): one for one in first.done}

    for stop in range(0, len(first.done), 7):
        resumed = Schedule(options, MEGABITS)
        for one in first.done[:stop]:
            resumed.take(one)
        while (asked := resumed.next_round()) is not None:
            for run in asked.runs:
                resumed.take(table[asked.stage, asked.number, asked.port, *run])
        assert Counter(map(key, resumed.done)) == dict.fromkeys(table, 1)
        assert named(resumed.judgement()) == named(whole)


def key(one: Measurement) -> tuple[object, ...]:
    return one.stage, one.round, one.port, one.sender, one.receiver, one.repeat, one.rail


def test_a_slow_majority_of_crossing_pairs_does_not_make_itself_normal() -> None:
    crossing, inside = [4.7] * 128, [9.4] * 112

    found = measure_population([*crossing, *inside], 0.10)

    assert found is not None
    assert found.mixed
    assert 4.7 < found.limit < 9.4


@pytest.mark.parametrize(("count", "share", "most"), [(16, 0.25, 2), (40, 0.1, 2), (8, 0.01, 1)])
def test_no_more_pairs_cross_at_once_than_is_agreed_to_and_none_is_lost(
    count: int, share: float, most: int
) -> None:
    nodes = tuple(f"n{number}" for number in range(count))
    leaves = {node: "ABCD"[place % 4] for place, node in enumerate(nodes)}
    free = Options(nodes=nodes, leaves=leaves, seed=5)
    limited = replace(free, max_crossing=share)
    lab = Lab(leaves=leaves, paths={frozenset(("n1", "n5")): 40})

    judged, schedule, _ = lab.run(limited, MEGABITS)

    at_once = Counter(
        (one.round, one.repeat)
        for one in schedule.done
        if leaves[one.sender] != leaves[one.receiver] and one.sender < one.receiver
    )
    assert max(at_once.values()) == most
    assert Counter(pair for one in pair_rounds(limited) for pair in one) == Counter(
        pair for one in pair_rounds(free) for pair in one
    )
    assert all(
        len({node for pair in one for node in pair}) == 2 * len(one) for one in pair_rounds(limited)
    )
    assert [one.kind for one in judged.verdicts] == ([Kind.PAIR] if count < 33 else [])
