"""What is full and not good: packets that are lost and sent again, and what was
slow once and is full when measured again.
"""

from collections.abc import Callable

from rankdeck.acceptance.judge import judge_measurements
from rankdeck.acceptance.schedule import Options, Schedule
from rankdeck.acceptance.suspects import Context, Suspects
from rankdeck.acceptance.values import Answer, Measurement, PathEnd, Stage, measurement_of
from tests.support.acceptance_run import result

NODES = tuple(f"n{number}" for number in range(1, 9))
LOST = 0.01
Share = Callable[[str, str, int], float]


def runs(resent: Share, value: float = 95.0, nodes: tuple[str, ...] = NODES) -> list[Measurement]:
    """Every direction twice; `resent` is the share of (sender, receiver, repeat)."""
    return [
        Measurement(
            stage=Stage.PAIRS, sender=a, receiver=b, value=value, round=number, repeat=repeat, resent=resent(a, b, repeat),
        )
        for number, a in enumerate(nodes) for b in nodes if a != b for repeat in range(2)
    ]  # fmt: skip


def test_a_node_to_which_packets_are_lost_at_full_speed_is_not_good() -> None:
    found = judge_measurements(runs(lambda _, b, __: LOST if b == "n3" else 0.0), Context())

    (verdict,) = found.verdicts
    assert verdict.sentence == (
        "n3 receives at full speed, but 1 % of the packets are lost and sent again (others 0 %) with 7 of 7 partners: "
        "its cable, optic or switch port; compare their error counters"
    )
    assert {node for node, answer in found.nodes.items() if not answer.accepted} == {"n3"}
    assert found.flaws["n1", "n3"] is Answer.UNSTEADY
    both = judge_measurements(runs(lambda a, b, _: LOST if "n3" in (a, b) else 0.0), Context())
    assert [one.sentence.split(",")[0] for one in both.verdicts] == [
        "n3 sends and receives at full speed"
    ]


def test_packets_lost_everywhere_now_and_then_or_on_one_path_blame_no_node() -> None:
    everywhere = judge_measurements(
        runs(lambda a, _, __: LOST if a == "n3" else LOST / 2), Context()
    )
    once = judge_measurements(
        runs(lambda _, b, repeat: LOST if b == "n3" and not repeat else 0.0), Context()
    )
    path = judge_measurements(
        runs(lambda a, b, _: LOST if (a, b) == ("n3", "n5") else 0.0), Context()
    )
    two = judge_measurements(
        runs(lambda a, *_: LOST if a == "n1" else 0.0, nodes=NODES[:2]), Context()
    )

    assert everywhere.verdicts == once.verdicts == path.verdicts == two.verdicts == ()
    assert path.notes == (
        "n3→n5: 1 % of the packets are sent again, in each run: errors on the path",
    )
    assert two.notes[0].startswith("n1→n2: 1 % of the packets are sent again")
    assert everywhere.notes == once.notes == ()


def test_a_node_that_is_slow_has_one_sentence_also_where_it_loses_packets() -> None:
    slow = [
        one if one.receiver != "n3" else Measurement(
            stage=one.stage, sender=one.sender, receiver="n3", value=40.0, round=one.round, repeat=one.repeat, resent=0.05,
        )
        for one in runs(lambda *_: 0.0)
    ]  # fmt: skip

    (verdict,) = judge_measurements(slow, Context()).verdicts

    assert verdict.sentence.startswith("n3 receives at 40 (others 95) with 7 of 7 partners")


def test_the_share_of_lost_packets_is_read_from_what_was_measured() -> None:
    text = "0.095 Gb/s (82 retransmits): to be compared with other nodes"
    one = result("n1", "n2", 0.095, seconds=1.0, text=text)

    assert round(measurement_of(one).resent, 4) == 0.01
    assert measurement_of(result("n1", "n2", 0.095, text="0.095 Gb/s")).resent == 0.0
    assert measurement_of(result("n1", "n2", 0.095, seconds=0.0, text=text)).resent == 0.0


def test_what_was_slow_with_most_and_is_full_when_measured_again_is_said() -> None:
    slow = [
        one if one.sender != "n5" else Measurement(
            stage=one.stage, sender="n5", receiver=one.receiver, value=60.0, round=one.round, repeat=one.repeat,
        )
        for one in runs(lambda *_: 0.0)
    ]  # fmt: skip
    again = Measurement(stage=Stage.CONFIRM, sender="n5", receiver="n1", value=95.0, round=9)

    found = judge_measurements([*slow, again], Context())

    assert found.verdicts == ()
    assert not found.accepted  # its other pairs are still to be measured again
    assert found.notes == (
        "n5 was slow in 14 runs, with 7 of 7 partners, and not when measured again: "
        "a disturbance that has passed, or a fault that comes and goes",
    )


def test_a_pair_of_a_test_without_direction_has_one_sentence_for_both_ways() -> None:
    plan = Options(nodes=("n1", "n2", "n3"), seed=1, repeats=4, directed=False)
    schedule = Schedule(plan, Context(unit="MB/s"))
    while (one := schedule.next_round()) is not None:
        for sender, receiver, repeat, rail in one.runs:
            shaky = {sender, receiver} == {"n1", "n2"} and (one.number + repeat) % 2
            schedule.take(
                Measurement(
                    stage=one.stage, sender=sender, receiver=receiver, value=100.0 if shaky else 300.0,
                    round=one.number, repeat=repeat, rail=rail, port=one.port,
                )
            )  # fmt: skip

    (verdict,) = schedule.judgement().verdicts
    assert (verdict.answer, {*verdict.ends}) == (Answer.UNSTEADY, {"n1", "n2"})
    assert "–" in verdict.subject


def test_suspects_of_both_ways_are_named_once() -> None:
    ends = [PathEnd(name) for name in ("n1", "n2", "n3")]
    both = Suspects(paths=((ends[0], ends[1]), (ends[1], ends[0]), (ends[2], ends[0])))

    assert both.names(9) == "n1–n2, n3→n1"
