"""What the runs of a study say: curves, where ranks stop to pay and why, what is doubtful."""

import pytest

from rankdeck.scaling.judge import choose_number, is_cost, judge_study
from rankdeck.scaling.study import VerdictKind
from rankdeck.scaling.values import WALL, Signs, TrialOutcome
from rankdeck.values import replace
from tests.support.scaling_study import amdahl, falling, plan_of, point, trials_of

FOUR = tuple(map(point, (1, 2, 4, 8)))


def said(plan, law, kind: VerdictKind, signs=None, number: str = "") -> list[str]:
    found = judge_study(plan, trials_of(plan, law, signs), number)
    return [one.text for one in found.verdicts if one.kind is kind]


def test_times_of_equal_work_give_speed_up_efficiency_and_the_law() -> None:
    plan = plan_of(*FOUR)
    found = judge_study(plan, trials_of(plan, amdahl(0.1)))

    (curve,) = found.curves
    assert (found.number, found.unit, found.lower_is_better) == (WALL, "s", True)
    assert [one.speedup for one in curve.points] == pytest.approx(
        [1, 1 / 0.55, 1 / 0.325, 1 / 0.2125]
    )
    assert [one.efficiency for one in curve.points] == pytest.approx(
        [1, 0.909, 0.769, 0.588], abs=1e-3
    )
    assert [one.serial for one in curve.points[1:]] == pytest.approx([0.1] * 3)
    assert said(plan, amdahl(0.1), VerdictKind.STOPS) == [
        "pays up to 4 ranks (efficiency 77 %); with 8 ranks the efficiency is 59 %, below 70 %"
    ]
    assert said(plan, amdahl(0.1), VerdictKind.LAW) == [
        "Amdahl's law: 10 % ± 0 % of the work is serial: never more than 10 times one rank"
    ]


def test_a_speed_is_better_the_higher_it_is() -> None:
    plan = plan_of(*FOUR)
    found = judge_study(
        plan, trials_of(plan, lambda one, _: {"mflops": 50.0 * one.ranks, WALL: 9.0})
    )

    assert (found.number, found.lower_is_better) == ("mflops", False)
    assert [one.efficiency for one in found.curves[0].points] == pytest.approx([1.0] * 4)
    assert found.verdicts[0].kind is VerdictKind.PAYS


@pytest.mark.parametrize(
    ("name", "lower"),
    [("wall", True), ("step_time", True), ("seconds", True), ("latency", True), ("ms", True),
     ("mflops", False), ("tokens_s", False), ("steps_s", False), ("estimate", False), ("uses", False)],
)  # fmt: skip
def test_names_of_times_are_known(name: str, lower: bool) -> None:
    assert is_cost(name) is lower


def test_work_that_grows_with_the_ranks_has_gustafsons_law() -> None:
    plan = plan_of(*FOUR, weak=True)
    law = lambda one, _: {WALL: 10.0 * one.ranks / (one.ranks - 0.05 * (one.ranks - 1))}  # noqa: E731
    found = judge_study(plan, trials_of(plan, law))

    (curve,) = found.curves
    assert [one.speedup for one in curve.points] == pytest.approx([1, 1.95, 3.85, 7.65])
    assert curve.fit is not None
    assert curve.fit.share == pytest.approx(0.05)
    assert all(one.serial is None for one in curve.points)
    assert said(plan, law, VerdictKind.LAW) == [
        "Gustafson's law: 5.0 % ± 0 % of the time is serial"
    ]


def test_an_overhead_that_grows_is_no_serial_part() -> None:
    plan = plan_of(*FOUR)
    law = lambda one, _: {WALL: 100 / one.ranks + 0.6 * (one.ranks - 1)}  # noqa: E731

    (text,) = said(plan, law, VerdictKind.GROWS)
    assert "an overhead that grows with the ranks" in text


def test_ranks_that_do_less_together_are_named() -> None:
    plan = plan_of(*FOUR)
    law = lambda one, _: {"mflops": 100.0 * min(one.ranks, 4) / (1 + (one.ranks == 8))}  # noqa: E731

    assert said(plan, law, VerdictKind.SLOWER) == ["8 ranks do less together than 4 ranks"]


def test_a_base_that_was_not_measured_is_replaced_by_the_next_number_of_ranks() -> None:
    plan = plan_of(*FOUR)
    law = lambda one, _: "rank 0, exit 1" if one.ranks == 1 else {WALL: 100 / one.ranks}  # noqa: E731
    (curve,) = judge_study(plan, trials_of(plan, law)).curves

    assert curve.points[0].speedup is None
    assert [one.speedup for one in curve.points[1:]] == pytest.approx([1.0, 2.0, 4.0])
    assert [one.times for one in curve.points] == [0.5, 1.0, 2.0, 4.0]
    assert curve.points[3].efficiency == pytest.approx(1.0)


def test_a_failed_run_is_told_and_the_others_count() -> None:
    study = falling()
    (text,) = [one.text for one in study.verdicts if one.kind is VerdictKind.FAILED]

    assert text == "failed: 1 run with 4 ranks on 1 node: rank 2 on n1, exit 3"
    assert len(study.curves[0].points[2].values) == 2
    assert study.curves[0].points[2].failed == 1


