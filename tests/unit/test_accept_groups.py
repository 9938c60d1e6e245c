"""Groups that grow, and bisection: who makes a group slow, or whether it is only the scale."""

import random
from collections.abc import Callable

import pytest

from rankdeck.acceptance import view
from rankdeck.acceptance.run import RunPlan, StagePlan
from rankdeck.acceptance.schedule import (
    Group,
    GroupBlame,
    bisect_groups,
    group_sizes,
    groups_of,
    next_groups,
)
from rankdeck.acceptance.values import Answer, Outcome, Result, Stage
from rankdeck.values import replace

NODES = tuple(f"n{number}" for number in range(64))
SLOW, GOOD = NODES[:32], NODES[32:]


def blamed(good: Callable[[Group], bool]) -> GroupBlame:
    results: dict[Group, bool] = {}
    for _ in range(20):
        answer = bisect_groups(SLOW, GOOD, results)
        if isinstance(answer, GroupBlame):
            return answer
        for group in answer:
            assert len(set(group)) == len(group) > 1
            results[group] = good(group)
    raise AssertionError("no end")


@pytest.mark.parametrize(
    ("count", "steps"),
    [(2, ()), (4, (4,)), (16, (4, 8, 16)), (20, (4, 8, 16, 20)), (1000, (16, 64, 256, 1000))],
)
def test_groups_grow_to_all_nodes(count: int, steps: tuple[int, ...]) -> None:
    assert group_sizes(count) == steps


def test_all_groups_of_a_size_run_at_once_and_no_node_is_in_two() -> None:
    groups = groups_of(NODES[:21], 4)

    assert [len(group) for group in groups] == [4, 4, 4, 4, 4]
    assert len({node for group in groups for node in group}) == 20


def test_any_one_node_is_found_in_twice_the_halvings() -> None:
    for bad in SLOW:
        found = blamed(lambda group, bad=bad: bad not in group)
        assert (found.nodes, found.scale, found.runs) == ((bad,), False, 10)
        assert found.sentence.startswith(f"{bad} makes every group slow")


def test_two_bad_nodes_in_two_halves_are_said_to_be_several() -> None:
    pair = set(random.Random(1).sample(SLOW[:16], 1) + random.Random(1).sample(SLOW[16:], 1))

    found = blamed(lambda group: not pair & set(group))

    assert not found.scale
    assert pair <= set(found.nodes)
    assert "more than one node, or their leaf" in found.sentence


def test_a_group_that_is_good_in_halves_is_slow_by_its_scale() -> None:
    found = blamed(lambda group: True)

    assert found.scale
    assert found.nodes == SLOW
    assert "n[0-31] are slow together and good in halves: it is the scale" in found.sentence


@pytest.mark.parametrize("count", [6, 9, 16, 21, 32, 64])
def test_a_slow_node_is_found_and_no_node_is_in_two_groups_at_once(count: int) -> None:
    for bad in NODES[:count]:
        done: list[Result] = []
        while groups := next_groups(NODES[:count], done, 0.07).groups:
            nodes = [node for group in groups for node in group]
            assert len(set(nodes)) == len(nodes), bad
            done += [
                Result(stage=Stage.GROUPS, recipe="imb", sender=group[0], group=group, outcome=Outcome.MEASURED, value=3.0 if bad in group else 9.0)
                for group in groups
            ]  # fmt: skip
        assert [one.nodes for one in next_groups(NODES[:count], done, 0.07).verdicts] == [(bad,)]


def test_a_node_over_that_spoils_the_group_of_all_is_no_scale() -> None:
    five, done = NODES[:5], list[Result]()
    while groups := next_groups(five, done, 0.07).groups:
        done += [
            Result(stage=Stage.GROUPS, recipe="imb", sender=group[0], group=group, outcome=Outcome.MEASURED, value=3.0 if five[4] in group else 9.0)
            for group in groups
        ]  # fmt: skip

    (verdict,) = next_groups(five, done, 0.07).verdicts

    assert verdict.nodes == (five[4],)
    assert verdict.sentence.startswith("n4 makes a group slow that is good without it")


def test_nodes_of_which_only_groups_were_measured_are_good_where_one_with_them_is() -> None:
    four = NODES[:4]
    plan = RunPlan(
        cluster="c", nodes=four, stages=(StagePlan(stage=Stage.GROUPS, recipe="imb", rounds=1),)
    )
    lost = Result(
        stage=Stage.GROUPS, recipe="imb", sender=four[0], group=four, outcome=Outcome.NOT_MEASURED
    )
    good = replace(lost, outcome=Outcome.MEASURED, value=9.9)

    def answers(*results: Result) -> dict[str, Answer]:
        return dict(view.judge_results(plan, results, {}, {}).answers)

    assert answers(good) == dict.fromkeys(four, Answer.GOOD)
    assert answers(lost) == dict.fromkeys(four, Answer.NOT_MEASURED)
