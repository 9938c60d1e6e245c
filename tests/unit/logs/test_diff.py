"""Diff: the first line that is not the same, and who leaves the majority where."""

from collections.abc import Mapping

import pytest

from rankdeck.logs import compare as diff
from rankdeck.logs.compare import Branch, Comparison, Difference
from rankdeck.model.rank_output import Chunk
from rankdeck.state.lines import RankLog
from tests.unit.logs.feed import log_of, logs_of, write

COMMON = ["start", "step 1 loss 2.5", "step 2 loss 2.4"]


def taken(logs: Mapping[int, RankLog], slice_: int = 3) -> Comparison:
    comparison = Comparison(tuple(logs), logs)
    while comparison.update(slice_):
        pass
    return comparison


def compare(left: RankLog, right: RankLog) -> Difference:
    sides = taken({left.rank: left, right.rank: right}).sides
    return diff.finish_steps(diff.compare_ranks(sides[left.rank], sides[right.rank]))


def branches(logs: Mapping[int, RankLog]) -> tuple[int, tuple[Branch, ...]]:
    return diff.finish_steps(diff.group_branches(taken(logs, 4_000).sides))


def test_numbers_are_no_difference() -> None:
    logs = logs_of({0: ["rank 0", "loss 2.5"], 1: ["rank 1", "loss 9.5"]})

    found = compare(logs[0], logs[1])
    assert found.first is None
    assert found.only_left == found.only_right == ()


def test_the_first_line_that_differs_is_found() -> None:
    logs = logs_of({0: [*COMMON, "all good"], 1: [*COMMON, "OSError: shard", "bye"]})

    first = compare(logs[0], logs[1]).first
    assert first is not None
    assert first.place == 3
    assert first.left is not None
    assert first.left.text == "all good"
    assert first.right is not None
    assert first.right.text == "OSError: shard"


def test_a_rank_that_stops_early_has_no_line_there() -> None:
    logs = logs_of({0: COMMON[:2], 1: COMMON})

    first = compare(logs[0], logs[1]).first
    assert first is not None
    assert (first.place, first.left) == (2, None)


@pytest.mark.parametrize(("later", "behind"), [(1.0, False), (60.0, True)])
def test_a_rank_that_runs_leaves_the_others_only_once_its_line_is_overdue(
    later: float, behind: bool
) -> None:
    logs = logs_of({0: COMMON[:2], 1: COMMON, 2: COMMON})
    sides = taken(logs).sides
    for kept in sides[0]:
        kept.running = len(COMMON) - 1 + later

    _, found = diff.finish_steps(diff.group_branches(sides))

    assert [one.ranks for one in found] == ([(0,), (1, 2)] if behind else [(0, 1, 2)])


def test_stderr_between_other_lines_of_stdout_is_no_difference() -> None:
    left = log_of(0, [(1.0, "a"), (3.0, "b")])
    right = log_of(1, [(1.0, "a")])
    write(left, [(4.0, "warning")], "err")
    write(right, [(2.0, "warning")], "err")
    write(right, [(3.0, "b")])

    assert compare(left, right).first is None


def test_each_line_that_only_one_has_is_named_once() -> None:
    logs = logs_of({0: [*COMMON, "odd 1", "odd 2"], 1: COMMON})

    assert [line.text for line in compare(logs[0], logs[1]).only_left] == ["odd 1"]


def test_the_ranks_are_grouped_by_where_they_leave_the_majority() -> None:
    texts = {rank: [*COMMON, "barrier"] for rank in range(512)}
    texts[17] = [*COMMON, "Traceback", "OSError"]
    for rank in range(96, 104):
        texts[rank] = COMMON[:2]

    middle, found = branches(logs_of(texts))
    assert middle == 0
    assert [b.ranks for b in found[:2]] == [(17,), tuple(range(96, 104))]
    assert found[0].first is not None
    assert found[0].first.right is not None
    assert found[0].first.right.text == "barrier"
    assert len(found[2].ranks) == 503
    assert found[2].first is None


def test_the_majority_is_found_also_when_rank_0_is_the_odd_one() -> None:
    logs = logs_of({0: ["dead"], 1: ["a", "b"], 2: ["a", "b"], 3: ["a", "c"]})

    middle, found = branches(logs)
    assert middle in (1, 2)
    assert (0,) in [b.ranks for b in found]


def test_logs_whose_beginning_is_not_here_are_laid_side_by_side() -> None:
    whole = log_of(0, [(1.0, f"step {n}") for n in range(50)])
    late = RankLog(1)
    at = 0
    for n in range(50):
        data = f"step {n}\n".encode()
        if n >= 20:
            late.add(Chunk("j", "n1", 1, "out", at, 1.0, data))
        at += len(data)

    assert compare(whole, late).first is None


def test_what_a_rank_says_tells_more_than_that_it_stops() -> None:
    logs = logs_of({rank: [*COMMON, "step 3 loss 2.3"] for rank in range(5)})
    logs[5] = log_of(5, [(float(n), text) for n, text in enumerate(COMMON)])
    write(logs[5], [(9.0, "ValueError: loss is NaN")], "err")

    _, found = branches(logs)
    assert found[0].ranks == (5,)
    assert found[0].first is not None
    assert found[0].first.left is not None
    assert found[0].first.left.text == "ValueError: loss is NaN"


def test_where_lines_were_let_go_a_rank_does_not_seem_to_end() -> None:
    logs = logs_of({0: COMMON, 1: [*COMMON, "barrier"]})
    logs[0]._kept._most = 2
    comparison = Comparison((0, 1), logs)
    comparison.update(2)
    write(logs[0], [(5.0, "x"), (6.0, "y"), (7.0, "z")])
    while comparison.update():
        pass

    _, found = diff.finish_steps(diff.group_branches(comparison.sides))
    assert [branch.ranks for branch in found] == [(0, 1)]


def test_a_comparison_takes_in_no_more_than_it_is_told_to() -> None:
    comparison = Comparison((0, 1), logs_of({0: ["a"] * 50, 1: ["a"] * 50}))

    assert comparison.update(10)
    assert comparison.total == 10
    assert comparison.waiting == 90


def test_a_difference_far_down_is_found() -> None:
    same = ["step"] * 9_000
    logs = logs_of({0: [*same, "a"], 1: [*same, "b"]})

    first = compare(logs[0], logs[1]).first
    assert first is not None
    assert first.place == 9_000


def test_where_not_all_is_compared_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = logs_of({0: ["a"] * 50, 1: ["a"] * 50})
    assert not taken(logs, 50).full
    monkeypatch.setattr(diff, "MOST_ALL", 20)

    comparison = taken(logs, 50)
    assert (comparison.full, comparison.most, comparison.total) == (True, 10, 20)