def test_a_study_without_any_result_has_no_numbers_and_says_so() -> None:
    plan = plan_of(*FOUR)
    found = judge_study(plan, trials_of(plan, lambda *_: "mpirun: exit 1"))

    assert [one.median for one in found.curves[0].points] == [None] * 4
    assert [one.kind for one in found.verdicts] == [VerdictKind.FAILED]
    assert judge_study(plan, ()).verdicts == ()


def test_a_number_that_only_some_runs_print_is_not_compared_unless_asked_for() -> None:
    plan = plan_of(*FOUR)
    law = lambda one, _: {**({"mflops": 5.0} if one.ranks > 1 else {}), WALL: 10.0 / one.ranks}  # noqa: E731
    trials = trials_of(plan, law)

    assert choose_number(plan, trials) == WALL
    (text,) = said(plan, law, VerdictKind.MISSING, number="mflops")
    assert text == "no number: 3 runs with 1 rank on 1 node: it printed no `mflops`"


def test_loss_and_residual_are_no_speed() -> None:
    plan = plan_of(*FOUR)

    assert (
        choose_number(plan, trials_of(plan, lambda *_: {"gosa": 1e-4, "loss": 2.0, WALL: 3.0}))
        == WALL
    )


def test_drift_between_blocks_is_seen_and_does_not_bend_the_curve() -> None:
    plan = plan_of(*FOUR, repeats=4)
    number = {key: place for place, key in enumerate(plan.order)}
    law = lambda one, block: {  # noqa: E731
        "mflops": 100.0 * one.ranks * (1 - 0.01 * number[block, plan.points.index(one)])
    }
    found = judge_study(plan, trials_of(plan, law))

    assert [one.efficiency for one in found.curves[0].points] == pytest.approx([1.0] * 4, abs=0.011)
    assert [one.kind for one in found.verdicts if one.kind is VerdictKind.DRIFT] == [
        VerdictKind.DRIFT
    ]


def test_noise_alone_is_no_drift() -> None:
    plan = plan_of(*FOUR)
    law = lambda one, block: {"mflops": 100.0 * one.ranks * (1 + 0.03 * ((one.ranks + block) % 2))}  # noqa: E731

    assert said(plan, law, VerdictKind.DRIFT) == []


def test_an_unsteady_point_is_named_with_its_span() -> None:
    plan = plan_of(*FOUR)
    law = lambda one, block: {WALL: 100 / one.ranks * (1 + 0.4 * (one.ranks == 2) * block)}  # noqa: E731

    (text,) = said(plan, law, VerdictKind.UNSTEADY)
    assert text.startswith(
        "unsteady: runs of the same point differ by ± 29 % with 2 ranks (50 to 90 s)"
    )


def test_the_best_of_several_curves_is_named_and_how_sure_that_is() -> None:
    points = [replace(point(ranks), values={"env.T": t}) for t in "12" for ranks in (1, 2)]
    plan = plan_of(*points)
    clear = lambda one, _: {WALL: 10.0 / one.ranks / float(one.values["env.T"])}  # noqa: E731
    alike = lambda one, block: {WALL: 10.0 / one.ranks + block * float(one.values["env.T"])}  # noqa: E731

    assert said(plan, clear, VerdictKind.BEST) == [
        "best with 2 ranks: env.T=2 (2.5 s), then env.T=1 (5 s)"
    ]
    assert said(plan, alike, VerdictKind.BEST)[0].endswith(
        "their runs overlap, so this may be chance"
    )


CALM = Signs(looks=30, own=1.0, waits=0.05, starved=0.0, busy=30.0, cores=8, clock=3e9)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (replace(CALM, busy=97.0), "all 8 cores of the busiest node are in use (97 %)"),
        (replace(CALM, busy=97.0, starved=0.5), "and ranks lacked one in 50% of the looks"),
        (replace(CALM, cores=2), "4 ranks share the 2 cores of a node"),
        (replace(CALM, traffic=1.15e8, link=1e9), "the network is full: 0.92 of 1 Gb/s"),
        (
            replace(CALM, waits=0.55),
            "its ranks wait in 55% of the looks (5% with the fewest ranks)",
        ),
        (replace(CALM, clock=2.4e9), "the cores run at 2.40 GHz, at 3.00 with the fewest ranks"),
        (replace(CALM, held=("n2",)), "n2 was held back by heat, power or a CPU quota"),
        (replace(CALM, slow="rank 3 on n2 is slow"), "rank 3 on n2 is slow"),
        (CALM, "its ranks compute all the time and no node or link is full"),
        (Signs(), "no reason is known"),
    ],
)
def test_the_reason_is_what_was_seen_with_more_ranks_only(seen: Signs, words: str) -> None:
    plan = plan_of(*FOUR)
    texts = said(plan, amdahl(0.2), VerdictKind.WHY, lambda one: CALM if one.ranks == 1 else seen)

    assert any(words in text for text in texts)
    if seen == CALM:
        assert len(texts) == 1


def test_a_run_that_printed_no_number_is_missing() -> None:
    plan = plan_of(*FOUR, number="mflops")
    trials = [
        replace(one, outcome=TrialOutcome.NO_NUMBER, text="it printed no `mflops`; there are: wall")
        for one in trials_of(plan, amdahl(0.1))
    ]
    found = judge_study(plan, trials)

    assert [one.kind for one in found.verdicts] == [VerdictKind.MISSING]
